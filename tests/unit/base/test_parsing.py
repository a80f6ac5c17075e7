"""Foreign text is read by `buildmatrix.base.parsing`, or refused by one exception."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.markers import InvalidMarker, default_environment
from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename
from packaging.version import InvalidVersion

import buildmatrix
from buildmatrix.base import parsing, strict, toml

DIGITS = "9" * 5000
DEEP = "(" * 3000
ENVIRONMENT = {key: str(value) for key, value in default_environment().items()}
pieces = st.lists(
    st.sampled_from(
        ["1", ".", "0", "!", "+", "-", "rc", "9" * 300, DIGITS, ">=", "==", "~=", "<", ",", "*",
         "(", ")", DEEP, "demo", "[", "]", "extra", "python_version", "sys_platform",
         " and ", " or ", " in ", "'", '"', ";", " @ ", "http://[x/", "py3-none-any", ".whl",
         ".tar.gz", " ", "\0"]
    ),
    max_size=9,
).map("".join)  # fmt: skip


@given(pieces)
@example(f"1.{DIGITS}")
@example(f">={DIGITS}")
@example(f"demo>={DIGITS}")
@example(f"demo-{DIGITS}-py3-none-any.whl")
@example(f"demo-1-{DIGITS}-py3-none-any.whl")
@example(f"demo-{DIGITS}.tar.gz")
@example(f"{DEEP}'a' == 'a'{')' * 3000}")
@example(f"demo; {DEEP}'a' == 'a'{')' * 3000}")
@example(f"python_version >= '{DIGITS}'")
@example("sys_platform ~= 'x'")
@example("extra == 'x'")
def test_text_is_read_or_refused_by_the_exception_that_is_promised(text: str) -> None:
    for read, error in (
        (parsing.parse_wheel_name, InvalidWheelFilename),
        (parsing.parse_sdist_name, InvalidSdistFilename),
        (strict.parse_json, json.JSONDecodeError),
        (toml.loads, toml.TomlError),
    ):
        with suppress(error):
            read(text)
    try:
        version = parsing.parse_version(text)
        assert version == parsing.parse_version(str(version))
    except InvalidVersion:
        version = parsing.parse_version("3.11")
    with suppress(InvalidSpecifier):
        parsing.parse_specifiers(text).contains(version, prereleases=True)
    with suppress(InvalidRequirement, InvalidMarker):
        marker = parsing.parse_requirement(text).marker
        assert marker is None or parsing.holds(marker, ENVIRONMENT) in (True, False)
    with suppress(InvalidMarker):
        parsing.holds(parsing.parse_marker(text), ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (DIGITS, "out of range"),
        ('{"a": [' + DIGITS + "]}", "out of range"),
        (str(1 << 64), "64 bits"),
        (str(-(1 << 63) - 1), "64 bits"),
        ("1e400", "out of range"),
        ("NaN", "malformed"),
        ("-Infinity", "malformed"),
        ("[" * 100_000, "nests too deeply"),
        ("[" * 201 + "]" * 201, "nests too deeply"),
        ('{"a": ' * 201 + "1" + "}" * 201, "nests too deeply"),
        (b"\xff", "malformed"),
        (b'"\xff"', "utf-8"),
        (b'{"a\xed\xa0\x80": 1}', "utf-8"),
        ('"\\ud800"', "truncated"),
        ('"\\ud800\\u0041"', "surrogate"),
        ('"\ud800"', "surrogates"),
        ("\ufeff1", "malformed"),
        ("1 2", "trailing"),
        ('{"a": 1, "a": 1}', "'a' comes twice"),
        ('{"a": 1, "\\u0061": 2}', "'a' comes twice"),
        ('[{"b": {"a": 1, "c": 2, "a": 3}}]', "'a' comes twice"),
        # As many quotes are written again as were read.
        ('{"a": 1, "a": 2, "b": "\\u0022\\u0022"}', "'a' comes twice"),
    ],
)
def test_json_that_readers_take_for_different_values_is_no_json(text, why: str) -> None:
    with pytest.raises(json.JSONDecodeError, match=why):
        strict.parse_json(text)


def test_json_is_read_as_it_is_written() -> None:
    value = {"a": ['\u00fc\U0001f600"\\/', 1.5, -(1 << 63), (1 << 64) - 1, True, None, {"A": {}}]}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert strict.parse_json(text) == strict.parse_json(text.encode()) == value
    assert strict.parse_json("[" * 200 + "]" * 200)
    assert strict.parse_json('"\\u0022"') == '"'


@dataclass
class Inner:
    name: str = ""
    free: dict[str, str] = field(default_factory=dict)


@dataclass
class Outer:
    inner: Inner | None = None
    more: tuple[Inner, ...] = ()
    named: dict[str, Inner] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"Inner": {}}', "Inner"),
        ('{"inner": {"NAME": ""}}', "NAME"),
        ('{"more": [{}, {"nam\\u0045": ""}]}', "namE"),
        ('{"named": {"X": {"Name": ""}}}', "Name"),
        ('{"\u0131nner": {}, "name\u017f": 1, "inner": {"free": {"Name": ""}}}', None),
    ],
)
def test_a_key_that_go_takes_for_another_is_refused(text: str, key: str | None) -> None:
    if key is None:
        assert strict.decode_json(text.encode(), Outer).inner == Inner(free={"Name": ""})
    else:
        with pytest.raises(ValueError, match=f"{key}' differs from '{key.lower()}' in case only"):
            strict.decode_json(text.encode(), Outer)


@pytest.mark.parametrize("value", [DIGITS, "[" * 100_000, f"-{DIGITS}", "0x" + "f" * 5000])
def test_toml_that_python_cannot_hold_is_no_toml(value: str) -> None:
    with pytest.raises(toml.TomlError):
        toml.loads(f"a = {value}")


def test_real_conditions_are_read() -> None:
    nested = "python_version >= '3.9'"
    for _ in range(40):
        nested = f"({nested} and python_version < '4') or python_version > '9'"
    assert parsing.holds(parsing.parse_marker(nested), {**ENVIRONMENT, "python_version": "3.11"})
    assert str(parsing.parse_version("2025.1.20260102123456789012.dev1"))


def test_numbers_in_text_are_sorted_by_what_they_are_worth() -> None:
    names = ["sm_120", "sm_90", DIGITS, "a", "", "sm_90a"]
    assert sorted(names, key=parsing.natural) == ["", DIGITS, "a", "sm_90", "sm_90a", "sm_120"]


#: What raises more than it promises, and whom it is left to.
_GUARDED = {
    "Version", "SpecifierSet", "Requirement", "Marker", "parse_wheel_filename",
    "parse_sdist_filename", "evaluate",
}  # fmt: skip
_ALLOWED = {"base/parsing.py"}


def test_foreign_text_is_read_by_it_alone() -> None:
    source = Path(buildmatrix.__file__).parent
    found = []
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in _GUARDED):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            name = (
                node.func.id
                if isinstance(node.func, ast.Name)
                else node.func.attr
                if isinstance(node.func, ast.Attribute)
                else ""
            )
            own = {alias.name for alias in _imported(path)} if name == "evaluate" else set()
            if name in _GUARDED and (node.args or node.keywords) and name not in own:
                found.append(f"{path.relative_to(source).as_posix()}: {name}")
    expected = {
        # These put together what was read before.
        "locks/projects.py: Marker",
        "locks/projects.py: Requirement",
        # That is `parsing.holds`, by another name.
        "locks/selection.py: evaluate",
    }
    assert {one for one in found if one.partition(":")[0] not in _ALLOWED} <= expected


def _imported(path: Path) -> list[ast.alias]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
