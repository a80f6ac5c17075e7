"""What was worked out about a distribution is used again while nothing that it rests on changed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_python_loading import ELF

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory import python_loading, python_outside
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import Inventory, Stats
from buildmatrix.facts.python_imports.program import Program
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.base import Tree
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import SETTLED_NS, FactCache
from buildmatrix.images.store.shared import SharedEntries, open_storage

FILES = {
    "app/__init__.py": "import lib\nimport helper\nlib.start()\nhelper.go()\n",
    "app/late.py": "import ctypes\ndef late():\n    ctypes.CDLL('libcuda.so.1')\n",
    "lib/__init__.py": "import ctypes\ndef start():\n    ctypes.CDLL('libcudart.so.12')\n",
    "helper/__init__.py": "def go():\n    pass\n",
    "native/__init__.py": "from native import _core\n",
}
OWNERS = ("app", "lib", "helper", "native")
SITE = "lib/python3.11/site-packages"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Four distributions that use one another."""
    folder = tmp_path / "tree" / SITE
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "native/_core.so").write_bytes(ELF)
    for owner in OWNERS:
        record(folder, owner)
    return folder


def record(site: Path, owner: str) -> None:
    metadata = site / f"{owner}-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    requires = "Requires-Dist: lib\n" if owner == "app" else ""
    (metadata / "METADATA").write_text(f"Name: {owner}\nVersion: 1.0\n{requires}")
    files = sorted(path.relative_to(site) for path in (site / owner).rglob("*") if path.is_file())
    (metadata / "RECORD").write_text("".join(f"{path},,\n" for path in files))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that are worked out, `loads app` and `imports app`."""
    questions: list[str] = []

    def count(question: str) -> Callable[..., Program]:
        def program(site: str, sources: dict[str, object], *rest: object) -> Program:
            names = {path.removeprefix(f"{SITE}/").partition("/")[0] for path in sources}
            questions.append(f"{question} {min(names)}")
            return Program(site, sources, *rest)  # type: ignore[arg-type]

        return program

    monkeypatch.setattr(python_loading, "Program", count("loads"))
    monkeypatch.setattr(python_outside, "Program", count("imports"))
    return questions


def scanned(tmp_path: Path, shared: SharedEntries | None = None) -> Inventory:
    root = tmp_path / "tree"
    with DirectoryTree(root) as tree:
        cache = Cache(tmp_path / "cache", shared=shared)
        # Files that changed this moment are trusted to stay as they are only a little later.
        later = FactCache(cache, now_ns=lambda: time.time_ns() + 10 * SETTLED_NS)
        inventory = later.folder(root, tree)
    return replace(inventory, stats=Stats())


def fresh(tmp_path: Path) -> Inventory:
    with DirectoryTree(tmp_path / "tree") as tree:
        return replace(collect(tree), stats=Stats())


def test_only_what_changed_is_worked_out_again(
    tmp_path: Path, site: Path, parsed: list[str]
) -> None:
    scanned(tmp_path)
    assert sorted(parsed) == [
        *(f"imports {owner}" for owner in sorted(OWNERS)),
        *("loads app", "loads lib", "loads native"),
    ]
    parsed.clear()
    (site / "helper/__init__.py").write_text("def go():\n    return 1\n")
    scanned(tmp_path)
    assert parsed == ["imports helper"]


def test_answers_about_a_folder_stay_on_its_machine(tmp_path: Path, site: Path) -> None:
    """Stamps name its files; another machine's files may have the same ones."""
    store = tmp_path / "store"
    scanned(tmp_path, SharedEntries(open_storage(str(store)), str(store), pytest.fail))
    assert (tmp_path / "cache/python").is_dir()
    assert not store.exists()


def test_a_second_folder_and_hard_links_take_the_answers_of_the_first(
    tmp_path: Path, site: Path, parsed: list[str]
) -> None:
    first = scanned(tmp_path)
    parsed.clear()
    (tmp_path / "tree").rename(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "tree", copy_function=os.link)
    second = scanned(tmp_path)
    assert (second.python_loads, second.python_imports) == (
        first.python_loads,
        first.python_imports,
    )
    assert not parsed


def test_no_answer_is_stored_for_bytes_that_were_swapped_during_the_scan(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Tree.read_bytes

    def swapped(tree: Tree, path: str, *rest: int) -> bytes:
        data = read(tree, path, *rest)
        return data.replace(b"libcudart.so.12", b"libm_____.so.6_")

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "read_bytes", swapped)
        swapped_names = {load.names for load in scanned(tmp_path).python_loads}
    assert ("libm_____.so.6_",) in swapped_names
    (site / "new.txt").write_text("so that the folder as a whole is not known")
    assert scanned(tmp_path) == fresh(tmp_path)


@pytest.mark.parametrize(
    "edit",
    [
        # A module of another distribution begins to load: calls of it now count.
        lambda site: (site / "helper/__init__.py").write_text(
            "import ctypes\ndef go():\n    ctypes.CDLL('libcuda.so.1')\n"
        ),
        # It ceases to.
        lambda site: (site / "lib/__init__.py").write_text("def start():\n    pass\n"),
        # It is there no longer, in name only, or belongs to nobody.
        lambda site: (site / "lib/__init__.py").unlink(),
        lambda site: (site / "lib-1.0.dist-info/RECORD").write_text(""),
        # A library of the distribution has another name, or goes.
        lambda site: (site / "native/_core.so").rename(site / "native/_other.so"),
        lambda site: (site / "native/_core.so").unlink(),
        # What the distribution requires is part of the answer.
        lambda site: (site / "app-1.0.dist-info/METADATA").write_text("Name: app\nVersion: 1.0\n"),
        # An extension takes the place of a module.
        lambda site: (site / "helper.so").write_bytes(ELF),
    ],
)
def test_an_answer_never_outlives_what_it_rests_on(
    tmp_path: Path, site: Path, edit: Callable[[Path], object]
) -> None:
    before = scanned(tmp_path)
    assert before == fresh(tmp_path)
    edit(site)
    after = scanned(tmp_path)
    assert after == fresh(tmp_path)
    assert after != before


def test_what_could_not_be_read_is_worked_out_again(
    tmp_path: Path, site: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Tree.read_bytes

    def failing(tree: Tree, path: str, *rest: int) -> bytes:
        if path.endswith("lib/__init__.py"):
            raise OSError(5, "the disk is bad")
        return read(tree, path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "read_bytes", failing)
        assert scanned(tmp_path).unread
    parsed.clear()
    assert scanned(tmp_path) == fresh(tmp_path)
    assert {"loads lib", "imports lib"} <= set(parsed)


@pytest.mark.parametrize("name", ["space/__init__.py", "space/main/part.pyd"])
def test_an_answer_depends_on_names_of_files_without_facts(
    tmp_path: Path, site: Path, name: str
) -> None:
    (site / "space/main").mkdir(parents=True)
    (site / "space/main/__init__.py").write_text("import space.main.part\nimport absent\n")
    if name == "space/__init__.py":
        (site / name).touch()
    record(site, "space")
    before = scanned(tmp_path)
    path = site / name
    path.unlink() if path.exists() else path.write_bytes(b"MZ" + bytes(300))
    after = scanned(tmp_path)
    assert after == fresh(tmp_path)
    assert after.python_imports != before.python_imports
