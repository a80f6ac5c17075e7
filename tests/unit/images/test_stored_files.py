"""What a power cut may leave: a name is given to what is on disk, and to nothing else.

Nobody can cut the power here. So the calls that decide what a disk holds are watched in order.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from test_layout import files, image_in

from buildmatrix.images import layout
from buildmatrix.images.layout import OciLayout


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Inode → bytes that were on disk at the last fsync(2) of it."""
    done: dict[int, int] = {}

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        done[status.st_ino] = status.st_size

    monkeypatch.setattr(os, "fsync", fsync)
    return done


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, synced: dict[int, int]) -> list[str]:
    """Names that were given, in their order; each to a file that was on disk with all its bytes."""
    given: list[str] = []
    replace: Callable[[Path, Path], Path] = Path.replace

    def watched(unfinished: Path, path: Path) -> Path:
        status = unfinished.stat()
        assert synced.get(status.st_ino) == status.st_size, path
        given.append(path.name)
        return replace(unfinished, path)

    monkeypatch.setattr(Path, "replace", watched)
    return given


def test_a_blob_gets_its_name_when_it_is_on_disk(tmp_path: Path, names: list[str]) -> None:
    layout = OciLayout(tmp_path)
    image_in(layout, b"x" * 100_000)
    assert len(names) == 3 and {f"blobs/sha256/{name}" for name in names} == files(tmp_path)


def test_an_image_is_named_when_its_blobs_have_their_names_on_disk(
    tmp_path: Path, names: list[str], synced: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = OciLayout(tmp_path)
    image = image_in(layout)
    folders = [tmp_path / "blobs/sha256", tmp_path / "blobs"]
    watched = Path.replace

    def replace(unfinished: Path, path: Path) -> Path:
        assert all(folder.stat().st_ino in synced for folder in folders)
        return watched(unfinished, path)

    monkeypatch.setattr(Path, "replace", replace)
    assert not any(folder.stat().st_ino in synced for folder in folders)
    layout.publish(image, ["1"])
    assert names[3:] == ["oci-layout", "index.json"]
    assert tmp_path.stat().st_ino in synced


def test_what_the_disk_did_not_take_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delayed allocation: the write succeeds, and the disk is full when it comes to it."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        image_in(OciLayout(tmp_path))
    assert files(tmp_path) == set()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_folders_of_file_systems_without_such_a_call(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    layout.sync_folder(tmp_path)


def test_a_folder_that_could_not_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"):
        layout.sync_folder(tmp_path)
