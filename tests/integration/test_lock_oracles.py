"""Locks of Poetry, pdm and pipenv mean what these tools install: generated projects.

Compared are name, version, file and hash of all that a selection takes. 262 projects of uv, without
a network: `tests/unit/locks/test_uv_oracle.py`; with these, CI locks 300.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lock_cases import target
from package_index import PackageIndex, serve

from buildmatrix.base.errors import SpecError
from buildmatrix.locks.committed import read_committed
from buildmatrix.locks.lookup import Recent, find_files
from buildmatrix.locks.selection import LockSelection, choose_wheel
from buildmatrix.locks.taken import _ask_tool
from buildmatrix.locks.uv import find_uv
from buildmatrix.matrix.model import Base

pytestmark = pytest.mark.network

#: More by hand: `BUILDMATRIX_PROJECTS=60 BUILDMATRIX_SEED=1 pytest THIS_FILE`.
PROJECTS = int(os.environ.get("BUILDMATRIX_PROJECTS", "0"))
SEED = int(os.environ.get("BUILDMATRIX_SEED", "27"))
#: No later release of what the tools depend on.
UNTIL = "2026-11-25"
DRIVER = Path(__file__).parents[1] / "servers" / "lock_tools.py"
#: A project with its lock of each tool.
DATA = Path(__file__).parents[1] / "unit" / "locks" / "data"
HERE = ".".join(map(str, sys.version_info[:3]))
PYTHONS = ("3.10.13", "3.11.7", "3.12.1", "3.12.5", "3.13.0")
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
NAMES = ("ant", "bee", "cat", "dog", "eel", "fox")
EXTRAS = ("fast", "web")
ANY = "py3-none-any"
TAGS: Sequence[Sequence[str]] = (
    (ANY,),
    (ANY, "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"),
    (
        "py3-none-manylinux_2_28_x86_64",
        "py3-none-manylinux_2_28_aarch64",
        "py3-none-win_amd64",
        ANY,
    ),
    (
        *(f"cp3{minor}-cp3{minor}-manylinux_2_28_x86_64" for minor in (10, 11, 12, 13)),
        "cp310-abi3-manylinux_2_17_aarch64.manylinux2014_aarch64",
        "cp310-abi3-macosx_11_0_arm64",
        "py3-none-manylinux_2_39_x86_64",
        ANY,
    ),
)
MARKERS = (
    "sys_platform == 'linux'",
    "sys_platform == 'win32'",
    "platform_machine == 'x86_64'",
    "platform_machine == 'aarch64'",
    "python_version >= '3.12'",
    "python_version < '3.12'",
    "python_full_version < '3.12.4'",
    "platform_system != 'Darwin' and platform_machine != 'aarch64'",
)

Dice = random.Random
#: Name, version, file, sha256.
Files = set[tuple[str, str, str, str]]


class Asked(NamedTuple):
    """A selection."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    has_main: bool = True
    platform: str = "linux/amd64"
    python: str = HERE


def wish(dice: Dice, names: Sequence[str] = NAMES) -> str:
    """A random requirement (PEP 508)."""
    extra = f"[{dice.choice(EXTRAS)}]" if dice.random() < 0.3 else ""
    return f"{dice.choice(names)}{extra}{dice.choice(['', '', '>=1.1', '<2'])}"


def marked_wishes(dice: Dice, most: int) -> Sequence[str]:
    return [
        wish(dice) + dice.choice(["", "", f" ; {dice.choice(MARKERS)}"])
        for _ in range(dice.randint(0, most))
    ]


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    """Six distributions in four versions, which require one another in ways that differ.

    A second index has other builds of one version, and one version more.
    """
    dice = Dice(27)
    with serve() as served:
        for name in NAMES:
            others = [other for other in NAMES if other > name]
            for version in ("1.0", "1.1", "2.0", "2.1+cpu"):
                requires = [
                    wish(dice, others) + (f"; extra == '{extra}'" if extra else "")
                    for extra in ("", "", *EXTRAS)
                    if others and dice.random() < 0.5
                ]
                requires += [
                    f"{dice.choice(others)}; {dice.choice(MARKERS)}"
                    for _ in range(2)
                    if others and dice.random() < 0.2
                ]
                python = dice.choice(["", "", "", ">=3.11", "<3.13"]) if version != "1.0" else ""
                for tag in dice.choice(TAGS):
                    served.add_wheel("pypi", name, version, tag, *requires, python=python)
            for version in ("1.1", "3.0"):
                served.add("extra", name, version)
        yield served


def toml(value: object) -> str:
    """A value of TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def table(name: str, values: Mapping[str, object] = {}) -> str:
    return "".join([f"[{name}]\n", *(f"{key} = {toml(item)}\n" for key, item in values.items())])


def sources(form: str, index: PackageIndex, extra: Mapping[str, object]) -> str:
    """The two indexes."""
    return table(f"[{form}]", {"name": "local", "url": index.url("pypi")}) + table(
        f"[{form}]", {"name": "extra", "url": index.url("extra"), **extra}
    )


HEAD = {"name": "acme", "version": "1", "requires-python": ">=3.10,<3.14"}


def poetry_wish(dice: Dice, *, optional: bool = False, forks: bool = True) -> Any:
    """A random requirement in the words of Poetry."""
    if forks and dice.random() < 0.15:
        both = poetry_wish(dice, forks=False), poetry_wish(dice, forks=False)
        for one in both:
            one.pop("markers", None)
        both[0].update(python="<3.12", version="<2")
        both[1].update(python=">=3.12", version=dice.choice(["*", ">=2"]))
        is_optional = optional and dice.random() < 0.4
        return [{**one, **({"optional": True} if is_optional else {})} for one in both]
    item: dict[str, object] = {
        "version": dice.choice(["*", "*", "^1.0", "~1.1", ">=1.1", "<2", "1.0", "!=1.1", "^2"])
    }
    if dice.random() < 0.2:
        item["extras"] = dice.sample(EXTRAS, dice.choice([1, 1, 2]))
    if dice.random() < 0.2:
        item["markers"] = dice.choice(MARKERS)
    elif dice.random() < 0.2:
        item["python"] = dice.choice([">=3.12", "<3.12", "^3.11", ">=3.11,<3.13"])
    if forks and dice.random() < 0.1:
        item.update(source="extra", version=dice.choice(["*", "<2"]))
    if optional and dice.random() < 0.4:
        item["optional"] = True
    return item


def poetry_groups(dice: Dice, index: PackageIndex) -> str:
    text = ""
    for group, is_optional in (("dev", False), ("test", dice.random() < 0.5)):
        text += table(f"tool.poetry.group.{group}", {"optional": True} if is_optional else {})
        names = dice.sample(NAMES, dice.randint(0, 2))
        wishes = {name: poetry_wish(dice) for name in names}
        text += table(f"tool.poetry.group.{group}.dependencies", wishes)
    return text + sources("tool.poetry.source", index, {"priority": "explicit"})


def poetry_project(dice: Dice, index: PackageIndex) -> str:
    """A project in the words of Poetry alone."""
    names = dice.sample(NAMES, dice.randint(1, 4))
    main = {name: poetry_wish(dice, optional=True) for name in names}
    optional = [
        name
        for name, item in main.items()
        if (item[0] if isinstance(item, list) else item).get("optional")
    ]
    extras = {
        extra: dice.sample(optional, dice.randint(1, len(optional)))
        for extra in ("cpu", "gpu")
        if optional
    }
    return (
        table("tool.poetry", {"name": "acme", "package-mode": False})
        + table("tool.poetry.dependencies", {"python": ">=3.10,<3.14", **main})
        + table("tool.poetry.extras", extras)
        + poetry_groups(dice, index)
    )


def standard_extras(dice: Dice) -> Mapping[str, Sequence[str]]:
    return {extra: marked_wishes(dice, 2) for extra in ("cpu", "gpu")}


def poetry2_project(dice: Dice, index: PackageIndex) -> str:
    """A project that Poetry 2 reads: `[project]`."""
    return (
        table("project", {**HEAD, "dependencies": marked_wishes(dice, 2)})
        + table("project.optional-dependencies", standard_extras(dice))
        + table("tool.poetry", {"package-mode": False})
        + poetry_groups(dice, index)
    )


def pdm_project(dice: Dice, index: PackageIndex) -> str:
    groups = {"dev": marked_wishes(dice, 1), "test": marked_wishes(dice, 2)}
    # Poetry knows no extras that ask for others of the project.
    inner = dice.choice([["acme[cpu]"], ["acme[cpu,gpu]"], []])
    extras = {**standard_extras(dice), "all": [*inner, *marked_wishes(dice, 1)]}
    return (
        table("project", {**HEAD, "dependencies": marked_wishes(dice, 2)})
        + table("project.optional-dependencies", extras)
        + table("dependency-groups", groups)
        + table("tool.pdm", {"distribution": False})
        + sources("tool.pdm.source", index, {"include_packages": [dice.choice(NAMES)]})
        # Else the public index is asked, too.
        .replace('"local"', '"pypi"')
    )


def pipfile(dice: Dice, index: PackageIndex) -> str:
    text = sources("source", index, {})
    for section in ("packages", "dev-packages", "docs"):
        wishes = {}
        for name in dice.sample(NAMES, dice.randint(1, 3)):
            wishes[name] = {"version": dice.choice(["*", "*", "==1.1"])}
            if dice.random() < 0.3:
                wishes[name]["extras"] = [dice.choice(EXTRAS)]
            if dice.random() < 0.3:
                # A marker that does not hold here leaves an entry without a version.
                wishes[name]["markers"] = dice.choice(MARKERS[::2])
            elif dice.random() < 0.3:
                wishes[name] = {"version": "*", "index": "extra"}
        text += table(section, wishes)
    return text


def poetry_asked(dice: Dice) -> Asked:
    where = {"platform": dice.choice(sorted(MACHINES)), "python": dice.choice(PYTHONS)}
    if dice.random() < 0.1:
        return Asked(groups=("dev",), has_main=False, **where)
    extras = tuple(dice.sample(("cpu", "gpu"), dice.choice([0, 1, 1, 2])))
    return Asked(extras, dice.choice([(), ("test",)]), dice.choice([(), (), ("dev",)]), **where)


def pdm_asked(dice: Dice) -> Asked:
    extras = tuple(dice.sample(("cpu", "gpu", "all"), dice.choice([0, 1, 1, 2])))
    groups = dice.choice([(), ("test",), ("dev",), ("dev", "test")])
    return Asked(extras, groups, has_main=dice.random() < 0.9)


def poetry_install(asked: Asked) -> Sequence[str]:
    return [
        *("install", "--dry-run", "--no-root"),
        *(f"--extras={extra}" for extra in asked.extras),
        *(f"--{'with' if asked.has_main else 'only'}={group}" for group in asked.groups),
        *(f"--without={group}" for group in asked.without),
    ]


def pdm_install(asked: Asked) -> Sequence[str]:
    return [
        *("install", "--dry-run", "--no-self"),
        *(f"-G{name}" for name in (*asked.extras, *asked.groups)),
        *([] if asked.groups else ["--prod"]),
        *([] if asked.has_main else ["--no-default"]),
    ]


def pipenv_install(asked: Asked) -> Sequence[str]:
    return ["install", "packages", *("dev-packages" if g == "dev" else g for g in asked.groups)]


class Case(NamedTuple):
    """A release of a tool, and how to ask it."""

    #: As uv runs it.
    packages: Sequence[str]
    project: Callable[[Dice, PackageIndex], str]
    asked: Callable[[Dice], Asked]
    install: Callable[[Asked], Sequence[str]]
    #: Name of the file that says what is required, and of the lock.
    files: tuple[str, str] = ("pyproject.toml", "poetry.lock")
    #: Commands that make the lock.
    lock: Sequence[Sequence[str]] = (("lock",),)
    #: How many projects, and how many selections of each.
    projects: int = 10
    selections: int = 2


POETRY = Case(["poetry==1.8.5"], poetry_project, poetry_asked, poetry_install)
CASES = {
    "poetry1": POETRY,
    "poetry2": POETRY._replace(packages=["poetry==2.5.1"]),
    "poetry2-standard": POETRY._replace(
        packages=["poetry==2.5.1"], project=poetry2_project, projects=11
    ),
    "pdm": Case(
        ["pdm==2.29.4", "hishel[httpx2]<2"],
        pdm_project,
        pdm_asked,
        pdm_install,
        ("pyproject.toml", "pylock.toml"),
        (("lock", "-G:all"), ("export", "-fpylock", "-opylock.toml")),
        projects=6,
        selections=3,
    ),
    "pipenv": Case(
        ["pipenv==2026.10.3", "pip"],
        pipfile,
        lambda dice: Asked(groups=dice.choice([(), ("dev",), ("docs",), ("dev", "docs")])),
        pipenv_install,
        ("Pipfile", "Pipfile.lock"),
        projects=1,
        selections=2,
    ),
}
#: Poetry 2 locks the same kind of project in every test run.
MARKS = {"poetry1": pytest.mark.weekly}


class Tool:
    """A tool in an environment of its own, driven through `lock_tools.py`."""

    def __init__(self, case: Case, home: Path) -> None:
        name = case.packages[0].partition("==")[0]
        more = (f"--with={package}" for package in case.packages[1:])
        options = ["-q", "--no-config", f"--exclude-newer={UNTIL}", f"--python={sys.executable}"]
        command = [find_uv().path, "tool", "run", *options, f"--from={case.packages[0]}", *more]
        self._process = subprocess.Popen(
            [*command, "python", DRIVER, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_environment(home)},
            text=True,
        )

    def run(self, folder: Path, arguments: Sequence[str], asked: Asked) -> Mapping[str, Any]:
        """How one command ended."""
        python, machine = [*map(int, asked.python.split("."))], MACHINES[asked.platform]
        request = {"folder": str(folder), "arguments": arguments}
        text = json.dumps({**request, "python": python, "machine": machine})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(text, file=self._process.stdin, flush=True)
        answer: Mapping[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


def _environment(home: Path) -> Mapping[str, str]:
    folders = ("POETRY_CACHE_DIR", "POETRY_CONFIG_DIR", "PDM_CACHE_DIR", "PIPENV_CACHE_DIR")
    return {
        **{name: str(home / name) for name in (*folders, "PIP_CACHE_DIR", "XDG_STATE_HOME")},
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "PDM_USE_VENV": "0",
        "PDM_IGNORE_SAVED_PYTHON": "1",
        "PDM_CHECK_UPDATE": "0",
        "PIPENV_NOSPIN": "1",
        "PIPENV_VERBOSITY": "-1",
        "PIP_CONFIG_FILE": os.devnull,
    }


@pytest.fixture
def tool(
    request: pytest.FixtureRequest,
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Tool]:
    """A tool that runs; our own look-ups go to the index, too."""
    # Shims of further Pythons (pyenv), which each tool tries, take longer than all else here.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    tool = Tool(CASES[request.param], tmp_path / "home")
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url("pypi"))
    yield tool
    tool.close()


def files_in(lock: Path, asked: Asked) -> Files | str:
    """What we take from a lock, or why nothing."""
    image = f"python:{asked.python}-slim-bookworm"
    python = asked.python.rpartition(".")[0]
    base = Base(image, image)
    one = target(python=python, platform=asked.platform, base=base, torch=None, index={})
    parts = map(frozenset, (asked.extras, asked.groups, asked.without))
    selection = LockSelection(lock, lock.name, one, *parts, asked.has_main, asked.has_main)
    try:
        pins, stale = read_committed(selection)
    except SpecError as error:
        return str(error)
    assert stale is None
    lock_with_files = find_files(find_uv(), one, pins, Recent(None), offline=False, jobs=1)
    files = set()
    for package in lock_with_files.packages:
        wheel = choose_wheel(package, one)
        if wheel is None:
            return f"{package.name} {package.version}: {package.unknown}"
        files.add((package.name, package.version, wheel.filename, wheel.sha256))
    return files


@pytest.mark.parametrize(
    ("tool", "name"),
    [pytest.param(name, name, marks=MARKS.get(name, [])) for name in CASES],
    indirect=["tool"],
    ids=CASES,
)
def test_generated_projects_come_to_what_their_tool_installs(
    tool: Tool, name: str, index: PackageIndex, tmp_path: Path
) -> None:
    case, dice = CASES[name], Dice(SEED)
    locked = compared = 0
    different = []
    while locked < (PROJECTS or case.projects):
        folder = tmp_path / f"p{locked}-{dice.random()}"
        folder.mkdir()
        (folder / case.files[0]).write_text(case.project(dice, index))
        if any(tool.run(folder, command, Asked())["code"] for command in case.lock):
            continue
        locked += 1
        for _ in range(case.selections):
            asked = case.asked(dice)
            answer = tool.run(folder, case.install(asked), asked)
            theirs: Files = {tuple(one.values()) for one in answer["installs"]}
            # What was chosen for two selections can be two versions for both: Poetry 2 installs one
            # after the other.
            is_refused = answer["code"] or len({one[0] for one in theirs}) < len(theirs)
            ours = files_in(folder / case.files[1], asked)
            compared += not is_refused
            if isinstance(ours, str) if is_refused else ours == theirs:
                continue
            # Poetry 2 locks and installs what is for other Pythons: nobody else gets these files.
            starts = tuple(f"{one[0]} {one[1]}: it is for Python" for one in theirs)
            if isinstance(ours, str) and ours.startswith(starts):
                continue
            shown = ours if isinstance(ours, str) else sorted(ours - theirs)
            different.append(f"{folder}\n{asked}\n{sorted(theirs - {*ours})}\n{shown}\n")
    assert compared >= locked
    assert not different, f"{len(different)} of {locked} projects\n" + "\n".join(different[:5])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=MARKS.get(name, [])) for name in ("poetry1", "poetry2", "pipenv")],
)
def test_a_tool_checks_its_lock_without_running_the_project(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = CASES[name].packages
    inputs, lock = CASES[name].files
    folder, trap = tmp_path / "project", tmp_path / "trap"
    shutil.copytree(DATA / packages[0].partition("==")[0], folder)
    # Poetry 2 loads plugins from here, pipenv its variables from there.
    plugin = folder / ".poetry" / "plugins"
    (plugin / "trap-1.dist-info").mkdir(parents=True)
    (plugin / "trap-1.dist-info" / "METADATA").write_text("Name: trap\nVersion: 1\n")
    (plugin / "trap-1.dist-info" / "entry_points.txt").write_text(
        "[poetry.plugin]\ntrap = trap:Plugin\n[poetry.application.plugin]\ntrap = trap:Plugin\n"
    )
    (plugin / "trap.py").write_text(f"open({str(trap)!r}, 'w')\nclass Plugin: pass\n")
    (folder / ".env").write_text("PIPENV_PIPFILE=elsewhere\n")
    where = [
        *(find_uv().path, "tool", "run", "-q", "--no-config", f"--exclude-newer={UNTIL}"),
        *(f"--python={sys.executable}", f"--from={packages[0]}"),
        *(f"--with={package}" for package in packages[1:]),
        *("python", "-c", "import sys; print(sys.prefix)"),
    ]
    prefix = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setenv("PATH", f"{prefix}/bin:/usr/bin:/bin")
    for key, value in _environment(tmp_path / "home").items():
        monkeypatch.setenv(key, value)
    # Poetry 2 made the lock of both: Poetry 1 hashes other parts of the project, so it cannot tell.
    can_tell = name != "poetry1"
    assert _ask_tool(folder / lock) is (True if can_tell else None)
    text = (folder / inputs).read_text()
    (folder / inputs).write_text(text.replace("sniffio", "trio"))
    assert _ask_tool(folder / lock) is (False if can_tell else None)
    assert not trap.exists()
