from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from buildmatrix.facts.inventory.archive import open_atomically, write_atomically


def test_the_umask_is_nobodys_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one for all threads: whoever sets it to read it may leave it at 0."""

    def umask(_: int) -> int:
        raise AssertionError("set")

    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", umask)
            write_atomically(tmp_path / "open", b"1")
            with open_atomically(tmp_path / "private", is_private=True) as file:
                file.write(b"2")
    finally:
        assert os.umask(before) == 0o027
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    path.write_bytes(b"before")
    with pytest.raises(KeyError), open_atomically(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_many_threads_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    threads = [
        threading.Thread(target=write_atomically, args=(path, bytes([number]) * 4096))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(path.read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [path]
