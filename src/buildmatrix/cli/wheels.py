"""Wheels on an index, as several commands read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buildmatrix.index.wheels import WheelReader


def cache_folder(no_cache: bool = False) -> Path | None:
    """Where this user's caches are; None where none are wanted."""
    from buildmatrix.store.facts import default_folder

    return None if no_cache else default_folder(os.environ).parent


@contextmanager
def wheel_reader(offline: bool, folder: Path | None) -> Iterator[WheelReader]:
    """Reads wheels on an index; what was read before is known from `folder`."""
    from buildmatrix.index.client import Client
    from buildmatrix.index.wheels import WheelReader

    with Client(offline=offline, folder=folder and folder / "index") as client:
        yield WheelReader(client, folder and folder / "wheels")
