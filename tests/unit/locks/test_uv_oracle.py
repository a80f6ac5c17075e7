"""`uv.lock` means what `uv sync --frozen` installs: written-down and generated projects.

The files are those that `packaging` selects from `uv export`, and so are those of our reading of
that export.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from lock_cases import target
from package_index import PackageIndex, serve
from packaging.markers import default_environment
from packaging.pylock import PackageWheel, Pylock, PylockSelectError
from packaging.tags import compatible_tags, cpython_tags

from buildmatrix.base import toml
from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.locks.committed import read_committed
from buildmatrix.locks.selection import LockSelection, choose_wheel
from buildmatrix.locks.taken import own_projects, read_taken
from buildmatrix.matrix.model import Base

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
#: 300 with those of Poetry, pdm and pipenv (`tests/integration/test_lock_oracles.py`).
#: More by hand: `BUILDMATRIX_PROJECTS=500 pytest tests/unit/locks/test_uv_oracle.py`.
PROJECTS = int(os.environ.get("BUILDMATRIX_PROJECTS", "262"))
SEED = int(os.environ.get("BUILDMATRIX_SEED", "27"))
NAMES = ("ant", "bee", "cat", "dog", "eel", "fox")
TAGS = ("py3-none-any", *(f"py3-none-manylinux_2_28_{one}" for one in MACHINES.values()))

#: Name, version, file, sha256.
Files = set[tuple[str, str, str, str]]
MARKERS = (
    "sys_platform == 'linux'",
    "sys_platform == 'win32'",
    "platform_machine == 'x86_64'",
    "platform_machine == 'aarch64'",
    "python_version >= '3.13'",
    "python_version < '3.13'",
)


class Asked(NamedTuple):
    """A selection."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    platform: str = "linux/amd64"


class Workspace(NamedTuple):
    """The real uv, and a folder that it works in."""

    folder: Path
    environment: Mapping[str, str]

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def uv(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "uv"), *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True
        )

    def _parts(self, asked: Asked) -> Sequence[str]:
        return [
            *(f"--extra={extra}" for extra in asked.extras),
            *(f"--group={group}" for group in asked.groups),
            *(f"--no-group={group}" for group in asked.without),
        ]

    def installed(self, asked: Asked) -> Files | None:
        """What uv would install; None where it refuses."""
        parts = self._parts(asked)
        platform = f"--python-platform={MACHINES[asked.platform]}-manylinux_2_28"
        answer = self.uv("sync", "--frozen", "--dry-run", "--output-format=json", platform, *parts)
        if answer.returncode:
            assert "panicked" not in answer.stderr
            return None
        changes = json.loads(answer.stdout)["sync"]["changes"]
        files = self.exported(asked)
        assert files is not None
        assert {(one[0], one[1]) for one in files} == {
            (change["name"], change["version"]) for change in changes
        }
        return files

    def exported(self, asked: Asked) -> Files | None:
        """Files that `packaging` selects from an export; None where uv refuses."""
        options = ("--frozen", "--no-emit-workspace", "--format=pylock.toml", "-opylock.toml")
        answer = self.uv("export", *options, *self._parts(asked))
        if answer.returncode:
            assert "panicked" not in answer.stderr
            return None
        platforms = [
            f"manylinux_2_{minor}_{MACHINES[asked.platform]}" for minor in range(28, 16, -1)
        ]
        version = sys.version_info[:2]
        tags = [
            *cpython_tags(version, platforms=platforms),
            *compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
        ]
        environment = {**default_environment(), "platform_machine": MACHINES[asked.platform]}
        lock = Pylock.from_dict(toml.loads((self.folder / "pylock.toml").read_text()))
        files: Files | None = set()
        try:
            for package, file in lock.select(environment=environment, tags=tags):
                assert isinstance(file, PackageWheel)
                row = (package.name, str(package.version), file.filename, file.hashes["sha256"])
                files.add(row)
        except PylockSelectError:
            # The project does not support this environment, or has no file for it.
            files = None
        assert self.read(asked._replace(extras=(), groups=(), without=()), "pylock.toml") == files
        return files

    def read(self, asked: Asked, name: str = "uv.lock") -> Files | None:
        """The same in our words, without the members of the workspace."""
        image = f"python:{platform.python_version()}-slim-bookworm"
        one = target(python=PYTHON, platform=asked.platform, base=Base(image, image))
        selection = LockSelection(self.folder / name, name, one, *map(frozenset, asked[:3]))
        try:
            pins, stale = read_committed(selection)
        except SpecError:
            return None
        assert stale is None, asked
        return {
            (package.name, package.version, wheel.filename, wheel.sha256)
            for package in pins.lock.packages
            if (wheel := choose_wheel(package, one)) is not None
        }


@pytest.fixture(scope="module")
def served() -> Iterator[PackageIndex]:
    """Six distributions in four versions, which require one another in ways that differ.

    A second index has other builds of one version, and one version more.
    """
    dice = random.Random(27)
    with serve() as index:
        for name in NAMES:
            for version in ("1.0", "1.1", "2.0", "2.1+cpu"):
                requires = [
                    _requirement(dice, [other for other in NAMES if other > name], version)
                    + (f"; extra == '{extra}'" if extra else "")
                    for extra in ("", "", "fast", "web")
                    if name != NAMES[-1] and dice.random() < 0.5
                ]
                for tag in dice.choice([TAGS[:1], TAGS[:2], TAGS]):
                    index.add_wheel("pypi", name, version, tag, *requires)
            for version in ("1.1", "3.0"):
                index.add("extra", name, version)
        yield index


@pytest.fixture
def workspace(
    served: PackageIndex, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Workspace:
    cache = tmp_path_factory.getbasetemp() / "uv-oracle"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("UV_")}
    return Workspace(
        tmp_path,
        {
            **kept,
            "UV_DEFAULT_INDEX": served.url("pypi"),
            "UV_CACHE_DIR": str(cache),
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_CONFIG": "1",
        },
    )


def _requirement(dice: random.Random, names: Sequence[str], version: str = "") -> str:
    name = dice.choice(names)
    extra = f"[{dice.choice(['fast', 'web'])}]" if dice.random() < 0.3 else ""
    return f"{name}{extra}{dice.choice(['', '', '>=1.1', '<2'])}" if version else f"{name}{extra}"


PROJECT = """\
[project]
name = "acme"
version = "1"
requires-python = ">=3.11"
dependencies = [{dependencies}]
[project.optional-dependencies]
cpu = ["ant<2"]
gpu = [{gpu}]
[dependency-groups]
dev = [{dev}]
[tool.uv]
package = false
"""
ENGINE = """\
[project]
name = "engine"
version = "1"
requires-python = ">=3.11"
[project.optional-dependencies]
cpu = ["cat==1.0"]
gpu = ["cat==2.0"]
[tool.uv]
package = false
"""
CONFLICT = 'conflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]\n'
MEMBERS = '[tool.uv.workspace]\nmembers = ["engine"]\n[tool.uv.sources]\nengine.workspace = true\n'


def project(gpu: str = '"ant==2.0"', dev: str = "", dependencies: str = "") -> str:
    return PROJECT.format(gpu=gpu, dev=dev, dependencies=dependencies)


def bare(name: str, requirement: str) -> str:
    return (
        f'[project]\nname = "{name}"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["{requirement}"]\n[tool.uv]\npackage = false\n'
    )


CPU, GPU = Asked(("cpu",)), Asked(("gpu",))
ARM = Asked(platform="linux/arm64")
ROWS: Mapping[str, tuple[Mapping[str, str], Sequence[Asked]]] = {
    "a group asks for an extra of its project": (
        {"pyproject.toml": project(dev='"acme[gpu]"') + CONFLICT},
        [Asked(), CPU, GPU, Asked(("cpu",), without=("dev",)), Asked(without=("dev",))],
    ),
    "an extra asks for an extra of a member": (
        {
            "pyproject.toml": project('"ant==2.0", "engine[gpu]"')
            + CONFLICT.replace(
                "]]",
                '], [{ package = "engine", extra = "cpu" }, '
                '{ package = "engine", extra = "gpu" }]]',
            )
            + MEMBERS,
            "engine/pyproject.toml": ENGINE,
        },
        [Asked(), CPU, GPU, Asked(("cpu", "gpu"))],
    ),
    "two members exclude each other": (
        {
            "pyproject.toml": '[tool.uv]\nconflicts = [[{ package = "acme" }, '
            '{ package = "engine" }]]\n[tool.uv.workspace]\nmembers = ["acme", "engine"]\n',
            "acme/pyproject.toml": bare("acme", "cat==1.1"),
            "engine/pyproject.toml": bare("engine", "cat==2.0"),
        },
        [Asked()],
    ),
    "a project and a member exclude each other": (
        {
            "pyproject.toml": bare("acme", "cat==1.1")
            + 'conflicts = [[{ package = "acme" }, { package = "engine" }]]\n'
            + MEMBERS,
            "engine/pyproject.toml": bare("engine", "cat==2.0"),
        },
        [Asked()],
    ),
    "a dependency of the project is for an extra": (
        {
            "pyproject.toml": project(dependencies="\"bee; extra == 'gpu' or extra == 'x'\"")
            + CONFLICT
        },
        [Asked(), CPU, GPU, Asked(("x",))],
    ),
    "a dependency is for an extra that nobody declares": (
        {"pyproject.toml": bare("acme", "bee; extra == 'x'")},
        [Asked(), Asked(("x",))],
    ),
    "a group is for another Python": (
        {
            "pyproject.toml": project('"bee"', dev='"cat"')
            + '[tool.uv.dependency-groups]\ndev = { requires-python = ">=3.99" }\n'
        },
        [Asked(), Asked(without=("dev",))],
    ),
    "only some environments are supported": (
        {
            "pyproject.toml": project('"bee"', dependencies='"bee"')
            + "environments = [\"platform_machine == 'x86_64'\"]\n"
        },
        [Asked(), ARM],
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_uv_lock_comes_to_what_uv_installs(workspace: Workspace, row: str) -> None:
    files, selections = ROWS[row]
    workspace.write(files)
    assert workspace.uv("lock").returncode == 0
    for asked in selections:
        assert workspace.read(asked) == workspace.installed(asked), asked


def test_folders_of_a_uv_lock_are_built_where_uv_builds_them(workspace: Workspace) -> None:
    def plain(name: str, rest: str = "", *requirements: str) -> str:
        return (
            bare(name, "ant")
            .partition("[tool")[0]
            .replace('["ant"]', json.dumps(["ant", *requirements]))
            + rest
        )

    members = '[tool.uv.workspace]\nmembers = ["member", "virtual"]\n[tool.uv.sources]\n'
    members += "member.workspace = true\nvirtual.workspace = true\n"
    members += 'folder = { path = "folder" }\n'
    build = '[build-system]\nrequires = ["setuptools"]\n'
    workspace.write(
        {
            "pyproject.toml": plain("acme", members, "member", "virtual", "folder"),
            "member/pyproject.toml": plain("member"),
            "virtual/pyproject.toml": plain("virtual", f"{build}[tool.uv]\npackage = false\n"),
            "folder/pyproject.toml": plain("folder"),
        }
    )
    assert workspace.uv("lock").returncode == 0
    answer = workspace.uv("sync", "--frozen", "--dry-run", "--output-format=json")
    built = {change["name"] for change in json.loads(answer.stdout)["sync"]["changes"]} - {*NAMES}
    assert built == {"member", "folder"}
    one = replace(
        target(python=PYTHON, base=Base("python:3", "python:3")),
        committed_lock="uv.lock",
        pyproject="pyproject.toml",
        install_project=True,
    )
    assert set(own_projects(workspace.folder, one)) == built
    lock = read_taken(workspace.folder, one)[0].lock
    assert {package.name for package in lock.packages} <= {*NAMES}
    (ant,) = (package for package in lock.packages if package.name == "ant")
    assert {*ant.via} == {"pyproject.toml:5", "virtual/pyproject.toml:5", "folder", "member"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("package.dev-dependencies", "package.dependency-groups"),
        ("requires-dev", "dependency-groups"),
        ("[package", "[distribution"),
    ],
)
def test_a_uv_lock_means_the_same_by_the_other_names_of_its_keys(
    workspace: Workspace, old: str, new: str
) -> None:
    workspace.write({"pyproject.toml": project('"bee"', dev='"bee"')})
    assert workspace.uv("lock").returncode == 0
    lock = workspace.folder / "uv.lock"
    assert old in lock.read_text()
    lock.write_text(lock.read_text().replace(old, new))
    for asked in (Asked(), Asked(groups=("dev",)), Asked(without=("dev",))):
        assert workspace.read(asked) == workspace.installed(asked)


def _member(dice: random.Random, name: str, others: Sequence[str], root: str = "") -> str:
    """A random `pyproject.toml`."""

    def wish(extras: Sequence[str]) -> str:
        kind = dice.random()
        if kind < 0.2 and extras:
            wished = f"{name}[{dice.choice(extras)}]"
        elif kind < 0.35 and others:
            wished = f"{dice.choice(others)}[{dice.choice(['cpu', 'gpu', 'all'])}]"
        else:
            pin = dice.choice(["", "", "", "", "==1.0", ">=1.1", "<2", "==2.1+cpu"])
            wished = _requirement(dice, NAMES) + pin
        return wished + (f" ; {dice.choice(MARKERS)}" if dice.random() < 0.25 else "")

    def wishes(most: int, extras: Sequence[str] = ()) -> str:
        return json.dumps([wish(extras) for _ in range(dice.randint(0, most))])

    every = ("cpu", "gpu", "all")
    extra_wishes = {
        "cpu": wishes(2),
        "gpu": wishes(2),
        "all": wishes(2, ("cpu", "gpu")),
    }
    lines = [
        "[project]",
        f'name = "{name}"',
        'version = "1"',
        'requires-python = ">=3.11"',
        f"dependencies = {wishes(2)}",
        "[project.optional-dependencies]",
        *(f"{extra} = {items}" for extra, items in extra_wishes.items()),
        "[dependency-groups]",
        f"dev = {wishes(2, every)}",
        f"test = {wishes(2, every)}",
        "[tool.uv]",
        "package = false",
    ]
    return "\n".join(lines) + "\n" + root


def _routed(dice: random.Random, url: str, member: str) -> str:
    """A name whose files come from the second index: always, for an extra, or on some machines.

    uv refuses an extra or a group that does not require the name.
    """
    data = toml.loads(member)
    extras = data["project"]["optional-dependencies"]
    ways = {
        "": NAMES,
        f', marker = "{dice.choice(MARKERS)}"': NAMES,
        **{f', extra = "{extra}"': extras[extra] for extra in ("cpu", "gpu")},
        ', group = "test"': data["dependency-groups"]["test"],
    }
    routes = [(way, [one for one in items if one[:3] in NAMES]) for way, items in ways.items()]
    way, items = dice.choice([route for route in routes if route[1]])
    return (
        f'{dice.choice(items)[:3]} = [{{ index = "extra"{way} }}]\n'
        f'[[tool.uv.index]]\nname = "extra"\nurl = "{url}"\nexplicit = true\n'
    )


def _workspace(dice: random.Random, extra: str) -> Mapping[str, str]:
    """The files of a random workspace; `extra` is the address of the second index."""
    members = ["engine", "tools"][: dice.choice([0, 0, 1, 2])]
    is_project = not members or dice.random() < 0.7
    names = [*(["acme"] if is_project else []), *members]
    items = [
        f'{{ package = "{name}", {kind} }}'
        for name in names
        for kind in ('extra = "cpu"', 'extra = "gpu"', 'extra = "all"', 'group = "test"')
    ] + [f'{{ package = "{name}" }}' for name in members]
    sets = [dice.sample(items, 2) for _ in range(dice.choice([0, 1, 1, 2]))]
    sets += [
        [f'{{ package = "{name}", extra = "{extra}" }}' for extra in ("cpu", "gpu")]
        for name in names
        if dice.random() < 0.6
    ]
    root = f"conflicts = [{', '.join('[' + ', '.join(several) + ']' for several in sets)}]\n"
    if dice.random() < 0.2:
        root += f'environments = ["{dice.choice(MARKERS)}"]\n'
    root += "[tool.uv.sources]\n" + "".join(f"{name}.workspace = true\n" for name in members)
    project = _member(dice, "acme", members)
    if is_project and dice.random() < 0.5:
        root += _routed(dice, extra, project)
    root += f"[tool.uv.workspace]\nmembers = {json.dumps(members)}\n"
    files = {
        f"{name}/pyproject.toml": _member(
            dice,
            name,
            [other for other in members if other > name],
            "[tool.uv.sources]\n"
            + "".join(f"{other}.workspace = true\n" for other in members if other != name),
        )
        for name in members
    }
    files["pyproject.toml"] = (project if is_project else "[tool.uv]\n") + root
    return files


def test_generated_projects_come_to_what_uv_installs(
    workspace: Workspace, served: PackageIndex
) -> None:
    dice = random.Random(SEED)
    locked = compared = 0
    while locked < PROJECTS:
        files = _workspace(dice, served.url("extra"))
        one = workspace._replace(folder=workspace.folder / f"p{dice.random()}")
        one.write(files)
        if one.uv("lock").returncode:
            continue
        locked += 1
        # `uv sync` knows more reasons to refuse than `uv export`, and costs as much again.
        is_synced = locked % 10 == 0
        for _ in range(3 if is_synced else 1):
            with_dev = dice.choice([(), (), ("dev",)])
            asked = Asked(
                tuple(dice.sample(("cpu", "gpu", "all"), dice.choice([0, 1, 1, 2]))),
                (*dice.choice([(), (), ("test",)]), *with_dev),
                () if with_dev else dice.choice([(), ("dev",)]),
                dice.choice(sorted(MACHINES)),
            )
            ours, theirs = one.read(asked), one.exported(asked)
            if is_synced or ours != theirs:
                theirs = one.installed(asked)
            compared += theirs is not None
            assert ours == theirs, f"{asked} of {one.folder}"
    assert compared >= PROJECTS * 3 // 4
