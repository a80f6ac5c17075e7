"""Pages and wheels of the machine's real package index, in parts."""

from __future__ import annotations

import io
import zipfile

import pytest

from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.ranges import RemoteFile
from buildmatrix.net.machine_indexes import default_indexes

pytestmark = pytest.mark.network


def test_a_wheel_is_listed_without_being_downloaded() -> None:
    index = next(url for url in default_indexes() if url.startswith("http"))
    with Client() as client:
        files = [file for file in client.project(index, "numpy") if _is_large_wheel(file.filename)]
        remote = client.open(files[-1].url)
        archive = zipfile.ZipFile(io.BytesIO(_end(remote)))
        names = archive.namelist()
        assert any(name.endswith(".dist-info/METADATA") for name in names)
        assert len(names) > 500
        assert remote.bytes_read < remote.size / 20
        assert remote.read(0, 4) == b"PK\3\4"


def _is_large_wheel(filename: str) -> bool:
    return "manylinux" in filename and filename.endswith("x86_64.whl")


def _end(remote: RemoteFile) -> bytes:
    """The last 256 KiB; zipfile finds the directory in them as in a file with a longer start."""
    return remote.read(remote.size - (256 << 10), 256 << 10)
