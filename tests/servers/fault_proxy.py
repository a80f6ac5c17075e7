"""A proxy on loopback that stands before a real server and does to its answers what a plan says.

    with FaultProxy(port_of_the_server) as proxy:
        proxy.plan = lambda request, number: cut_after(100) if number < 2 else None
        proxy.at(12, kill_the_server)

`number` counts requests for one method and path from 0, so that what a plan does depends on nothing
but what is asked, in whatever order that comes.
"""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from loopback import LoopbackServer, Misdeed, Request, Response

#: What to do to a request, of which there were so many equal ones before; None for nothing.
Plan = Callable[[Request, int], Misdeed | None]
#: Of one connection (RFC 9110, 7.6.1), and what the proxy says itself.
_OWN = frozenset({"connection", "keep-alive", "transfer-encoding", "server", "date"})
_SECONDS = 300


class FaultProxy(LoopbackServer):
    """The proxy; starts with `with`."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self._actions: dict[int, Callable[[], None]] = {}
        self._count = threading.Lock()
        self._local = threading.local()
        self.reset()

    @property
    def host(self) -> str:
        """As references have it."""
        return self.origin.partition("://")[2]

    def reset(self) -> None:
        """Everything passes, and counting begins anew."""
        with self._count:
            self.plan: Plan = lambda request, number: None
            self._actions = {}
            #: Requests so far, and those for one method and path.
            self.total = 0
            self.seen: Counter[tuple[str, str]] = Counter()
            self.requests.clear()

    def at(self, total: int, action: Callable[[], None]) -> None:
        """Do something before the request of this number, from 1, is passed on."""
        self._actions[total] = action

    def answer(self, request: Request) -> Response:
        """See `LoopbackServer`."""
        path = request.path.partition("?")[0]
        with self._count:
            self.total += 1
            action = self._actions.pop(self.total, None)
            number = self.seen[request.method, path]
            self.seen[request.method, path] += 1
            if action is not None:
                action()
            misdeed = self.plan(request, number)
        return self._serve(request) if misdeed is None else misdeed(request, self._serve)

    def _serve(self, request: Request) -> Response:
        body = request.read(int(request.headers.get("content-length", 0)))
        sent = {name: text for name, text in request.headers.items() if name != "expect"}
        try:
            return self._passed(request, sent, body)
        except (OSError, http.client.HTTPException):
            return Response(0, dropped=True, reset=True)

    def _passed(self, request: Request, sent: dict[str, str], body: bytes) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.request(request.method, request.path, body, sent)
            answer = connection.getresponse()
            headers = {name: text for name, text in answer.getheaders() if name.lower() not in _OWN}
            data = answer.read()
        finally:
            with suppress(OSError):
                connection.close()
        return Response(answer.status, data, headers)


def hung_up() -> Misdeed:
    """The connection is reset before anything was answered."""
    return lambda request, serve: Response(0, dropped=True, reset=True)
