"""TOML of a stranger costs what it is worth: a sentence with its place, and no memory."""

from __future__ import annotations

import tracemalloc

import pytest

from buildmatrix.base import toml
from buildmatrix.base.errors import SpecError
from buildmatrix.locks.lines import load_toml

LONG_KEY = ".".join("a" * 20_000)


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        (f"{LONG_KEY} = 1", (1, 49), "a key has more than 24 parts"),
        (f"x = 1\n[{LONG_KEY}]", (2, 50), "a key has more than 24 parts"),
        ("x = { " + '"b".' * 40 + "c = 1 }", (1, 103), "a key has more than 24 parts"),
        (f"x = 1\ny = {'9' * 5000}", (2, 5), "a number has too many digits"),
        ("x = " + "[" * 5000, (1, 1), "nested too deeply"),
    ],
)
def test_what_no_lock_needs_is_refused_with_its_place(
    text: str, place: tuple[int, int], part: str
) -> None:
    tracemalloc.start()
    with pytest.raises(SpecError) as caught:
        load_toml(text, "a.lock", None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (problem,) = caught.value.problems
    assert part in problem.message
    assert (problem.line, problem.column) == place
    assert peak < 20_000_000


@pytest.mark.parametrize(
    "text",
    [
        f'x = "{LONG_KEY}"',
        f"x = '{LONG_KEY}'  # {'.' * 100}",
        "x = [" + "1.5, " * 100 + "]",
        'x = "' + '\\".' * 100 + '"',
    ],
)
def test_dots_that_are_no_key_are_fine(text: str) -> None:
    assert "x" in toml.loads(text)
