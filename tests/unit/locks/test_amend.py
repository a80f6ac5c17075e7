"""Entries added to a TOML file, comments and all else as they were."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.locks.edits import CannotAmend, amend_toml

ENTRY = {"backend": {"cpu": {"replace": {"xgboost": "xgboost-cpu"}}}}


def test_a_key_is_added_behind_the_last_one_of_its_table() -> None:
    text = '[backend.cpu]  # plain\nbase = "x"\n\n# about rocm\n[backend.rocm]\nbase = "y"\n'
    assert amend_toml(text, ENTRY) == (
        '[backend.cpu]  # plain\nbase = "x"\nreplace = { xgboost = "xgboost-cpu" }\n'
        '\n# about rocm\n[backend.rocm]\nbase = "y"\n'
    )


def test_tables_are_merged_and_lists_are_added_to() -> None:
    text = '[backend.cpu]\nreplace = { a = "b" }  # one\ndrop = [\n  "c", # two\n]\n'
    wanted = {"backend": {"cpu": {"replace": {"x": "y"}, "drop": ["d", "c"]}}}
    result = amend_toml(text, wanted)
    assert tomllib.loads(result)["backend"]["cpu"] == {
        "replace": {"a": "b", "x": "y"},
        "drop": ["c", "d"],
    }
    assert "# one" in result
    assert "# two" in result


@pytest.mark.parametrize(
    "text",
    [
        '[backend]\ncpu = { base = "x" }  # inline\n',
        '[backend]\ncpu.base = "x"\n',
        'backend.cpu.base = "x"\n',
        '[backend.cpu]\nbase = "x"\n[other]\n[backend.rocm]\nbase = "y"\n',
        '[backend.cpu.replace]\na = "b"\n',
        '[backend.cpu]\r\nbase = "x"\r\n',
        "",
        "# nothing but a comment\n",
    ],
)
def test_however_the_file_is_written_it_says_both_then(text: str) -> None:
    result = tomllib.loads(amend_toml(text, ENTRY))
    assert result["backend"]["cpu"].pop("replace")["xgboost"] == "xgboost-cpu"
    before = tomllib.loads(text)
    before.setdefault("backend", {}).setdefault("cpu", {}).pop("replace", None)
    assert result == before


def test_what_is_there_already_changes_nothing() -> None:
    text = '[backend.cpu]\nreplace = {xgboost="xgboost-cpu"}\n'
    assert amend_toml(text, ENTRY) == text


@pytest.mark.parametrize(
    "text",
    [
        "[backend\n",
        "backend = 3\n",
        '[backend]\ncpu = "x"\n',
        '[backend.cpu]\nreplace = ["x"]\n',
    ],
)
def test_what_cannot_take_an_entry_is_refused(text: str) -> None:
    with pytest.raises(CannotAmend):
        amend_toml(text, ENTRY)


_NAMES = st.text("abz-_. \"\\'é", min_size=1, max_size=6)


@given(st.dictionaries(_NAMES, st.dictionaries(_NAMES, _NAMES, max_size=3), max_size=3), _NAMES)
def test_any_name_can_be_written(tables: dict[str, dict[str, str]], name: str) -> None:
    text = "[backend.cpu]\nbase = 1\n\n# next\n[x]\n"
    wanted = {"backend": {"cpu": {"replace": {name: name}}}, "x": tables}
    found = tomllib.loads(amend_toml(text, wanted))
    assert found["backend"]["cpu"] == {"base": 1, "replace": {name: name}}
    assert found["x"] == tables
