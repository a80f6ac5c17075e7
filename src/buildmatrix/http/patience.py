"""Timeouts and retries."""

from __future__ import annotations

from dataclasses import dataclass

#: Methods that change nothing on the server.
READING_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts and retries of requests, in seconds."""

    #: Total attempts per request.
    tries: int = 4
    #: Pause before the second attempt; doubles each time.
    pause: float = 0.3
    #: A longer `Retry-After` ends the retries.
    longest_pause: float = 30.0
    #: Time to connect; TCP sends three SYN packets in it.
    connect: float = 4.0
    #: Time without requests to a host that did not respond in any attempt.
    rest: float = 60.0
    #: Time without any byte received.
    silence: float = 20.0
    #: Time without any byte of the response to an upload: the server may store it first.
    storing: float = 300.0
    #: Total time of a request with a small body ...
    request: float = 30.0
    #: ... and the minimum speed of a larger one, in bytes per second.
    slowest: int = 32 << 10

    def seconds(self, length: int) -> float:
        """Return the time limit of a request for `length` bytes."""
        return self.request + length / self.slowest
