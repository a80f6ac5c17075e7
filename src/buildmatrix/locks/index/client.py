"""Client of package indexes: cached pages, credentials, and files that are read in parts.

Formats: the simple repository API,
https://packaging.python.org/specifications/simple-repository-api/ (HTML of PEP 503, JSON of PEP
691, versions of PEP 629). Other content of pages is left to uv.
"""

from __future__ import annotations

import codecs
import netrc
import os
import posixpath
import re
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

import msgspec
from msgspec import Struct
from packaging.utils import InvalidName, canonicalize_name

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.strict import parse_json
from buildmatrix.base.text import recall_urls
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.files import read_at_most
from buildmatrix.facts.trees.base import Closing, reason
from buildmatrix.images.store.cache import DAY, Cache, Store
from buildmatrix.locks.index.ranges import RemoteFile
from buildmatrix.net.addresses import (
    HttpAddress,
    Login,
    Origin,
    Patience,
    RequestError,
    parse,
)
from buildmatrix.net.machine_indexes import Index, configured_trust, servers
from buildmatrix.net.requests import Requests

#: Bytes of one page; the largest known ones, of nightly builds, have 12 MB.
LARGEST_PAGE = 32 << 20
MOST_FILES = 200_000
#: In order of preference; servers that do not choose answer with HTML.
ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.01"
)
_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = frozenset({"text/html", "application/vnd.pypi.simple.v1+html", "application/xhtml+xml", ""})
_CHUNK = 64 << 10
#: Characters; titles and links have hundreds.
_LONGEST_TAG = 256 << 10


class IndexFile(Struct, frozen=True):
    """One file of a project, as listed by its index."""

    filename: str
    #: Absolute, without fragment.
    url: str


def read_page(data: bytes, content_type: str, url: str, shown: str) -> tuple[IndexFile, ...]:
    """Return the files that a page at `url` lists, in its order; `shown` is its name in messages.

    Links to other files are skipped, as by installers. Raises UndecidedError.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _JSON:
        return _read_json(data, url, shown)
    if kind in _HTML:
        return _read_html(data, url, shown)
    raise UndecidedError(
        f"{shown} has the content type {kind[:60]!r}, not that of a package index; check the URL"
    )


def _check_version(version: str, shown: str) -> None:
    major = version.partition(".")[0]
    if major != "1":
        raise UndecidedError(
            f"{shown} uses version {version[:20]!r} of the index format; only 1 is supported"
        )


def _resolve_link(link: str, base: str) -> str | None:
    """Return the URL of a link, without fragment; None if it must not be fetched."""
    try:
        url = urljoin(base, link.strip()).partition("#")[0]
        scheme = urlsplit(url).scheme
    except ValueError:
        return None
    # A page on the network must not lead to a file of this machine.
    if scheme not in ("http", "https") and (scheme, urlsplit(base).scheme) != ("file", "file"):
        return None
    return url


def _is_name(filename: str) -> bool:
    return bool(filename) and "/" not in filename and filename.isprintable()


class _Meta(msgspec.Struct, rename="kebab"):
    api_version: str


class _JsonPage(msgspec.Struct):
    meta: _Meta
    files: list[IndexFile]


def _read_json(data: bytes, url: str, shown: str) -> tuple[IndexFile, ...]:
    try:
        parse_json(data)  # which refuses files that come twice: installers differ on those
        page = msgspec.json.decode(data, type=prepare_type(_JsonPage))
    except ValueError as error:
        raise UndecidedError(f"{shown} is not a page of a package index: {error}") from error
    _check_version(page.meta.api_version, shown)
    _check_count(len(page.files), shown)
    return tuple(
        IndexFile(file.filename, target)
        for file in page.files
        if (target := _resolve_link(file.url, url)) is not None and _is_name(file.filename)
    )


def _check_count(files: int, shown: str) -> None:
    if files > MOST_FILES:
        raise UndecidedError(f"{shown} lists more than {MOST_FILES} files")


def _read_html(data: bytes, url: str, shown: str) -> tuple[IndexFile, ...]:
    page = _LinkParser(url, shown)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for start in range(0, len(data), _CHUNK):
        try:
            page.feed(decoder.decode(data[start : start + _CHUNK]))
        except AssertionError as error:
            # Python 3.11 to 3.13 raise this for `<![` that begins no marked section.
            raise UndecidedError(f"{shown} is not a page of a package index: {error}") from error
        # The rest is a tag without an end, which would be searched again each time.
        if len(page.rawdata) > _LONGEST_TAG:
            raise UndecidedError(f"{shown} is not a page of a package index: a tag without an end")
    if not page.is_page:
        raise UndecidedError(f"{shown} is not a page of a package index: it has no HTML")
    return tuple(page.files)


class _LinkParser(HTMLParser):
    def __init__(self, url: str, shown: str) -> None:
        super().__init__()
        self._base = url
        self._shown = shown
        self._has_base = False
        self.files: list[IndexFile] = []
        self.is_page = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_page = True
        # The first of two attributes with one name counts (HTML, 13.2.5.33).
        attributes = dict(reversed(attrs))
        if tag == "a":
            self._add_anchor(attributes)
        elif tag == "base" and not self._has_base and (href := attributes.get("href")):
            self._has_base = True
            target = _resolve_link(href, self._base)
            self._base = target if target is not None else self._base
        elif tag == "meta" and attributes.get("name") == "pypi:repository-version":
            _check_version(attributes.get("content") or "", self._shown)

    def _add_anchor(self, attributes: Mapping[str, str | None]) -> None:
        target = _resolve_link(attributes.get("href") or "", self._base)
        if target is None:
            return
        filename = unquote(posixpath.basename(urlsplit(target).path))
        if not _is_name(filename):
            return
        self.files.append(IndexFile(filename, target))
        _check_count(len(self.files), self._shown)


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
            login = _find_login_in_url(address) or _find_login_in_environment(
                index.name, environment
            )
            if login is not None:
                self._logins.setdefault(address.origin, login)
        self._netrc = _read_netrc(environment)
        self._urls_taken = 0

    def remember(self, address: HttpAddress) -> None:
        """Keep the credentials of a URL that the user gave, for its server."""
        login = _find_login_in_url(address)
        if login is not None:
            self._logins.setdefault(address.origin, login)

    def of(self, address: HttpAddress) -> Login | None:
        """Return the credentials for the server of `address`."""
        self._take_remembered()
        login = _find_login_in_url(address) or self._logins.get(address.origin)
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


def _find_login_in_url(address: HttpAddress) -> Login | None:
    return Login.basic(*address.userinfo, "its URL") if address.userinfo else None


def _find_login_in_environment(name: str | None, environment: Mapping[str, str]) -> Login | None:
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
            raise RequestError(
                f"{address} has not been read before, and --offline was given; run once without it",
                is_unconnected=True,
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
        files = _read_local_page(key) if urlsplit(key).scheme == "file" else self._read_page(key)
        with self._lock:
            if self._held + len(files) > MOST_HELD:
                self._pages.clear()
                self._held = 0
            self._pages[key] = files
            self._held += len(files)
        return files

    def _read_page(self, url: str) -> tuple[IndexFile, ...]:
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


def _read_local_page(url: str) -> tuple[IndexFile, ...]:
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
