"""Hundreds of node classes: what they have in common is judged once."""

from __future__ import annotations

import pytest
from nodecases import compat, cudart, node, on
from rulecases import elf, file, image, sass

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.judge import coverage
from buildmatrix.judge.judging import judge_image
from buildmatrix.judge.subject import built, once
from buildmatrix.matrix.model import Policy

DRIVERS = ("470.82.01", "550.54.14", "570.26", "", ">=580")
ARCHS = ("sm_80", "sm_90", "sm_100")


def test_drivers_and_architectures_are_compared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, served = [], []
    asks, grades = drivers.runs, coverage._served
    monkeypatch.setattr(drivers, "runs", lambda *args: runs.append(args) or asks(*args))
    monkeypatch.setattr(
        coverage, "_served", lambda *args, **more: served.append(args) or grades(*args, **more)
    )
    held = image(
        cudart(), compat(), file("acme/lib.so", elf(device_code=sass("sm_90")), "acme 1.0")
    )

    def counted(count: int) -> tuple[int, int]:
        runs.clear()
        served.clear()
        classes = (
            node(DRIVERS[number % 5], ARCHS[number % 3], name=f"class-{number}")
            for number in range(count)
        )
        seen = evidence(held, load())
        judgement = judge_image(on(*classes), held, seen, None, load(), Policy())
        assert len(judgement.fits) == count
        return len(runs), len(served)

    # All pairs of a driver and an architecture are among the first fifteen.
    few = counted(15)
    assert few > (0, 0)
    assert counted(300) == few


def test_an_answer_is_that_of_its_subject_and_its_arguments() -> None:
    @once
    def named(subject: object, *words: str) -> list[object]:
        return [subject, *words]

    where, held = on(), image()
    subjects = [built(where, held, (), None, load(), Policy()) for _ in range(2)]
    assert named(subjects[0], "a") is named(subjects[0], "a")
    assert named(subjects[0], "b") == [subjects[0], "b"]
    assert named(subjects[1], "a")[0] is subjects[1]
