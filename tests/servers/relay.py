"""A relay on loopback in front of another server, which breaks connections at a byte.

    with Relay(port) as relay:
        relay.cut_up(1_000_000, on_cut)     # of what clients send, once
        relay.cut_down(1_000_000)           # of what they get, once

It knows nothing of what passes, so it works in front of TLS.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

_CHUNK = 16 << 10


class _Allowance:
    """Bytes that may pass until something happens; unlimited at first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None
        self._then: Callable[[], None] = lambda: None
        self.passed = 0

    def set(self, left: int, then: Callable[[], None]) -> None:
        with self._lock:
            self._left, self._then = left, then

    def take(self, data: bytes) -> tuple[bytes, Callable[[], None] | None]:
        """What may pass, and what happens then."""
        with self._lock:
            if self._left is None or len(data) < self._left:
                self._left = None if self._left is None else self._left - len(data)
                self.passed += len(data)
                return data, None
            data, self._left = data[: self._left], None
            self.passed += len(data)
            return data, self._then


class Relay:
    """The relay; starts with `with`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.up, self.down = _Allowance(), _Allowance()
        #: How often a connection was broken.
        self.cuts = 0

    @property
    def port(self) -> int:
        return self._listener.getsockname()[1]

    def cut_up(self, count: int, then: Callable[[], None] = lambda: None) -> None:
        """Break the connection on which clients have sent so many more bytes in all."""
        self.up.set(count, then)

    def cut_down(self, count: int) -> None:
        """Break the connection on which clients have got so many more bytes in all."""
        self.down.set(count, lambda: None)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for source, target, allowance in (
                    (client, server, self.up),
                    (server, client, self.down),
                ):
                    threading.Thread(
                        target=self._pump, args=(source, target, allowance), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, target: socket.socket, allowance: _Allowance) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                data, then = allowance.take(data)
                target.sendall(data)
                if then is not None:
                    self.cuts += 1
                    then()
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            source.close()
