"""An export is read ahead, and whoever stops is not kept waiting for its next chunk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from buildmatrix.base.threads import read_ahead

HELD = 8


def test_all_chunks_come_in_their_order() -> None:
    chunks = [bytes([number]) for number in range(5 * HELD)]
    assert list(read_ahead(chunks, HELD, "ahead")) == chunks


def test_what_breaks_the_export_breaks_the_reader_behind_the_chunks_before() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ConnectionResetError("the daemon went away")

    ahead = read_ahead(broken(), HELD, "ahead")
    assert next(ahead) == b"a"
    with pytest.raises(ConnectionResetError, match="the daemon went away"):
        next(ahead)


def test_a_daemon_that_says_nothing_does_not_keep_a_user_who_stops() -> None:
    silent = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"a"
        silent.wait(300)

    stopped = False

    def check() -> None:
        if stopped:
            raise InterruptedError

    ahead = read_ahead(chunks(), HELD, "ahead", check, is_awaited=False)
    assert next(ahead) == b"a"
    stopped = True
    with pytest.raises(InterruptedError):
        next(ahead)
    silent.set()


def test_a_reader_that_leaves_ends_the_reading() -> None:
    taken: list[int] = []
    ended = threading.Event()

    def chunks() -> Iterator[bytes]:
        try:
            for number in range(100):
                taken.append(number)
                yield b"x"
        finally:
            ended.set()

    source = chunks()
    with closing(read_ahead(source, HELD, "ahead")) as ahead:
        next(ahead)
    assert len(taken) <= HELD + 3
    source.close()
    assert ended.is_set()
