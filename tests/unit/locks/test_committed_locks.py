"""Locks of other tools, as one target would install them.

The files in `data/` were written by uv 0.13, Poetry 2.5 and pipenv, for the project beside them;
only hosts were changed, and wheels of other platforms taken out.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lock_cases import target
from package_index import PackageIndex

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, SpecError, UsageError
from buildmatrix.locks.committed import describe_unchecked, read_committed
from buildmatrix.locks.lookup import Pins, Recent, find_files, lacks_files
from buildmatrix.locks.model import Package, Staleness
from buildmatrix.locks.selection import LockSelection, choose_wheel
from buildmatrix.locks.uv import find_uv
from buildmatrix.matrix.model import Base
from buildmatrix.sources.declarations import LockSource

DATA = Path(__file__).parent / "data"


def ask(
    path: Path,
    *extras: str,
    groups: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    **changes: Any,
) -> LockSelection:
    parts = frozenset(extras), frozenset(groups), frozenset(without)
    return LockSelection(path, path.name, target(**changes), *parts)


def read(path: Path, *extras: str, **more: Any) -> dict[str, Package]:
    return {p.name: p for p in pins(path, *extras, **more).lock.packages}


def pins(path: Path, *extras: str, **more: Any) -> Pins:
    return read_committed(ask(path, *extras, **more))[0]


def stale(path: Path, **more: Any) -> str | None:
    found = read_committed(ask(path, **more))[1]
    return str(found) if found is not None else None


def copied(tool: str, folder: Path) -> Path:
    shutil.copytree(DATA / tool, folder / tool)
    return folder / tool


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def error(path: Path, *extras: str, **more: Any) -> str:
    with pytest.raises(BuildmatrixError) as caught:
        pins(path, *extras, **more)
    return caught.value.message


UV, POETRY, PIPENV = (
    DATA / "uv" / "uv.lock",
    DATA / "poetry" / "poetry.lock",
    DATA / "pipenv" / "Pipfile.lock",
)


# uv.lock


def test_a_uv_lock_comes_to_what_the_python_of_the_target_gets() -> None:
    old, new = read(UV), read(UV, python="3.12")
    mine = ["numpy", "nvidia-nccl-cu12", "scipy", "sniffio", "xgboost"]
    assert sorted(old) == ["iniconfig", *mine]  # `dev` is a default of uv.
    assert (old["xgboost"].version, new["xgboost"].version) == ("3.2.0", "3.4.1")
    assert "nvidia-nccl-cu13" in new
    assert "nvidia-nccl-cu12" not in new
    assert (old["numpy"].version, new["numpy"].version) == ("2.4.6", "2.5.5")


def test_a_uv_lock_says_who_asked_down_from_the_line_of_the_project() -> None:
    found = read(UV)
    assert found["xgboost"].via == ("pyproject.toml:6",)
    assert found["nvidia-nccl-cu12"].via == ("xgboost",)
    line = int(found["xgboost"].place.removeprefix("uv.lock:"))
    assert UV.read_text().splitlines()[line - 1 : line + 2] == [
        "[[package]]",
        'name = "xgboost"',
        'version = "3.2.0"',
    ]


def test_extras_of_a_uv_lock_that_exclude_one_another_are_kept_apart() -> None:
    assert "packaging" not in read(UV)
    assert read(UV, "old")["packaging"].version == "23.0"
    new = read(UV, "new")
    assert new["packaging"].version == "24.0"
    # An extra of a dependency, behind a marker that names the extra of the project.
    assert new["trio"].via == ("anyio",)
    assert "iniconfig" not in read(UV, "new", without=("dev",))
    assert read(UV)["iniconfig"].via == ("pyproject.toml:15",)


def test_a_uv_lock_has_files_with_addresses() -> None:
    wheel = choose_wheel(read(UV)["xgboost"], target())
    assert wheel is not None
    assert wheel.url.startswith("https://files.pythonhosted.org/packages/")
    assert len(wheel.sha256) == 64
    assert read(UV)["xgboost"].index == "https://pypi.org/simple"


def test_a_uv_lock_that_fits_its_project_is_fresh() -> None:
    assert stale(UV) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"sniffio",', '"sniffio",\n    "torch",', "pyproject.toml asks for torch, and uv.lock"),
        ('    "xgboost>=3",\n', "", "pyproject.toml no longer asks for xgboost, and uv.lock still"),
        (
            '"xgboost>=3"',
            '"xgboost>=3.4"',
            ":6 asks for xgboost>=3.4, and uv.lock has xgboost 3.2",
        ),
        ("packaging==24.0", "packaging==24.1", "asks for packaging==24.1 in `new`"),
        ('["iniconfig"]', '["iniconfig", "pytest"]', "asks for pytest in `dev`, and uv.lock"),
    ],
)
def test_a_uv_lock_older_than_its_project_says_what_changed(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    folder = copied("uv", tmp_path)
    change(folder / "pyproject.toml", old, new)
    assert said in (stale(folder / "uv.lock") or "")


def test_another_order_or_spelling_of_the_same_wishes_is_not_stale(tmp_path: Path) -> None:
    folder = copied("uv", tmp_path)
    change(folder / "pyproject.toml", '"sniffio",', "'Sniffio',  # async")
    assert stale(folder / "uv.lock") is None


def test_sources_of_a_uv_lock_that_are_no_index_are_named(tmp_path: Path) -> None:
    folder = copied("uv", tmp_path)
    change(
        folder / "uv.lock",
        'name = "sniffio"\nversion = "1.3.1"\nsource = { registry = "https://pypi.org/simple" }\n',
        'name = "sniffio"\nversion = "1.3.1"\n'
        'source = { git = "https://robot:s3cret@example.com/s.git?rev=main#abc" }\n',
    )
    text = (folder / "uv.lock").read_text()
    begin = text.index('name = "sniffio"\nversion')
    entry, rest = text[begin:].split("\n\n", 1)
    cut = entry.partition("wheels =")[0]
    (folder / "uv.lock").write_text(text[:begin] + cut + "\n" + rest)
    found = read(folder / "uv.lock")["sniffio"]
    assert (found.source_only, found.source) == (True, "git+https://example.com/s.git?rev=main#abc")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version = 1\n", "version = 7\n", "uv.lock: its `version` is 7, and only 1 can be read"),
        ('version = "3.2.0"\ns', 'version = "latest"\ns', "package `xgboost`: `version` is"),
        ('[[package]]\nname = "outcome"', '[[package]]\nname = "-r x"', "is not a valid name"),
        (
            '[[package]]\nname = "scipy"\nversion = "1.17.1"',
            '[[package]]\nname = "scipz"\nversion = "1.17.1"',
            "xgboost asks for `scipy`, which the lock does not hold",
        ),
        ("sys_platform == 'linux'\"", "sys_platform = 'linux'\"", "the marker of `nvidia-nccl"),
        ("[[package]]", "[package", "uv.lock:13:9: this is not TOML"),
        ('requires-python = ">=3.11"', 'requires-python = ">=3.12"', "and cpu-py311-server has"),
    ],
)
def test_a_broken_uv_lock_is_one_clear_sentence(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    folder = copied("uv", tmp_path)
    change(folder / "uv.lock", old, new)
    assert said in error(folder / "uv.lock")


def test_a_uv_lock_that_is_nobodys_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(
        'version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "six"\n'
        'version = "1.16"\nsource = { registry = "https://pypi.org/simple" }\n'
    )
    assert "it names no project, so the installed packages" in error(lock)


def test_an_extra_that_a_lock_does_not_have_is_an_error_with_those_it_has() -> None:
    assert "there is no extra `gpu`; extras here: new, old" in error(UV, "gpu")
    assert "there is no group `test`; groups here: dev" in error(UV, groups=("test",))


# poetry.lock


def test_a_poetry_lock_comes_to_what_the_project_asks_for() -> None:
    assert "iniconfig" in read(POETRY)  # Groups that are not optional are installed.
    plain = read(POETRY, without=("dev",))
    assert sorted(plain) == ["numpy", "nvidia-nccl-cu12", "scipy", "sniffio", "xgboost"]
    assert plain["xgboost"].via == ("pyproject.toml:5",)
    assert plain["nvidia-nccl-cu12"].via == ("xgboost",)
    assert plain["nvidia-nccl-cu12"].place.startswith("poetry.lock:")
    web = read(POETRY, "web", groups=("dev",))
    assert web["trio"].via == ("anyio",)
    assert web["iniconfig"].via == ("pyproject.toml:14",)
    # For Windows alone.
    assert "cffi" not in web


def test_a_poetry_lock_without_its_project_goes_by_its_own_groups_and_markers(
    tmp_path: Path,
) -> None:
    folder = copied("poetry", tmp_path)
    (folder / "pyproject.toml").unlink()
    found = read(folder / "poetry.lock")
    assert sorted(found) == ["numpy", "nvidia-nccl-cu12", "scipy", "sniffio", "xgboost"]
    assert found["nvidia-nccl-cu12"].via == ("xgboost",)
    assert "trio" in read(folder / "poetry.lock", "web")


def test_a_poetry_lock_names_files_that_are_still_to_be_found() -> None:
    xgboost = read(POETRY)["xgboost"]
    assert lacks_files(xgboost)
    wheel = choose_wheel(xgboost, target())
    assert wheel is not None
    assert (wheel.url, len(wheel.sha256)) == ("", 64)


OLD_POETRY = """\
[[package]]
name = "Booster"
version = "1.0"
description = ""
category = "main"
optional = false
python-versions = "*"

[package.dependencies]
numpy = [
    {version = "^1.2", markers = "python_version < \\"3.12\\""},
    {version = "^2.0", markers = "python_version >= \\"3.12\\""},
]

[[package]]
name = "numpy"
version = "1.26.4"
category = "main"
optional = false
python-versions = "*"

[[package]]
name = "numpy"
version = "2.1.0"
category = "main"
optional = false
python-versions = "*"

[[package]]
name = "pytest"
version = "7.0"
category = "dev"
optional = false
python-versions = "*"

[metadata]
lock-version = "1.1"
python-versions = "^3.9"
content-hash = "0"

[metadata.files]
Booster = [{file = "booster-1.0-py3-none-any.whl", hash = "sha256:HASH"}]
numpy = []
pytest = []
"""


def test_a_poetry_lock_of_version_1_is_read_with_its_forks_and_categories(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").write_text(OLD_POETRY.replace("HASH", "ab" * 32))
    (tmp_path / "pyproject.toml").write_text(
        '[tool.poetry.dependencies]\npython = "^3.9"\nbooster = "*"\n'
        '[tool.poetry.dev-dependencies]\npytest = "*"\n'
    )
    old = read(tmp_path / "poetry.lock", without=("dev",))
    assert {name: p.version for name, p in old.items()} == {"booster": "1.0", "numpy": "1.26.4"}
    assert old["booster"].wheels[0].filename == "booster-1.0-py3-none-any.whl"
    assert old["booster"].via == ("pyproject.toml:3",)
    new = read(tmp_path / "poetry.lock", python="3.12", groups=("dev",))
    assert new["numpy"].version == "2.1.0"
    assert new["pytest"].via == ("pyproject.toml:5",)


#: As Poetry 2.2.1 locks `torch = {version = "^2", optional = true}` for Pythons that get different
#: releases of it: an entry that no environment installs has the marker `<empty>`.
SPLIT_POETRY = """
[[package]]
name = "torch"
version = "2.14.1"
optional = true
groups = ["main"]
markers = "extra == \\"torch\\""
files = []

[package.dependencies]
nvidia-cusparse = "*"

[[package]]
name = "nvidia-cusparse"
version = "12.9.4.2"
optional = true
groups = ["main"]
markers = "<empty>"
files = []

[[package]]
name = "nvidia-cusparse"
version = "12.6.3.3"
optional = true
groups = ["main"]
markers = "python_version < \\"3.12\\" and extra == \\"torch\\""
files = []

[[package]]
name = "nvidia-cusparse"
version = "12.7.10.12"
optional = true
groups = ["main", "dev"]
markers = {main = "python_version >= \\"3.12\\" and extra == \\"torch\\""}
files = []

[extras]
torch = ["torch"]

[metadata]
lock-version = "2.1"
python-versions = ">=3.10"
content-hash = "0"
"""


@pytest.mark.parametrize("project", [True, False], ids=["with its project", "alone"])
@pytest.mark.parametrize(("python", "version"), [("3.11", "12.6.3.3"), ("3.12", "12.7.10.12")])
def test_a_poetry_lock_takes_the_entry_whose_marker_holds(
    tmp_path: Path, python: str, version: str, project: bool
) -> None:
    (tmp_path / "poetry.lock").write_text(SPLIT_POETRY)
    if project:
        (tmp_path / "pyproject.toml").write_text(
            '[tool.poetry.dependencies]\npython = ">=3.10"\n'
            'torch = {version = "^2", optional = true}\n'
            '[tool.poetry.extras]\ntorch = ["torch"]\n'
        )
    found = pins(tmp_path / "poetry.lock", "torch", python=python).lock.packages
    assert [(package.name, package.version) for package in found] == [
        ("nvidia-cusparse", version),
        ("torch", "2.14.1"),
    ]


#: Generated projects, each with the lock that a release of Poetry wrote for them on an index made
#: up for it, and with what the installer of that release picked for a selection, Linux on amd64.
RECORDED = json.loads((DATA / "poetry-selections.json").read_text())


@pytest.mark.parametrize(
    "project", RECORDED, ids=[f"{one['poetry']}-{one['seed']}" for one in RECORDED]
)
def test_a_poetry_lock_comes_to_what_poetry_installs(
    tmp_path: Path, project: dict[str, Any]
) -> None:
    for name in ("pyproject.toml", "poetry.lock"):
        (tmp_path / name).write_text(project[name])
    for one in project["selections"]:
        parts = {key: tuple(one[key]) for key in ("groups", "without")}
        names = [pin.partition("==")[0] for pin in one["packages"]]
        if len(names) > len({*names}):  # Poetry installs one after the other.
            said = error(tmp_path / "poetry.lock", *one["extras"], python=one["python"], **parts)
            assert "for one selection" in said
            continue
        found = read(tmp_path / "poetry.lock", *one["extras"], python=one["python"], **parts)
        assert [f"{name}=={found[name].version}" for name in sorted(found)] == one["packages"], one


def poetry_lock(*entries: str, python: str = "*", extras: str = "") -> str:
    """A lock of Poetry 1.8, with entries in the form `NAME VERSION`, further lines behind."""
    text = ""
    for entry in entries:
        head, _, rest = entry.partition("\n")
        name, version = head.split()
        more = "" if "python-versions" in rest else 'python-versions = "*"\n'
        text += f'[[package]]\nname = "{name}"\nversion = "{version}"\noptional = false\n'
        text += f"{more}files = []\n{rest}\n"
    return (
        f'{text}[extras]\n{extras}\n[metadata]\nlock-version = "2.0"\n'
        f'python-versions = "{python}"\ncontent-hash = "0"\n'
    )


@pytest.mark.parametrize("project", [True, False], ids=["with its project", "alone"])
@pytest.mark.parametrize(
    ("python", "fits"), [("^3.9", True), (">=3.12,<4", False), ("<3.9 || >=3.12", False)]
)
def test_a_poetry_lock_for_other_pythons_says_so(
    tmp_path: Path, python: str, fits: bool, project: bool
) -> None:
    (tmp_path / "poetry.lock").write_text(poetry_lock("six 1.0", python=python))
    if project:
        (tmp_path / "pyproject.toml").write_text('[tool.poetry.dependencies]\nsix = "*"\n')
    if fits:
        assert sorted(read(tmp_path / "poetry.lock")) == ["six"]
    else:
        assert f"the lock is for Python {python}, and cpu-py311" in error(tmp_path / "poetry.lock")


@pytest.mark.parametrize(
    ("wish", "version"),
    [
        ('{version = "*", source = "pytorch-cpu"}', "2.3+cpu"),
        ('{version = "*", source = "PyPI"}', "2.2"),
        ('{url = "https://example.com/t-2.4.whl"}', "2.4"),
        ('"*"', "2.4"),
        ('{version = "<2.4", optional = true}', None),
    ],
)
def test_the_source_of_a_poetry_dependency_picks_among_entries_of_one_name(
    tmp_path: Path, wish: str, version: str | None
) -> None:
    source = '[package.source]\ntype = "{}"\nurl = "{}"\n'
    (tmp_path / "poetry.lock").write_text(
        poetry_lock(
            "torch 2.2",
            "torch 2.3+cpu\n"
            + source.format("legacy", "https://example.com/cpu")
            + 'reference = "pytorch-cpu"\n',
            "torch 2.4\n" + source.format("url", "https://example.com/t-2.4.whl"),
        )
    )
    (tmp_path / "pyproject.toml").write_text(f"[tool.poetry.dependencies]\ntorch = {wish}\n")
    found = read(tmp_path / "poetry.lock")
    assert [package.version for package in found.values()] == ([version] if version else [])


def test_an_extra_leads_through_what_is_for_another_python(tmp_path: Path) -> None:
    """Poetry 1.8.5 goes through all of the lock: `utils/extras.py`."""
    requires = '{} 1.0\n[package.dependencies]\nc = "*"\n'
    (tmp_path / "poetry.lock").write_text(
        poetry_lock(requires.format("a"), requires.format("b"), "c 1.0", extras='x = ["a"]')
    )
    (tmp_path / "pyproject.toml").write_text(
        "[tool.poetry.dependencies]\na = {version = '*', python = '<3.9', optional = true}\n"
        "b = {version = '*', optional = true}\n[tool.poetry.extras]\nx = ['a']\n"
    )
    assert set(read(tmp_path / "poetry.lock", "x")) == {"c"}


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        (("ant", "fox"), {"ant": "1.0", "fox": "2.1"}),
        (("fox", "ant"), {"ant": "1.1", "fox": "1.1"}),
        (("both",), {"ant": "1.0", "both": "1.0", "fox": "2.1"}),
    ],
)
def test_where_two_selections_fit_poetry_decides_the_last_requirement_first(
    requirements: Sequence[str], expected: Mapping[str, str], tmp_path: Path
) -> None:
    """Poetry 1.8.5 reads incompatibilities in reverse: `VersionSolver._propagate`."""
    depends = "[package.dependencies]\n"
    (tmp_path / "poetry.lock").write_text(
        poetry_lock(
            "ant 1.0",
            f'ant 1.1\n{depends}fox = "<2"',
            f'both 1.0\n{depends}ant = "*"\nfox = "*"',
            "fox 1.1",
            "fox 2.1",
        )
    )
    lines = "".join(f'{name} = "*"\n' for name in requirements)
    (tmp_path / "pyproject.toml").write_text(f"[tool.poetry.dependencies]\n{lines}")
    found = read(tmp_path / "poetry.lock")
    assert {name: package.version for name, package in found.items()} == expected


@pytest.mark.parametrize(("first", "taken"), [("", "a"), ("b", "b")])
def test_of_equal_versions_poetry_takes_the_source_that_its_lock_names_first(
    tmp_path: Path, first: str, taken: str
) -> None:
    """Poetry 1.8.5 makes a repository of each source, in the order of the entries."""

    def entry(name: str, source: str) -> str:
        where = f'type = "legacy"\nurl = "https://{source}.example.com/simple"\n'
        return f'{name} 1.0\n[package.source]\n{where}reference = "{source}"\n'

    entries = [entry("ant", first)] if first else []
    (tmp_path / "poetry.lock").write_text(
        poetry_lock(*entries, entry("torch", "a"), entry("torch", "b"))
    )
    (tmp_path / "pyproject.toml").write_text('[tool.poetry.dependencies]\ntorch = "*"\n')
    assert read(tmp_path / "poetry.lock")["torch"].index == f"https://{taken}.example.com/simple"


@pytest.mark.parametrize(
    ("wish", "taken"),
    [
        ('{version = ">=1", markers = "sys_platform == \'win32\'"}', True),
        ('{version = "*", python = "<3.9", extras = ["x"]}', True),
        ('{version = "*", python = "<3.9", extras = ["y"]}', False),
        ('{version = "<1", python = "<3.9"}', False),
        ('{version = "*", optional = true}', False),
    ],
)
def test_what_an_extra_leads_to_is_installed_where_any_platform_requires_it(
    tmp_path: Path, wish: str, taken: bool
) -> None:
    """Poetry 1.8.5 does so: `optional` of a resolved package does not depend on markers."""
    (tmp_path / "poetry.lock").write_text(
        poetry_lock('a 1.0\n[package.dependencies]\nb = {version = "*", extras = ["x"]}\n', "b 1.0")
    )
    (tmp_path / "pyproject.toml").write_text(
        '[tool.poetry.dependencies]\na = {version = "*", optional = true}\n'
        f"b = {wish}\n[tool.poetry.extras]\nx = ['a']\n"
    )
    assert set(read(tmp_path / "poetry.lock")) == ({"b"} if taken else set())


@pytest.mark.parametrize(
    ("pythons", "unknown"),
    [
        (">=3.30", "it is for Python >=3.30, and cpu-py311-server has 3.11"),
        # uv, which is asked for the files, takes upper bounds for guesses.
        ("<3.11", ""),
    ],
)
def test_an_entry_for_another_python_that_poetry_2_installs_says_so(
    tmp_path: Path, index: PackageIndex, pythons: str, unknown: str
) -> None:
    """Poetry 2.5.1 locks it where a marker of one of two that require it excludes its Python."""
    index.add_wheel("pypi", "modern", "1.0", "py3-none-any", python=pythons)
    entry = f'modern 1.0\npython-versions = "{pythons}"\ngroups = ["main"]\n'
    text = poetry_lock(entry).replace('"2.0"', '"2.1"')
    (tmp_path / "poetry.lock").write_text(text)
    found = find_files(
        find_uv(), target(), pins(tmp_path / "poetry.lock"), Recent(None), offline=False, jobs=1
    )
    assert [package.unknown for package in found.packages] == [unknown]


def test_entries_of_a_poetry_lock_that_do_not_fit_together_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").write_text(
        poetry_lock(
            'a 1.0\n[package.dependencies]\nc = "<2"\n',
            'b 1.0\n[package.dependencies]\nc = ">=2"\n',
            'b 0.9\npython-versions = "<3.9"\n',
            "c 1.0",
            "c 2.0",
        )
    )
    (tmp_path / "pyproject.toml").write_text('[tool.poetry.dependencies]\na = "*"\nb = "*"\n')
    assert "no entry of `c` fits all that asks for it: a and b" in error(tmp_path / "poetry.lock")


def test_a_poetry_lock_that_fits_in_no_way_is_given_up_in_bounded_steps(tmp_path: Path) -> None:
    names = [f"n{number:02}" for number in range(40)]
    entries = [f"{name} {version}" for name in names for version in ("1.0", "2.0")]
    # Whatever is chosen before, only the last name has no entry that fits.
    rest = 'z {}\n[package.dependencies]\nn00 = "<1"\n'
    (tmp_path / "poetry.lock").write_text(
        poetry_lock(*entries, rest.format("1.0"), rest.format("2.0"))
    )
    wishes = "".join(f'{name} = "*"\n' for name in [*names, "z"])
    (tmp_path / "pyproject.toml").write_text(f"[tool.poetry.dependencies]\n{wishes}")
    assert "z asks for `n00`" in error(tmp_path / "poetry.lock")


# Pipfile.lock


@pytest.mark.parametrize(
    ("base", "held"),
    [
        ("python:3.11-slim-bookworm", {"soupsieve"}),
        ("debian:12", {"soupsieve"}),
        ("ghcr.io/acme/python:3.11.5", {"soupsieve"}),
        ("python:3.11.2-slim", {"async-timeout"}),
    ],
)
def test_a_marker_about_the_patch_holds_for_the_python_of_the_base(
    tmp_path: Path, base: str, held: set[str]
) -> None:
    (tmp_path / "Pipfile.lock").write_text(
        '{"_meta": {"hash": {"sha256": "0"}, "pipfile-spec": 6}, "develop": {}, "default": {'
        '"async-timeout": {"version": "==5.0.1", "markers": "python_full_version < \'3.11.3\'"},'
        '"soupsieve": {"version": "==4.1.2", "markers": "python_full_version >= \'3.11.5\'"}}}'
    )
    found = read(tmp_path / "Pipfile.lock", python="3.11", base=Base(base, base))
    assert set(found) == held


def test_a_pipfile_lock_has_hashes_and_the_lines_of_its_pipfile() -> None:
    found = pins(PIPENV)
    packages = {p.name: p for p in found.lock.packages}
    assert packages["anyio"].via == ("Pipfile:8",)
    assert packages["trio"].via == ()
    assert all(lacks_files(one) for one in packages.values())
    assert all(found.hashes[name] for name in packages)
    line = int(packages["trio"].place.removeprefix("Pipfile.lock:"))
    assert PIPENV.read_text().splitlines()[line - 1].strip() == '"trio": {'
    assert "iniconfig" not in packages
    assert "iniconfig" in read(PIPENV, groups=("dev",))


def test_a_later_section_of_a_pipfile_lock_replaces_what_an_earlier_one_installed(
    tmp_path: Path,
) -> None:
    """pipenv 2026.10.3 installs section after section with pip, and constrains `develop` alone."""
    sections = {
        name: {"ant": {"version": f"=={version}", "hashes": ["sha256:" + digit * 64]}}
        for name, version, digit in (("default", "1.0", "a"), ("docs", "2.0", "b"))
    }
    lock = {"_meta": {"hash": {"sha256": "0"}, "pipfile-spec": 6}, "develop": {}, **sections}
    (tmp_path / "Pipfile.lock").write_text(json.dumps(lock))
    for groups, version, digit in (((), "1.0", "a"), (("docs",), "2.0", "b")):
        found = pins(tmp_path / "Pipfile.lock", groups=groups)
        assert [package.version for package in found.lock.packages] == [version]
        assert found.hashes["ant"] == {digit * 64}


@pytest.mark.parametrize(
    ("folder", "lock", "inputs", "command"),
    [
        ("poetry", "poetry.lock", "pyproject.toml", "poetry check --lock"),
        ("pipenv", "Pipfile.lock", "Pipfile", "pipenv verify"),
        ("uv", "uv.lock", "pyproject.toml", ""),
    ],
)
def test_what_only_the_tool_of_a_lock_knows_is_said(
    tmp_path: Path, folder: str, lock: str, inputs: str, command: str
) -> None:
    path = copied(folder, tmp_path) / lock
    assert stale(path) is None
    said = f"{lock} was not checked against {inputs}; `{command}` decides" if command else ""
    assert describe_unchecked(replace(ask(path), label=lock)) == said
    (path.parent / inputs).unlink()
    assert describe_unchecked(replace(ask(path), label=lock)) == ""


def test_what_a_pipfile_asks_for_and_its_lock_lacks_is_proof(tmp_path: Path) -> None:
    folder = copied("pipenv", tmp_path)
    change(folder / "Pipfile", 'sniffio = "*"', 'sniffio = "*"\nTorch = "*"')
    _, found = read_committed(ask(folder / "Pipfile.lock"))
    assert found == Staleness("Pipfile asks for Torch, and Pipfile.lock was made without it")


def test_another_range_that_the_lock_still_meets_is_no_proof(tmp_path: Path) -> None:
    folder = copied("uv", tmp_path)
    change(folder / "pyproject.toml", '"xgboost>=3"', '"xgboost>=3.1"')
    _, found = read_committed(ask(folder / "uv.lock"))
    assert found is not None
    assert not found.is_proven
    assert "asks for xgboost>=3.1, and uv.lock was made for xgboost>=3;" in found.reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # A build says what the project requires, and uv recorded that.
        ("dependencies = [", 'dynamic = ["dependencies"]\nformer = ['),
        # Other spellings of one range, and of the group that older releases of uv had.
        ('"xgboost>=3"', '"XGBoost >= 3.0"'),
        (
            'dev = ["iniconfig"]\n\n[tool.uv]\n',
            'Dev = []\n\n[tool.uv]\ndev-dependencies = ["iniconfig"]\n',
        ),
    ],
)
def test_an_intact_uv_lock_is_never_called_stale(tmp_path: Path, old: str, new: str) -> None:
    folder = copied("uv", tmp_path)
    change(folder / "pyproject.toml", old, new)
    assert stale(folder / "uv.lock") is None


def test_a_broken_pipfile_lock_names_the_line(tmp_path: Path) -> None:
    folder = copied("pipenv", tmp_path)
    change(folder / "Pipfile.lock", '"default": {', '"default": [')
    assert error(folder / "Pipfile.lock").startswith("Pipfile.lock:19:")


@pytest.mark.parametrize("hashes", ['["sha256:59bb"]', '["md5:59bb", 7]', '"sha256:59bb"', "{}"])
def test_hashes_that_cannot_be_told_do_not_allow_every_file(tmp_path: Path, hashes: str) -> None:
    path = tmp_path / "Pipfile.lock"
    entry = f'"anyio": {{"hashes": {hashes}, "version": "==4.16.0"}}'
    path.write_text(f'{{"_meta": {{"sources": []}},\n"default": {{\n        {entry}}}}}')
    assert "`anyio`: none of its `hashes` is a `sha256:`" in error(path)


def test_a_hash_among_others_that_cannot_be_told_is_the_only_one_allowed(tmp_path: Path) -> None:
    folder = copied("pipenv", tmp_path)
    first = "sha256:59bb03251907983d1603d27c3087ddb1e93299ea2163adcdba37899a4fb12ffb"
    change(folder / "Pipfile.lock", first, "sha512:00")
    assert len(pins(folder / "Pipfile.lock").hashes["anyio"]) == 1


def test_a_broken_hash_of_uv_names_the_line_of_its_package(tmp_path: Path) -> None:
    folder = copied("uv", tmp_path)
    text = (folder / "uv.lock").read_text()
    (folder / "uv.lock").write_text(text.replace('whl", hash = "sha256:', 'whl", hash = "sha256:g'))
    assert "its hash is not `sha256:` with 64 hex digits" in error(folder / "uv.lock")
    assert error(folder / "uv.lock").startswith("uv.lock:")


# pylock.toml

PYLOCK = f"""\
lock-version = "1.0"
created-by = "pdm"
extras = ["gpu"]
default-groups = ["base"]

[[packages]]
name = "torch"
version = "2.9.0"
marker = "sys_platform == 'linux'"
dependencies = [{{ name = "triton" }}]
[[packages.wheels]]
url = "https://example.com/torch-2.9.0-py3-none-any.whl"
hashes = {{ sha256 = "{"ab" * 32}" }}

[[packages]]
name = "triton"
version = "3.0"
marker = "'gpu' in extras"
sdist = {{ url = "https://example.com/triton-3.0.tar.gz", hashes = {{ sha256 = "{"ab" * 32}" }} }}

[[packages]]
name = "colorama"
version = "1.0"
marker = "sys_platform == 'win32' or 'base' not in dependency_groups"

[[packages]]
name = "mine"
archive = {{ path = "dist/mine-1.0-py3-none-any.whl", hashes = {{ sha256 = "{"ab" * 32}" }} }}
"""


def test_a_pylock_of_another_tool_comes_to_what_its_markers_say(tmp_path: Path) -> None:
    path = tmp_path / "pylock.cpu.toml"
    path.write_text(PYLOCK)
    plain = read(path)
    assert sorted(plain) == ["mine", "torch"]
    assert plain["torch"].place == "pylock.cpu.toml:6"
    assert plain["mine"].wheels[0].url == str(tmp_path / "dist/mine-1.0-py3-none-any.whl")
    gpu = read(path, "gpu")
    assert (gpu["triton"].via, gpu["triton"].source_only) == (("torch",), True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("'gpu' in extras", "gpu in extras", "package `triton`: its `marker` is not valid"),
        ("created-by", 'requires-python = ">=3.13"\ncreated-by', "the lock is for Python >=3.13"),
        (
            "created-by",
            "environments = [\"platform_machine == 'aarch64'\"]\ncreated-by",
            "none of its `environments` is linux/amd64 with Python 3.11",
        ),
        (
            'version = "2.9.0"',
            'version = "2.9.0"\nrequires-python = ">=3.12"',
            "package `torch` is for Python >=3.12, and cpu-py311-server has 3.11",
        ),
        (
            'name = "triton"\nversion = "3.0"\nmarker = "\'gpu\' in extras"',
            'name = "torch"\nversion = "3.0"',
            "two entries of `torch` are for one target: 2.9.0 (pylock.toml:6) and 3.0 (pylock",
        ),
    ],
)
def test_a_pylock_that_is_not_for_the_target_says_so(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = tmp_path / "pylock.toml"
    assert old in PYLOCK
    path.write_text(PYLOCK.replace(old, new))
    assert said in error(path)


# What is no lock


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock", "pylock.toml", "Pipfile.lock"])
@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"[" * 100_000, b"a = 1", b"{}", b""])
def test_hostile_bytes_are_a_problem_and_no_crash(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    try:
        found, _ = read_committed(ask(path))
    except SpecError as caught:
        assert caught.message.startswith(name)
    else:
        assert found.lock.packages == ()


def test_a_pipe_is_never_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "uv.lock")
    assert "it is not a file" in error(tmp_path / "uv.lock")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("pdm.lock", "pdm export -f pylock -o pylock.toml"),
        ("bin/demo.py.lock", "uv export --script bin/demo.py -o pylock.demo.toml"),
    ],
)
def test_a_lock_that_only_its_tool_reads_says_how_to_export_it(
    tmp_path: Path, name: str, command: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    with pytest.raises(UsageError) as caught:
        read_committed(LockSelection(path, name, target()))
    assert caught.value.message == f"{name} is not supported; run `{command}` to make one that is"
    assert LockSource.is_named_so(path.name)


def test_a_file_that_is_no_lock_by_its_name_says_what_is(tmp_path: Path) -> None:
    (tmp_path / "Cargo.lock").write_text("")
    with pytest.raises(UsageError, match=r"Cargo\.lock is not a supported lock; supported are pyl"):
        read_committed(ask(tmp_path / "Cargo.lock"))
