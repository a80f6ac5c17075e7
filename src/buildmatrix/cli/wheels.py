"""Wheels on an index, as several commands read them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buildmatrix.index.client import Client
    from buildmatrix.index.remote import RemoteFile
    from buildmatrix.index.wheels import WheelReader


def cache_folder(no_cache: bool = False) -> Path | None:
    """Where this user's caches are; None where none are wanted."""
    from buildmatrix.store.facts import default_folder

    return None if no_cache else default_folder(os.environ).parent


@contextmanager
def wheel_reader(offline: bool, folder: Path | None) -> Iterator[WheelReader]:
    """Reads wheels on an index; what was read before is known from `folder`."""
    from buildmatrix.index.wheels import WheelReader

    with ExitStack() as stack:

        def client() -> Client:
            from buildmatrix.index.client import Client

            return stack.enter_context(Client(offline=offline, folder=folder and folder / "index"))

        reader = WheelReader(_Late(client), folder and folder / "wheels")
        stack.callback(reader.prune)
        yield reader


class _Late:
    """A client that is made when a first file is asked for: often everything is known."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._client: Client | None = None

    def open(self, url: str, size: int | None = None) -> RemoteFile:
        """See `Client.open`."""
        with self._lock:
            if self._client is None:
                self._client = self._make()
        return self._client.open(url, size)
