from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
import pytest

from buildmatrix.facts.inventory.file_facts import FileFacts, ReadBytes
from buildmatrix.facts.inventory.memory import inspect_unless_known, is_known
from buildmatrix.facts.inventory.model import Inventory, Stats, SystemPackage, Unread
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.base import File
from buildmatrix.images.store import facts
from buildmatrix.images.store.cache import DAY, Cache
from buildmatrix.images.store.facts import FactCache
from buildmatrix.images.store.folder import ByteSeal

KEY = b"key of this machine's own files!"
KNOWN = Inventory(system_packages=(SystemPackage("libc6", "2.36"),), stats=Stats(files=7))


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, notes: list[str]) -> FactCache:
    return FactCache(Cache(tmp_path / "cache", notes.append), now_ns=much_later, key=KEY)


def much_later() -> int:
    """The time at which no file counts as just changed."""
    return time.time_ns() + 10 * facts.SETTLED_NS


def wait_for_another_ctime(folder: Path) -> None:
    """Return when the next change gets a later ctime: the clock of files ticks in milliseconds."""
    probe = folder / "probe"
    probe.touch()
    first = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == first:
        os.utime(probe)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a real library, a text and a file of device code."""
    folder = tmp_path / "tree"
    folder.mkdir()
    shutil.copy(msgspec._core.__file__, folder / "lib.so")
    (folder / "a.txt").write_text("nothing of note")
    (folder / "k.ptx").write_text(".version 8.0")
    return folder


def scanned(cache: FactCache, root: Path) -> Inventory:
    with DirectoryTree(root) as tree:
        return cache.folder(root, tree)


def same_facts(one: Inventory, other: Inventory) -> bool:
    return (one.binaries, one.artefacts, one.unread) == (
        other.binaries,
        other.artefacts,
        other.unread,
    )


def never() -> Inventory:
    raise AssertionError("this was to come from the cache")


def entries(cache: FactCache, tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


# Folders


def test_an_unchanged_folder_is_not_read_again(cache: FactCache, tree: Path) -> None:
    first, second = scanned(cache, tree), scanned(cache, tree)
    assert first.binaries and first.artefacts and first.stats.cached == 0
    assert same_facts(first, second)
    assert (second.stats.cached, second.stats.bytes_read) == (3, 0)


def test_a_changed_file_is_read_again_and_only_that_one(cache: FactCache, tree: Path) -> None:
    scanned(cache, tree)
    (tree / "k.ptx").rename(tree / "k.txt")
    os.truncate(tree / "lib.so", 40)
    after = scanned(cache, tree)
    assert after.binaries == after.artefacts == ()
    assert [item.path for item in after.unread] == ["lib.so"]
    assert after.stats.cached == 1


def test_a_change_that_keeps_size_and_modification_time_is_seen(
    cache: FactCache, tree: Path, tmp_path: Path
) -> None:
    before = scanned(cache, tree)
    wait_for_another_ctime(tmp_path)
    times = (tree / "lib.so").stat()
    data = bytearray((tree / "lib.so").read_bytes())
    data[:4] = b"gone"
    (tree / "lib.so").write_bytes(data)
    os.utime(tree / "lib.so", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert before.binaries and not scanned(cache, tree).binaries


def test_a_file_that_changed_just_now_is_not_trusted_to_stay(tree: Path, tmp_path: Path) -> None:
    wait_for_another_ctime(tmp_path)
    new = tree / "new.so"
    new.write_bytes((tree / "lib.so").read_bytes())
    soon_after = new.stat().st_ctime_ns + facts.SETTLED_NS
    cache = FactCache(Cache(tmp_path / "cache"), now_ns=lambda: soon_after)
    assert scanned(cache, tree).stats.cached == 0
    assert scanned(cache, tree).stats.cached == 3


def test_what_could_not_be_read_is_tried_again(cache: FactCache, tree: Path) -> None:
    os.truncate(tree / "lib.so", 10)
    assert scanned(cache, tree).unread
    again = scanned(cache, tree)
    assert again.unread and again.stats.cached == 2


def test_a_name_that_is_no_text_is_remembered_too(cache: FactCache, tree: Path) -> None:
    shutil.copy(tree / "lib.so", os.fsencode(tree) + b"/\xff.so")
    first = scanned(cache, tree)
    second = scanned(cache, tree)
    assert same_facts(first, second)
    assert second.stats.cached == 4


# Python files, by their content

LOADING = "import ctypes\nctypes.CDLL('libcudart.so.12')\n"
HARMLESS = "import ctypes\nctypes.CDLL('libm_____.so.6_')\n"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A site-packages with one distribution, whose module loads a library."""
    folder = tmp_path / "first"
    (folder / "demo-1.dist-info").mkdir(parents=True)
    (folder / "demo-1.dist-info/METADATA").write_text("Name: demo\nVersion: 1\n")
    (folder / "demo-1.dist-info/RECORD").write_text("demo.py,,\n")
    (folder / "demo.py").write_text(LOADING)
    return folder


def loaded(inventory: Inventory) -> list[str]:
    return [name for load in inventory.python_loads for name in load.names]


def test_a_hard_link_that_is_made_or_removed_costs_no_analysis(
    cache: FactCache, environment: Path, tmp_path: Path
) -> None:
    first = scanned(cache, environment)
    for change in (
        lambda: os.link(environment / "demo.py", tmp_path / "other"),
        (tmp_path / "other").unlink,
    ):
        wait_for_another_ctime(tmp_path)
        change()
        again = scanned(cache, environment)
        assert again.python_loads == first.python_loads
        assert again.stats.cached == 3


def test_a_second_folder_takes_the_facts_of_the_first(
    cache: FactCache, environment: Path, tmp_path: Path
) -> None:
    first = scanned(cache, environment)
    shutil.copytree(environment, tmp_path / "second")
    second = scanned(cache, tmp_path / "second")
    assert loaded(first) == loaded(second) == ["libcudart.so.12"]
    assert (first.stats.cached, second.stats.cached) == (0, 1)


def test_the_folder_with_the_most_equal_distributions_is_used(
    cache: FactCache, environment: Path, tmp_path: Path
) -> None:
    shutil.copytree(environment, tmp_path / "same")
    (tmp_path / "same/more-1.dist-info").mkdir()
    (tmp_path / "same/more-1.dist-info/RECORD").write_text("")
    (environment / "demo.py").write_text(HARMLESS)
    shutil.copytree(environment, tmp_path / "last")
    for folder in (environment, tmp_path / "same", tmp_path / "last"):
        scanned(cache, folder)
    shutil.copytree(tmp_path / "same", tmp_path / "new")
    assert scanned(cache, tmp_path / "new").stats.cached == 1


def overwrite(path: Path) -> None:
    path.write_text(HARMLESS)


def replace_file(path: Path) -> None:
    path.with_name("new").write_text(HARMLESS)
    path.with_name("new").rename(path)


@pytest.mark.parametrize("change", [overwrite, replace_file])
@pytest.mark.parametrize("folder", ["first", "second"])
def test_other_bytes_of_the_same_size_and_time_have_their_own_facts(
    cache: FactCache, environment: Path, tmp_path: Path, change: Callable[[Path], None], folder: str
) -> None:
    assert len(LOADING) == len(HARMLESS)
    scanned(cache, environment)
    if folder == "second":
        shutil.copytree(environment, tmp_path / folder)
    wait_for_another_ctime(tmp_path)
    path = tmp_path / folder / "demo.py"
    times = path.stat()
    change(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert loaded(scanned(cache, tmp_path / folder)) == ["libm_____.so.6_"]


def test_the_hash_in_a_record_is_not_believed(
    cache: FactCache, environment: Path, tmp_path: Path
) -> None:
    claim = "sha256=" + "0" * 43
    (environment / "demo-1.dist-info/RECORD").write_text(f"demo.py,{claim},{len(LOADING)}\n")
    scanned(cache, environment)
    shutil.copytree(environment, tmp_path / "second")
    (tmp_path / "second/demo.py").write_text(HARMLESS)
    assert loaded(scanned(cache, tmp_path / "second")) == ["libm_____.so.6_"]


@pytest.mark.parametrize("damage", [b"", b"x", b"\x81\xa1x\xc0"])
def test_a_damaged_list_of_folders_costs_only_time(
    cache: FactCache, environment: Path, tmp_path: Path, damage: bytes
) -> None:
    scanned(cache, environment)
    cache._folders.put(facts._RECENT, damage)
    for number in range(2):
        shutil.copytree(environment, tmp_path / str(number))
        again = scanned(cache, tmp_path / str(number))
        assert loaded(again) == ["libcudart.so.12"]
        assert again.stats.cached == number


def test_a_python_file_that_changed_just_now_is_recognized_by_its_bytes(
    environment: Path, tmp_path: Path
) -> None:
    changed = (environment / "demo.py").stat().st_ctime_ns
    cache = FactCache(Cache(tmp_path / "cache"), now_ns=lambda: changed)
    first, second = scanned(cache, environment), scanned(cache, environment)
    assert first.python_loads == second.python_loads
    assert (first.stats.cached, second.stats.cached) == (0, 1)


# Binaries, by the bytes that were read


def link(tree: Path, tmp_path: Path) -> None:
    """Change the ctime of the library, as `uv` does by linking it into another environment."""
    wait_for_another_ctime(tmp_path)
    os.link(tree / "lib.so", tmp_path / "linked.so")


def test_a_binary_with_another_ctime_is_recognized(
    cache: FactCache, tree: Path, tmp_path: Path
) -> None:
    first = scanned(cache, tree)
    link(tree, tmp_path)
    for folder in (tree, tmp_path / "second"):
        if folder != tree:
            (tree / "demo-1.dist-info").mkdir()
            (tree / "demo-1.dist-info/RECORD").write_text("")
            scanned(cache, tree)
            shutil.copytree(tree, folder)
        again = scanned(cache, folder)
        assert again.binaries == first.binaries
        # Of other files, opening them is all that reading costs.
        assert again.stats.cached == (3 if folder == tree else 1)


@pytest.mark.parametrize("times", [1, 2])
def test_another_byte_that_was_read_is_seen_whatever_the_stamp(
    cache: FactCache, tree: Path, tmp_path: Path, times: int
) -> None:
    for _ in range(times):  # Facts that were recognized are stored again.
        assert "libc.so.6" in scanned(cache, tree).binaries[0].elf.needed
        (tmp_path / "linked.so").unlink(missing_ok=True)
        link(tree, tmp_path)
    library = tree / "lib.so"
    status = library.stat()
    library.write_bytes(library.read_bytes().replace(b"libc.so.6", b"libd.so.6"))
    os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "libd.so.6" in scanned(cache, tree).binaries[0].elf.needed


def test_each_byte_that_was_read_counts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    data = bytes(range(256)) * 1024
    file.write_bytes(data)
    places = (0, 64, 1000, 3, 100_000, 70_000)
    seal = ByteSeal(KEY, b"")
    for at, length in zip(places[::2], places[1::2], strict=True):
        seal.update(data[at : at + length])
    sealed = FileFacts(sealed=ReadBytes(len(data), places, seal.finish()))

    def is_recognized() -> bool:
        with DirectoryTree(tmp_path) as tree:
            item = File("file", file.stat().st_size)
            seen = inspect_unless_known(tree, item, sealed, partial(ByteSeal, KEY))
        return is_known(seen, sealed)

    assert is_recognized()
    for at in (0, 63, 1000, 1002, 100_000, 169_999):
        file.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        assert not is_recognized() or data[at] == 255
    for at in (64, 999, 1003, 170_000):
        file.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        assert is_recognized()
    for other in (data[:-1], data + b"x", b""):
        file.write_bytes(other)
        assert not is_recognized()


def test_a_seal_of_another_key_is_not_believed(
    cache: FactCache, tree: Path, tmp_path: Path
) -> None:
    first = scanned(cache, tree)
    link(tree, tmp_path)
    other = FactCache(cache.cache, now_ns=much_later, key=bytes(32))
    again = scanned(other, tree)
    assert again.binaries == first.binaries
    assert again.stats.cached == 2


def test_the_contents_of_a_container_are_not_taken_from_its_seal(
    cache: FactCache, tree: Path, tmp_path: Path
) -> None:
    library = tree / "lib.so"
    program = library.read_bytes()

    def write(inner: bytes) -> None:
        with zipfile.ZipFile(tmp_path / "behind.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("inner.so"), inner)
        library.write_bytes(program + (tmp_path / "behind.zip").read_bytes())

    def needed() -> set[str]:
        inner = [item for item in scanned(cache, tree).binaries if item.container]
        return {name for item in inner for name in item.elf.needed}

    write(program)
    assert "libc.so.6" in needed()
    wait_for_another_ctime(tmp_path)
    write(program.replace(b"libc.so.6", b"libd.so.6"))
    assert "libd.so.6" in needed()


# Wheels and images


def test_the_same_content_is_read_once(cache: FactCache) -> None:
    assert cache.inventory("wheel 1", lambda: KNOWN) == KNOWN
    again = cache.inventory("wheel 1", never)
    assert again.system_packages == KNOWN.system_packages
    assert (again.stats.cached, again.stats.bytes_read) == (7, 0)
    assert cache.inventory("wheel 2", Inventory) == Inventory()


def test_an_incomplete_inventory_is_read_again(cache: FactCache) -> None:
    broken = Inventory(unread=(Unread("x", "permission denied"),))
    assert cache.inventory("wheel 1", lambda: broken) == broken
    assert cache.inventory("wheel 1", lambda: KNOWN) == KNOWN


def test_another_scanner_reads_again(
    cache: FactCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.inventory("wheel 1", lambda: KNOWN)
    monkeypatch.setattr(facts, "source_digest", lambda *_: "another")
    other = FactCache(Cache(tmp_path / "cache"))
    assert other.inventory("wheel 1", Inventory) == Inventory()


# What can happen to entries


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 4096])
def test_a_damaged_entry_is_removed_and_read_again(
    cache: FactCache, tmp_path: Path, notes: list[str], damage: bytes
) -> None:
    cache.inventory("wheel 1", lambda: KNOWN)
    (entry,) = entries(cache, tmp_path)
    entry.write_bytes(damage)
    unread = Inventory(unread=(Unread("x", "so that nothing is written"),))
    assert cache.inventory("wheel 1", lambda: unread) == unread
    assert not entries(cache, tmp_path) and not notes


def test_a_bit_that_flipped_is_noticed(cache: FactCache, tmp_path: Path) -> None:
    cache.inventory("wheel 1", lambda: KNOWN)
    (entry,) = entries(cache, tmp_path)
    data = bytearray(entry.read_bytes())
    data[-5] ^= 1
    entry.write_bytes(data)
    assert cache.inventory("wheel 1", lambda: KNOWN).stats.cached == 0


def test_an_entry_that_holds_something_else_is_a_miss(cache: FactCache, tree: Path) -> None:
    scanned(cache, tree)
    cache._folders.put(f"folder:{tree.resolve()}", b"no facts")
    (tree / "new.txt").write_text("so that the folder as a whole is not known")
    assert scanned(cache, tree).stats.cached == 0
    assert scanned(cache, tree).stats.cached >= 3


def test_the_least_recently_used_entries_go_first(tmp_path: Path, notes: list[str]) -> None:
    data = Inventory(library_folders=tuple(f"{number:0100}" for number in range(100)))
    size = len(facts.encode(data))
    cache = FactCache(Cache(tmp_path / "cache", notes.append), limit=int(2.5 * size))
    long_ago = time.time() - 20 * DAY
    for number, name in enumerate(["a", "b"]):
        cache.inventory(name, lambda: data)
        path = cache._store.path(f"inventory:{name}")
        assert path is not None
        os.utime(path, (long_ago + number, long_ago + number))
    cache.inventory("a", never)
    cache.inventory("c", lambda: data)
    cache.inventory("a", never)
    cache.inventory("c", never)
    assert cache.inventory("b", lambda: data).stats.cached == 0


def test_what_a_killed_run_left_is_removed_and_what_another_run_writes_is_not(
    cache: FactCache, tmp_path: Path
) -> None:
    cache.inventory("wheel 1", lambda: KNOWN)
    (entry,) = entries(cache, tmp_path)
    old, young = entry.with_name(".x.old"), entry.with_name(".x.young")
    old.touch()
    young.touch()
    os.utime(old, (0, 0))
    FactCache(Cache(tmp_path / "cache")).inventory("wheel 2", lambda: KNOWN)
    assert not old.exists() and young.exists()


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do `work` in a process that is killed at its call of that number; whether it came so far."""
    child = os.fork()
    if child == 0:
        steps = 0

        def profile(_: FrameType, event: str, __: object) -> None:
            nonlocal steps
            steps += event in ("call", "c_call")
            if steps == step:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(profile)
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_run_that_is_killed_while_it_writes_leaves_a_cache_that_works(cache: FactCache) -> None:
    data = facts.encode(Inventory(library_folders=tuple(map(str, range(20_000)))))
    seen = set()
    for step in itertools.count(1, 3):
        cache._store.remove("inventory:wheel 1")
        if not killed_at(step, lambda: cache._store.put("inventory:wheel 1", data)):
            break
        known = cache.inventory("wheel 1", lambda: KNOWN)
        assert known == KNOWN or len(known.library_folders) == 20_000
        seen.add(known == KNOWN)
    assert seen == {True, False}


def test_runs_at_the_same_time_do_not_disturb_each_other(
    tmp_path: Path, tree: Path, environment: Path
) -> None:
    program = f"""
import os, shutil
from pathlib import Path
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import FactCache
from buildmatrix.images.store.folder import ByteSeal
from buildmatrix.facts.inventory.memory import inspect_unless_known, is_known
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.facts.trees.base import File
root = Path({str(tree)!r})
cache = FactCache(Cache(Path({str(tmp_path / "cache")!r}), print), limit=100_000)
for number in range(20):
    with DirectoryTree(root) as tree:
        found = cache.folder(root, tree)
    assert len(found.binaries) == 1 and len(found.artefacts) == 1 and not found.unread
    cache.inventory(str(number % 5), lambda: found)
    cache._store.put("folder:" + str(root), b"" if number % 3 else b"x")
    copy = Path({str(tmp_path)!r}) / f"{{os.getpid()}}-{{number}}"
    shutil.copytree({str(environment)!r}, copy)
    with DirectoryTree(copy) as tree:
        (load,) = cache.folder(copy, tree).python_loads
    assert load.names == ("libcudart.so.12",)
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert [(run.communicate()[0], run.returncode) for run in runs] == [(b"", 0)] * 4


# A cache that cannot be used


@contextmanager
def in_the_way(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file where the cache's folder should be")
    yield
    path.unlink()


def test_a_cache_that_cannot_be_written_is_told_of_and_fails_nothing(
    cache: FactCache, tmp_path: Path, notes: list[str]
) -> None:
    with in_the_way(tmp_path / "cache"):
        assert cache.inventory("wheel 1", lambda: KNOWN) == KNOWN
    (note,) = notes
    assert "cannot be written" in note


def test_a_folder_is_scanned_with_a_cache_that_cannot_be_written(
    cache: FactCache, environment: Path, tmp_path: Path, notes: list[str]
) -> None:
    with in_the_way(tmp_path / "cache"):
        assert loaded(scanned(cache, environment)) == ["libcudart.so.12"]
        assert loaded(scanned(cache, environment)) == ["libcudart.so.12"]
    assert len(notes) == 1
