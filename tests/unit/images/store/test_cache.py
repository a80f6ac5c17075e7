"""The one cache on disk, and all that can happen to what lies in it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from buildmatrix.base.errors import UsageError
from buildmatrix.images.store import cache as module
from buildmatrix.images.store.cache import (
    DAY,
    UNFINISHED_AGE,
    Cache,
    Store,
    default_folder,
    source_digest,
)

DATA = b"what was read" * 100


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, notes: list[str]) -> Cache:
    return Cache(tmp_path / "cache", notes.append)


@pytest.fixture
def store(cache: Cache) -> Store:
    return opened(cache)


def opened(
    cache: Cache, kind: str = "facts", version: str = "1", *, limit: int = 1 << 20, age: float = DAY
) -> Store:
    return cache.store(kind, version, limit=limit, age=age)


def entry(store: Store, key: str = "key") -> Path:
    path = store.path(key)
    assert path is not None
    return path


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if not path.is_dir()]


def test_what_was_put_is_there_for_the_next_run(cache: Cache, store: Store) -> None:
    assert store.get("key") is None
    store.put("key", DATA)
    store.save("value", {"a": 1})
    assert opened(cache).get("key") == DATA
    assert opened(cache).load("value", msgspec.msgpack.Decoder(dict[str, int])) == {"a": 1}


def test_an_entry_of_another_version_kind_or_key_is_another_entry(
    cache: Cache, store: Store
) -> None:
    store.put("key", DATA)
    assert opened(cache, version="2").get("key") is None
    assert opened(cache, kind="pages").get("key") is None
    assert store.get("other") is None
    assert store.get("key") == DATA


@pytest.mark.parametrize(
    "key", ["../../../etc/passwd", "/etc/passwd", "a\0b", "\udcff", "x" * 9999]
)
def test_a_key_is_no_path(store: Store, tmp_path: Path, key: str) -> None:
    store.put(key, DATA)
    assert store.get(key) == DATA
    (path,) = files(tmp_path)
    assert path.parent == tmp_path / "cache/facts" and len(path.name) == 64


def test_what_is_kept_is_for_this_user_alone(store: Store) -> None:
    store.put("key", DATA)
    assert entry(store).stat().st_mode & 0o077 == 0
    assert entry(store).parent.stat().st_mode & 0o077 == 0


def test_nothing_is_kept_without_a_folder(tmp_path: Path) -> None:
    store = opened(Cache(None))
    store.put("key", DATA)
    store.save("key", 1)
    store.remove("key")
    assert store.get("key") is None and store.path("key") is None and not store.is_enabled


# Entries that are none


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:36],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: bytes(len(data)),
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:33] + bytes([data[33] ^ 1]) + data[34:],
    ],
)
def test_a_damaged_entry_is_as_if_it_were_not_there_and_is_removed(
    store: Store, notes: list[str], damage: object
) -> None:
    store.put("key", DATA)
    path = entry(store)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert store.get("key") is None
    assert not path.exists() and not notes


def test_an_entry_under_another_name_is_none(store: Store) -> None:
    store.put("key", DATA)
    entry(store).rename(entry(store, "other"))
    assert store.get("other") is None and not entry(store, "other").exists()


def test_what_is_no_value_of_its_kind_is_removed(store: Store) -> None:
    store.put("key", b"\xc1")
    assert store.load("key", msgspec.msgpack.Decoder(int)) is None
    assert not entry(store).exists()


def test_an_entry_of_a_gigabyte_is_not_read(store: Store) -> None:
    store.put("key", DATA)
    os.truncate(entry(store), 1 << 30)
    tracemalloc.start()
    try:
        assert store.get("key") is None and not entry(store).exists()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_would_not_be_read_is_not_written(cache: Cache, tmp_path: Path) -> None:
    opened(cache, limit=1000).put("key", bytes(1000))
    assert not (tmp_path / "cache").exists()


def test_a_link_is_not_followed_and_is_removed(store: Store, tmp_path: Path) -> None:
    store.put("key", DATA)
    secret = tmp_path / "secret"
    entry(store).rename(secret)
    entry(store).symlink_to(secret)
    assert store.get("key") is None and not entry(store).is_symlink()
    entry(store).symlink_to(secret)
    store.put("key", b"new")
    assert store.get("key") == b"new" and secret.read_bytes()[-10:] == DATA[-10:]


def test_a_pipe_keeps_nobody_waiting(store: Store) -> None:
    store.put("other", DATA)
    os.mkfifo(entry(store))
    assert store.get("key") is None and not entry(store).exists()


def test_a_folder_in_place_of_an_entry_costs_only_that_entry(
    store: Store, notes: list[str]
) -> None:
    store.put("other", DATA)
    entry(store).mkdir()
    (entry(store) / "file").touch()
    assert store.get("key") is None
    store.put("key", DATA)
    assert len(notes) == 1 and store.get("other") == DATA


def test_a_kind_that_is_a_link_is_not_used(cache: Cache, notes: list[str], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/facts").symlink_to(elsewhere)
    store = opened(cache)
    store.put("key", DATA)
    assert store.get("key") is None and not any(elsewhere.iterdir())
    assert len(notes) == 1 and "is a link" in notes[0]


# Age and size


def test_an_entry_answers_while_it_is_young(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    store.put("key", DATA)
    # A restored file may have any date: what counts is inside.
    os.utime(entry(store), (now + 500, now + 500))
    for later, is_young in ((0, True), (99, True), (100, False), (-1, False)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert (store.get("key", within=100) == DATA) is is_young, later
    assert store.get("key") == DATA


def test_the_oldest_go_above_the_limit_and_of_all_versions(cache: Cache) -> None:
    old, new = opened(cache, version="1", limit=5000), opened(cache, version="2", limit=5000)
    for number, key in enumerate(["a", "b"]):
        old.put(key, bytes(1900))
        os.utime(entry(old, key), (time.time() - 100 + number,) * 2)
    new.put("c", bytes(1900))
    assert (old.get("a"), old.get("b"), new.get("c")) == (None, bytes(1900), bytes(1900))


def test_old_entries_are_looked_for_once_however_many_stores_there_are(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    monkeypatch.setattr(Store, "_prune", lambda _, folder: looks.append(folder))
    for number in range(50):
        opened(cache).put(str(number), bytes(100))
    opened(cache, "layers").put("0", bytes(100))
    assert [folder.name for folder in looks] == ["facts", "layers"]
    # A sixteenth of the limit was written.
    opened(cache).put("large", bytes((1 << 20) // 16))
    assert len(looks) == 3


def test_what_is_used_stays_where_use_counts(cache: Cache) -> None:
    store = cache.store("facts", "1", limit=5000, age=DAY, by_use=True)
    for number, key in enumerate(["a", "b"]):
        store.put(key, bytes(1900))
        os.utime(entry(store, key), (time.time() - 0.5 * DAY + number,) * 2)
    store.get("a")
    store.put("c", bytes(1900))
    assert (store.get("a"), store.get("b")) == (bytes(1900), None)


def test_what_is_too_old_goes_and_so_do_links_and_what_killed_runs_left(store: Store) -> None:
    store.put("old", DATA)
    folder = entry(store).parent
    os.utime(entry(store, "old"), (time.time() - 2 * DAY,) * 2)
    left, young = folder / ".x.left", folder / ".x.young"
    left.touch()
    young.touch()
    os.utime(left, (time.time() - 2 * UNFINISHED_AGE,) * 2)
    (folder / "link").symlink_to(young)
    opened(Cache(folder.parent)).put("key", DATA)
    assert {path.name for path in folder.iterdir()} == {entry(store).name, young.name}


def test_pruning_leaves_what_lies_behind_a_link(cache: Cache, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis").write_bytes(bytes(9000))
    os.utime(mine / "thesis", (0, 0))
    (tmp_path / "cache/facts").mkdir(parents=True)
    (tmp_path / "cache/facts/0123456789abcdef").symlink_to(mine)
    opened(cache, limit=5000).put("key", DATA)
    assert (mine / "thesis").stat().st_size == 9000


# A disk that does not do its part


def test_a_folder_that_cannot_be_made_is_said_once_for_all_kinds(
    cache: Cache, notes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    for kind in ("facts", "pages"):
        store = opened(cache, kind)
        store.put("key", DATA)
        assert store.get("key") is None
    assert len(notes) == 1 and "cannot be written" in notes[0]


def test_a_read_only_folder_still_serves(tmp_path: Path) -> None:
    program = """
import os
from pathlib import Path
from buildmatrix.images.store.cache import Cache
store = Cache(Path("cache"), print).store("facts", "1", limit=1 << 20, age=9.0, by_use=True)
store.put("key", b"data")
if os.geteuid() == 0:  # root writes into every folder
    for path in ("cache", "cache/facts", store.path("key")):
        os.chown(path, 65534, 65534)
    os.setuid(65534)
os.utime(store.path("key"), (0, 0))
os.chmod("cache/facts", 0o500)
store.put("other", b"data")
store.put("other", b"data")
assert store.get("key") == b"data" and store.get("other") is None
os.chmod("cache/facts", 0)
assert store.get("key") is None
os.chmod("cache/facts", 0o700)
"""
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1 and "permission denied" in done.stdout


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_write_for_which_the_system_is_made_to_fail_is_said_once(
    store: Store, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store.put("key", DATA)

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fails)
    store.put("key", b"new")
    store.put("other", DATA)
    assert store.get("key") == DATA and len(files(tmp_path)) == 1
    assert len(notes) == 1 and os.strerror(number).lower() in notes[0].lower()


def test_a_full_disk_leaves_no_part_of_an_entry(tmp_path: Path) -> None:
    """The limit of the kernel on the size of a file stands for the end of the disk."""
    program = f"""
import resource, signal
from pathlib import Path
from buildmatrix.images.store.cache import Cache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Cache(Path({str(tmp_path / "cache")!r}), print).store("facts", "1", limit=1 << 20, age=9.0)
store.put("key", bytes(100))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
store.put("key", bytes(50_000))
store.put("other", bytes(50_000))
assert store.get("key") == bytes(100) and store.get("other") is None
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout.count("cannot be written")) == (0, "", 1)
    assert len(files(tmp_path)) == 1


def test_an_entry_that_the_system_is_made_unable_to_read_is_said_once(
    store: Store, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("key", DATA)

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdopen", fails)
    assert store.get("key") is None and store.get("key") is None
    assert len(notes) == 1 and "cannot be read: input/output error" in notes[0]
    monkeypatch.undo()
    assert store.get("key") == DATA


def test_processes_that_write_the_same_key_all_read_a_whole_entry(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from buildmatrix.images.store.cache import Cache
own = sys.argv[1].encode() * 300_000
store = Cache(Path({str(tmp_path / "cache")!r}), print).store("facts", "1", limit=600_000, age=9.0)
store.put("key", own)
for number in range(100):
    store.put("key", own)
    store.put(str(number), own)
    data = store.get("key")
    assert data is None or (len(data) == 300_000 and len(set(data)) == 1), len(data)
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", program, name], stdout=subprocess.PIPE)
        for name in "abcd"
    ]
    assert [(run.communicate()[0], run.returncode) for run in runs] == [(b"", 0)] * 4


# Versions, and the folder


def test_code_is_named_by_all_bytes_of_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("one", "two"):
        (tmp_path / package / "data").mkdir(parents=True)
        (tmp_path / package / "a.py").write_text("1")
        (tmp_path / package / "data/b.toml").write_text("1")
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(module.buildmatrix, "__file__", str(tmp_path / "__init__.py"))

    def names(*packages: str) -> str:
        module._folder_digest.cache_clear()
        return source_digest.__wrapped__(*packages)

    one, whole = names("one"), names()
    (tmp_path / "two/data/b.toml").write_text("2")
    assert names("one") == one and names() != whole
    (tmp_path / "one/data/b.toml").write_text("2")
    assert names("one") != one
    with pytest.raises(FileNotFoundError):
        names("renamed")


def test_the_folder_follows_the_environment() -> None:
    tail = Path("buildmatrix")
    assert default_folder({"BUILDMATRIX_CACHE": "/b", "XDG_CACHE_HOME": "/x"}) == "/b" / tail
    assert default_folder({"XDG_CACHE_HOME": "/x"}) == "/x" / tail
    assert default_folder({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / tail


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(UsageError, match="BUILDMATRIX_CACHE"):
        default_folder({})
