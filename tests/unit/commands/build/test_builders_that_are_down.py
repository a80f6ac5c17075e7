"""Builders that are down before the first target: left out with a note, or the end of the run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from buildmatrix.base.errors import ComponentError, UsageError
from buildmatrix.commands.build import _BuildRun
from buildmatrix.commands.build_work import Options


class Builders:
    """An engine of which only the builders answer."""

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors

    def check(self, builder: str) -> str:
        if builder in self.errors:
            raise self.errors[builder]
        return "docker"


def checked(engine: Builders, *names: str) -> tuple[tuple[str | None, ...], list[str]]:
    notes: list[str] = []
    options, progress = Options(builders=names), SimpleNamespace(note=notes.append)
    run = _BuildRun(None, options, engine, None, progress, [], ())
    run.check_builders()
    return run.builders, notes


def test_one_that_is_down_is_left_out() -> None:
    builders, notes = checked(Builders(b=ComponentError("no answer")), "a", "b", "c")
    assert builders == ("a", "c")
    assert notes == ["builder b failed, going on with a, c: no answer"]


def test_all_that_are_down_are_named() -> None:
    engine = Builders(a=ComponentError("no socket"), b=ComponentError("no answer"))
    with pytest.raises(ComponentError) as caught:
        checked(engine, "a", "b")
    assert caught.value.message == (
        "no builder can be used:\nbuilder a: no socket\nbuilder b: no answer"
    )


def test_what_all_of_them_lack_is_said_once() -> None:
    engine = Builders(a=ComponentError("no buildx"), b=ComponentError("no buildx"))
    with pytest.raises(ComponentError, match=r"^no buildx$"):
        checked(engine, "a", "b")


def test_a_wrong_name_ends_the_run() -> None:
    with pytest.raises(UsageError, match="no such builder"):
        checked(Builders(b=UsageError("no such builder")), "a", "b")
