"""A broken header of a tar archive is an error, on every Python, and never the archive's end."""

from __future__ import annotations

import io
import tarfile

import pytest
from test_saved_image import Memory

from buildmatrix.trees.archive import Slice
from buildmatrix.trees.base import Unreadable
from buildmatrix.trees.tar import members


def archive(**headers: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as out:
        entry = tarfile.TarInfo("first")
        entry.pax_headers = headers
        entry.size = 600
        # tarfile goes on behind the header, where a block of zeros looks like the end.
        out.addfile(entry, io.BytesIO(bytes(600)))
        out.addfile(tarfile.TarInfo("second"))
    return buffer.getvalue()


def names(data: bytes) -> list[str]:
    return [member.name for member in members(Slice(Memory(data), 0, len(data)))]


def test_entries_behind_a_pax_header_are_read() -> None:
    assert names(archive(comment="x")) == ["first", "second"]


@pytest.mark.parametrize("size", ["-1", "-512", "-99999999999999999999"])
def test_a_size_below_zero_hides_nothing(size: str) -> None:
    with pytest.raises(Unreadable):
        names(archive(size=size))
