"""How long a server is waited for, and how often it is asked again."""

from __future__ import annotations

from dataclasses import dataclass

#: Methods that change nothing.
READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Patience:
    """All times in seconds."""

    #: Requests in all for one answer.
    tries: int = 4
    #: Before the second request; doubles each time.
    pause: float = 0.3
    #: A server that says `Retry-After` more than this is not waited for.
    longest_pause: float = 30.0
    #: TCP asks three times within these.
    connect: float = 4.0
    #: A host that gave no answer in all tries is not asked again for as long.
    rest: float = 60.0
    #: Without any byte.
    silence: float = 20.0
    #: Without any byte of the answer to what changes something: a server may store an upload first.
    storing: float = 300.0
    #: For one request, however little it asks for ...
    request: float = 30.0
    #: ... and bytes per second beyond that; a slower server is given up.
    slowest: int = 32 << 10

    def seconds(self, length: int) -> float:
        """How long a request for `length` bytes may take."""
        return self.request + length / self.slowest
