"""A folder of small packages, and a client that loses its patience quickly."""

from __future__ import annotations

import os
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hasty import HASTY

from buildmatrix.locks.index.client import Client


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.upper().endswith("_PROXY") or name.startswith(("UV_", "XDG_")):
            monkeypatch.delenv(name)
    for name in ("NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    return folder


@pytest.fixture
def wheel(packages: Path) -> Path:
    """A wheel of 700 kB that deflate cannot make smaller."""
    path = packages / "alpha-1.0-py3-none-any.whl"
    noise = random.Random(1).randbytes(700_000)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("alpha/data.bin", noise)
        archive.writestr(
            "alpha-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n"
        )
    return path


@pytest.fixture
def large(packages: Path) -> Path:
    """A file of 3 MB, which is more than a client keeps of a server that knows no ranges."""
    path = packages / "large-1.0-py3-none-any.whl"
    path.write_bytes(random.Random(2).randbytes(3_000_000))
    return path


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(patience=HASTY) as client:
        yield client


@pytest.fixture
def new_client() -> Iterator[Callable[..., Client]]:
    """Makes clients after a test has set up its environment."""
    clients: list[Client] = []

    def make(**options: object) -> Client:
        options.setdefault("patience", HASTY)
        clients.append(Client(**options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
