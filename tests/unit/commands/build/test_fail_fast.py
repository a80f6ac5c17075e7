"""`--fail-fast`: after a target that failed no other one begins, however fast its slot is free."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.commands.build_work import Builders, BuildWork, Options, Slot
from buildmatrix.commands.image_gates import ImageGates
from buildmatrix.sources.state_folder import State


@pytest.mark.parametrize(("fail_fast", "begun"), [(True, ["one"]), (False, ["one", "two"])])
def test_the_next_target_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, fail_fast: bool, begun: list[str]
) -> None:
    state = State(Path("nowhere"))
    works = [
        BuildWork(replace(target("cpu"), id=id), state.target_files(id), record=SimpleNamespace())
        for id in ("one", "two")
    ]
    options = Options(fail_fast=fail_fast, jobs=1)
    builders = Builders(options.builders, options.jobs, works)
    gates = ImageGates(None, options, None, None, None, builders)
    seen = []

    def fail(_: ImageGates, slot: Slot) -> None:
        seen.append(slot.work.target.id)
        slot.work.gates["build"] = "failed"

    monkeypatch.setattr(ImageGates, "_pass_all", fail)
    # Nobody sends the crew home in between.
    gates.pass_next()
    gates.pass_next()
    assert seen == begun
