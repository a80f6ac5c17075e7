"""A store that many machines share: what it keeps, what it refuses, and what it survives."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from socket import gethostname

import pytest

from buildmatrix.base.errors import ComponentError, UsageError
from buildmatrix.images.store import shared
from buildmatrix.images.store.cache import DAY, Cache, Store
from buildmatrix.images.store.shared import (
    EntryStorage,
    FolderStorage,
    FsspecStorage,
    SharedEntries,
    file_system_types,
    open_storage,
)

DATA = b"what was learned" * 100


def store_of(
    folder: Path | None,
    place: EntryStorage,
    notes: list[str] | None = None,
    patience: float = 300.0,
) -> Store:
    noted = [] if notes is None else notes
    entries = SharedEntries(
        place, "s3://bucket/place", noted.append, patience=patience, rest=9999.0
    )
    cache = Cache(folder, noted.append, entries)
    return cache.store("layers", "1", limit=1 << 20, age=DAY, by_use=True)


class FaultyPlace(EntryStorage):
    """A place in memory that fails when it is told to."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], bytes] = {}
        self.error: Exception | None = None
        self.hangs = False
        self.goes_on = threading.Event()
        self.asked = 0

    def _fail(self) -> None:
        self.asked += 1
        if self.hangs:
            self.goes_on.wait(300)
        if self.error is not None:
            raise self.error

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        self._fail()
        return self.entries.get((kind, name), None)

    def has(self, kind: str, name: str) -> bool:
        self._fail()
        return (kind, name) in self.entries

    def write(self, kind: str, name: str, parts: Sequence[bytes | memoryview]) -> None:
        self._fail()
        self.entries[kind, name] = b"".join(parts)


class FarFolder(FolderStorage):
    """A folder of a network file system."""

    def is_near(self) -> bool:
        return False


def test_what_one_machine_keeps_another_one_has(tmp_path: Path) -> None:
    place = FarFolder(tmp_path / "shared")
    store_of(tmp_path / "one", place).put("key", DATA)
    other = store_of(tmp_path / "two", place)
    assert other.has("key") and not other.has("other")
    assert other.get("key") == DATA
    # From now on it has it itself.
    for file in (tmp_path / "shared").rglob("*"):
        if file.is_file():
            file.unlink()
    assert other.get("key") == DATA
    assert store_of(None, place).get("key") is None


def test_what_lies_on_a_disk_of_this_machine_is_not_copied_to_another(tmp_path: Path) -> None:
    place = NearPlace(is_near=True)
    store_of(tmp_path / "one", place).put("key", DATA)
    store = store_of(tmp_path / "two", place)
    assert store.get("key") == DATA
    assert not (tmp_path / "one").exists() and not (tmp_path / "two").exists()
    place.entries.clear()
    assert store.get("key") is None


def test_what_a_near_place_does_not_take_is_kept_in_the_folder(tmp_path: Path) -> None:
    place = NearPlace(is_near=True)
    place.error = OSError(28, "No space left on device")
    notes: list[str] = []
    store_of(tmp_path / "own", place, notes).put("key", DATA)
    assert store_of(tmp_path / "own", place, notes).get("key") == DATA
    assert len(notes) == 1 and "cannot be written: no space left" in notes[0].lower()


def test_without_a_folder_the_shared_place_serves_alone(tmp_path: Path) -> None:
    place = FolderStorage(tmp_path)
    store = store_of(None, place)
    assert store.is_enabled
    store.save("key", "text")
    assert store_of(None, place).has("key")
    assert [file.name for file in (tmp_path / "layers").iterdir()] == [
        file.name for file in (tmp_path / "layers").iterdir() if not file.name.startswith(".")
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:20],
        lambda data: b"",
        lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
        lambda data: data + b"more",
    ],
)
def test_what_was_cut_off_or_changed_is_not_taken(damage: object, tmp_path: Path) -> None:
    place = FolderStorage(tmp_path)
    store_of(None, place).put("key", DATA)
    (file,) = (tmp_path / "layers").iterdir()
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    notes: list[str] = []
    store = store_of(tmp_path / "own", place, notes)
    assert store.get("key") is None
    assert not (tmp_path / "own").exists() and notes == []
    store.put("key", DATA)  # and is mended by who knows better
    assert store_of(None, place).get("key") == DATA


def test_an_entry_under_another_name_is_not_taken(tmp_path: Path) -> None:
    place = FolderStorage(tmp_path)
    store = store_of(None, place)
    store.put("one", DATA)
    (first,) = (tmp_path / "layers").iterdir()
    store.put("two", b"other")
    (second,) = (file for file in (tmp_path / "layers").iterdir() if file != first)
    second.write_bytes(first.read_bytes())
    assert (store.get("one"), store.get("two")) == (DATA, None)


def test_no_link_and_no_pipe_is_read(tmp_path: Path) -> None:
    place = FolderStorage(tmp_path)
    store = store_of(None, place)
    store.put("one", DATA)
    (file,) = (tmp_path / "layers").iterdir()
    moved = file.rename(tmp_path / "elsewhere")
    file.symlink_to(moved)
    assert store.get("one") is None
    file.unlink()
    os.mkfifo(file)
    assert store.get("one") is None


def test_a_place_that_fails_is_said_once_and_then_left_alone(tmp_path: Path) -> None:
    place, notes = FaultyPlace(), list[str]()
    store = store_of(tmp_path, place, notes)
    place.error = OSError(28, os.strerror(28))
    for number in range(9):
        store.put(f"key {number}", DATA)
        assert store.get(f"key {number}") == DATA  # The own folder has it.
    assert place.asked == 3
    assert notes == [
        "the store s3://bucket/place cannot be written: no space left on device; missing "
        f"entries are read again by each worker of {gethostname()}"
    ]
    # What cannot be written may be read.
    place.error = None
    assert not store.has("no such key")
    assert place.asked == 4


def test_a_place_that_does_not_answer_holds_nobody(tmp_path: Path) -> None:
    place, notes = FaultyPlace(), list[str]()
    store = store_of(None, place, notes, patience=0.01)
    place.hangs = True
    assert store.get("key") is None
    assert store.get("key") is None and not store.has("key")
    assert place.asked == 1
    place.goes_on.set()
    assert len(notes) == 1 and "does not answer within" in notes[0]


class NearPlace(FaultyPlace):
    """Notes which thread asks it."""

    def __init__(self, *, is_near: bool) -> None:
        super().__init__()
        self._near = is_near
        self.threads: set[threading.Thread] = set()

    def is_near(self) -> bool:
        return self._near

    def read(self, kind: str, name: str, most: int) -> bytes | None:
        self.threads.add(threading.current_thread())
        return super().read(kind, name, most)


def test_only_what_may_hang_is_asked_in_threads_of_its_own() -> None:
    near, far = NearPlace(is_near=True), NearPlace(is_near=False)
    for place in (near, far):
        store = store_of(None, place)
        store.put("key", DATA)
        assert store.get("key") == DATA and store.get("other") is None
        place.error = PermissionError(13, "no")
        assert store.get("key") is None
    assert near.threads == {threading.current_thread()}
    assert len(far.threads) == 3 and threading.current_thread() not in far.threads


def test_file_systems_are_those_of_the_device() -> None:
    mounts = (
        "29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 29 8:1 /b /mnt/b\\040c rw - ext4 /dev/sda1 rw\n"
        "31 29 0:45 / /mnt/nfs rw,relatime shared:9 master:2 - nfs4 host:/x rw,addr=::1\n"
        "32 29 0:46 / /mnt/fuse rw - fuse.sshfs host:/ rw\n"
    )
    assert file_system_types(mounts, os.makedev(8, 1)) == {"ext4"}
    assert file_system_types(mounts, os.makedev(0, 45)) == {"nfs4"}
    assert file_system_types(mounts, os.makedev(0, 46)) == {"fuse.sshfs"}
    assert file_system_types(mounts, os.makedev(0, 99)) == set()


def test_a_folder_is_as_near_as_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kinds, is_near in (({"xfs"}, True), ({"nfs4"}, False), ({"ext4", "nfs"}, False)):
        monkeypatch.setattr(shared, "file_system_types", lambda *_, kinds=kinds: kinds)
        assert FolderStorage(tmp_path / "not/there/yet").is_near() is is_near
    monkeypatch.setattr(shared, "file_system_types", lambda *_: set())
    assert not FolderStorage(tmp_path).is_near()


def test_what_a_driver_says_shows_no_secret(tmp_path: Path) -> None:
    place, notes = FaultyPlace(), list[str]()
    place.error = PermissionError("https://key:geheim@host/x?X-Amz-Signature=abc denied\nnext")
    store_of(tmp_path, place, notes).put("key", DATA)
    assert "geheim" not in notes[0] and "abc" not in notes[0] and "\n" not in notes[0]


def test_a_folder_is_opened_without_any_driver(tmp_path: Path) -> None:
    assert isinstance(open_storage(str(tmp_path)), FolderStorage)
    assert isinstance(open_storage(f"file://{tmp_path}"), FolderStorage)


@pytest.mark.parametrize("url", ["s3://key:geheim@bucket/x", "https://name:geheim@host/x"])
def test_credentials_in_an_address_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_storage(url)
    assert "geheim" not in caught.value.message


def test_what_no_driver_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a valid store"):
        open_storage("nonsense://bucket/x")


def test_a_missing_driver_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
    with pytest.raises(ComponentError, match="gcsfs"):
        open_storage("gs://bucket/x")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(ComponentError, match=r"pip install 'buildmatrix\[fleet\]'"):
        open_storage("s3://bucket/x")


def test_what_is_too_large_is_neither_kept_nor_taken(tmp_path: Path) -> None:
    place = FaultyPlace()
    store = store_of(None, place)
    store.put("large", bytes(2 << 20))
    assert place.entries == {}


def test_credentials_that_ran_out_are_taken_up_anew() -> None:
    class Expiring(FaultyPlace):
        expired = True

        def renew(self) -> None:
            self.expired = False

        def read(self, kind: str, name: str, most: int) -> bytes | None:
            if self.expired:
                raise PermissionError("ExpiredToken")
            return b"entry"

    notes: list[str] = []
    entries = SharedEntries(Expiring(), "s3://bucket/x", notes.append)
    assert entries.read("kind", "name", 10) is None
    assert entries.read("kind", "name", 10) == b"entry"
    assert len(notes) == 1
    assert "ExpiredToken" in notes[0]


def test_each_place_of_a_driver_has_credentials_of_its_own() -> None:
    first, second = open_storage("memory://store"), open_storage("memory://store")
    assert isinstance(first, FsspecStorage)
    assert isinstance(second, FsspecStorage)
    first.write("kind", "name", [b"entry"])
    assert second.read("kind", "name", 10) == b"entry"
    drivers = [place._files for place in (first, second)]
    assert drivers[0] is not drivers[1]
