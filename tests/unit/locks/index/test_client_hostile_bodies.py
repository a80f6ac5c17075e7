"""Servers whose answers have no end, or no length that can be."""

from __future__ import annotations

import itertools
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hasty import HASTY, hurry

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.locks.index.client import Client

NEGATIVE = b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def _sending(*pieces: bytes, forever: bytes = b"", pause: float = 0.0) -> Iterator[str]:
    """The origin of a server that answers with `pieces`, and then `forever` without end."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(65536)
                    endless: Iterable[bytes] = itertools.repeat(forever) if forever else ()
                    for piece in itertools.chain(pieces, endless):
                        connection.sendall(piece)
                        if stopped.wait(pause) if pause else stopped.is_set():
                            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("pieces", "forever", "pause"),
    [
        pytest.param((CHUNKED,), b"f" * 65536, 0.0, id="a chunk length without end"),
        pytest.param((CHUNKED, b"-1\r\n"), b"x" * 65536, 0.0, id="a negative chunk length"),
        pytest.param((CHUNKED, b"f" * 15 + b"\r\n"), b"x" * 65536, 0.0, id="a chunk without end"),
        pytest.param((CHUNKED, b"0\r\n"), b"x: y\r\n" * 9999, 0.0, id="trailers without end"),
        pytest.param((CHUNKED, b"0\r\n"), b"x", 0.01, id="a trailer that drips"),
        pytest.param((CHUNKED,), b"1\r\nx\r\n", 0.01, id="chunks that drip"),
        pytest.param((b"HTTP/1.1 200 OK\r\n\r\n",), b"x" * 65536, 0.0, id="no length, no end"),
        pytest.param((), b"HTTP/1.1 100 Continue\r\n\r\n" * 999, 0.0, id="never more than 100"),
        pytest.param((), b"H" * 65536, 0.0, id="a status line without end"),
        pytest.param((), b"H", 0.01, id="a status line that drips"),
        pytest.param((b"HTTP/1.1 200 OK\r\nx: ",), b"y" * 65536, 0.0, id="a header without end"),
        pytest.param(
            (NEGATIVE,),
            b"x" * 65536,
            0.0,
            id="a length below 0",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["file", "page"])
def test_what_has_no_end_costs_neither_time_nor_memory(
    new_client: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    pieces: tuple[bytes, ...],
    forever: bytes,
    pause: float,
    kind: str,
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.client.LARGEST_PAGE", 1 << 20)
    client = new_client(patience=replace(HASTY, tries=1, request=10.0, slowest=1 << 30))
    hurry(monkeypatch)
    with _sending(*pieces, forever=forever, pause=pause) as origin:
        tracemalloc.start()
        try:
            with pytest.raises(UndecidedError):
                if kind == "file":
                    client.open(f"{origin}/x.whl")
                else:
                    client.project(origin, "x")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 12 << 20


@pytest.mark.parametrize("length", ["+5", "1_0", "5, 6", "٣", "9" * 19])
def test_a_length_that_python_would_take_for_a_number_is_an_error(
    client: Client, length: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()
    with _sending(head, b"x" * 100) as origin, pytest.raises(UndecidedError):
        client.open(f"{origin}/x.whl")
