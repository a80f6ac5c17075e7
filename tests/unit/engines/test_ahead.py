"""An export is read ahead, and whoever stops is not kept waiting for its next chunk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from buildmatrix.base.errors import Interrupted
from buildmatrix.engines.docker.containers import HELD, read_ahead


def never() -> bool:
    return False


def test_all_chunks_come_in_their_order() -> None:
    chunks = [bytes([number]) for number in range(5 * HELD)]
    assert list(read_ahead(chunks, never)) == chunks


def test_what_breaks_the_export_breaks_the_reader_behind_the_chunks_before() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise ConnectionResetError("the daemon went away")

    ahead = read_ahead(broken(), never)
    assert next(ahead) == b"a"
    with pytest.raises(ConnectionResetError, match="the daemon went away"):
        next(ahead)


def test_a_daemon_that_says_nothing_does_not_keep_a_user_who_stops() -> None:
    silent = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"a"
        silent.wait(300)

    stopped = False
    ahead = read_ahead(chunks(), lambda: stopped)
    assert next(ahead) == b"a"
    stopped = True
    with pytest.raises(Interrupted):
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
    # Threads of other tests may take a while to end.
    before = set(threading.enumerate())
    with closing(read_ahead(source, never)) as ahead:
        next(ahead)
    started = [one for one in threading.enumerate() if one.name == "ahead" and one not in before]
    (thread,) = started or [None]
    if thread is not None:
        thread.join(300)
    assert len(taken) <= HELD + 3
    source.close()
    assert ended.is_set()
