"""The door to package indexes: pages, metadata, and files that are read in parts."""

from __future__ import annotations

import os

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import parse
from buildmatrix.http.patience import Patience
from buildmatrix.http.requests import Requests
from buildmatrix.index.cache import pages_of
from buildmatrix.index.credentials import Credentials
from buildmatrix.index.pages import IndexFile
from buildmatrix.index.remote import RemoteFile
from buildmatrix.index.simple import SimplePages
from buildmatrix.locks.machine_indexes import configured_trust, servers
from buildmatrix.store.cache import Cache
from buildmatrix.trees.base import Closing


class Client(Closing):
    """Asks package indexes, for all threads at once; connections are shared and kept.

    `offline`: nothing is asked for. `cache`: where pages and metadata are kept; None for nowhere.
    Everything raises `UndecidedError` where an index does not give what it should.
    """

    def __init__(
        self,
        *,
        offline: bool = False,
        cache: Cache | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.offline = offline
        self._credentials = Credentials(servers(os.environ), os.environ)
        self._requests = Requests(
            patience or Patience(), self._credentials, configured_trust(), offline=offline
        )
        self._simple = SimplePages(
            self._requests, self._credentials, pages_of(cache or Cache(None))
        )

    def close(self) -> None:
        """Close all connections; what waits for a server gives up."""
        self._requests.close()

    @property
    def bytes_read(self) -> int:
        """Bytes that came over the network so far."""
        return self._requests.traffic.bytes

    @property
    def requests(self) -> int:
        """Requests so far, redirects and repetitions included."""
        return self._requests.traffic.requests

    @property
    def away(self) -> frozenset[str]:
        """Who gave no answer, however often it was asked, and may later: hosts and ports."""
        return frozenset(self._requests.away)

    def open(self, url: str, size: int | None = None) -> RemoteFile:
        """The file at `url`, to be read in parts; its end is asked for at once.

        `size`: bytes that a lock or a page says it has; a file of another size is an error.
        """
        address = parse(url)
        if self.offline:
            raise UndecidedError(
                f"{address} has not been read before, and --offline was given; run once without it"
            )
        self._credentials.remember(address)
        return RemoteFile(self._requests, address, size if size is not None and size > 0 else None)

    def project(self, index_url: str, name: str) -> tuple[IndexFile, ...]:
        """The files that an index has of the distribution `name`; none for one it does not know.

        `index_url`: the address of a simple repository API, or of a folder laid out like one
        (`file:`).
        """
        return self._simple.project(index_url, name)
