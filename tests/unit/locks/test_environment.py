"""Environments of conda: what is read of them, and that hostile ones cost little."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.edits import CannotRewrite, rename_in_environment
from buildmatrix.locks.requirement_files import (
    LARGEST_ENVIRONMENT,
    read_environment,
    read_requirements,
)

HEAD = "dependencies:\n"


def problem(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        read_environment(text, "e.yml")
    (one,) = caught.value.problems
    return str(one)


def test_an_export_is_read() -> None:
    text = (
        "name: x\nchannels:\n  - defaults\ndependencies:\n"
        "  - numpy=1.26.4=py311h64a7726_0\n  - conda-forge::python=3.11.7\n  - mamba >=1\n"
        "  - pip:\n      - torch==2.1.0 # hm\n      - '--pre'\n  - sel(linux): gcc\nprefix: /x\n"
    )
    found = read_environment(text, "e.yml")
    assert [(item.text, item.line) for item in found.conda] == [
        ("numpy=1.26.4=py311h64a7726_0", 5),
        ("conda-forge::python=3.11.7", 6),
        ("mamba >=1", 7),
        ("sel(linux)", 11),
    ]
    assert [(item.text, item.line, item.indent) for item in found.pip_lines()] == [
        ("torch==2.1.0", 9, 8),
        ("--pre", 10, 8),
    ]
    assert [(one.name, one.version) for one in found.packages("e.yml")][:3] == [
        ("numpy", "1.26.4"),
        ("python", "3.11.7"),
        ("mamba", ""),
    ]


@pytest.mark.parametrize(
    ("said", "pythons"),
    [
        ("python", ""),
        ("python=3.12", "==3.12.*"),
        ("python==3.8.5", "==3.8.5"),
        ("python 3.10.*", "==3.10.*"),
        ("python=3.12.4=h2b_0_cpython", "==3.12.4.*"),
        ("conda-forge::python>=3.9,<3.13", "<3.13,>=3.9"),
        ("python[version='3.9']", ""),
        ("python=3.9|3.10", ""),
        ("python-lmdb=1.6", ""),
    ],
)
def test_the_python_is_the_one_that_is_asked_for(said: str, pythons: str) -> None:
    assert read_environment(f"{HEAD}  - {said}\n", "e.yml").python == pythons


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("services: {}\n", "e.yml: this is not a conda environment: it has no `dependencies`"),
        ("- a\n", "e.yml: this is not a conda environment"),
        ("", "e.yml: this is not a conda environment"),
        (f"{HEAD}  - pip: x\n", "e.yml:2: `pip` is not a list"),
        (f"{HEAD}  - [a]\n", "e.yml:2: this is not a string"),
        (f"{HEAD}\t- a\n", "e.yml:2:1: this is not YAML: found character"),
        (f"{HEAD}---\n{HEAD}", "e.yml:2:1: this is not YAML: but found another document"),
        ("!!python/object/apply:os.system [id]\n", "e.yml: this is not a conda environment"),
    ],
)
def test_what_is_no_environment_is_one_problem_with_its_line(text: str, said: str) -> None:
    assert problem(text).startswith(said)


def test_a_requirement_that_is_none_is_named_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "e.yml"
    path.write_text(f"{HEAD}  - pip:\n    - a\n    - torch=2.1\n")
    with pytest.raises(SpecError, match=r"e\.yml:4:\d+: `torch=2\.1` is not a valid requirement"):
        read_requirements(path, "e.yml")


BOMB = "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "deep flow": "[" * 130_000,
    "deep mapping": "{a: " * 30_000,
    "deep block": HEAD + "".join(f"{' ' * depth}-\n" for depth in range(400)),
    "aliases of aliases": f"a: &a [x]\n{BOMB}{HEAD}  - *i\n",
    "aliases of pip": f"a: &a {{pip: [{'x,' * 9000}]}}\n{HEAD}" + "  - *a\n" * 9000,
    "aliases of keys": "a: &a\n" + "".join(f"  k{n}: x\n" for n in range(4000)) + HEAD
    + "  - *a\n" * 9000,
    "aliases of nothing": "a: &a\n" + "  pip:\n" * 9000 + HEAD + "  - *a\n" * 9000,
    "recursive": "&a\ndependencies: &b\n  - *b\n",
    "an escape": f'{HEAD}  - "\\UFFFFFFFF"\n',
    "a version": f"%YAML 1.{'9' * 5000}\n---\n{HEAD}",
    "a NUL": f"{HEAD}  - a\0\n",
    "too large": HEAD + "#" * LARGEST_ENVIRONMENT,
    "an unknown alias": f"{HEAD}  - <<: *x\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_environment_is_refused_soon(name: str, no_hang: None) -> None:
    # Measured: two seconds at most. Without the bounds, some would take hours.
    assert problem(HOSTILE[name]).startswith("e.yml")


def renamed(item: str) -> str:
    text = f"{HEAD}  - pip:\n{item}\n    - other\n"
    return rename_in_environment(text, 3, "xgboost", "xgboost-cpu", None).splitlines()[2]


@pytest.mark.parametrize(
    ("item", "anew"),
    [
        ("    - xgboost>=3", "    - xgboost-cpu>=3"),
        ("    - XGBoost[x] >= 3  # why", "    - xgboost-cpu[x] >= 3  # why"),
        ("    - 'xgboost'", "    - 'xgboost-cpu'"),
        ('    -   "xgboost<4" # why', '    -   "xgboost-cpu<4" # why'),
    ],
)
def test_an_item_is_renamed_in_its_line(item: str, anew: str) -> None:
    assert renamed(item) == anew


@pytest.mark.parametrize("item", ["    - |\n      xgboost", "    - xgboost\n      >=3"])
def test_an_item_that_does_not_stand_in_one_line_is_left_alone(item: str) -> None:
    with pytest.raises(CannotRewrite):
        renamed(item)
