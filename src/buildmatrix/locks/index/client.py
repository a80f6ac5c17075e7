"""Client of package indexes: cached pages, credentials, and files that are read in parts."""

from __future__ import annotations

import netrc
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
from packaging.utils import InvalidName, canonicalize_name

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.threads import prepare_type
from buildmatrix.base.urls import recall_urls
from buildmatrix.facts.files import read_at_most
from buildmatrix.facts.trees.base import Closing, reason
from buildmatrix.images.store.cache import DAY, Cache, Store
from buildmatrix.locks.index.pages import ACCEPT, LARGEST_PAGE, IndexFile, read_page
from buildmatrix.locks.index.remote import RemoteFile
from buildmatrix.net.http.addresses import HttpAddress, Login, Origin, parse
from buildmatrix.net.http.failures import Patience
from buildmatrix.net.http.machine_indexes import Index, configured_trust, servers
from buildmatrix.net.http.requests import Requests

# Cache of pages and metadata, never of files


#: Bytes of all entries together; the oldest go first.
PAGE_CACHE_LIMIT = 256 << 20
#: Incremented with the layout of `Page`.
_VERSION = "2"


class Page(msgspec.Struct, frozen=True, array_like=True):
    """One answer of a server."""

    #: None for what it does not have.
    body: bytes | None
    content_type: str
    #: Final address; its links are relative to it.
    url: str
    etag: str | None
    #: Seconds since the epoch until it can be used without asking.
    fresh_until: float


PAGE = msgspec.msgpack.Decoder(prepare_type(Page))


def pages_of(cache: Cache, limit: int = PAGE_CACHE_LIMIT) -> Store:
    """Return the pages in a cache; keys are addresses without credentials."""
    return cache.store("index", _VERSION, limit=limit, age=90 * DAY)


def fresh_until(cache_control: str, most: float) -> float | None:
    """Return until when an answer with this `Cache-Control` can be used; None: do not cache.

    `most`: seconds, also for an answer that says nothing (RFC 9111, 4.2 and 5.2.2).
    """
    seconds = most
    for directive in cache_control.lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name == "no-store":
            return None
        if name == "no-cache":
            seconds = 0.0
        elif name == "max-age" and value.isascii() and value.isdigit():
            seconds = min(seconds, float(value[:9]))
    return time.time() + seconds


# Credentials, from the first source with the server: the URL itself; an index URL of this machine's
# configuration that has them (files of that index are on the same server); uv's
# UV_INDEX_<NAME>_USERNAME and _PASSWORD for the index of that name; a URL in an audited file
# (`urls`); netrc, as curl and pip read it, without its `default` entry, which would send the
# password to every server that a page links to.


class Credentials:
    """The credentials of this machine, by server."""

    def __init__(self, indexes: Iterable[Index], environment: Mapping[str, str]) -> None:
        self._logins: dict[Origin, Login] = {}
        self._configured: set[Origin] = set()
        for index in indexes:
            try:
                address = parse(index.url)
            except UndecidedError:
                continue  # a folder, or not a URL
            self._configured.add(address.origin)
            login = _login_in_url(address) or _login_in_environment(index.name, environment)
            if login is not None:
                self._logins.setdefault(address.origin, login)
        self._netrc = _read_netrc(environment)
        self._urls_taken = 0

    def remember(self, address: HttpAddress) -> None:
        """Keep the credentials of a URL that the user gave, for its server."""
        login = _login_in_url(address)
        if login is not None:
            self._logins.setdefault(address.origin, login)

    def of(self, address: HttpAddress) -> Login | None:
        """Return the credentials for the server of `address`."""
        self._take_remembered()
        login = _login_in_url(address) or self._logins.get(address.origin)
        if login is not None:
            return login
        # Any page may link to http://, which would expose the password.
        if address.scheme == "http" and address.origin not in self._configured:
            return None
        return self._netrc.get(address.host)

    def _take_remembered(self) -> None:
        urls = recall_urls()
        for url in urls[self._urls_taken :]:
            with suppress(UndecidedError):
                self.remember(parse(url))
        self._urls_taken = len(urls)


def _login_in_url(address: HttpAddress) -> Login | None:
    return Login.basic(*address.userinfo, "its URL") if address.userinfo else None


def _login_in_environment(name: str | None, environment: Mapping[str, str]) -> Login | None:
    if name is None:
        return None
    prefix = "UV_INDEX_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
    user = environment.get(f"{prefix}_USERNAME")
    password = environment.get(f"{prefix}_PASSWORD")
    if user is None and password is None:
        return None
    return Login.basic(user or "", password or "", f"{prefix}_USERNAME and {prefix}_PASSWORD")


def _read_netrc(environment: Mapping[str, str]) -> Mapping[str, Login]:
    named = environment.get("NETRC")
    try:
        path = Path(named) if named else Path.home() / ".netrc"
        hosts = netrc.netrc(path).hosts
    # A broken netrc must not fail a run that needs none; a server that wants it will say so.
    except (OSError, RuntimeError, UnicodeDecodeError, netrc.NetrcParseError):
        return {}
    return {
        host.lower(): Login.basic(user, password or "", str(path))
        for host, (user, _, password) in hosts.items()
        if host != "default"
    }


# Pages


#: Seconds for which a page is not requested again, as in uv.
FRESH = 600.0
#: Files of all pages in memory.
MOST_HELD = 50_000
_GONE = (404, 410)


class Client(Closing):
    """Client of package indexes, for all threads at once; connections are shared and kept open.

    `offline`: no requests. `cache`: for pages and metadata; None for no cache. All methods raise
    `UndecidedError` for invalid or missing answers.
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
            patience or Patience(), self._credentials.of, configured_trust(), offline=offline
        )
        self._store = pages_of(cache or Cache(None))
        self._pages: dict[str, tuple[IndexFile, ...]] = {}
        self._held = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        self._requests.close()

    @property
    def bytes_read(self) -> int:
        """Bytes received over the network so far."""
        return self._requests.traffic.bytes

    @property
    def requests(self) -> int:
        """Requests so far, redirects and repetitions included."""
        return self._requests.traffic.requests

    @property
    def away(self) -> frozenset[str]:
        """Hosts and ports that did not answer, even after retries, but may later."""
        return frozenset(self._requests.away)

    def open(self, url: str, size: int | None = None) -> RemoteFile:
        """Open the file at `url` for reading in parts; its end is requested at once.

        `size`: bytes according to a lock or a page; a file of another size is an error.
        """
        address = parse(url)
        if self.offline:
            raise UndecidedError(
                f"{address} has not been read before, and --offline was given; run once without it"
            )
        self._credentials.remember(address)
        return RemoteFile(self._requests, address, size if size is not None and size > 0 else None)

    def project(self, index_url: str, name: str) -> tuple[IndexFile, ...]:
        """Return an index's files of the distribution `name`; empty if the index does not have it.

        `index_url`: the address of a simple repository API, or of a folder laid out like one
        (`file:`).
        """
        try:
            normalized = canonicalize_name(name, validate=True)
        except InvalidName as error:
            raise UndecidedError(f"{name[:100]!r} is not a valid name of a distribution") from error
        key = f"{index_url.rstrip('/')}/{normalized}/"
        with self._lock:
            files = self._pages.get(key)
        if files is not None:
            return files
        files = _local_page(key) if urlsplit(key).scheme == "file" else self._page(key)
        with self._lock:
            if self._held + len(files) > MOST_HELD:
                self._pages.clear()
                self._held = 0
            self._pages[key] = files
            self._held += len(files)
        return files

    def _page(self, url: str) -> tuple[IndexFile, ...]:
        address = parse(url)
        self._credentials.remember(address)
        page = self._ask(address)
        if page.body is None:
            return ()
        return read_page(page.body, page.content_type, page.url, str(address))

    def _ask(self, address: HttpAddress) -> Page:
        """Return the page at `address`, from the cache or requested."""
        key = f"page {address.url}"
        headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip"}
        kept_page = self._store.load(key, PAGE)
        if kept_page is not None and (self.offline or kept_page.fresh_until > time.time()):
            return kept_page
        if self.offline:
            raise UndecidedError(
                f"{address} has not been read before, and --offline was given; run once without it"
            )
        if kept_page is not None and kept_page.etag is not None:
            headers["If-None-Match"] = kept_page.etag

        def fetch() -> tuple[Page, bool]:
            accepted = (200, 304) if "If-None-Match" in headers else (200,)
            with self._requests.send(
                address, headers, length=LARGEST_PAGE, accepted=(*accepted, *_GONE)
            ) as answer:
                until = fresh_until(answer.headers.get("cache-control", ""), FRESH)
                if answer.status == 304 and kept_page is not None:
                    body, kind, url = kept_page.body, kept_page.content_type, kept_page.url
                elif answer.status in _GONE:
                    body, kind, url = None, "", answer.address.url
                else:
                    body, url = answer.read(LARGEST_PAGE), answer.address.url
                    kind = answer.headers.get("content-type", "")
                etag = answer.headers.get("etag")
                return Page(body, kind, url, etag, until or 0.0), until is not None

        new, keep = self._requests.retry(fetch)
        if keep:
            self._store.save(key, new)
        return new


def _local_page(url: str) -> tuple[IndexFile, ...]:
    """Read a folder of this machine in the layout of an index, as uv and pip do."""
    page = f"{url}index.html"
    parts = urlsplit(page)
    path = Path(url2pathname(parts.path))
    try:
        if parts.netloc not in ("", "localhost"):
            raise OSError(f"{parts.netloc!r} is not this machine")
        if not path.is_file():
            return ()
        data = read_at_most(path, LARGEST_PAGE)
    except OSError as error:
        raise UndecidedError(f"{page} cannot be read: {reason(error)}") from error
    if len(data) > LARGEST_PAGE:
        raise UndecidedError(f"{page} exceeds the limit of {LARGEST_PAGE >> 20} MiB for pages")
    return read_page(data, "text/html", page, page)
