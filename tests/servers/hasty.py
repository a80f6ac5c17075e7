"""The patience of tests with servers on loopback."""

from __future__ import annotations

import itertools
import select

import httpcore
import pytest
from registry import RegistryServer

from buildmatrix.net import transport
from buildmatrix.net.addresses import Patience

#: A pause takes a moment. Nothing is given up: a busy machine takes its time over an answer.
HASTY = Patience(
    tries=3,
    pause=0.01,
    longest_pause=0.5,
    connect=300.0,
    silence=300.0,
    storing=300.0,
    request=300.0,
)


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Let a second pass whenever a request looks at the clock: a deadline comes without waiting."""
    patch.setattr(transport._Clock, "now", itertools.count().__next__)


def end_silence(patch: pytest.MonkeyPatch, server: RegistryServer) -> list[float]:
    """Let a client's patience end when `server` begins to hang; returns what the patience was."""
    ended: list[float] = []

    def read(self: transport._TimedStream, most: int, timeout: float | None = None) -> bytes:
        seconds = self._clock.left(timeout)
        while not select.select([self.get_extra_info("socket")], [], [], 0.01)[0]:
            if server.hangs.acquire(blocking=False):
                ended.append(seconds)
                raise httpcore.ReadTimeout("the server hangs")
        return self._stream.read(most, seconds)

    patch.setattr(transport._TimedStream, "read", read)
    return ended
