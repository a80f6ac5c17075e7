"""What audits of wheels on a loopback index share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_index import Locked
from index import IndexServer


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    """A lock without wheels; tests add them."""
    folder = tmp_path / "packages"
    folder.mkdir()
    with IndexServer(folder) as server:
        yield Locked(folder, server)
