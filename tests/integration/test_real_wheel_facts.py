"""The facts of real wheels that unit tests judge are those that their index still serves.

The small ones are read again to their ends; of the large ones the few bytes in which their makers
say what they were built for. 110 MB in all, and no copy of a wheel.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from wheel_records import read_records, read_wheel, record

from buildmatrix.base.text import PYPI
from buildmatrix.facts.python_imports.statements import read_literals
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.ranges import RemoteFile

pytestmark = pytest.mark.network

RECORDS = read_records()
#: An old, a middle and a new one where a family is small.
SMALL = (
    "jax-cuda12-plugin==0.4.23",
    "jax-cuda12-plugin==0.6.2",
    "jax-cuda12-plugin==0.10.2",
    "jax-cuda13-plugin==0.7.2",
    "jax-rocm60-plugin==0.4.35",
    "jax-rocm7-plugin==0.6.0",
    "jax-rocm7-plugin==0.10.2",
    "onnxruntime-migraphx==1.23.0",
    "torch-npu==2.1.0",
    "torch-npu==2.6.0",
)
STATED = {
    "tensorflow": "tensorflow/python/platform/build_info.py",
    "torch": "torch/version.py",
    "onnxruntime-gpu": "onnxruntime/capi/build_and_package_info.py",
    "paddlepaddle-gpu": "paddle/version/__init__.py",
}


class Remote(io.RawIOBase):
    """A file on a server for zipfile, which asks for ranges of it."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = self._file.size - self._at
        data = self._file.read(self._at, left if size < 0 else min(size, left))
        self._at += len(data)
        return data


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client() as opened:
        yield opened


def test_small_wheels_say_what_was_written_down(client: Client) -> None:
    with ThreadPoolExecutor(4) as threads:
        wheels = threads.map(lambda name: read_wheel(client, RECORDS[name]["filename"]), SMALL)
        for name, facts in zip(SMALL, wheels, strict=True):
            assert record(facts) == RECORDS[name], name
            # In ranges, and once.
            assert facts.bytes_read < facts.size * 1.1 + (1 << 20), name


@pytest.mark.parametrize("name", [name for name in RECORDS if name.partition("==")[0] in STATED])
def test_a_large_wheel_still_says_what_it_was_built_for(name: str, client: Client) -> None:
    path = STATED[name.partition("==")[0]]
    written = RECORDS[name]
    (file,) = (
        file
        for file in client.project(PYPI, name.partition("==")[0])
        if file.filename == written["filename"]
    )
    before = client.bytes_read
    with zipfile.ZipFile(Remote(client.open(file.url))) as archive:
        if path not in archive.namelist():
            assert path not in written["statements"]
            return
        said = read_literals(archive.read(path))
    assert {key: list(texts) for key, texts in said.items()} == written["statements"][path]
    assert client.bytes_read - before < 8 << 20
