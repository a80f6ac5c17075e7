"""Wheels on an index, as several commands read them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buildmatrix.index.client import Client
    from buildmatrix.index.remote import RemoteFile
    from buildmatrix.index.wheels import WheelReader
    from buildmatrix.store.cache import Cache


@contextmanager
def wheel_reader(offline: bool, cache: Cache) -> Iterator[WheelReader]:
    """Reads wheels on an index; what was read before is known from `cache`."""
    from buildmatrix.index.wheels import WheelReader

    with ExitStack() as stack:

        def client() -> Client:
            from buildmatrix.index.client import Client

            return stack.enter_context(Client(offline=offline, cache=cache))

        yield WheelReader(_Late(client), cache)


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
