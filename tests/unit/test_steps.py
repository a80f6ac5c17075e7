"""Steps that are reported end when their work does: displays show what goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_uv import FakeUv
from lock_cases import spec_of, target
from memory_registry import MemoryRegistry

from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Silent
from buildmatrix.commands.promote import TagMove, move_tags
from buildmatrix.locks import resolve
from buildmatrix.locks.index.reading import Readings, WheelRequest
from buildmatrix.locks.model import Wheel
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.sources import resolved
from buildmatrix.sources.questions import IndexQuestion


class Steps(Silent):
    """Remembers which steps there were, and which are open."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.open: dict[str, str] = {}
        #: The most targets that something was done for at a time.
        self.most = 0

    def step(self, target: str, text: str) -> None:
        self.begun.append(text)
        self.open[target] = text
        self.most = max(self.most, len(self.open))

    def end(self, target: str) -> None:
        self.open.pop(target, None)


class NoWheel:
    """An index that has nothing."""

    def read(self, *_: object, **__: object) -> None:
        raise UndecidedError("it is gone")

    def recall_facts(self, *_: object, **__: object) -> None:
        return None


def test_wheels_that_are_read_are_no_step_any_more() -> None:
    steps = Steps()
    wheel = Wheel("a-1-py3-none-any.whl", "https://index.test/a-1-py3-none-any.whl", "", 1)
    readings = Readings(NoWheel(), 1, steps)  # type: ignore[arg-type]
    readings.read([WheelRequest(wheel, "listing")], "file lists")
    assert readings.failures and steps.begun[0] == "file lists of 1"
    assert steps.open == {}


@pytest.mark.parametrize("requirement", ["numpy", "no-such-distribution"])
def test_a_target_that_is_locked_is_at_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str
) -> None:
    monkeypatch.setattr(resolve, "find_uv", FakeUv)
    (tmp_path / "requirements.in").write_text(f"{requirement}\n")
    targets = [
        target(id=name, lock=f"pylock.{name}.toml", python=python)
        for name, python in (("a", "3.11"), ("b", "3.11"), ("c", "3.12"))
    ]
    steps = Steps()
    lock_targets(
        spec_of(tmp_path, *targets), targets, upgrade=False, offline=False, progress=steps, jobs=1
    )
    assert "lock: resolving, round 1" in steps.begun
    # Those that share a resolution are at it together.
    assert steps.open == {} and steps.most == 2


@pytest.mark.parametrize("error", [None, UndecidedError("no answer")])
def test_a_question_that_was_answered_is_no_step_any_more(error: BuildmatrixError | None) -> None:
    steps = Steps()

    def ask() -> str:
        steps.step("cpu", "lock: collecting hashes")
        if error is not None:
            raise error
        return "answer"

    question = IndexQuestion(target(id="cpu"), "key", ask, str, None, "label", False)
    assert list(resolved._answers([question], 1, steps)) == ["key"]
    assert steps.open == {}


def test_images_are_looked_for_one_after_the_other() -> None:
    steps, registry = Steps(), MemoryRegistry()
    moves = []
    for id in ("cpu", "cuda"):
        name = Reference.parse(f"registry.example.com/demo:{id}")
        image = registry.image(name, salt=id)
        moves.append(TagMove(f"registry.example.com/demo:latest-{id}", id, image.digest))
    assert move_tags(registry, moves, steps).code == 0
    assert len(steps.begun) == 2
    assert steps.open == {} and steps.most == 1
