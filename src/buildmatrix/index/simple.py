"""The pages of an index: which files it has of a distribution."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import InvalidName, canonicalize_name

from buildmatrix.errors import UndecidedError
from buildmatrix.files import read_at_most
from buildmatrix.http.addresses import HttpAddress, parse
from buildmatrix.http.requests import Requests
from buildmatrix.index.cache import PAGE, Page, fresh_until
from buildmatrix.index.credentials import Credentials
from buildmatrix.index.pages import ACCEPT, LARGEST_PAGE, IndexFile, read_page
from buildmatrix.store.cache import Store
from buildmatrix.trees.base import reason

#: Seconds for which a page is not asked for again, as uv has it.
FRESH = 600.0
#: Files of all pages that are held in memory.
MOST_HELD = 50_000
_GONE = (404, 410)


class SimplePages:
    """Pages, for all threads."""

    def __init__(self, requests: Requests, credentials: Credentials, store: Store) -> None:
        self._requests = requests
        self._credentials = credentials
        self._store = store
        self._pages: dict[str, tuple[IndexFile, ...]] = {}
        self._held = 0
        self._lock = threading.Lock()

    def project(self, index_url: str, name: str) -> tuple[IndexFile, ...]:
        """See `Client.project`."""
        try:
            normalized = canonicalize_name(name, validate=True)
        except InvalidName as error:
            raise UndecidedError(f"{name[:100]!r} is not a valid name of a distribution") from error
        key = f"{index_url.rstrip('/')}/{normalized}/"
        with self._lock:
            files = self._pages.get(key)
        if files is not None:
            return files
        files = _local_page(key) if _is_local(key) else self._page(key)
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
        """The page at `address`, kept or new."""
        key = f"page {address.url}"
        headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip"}
        kept_page = self._store.load(key, PAGE)
        if kept_page is not None and (
            self._requests.offline or kept_page.fresh_until > time.time()
        ):
            return kept_page
        if self._requests.offline:
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


def _is_local(url: str) -> bool:
    return urlsplit(url).scheme == "file"


def _local_page(url: str) -> tuple[IndexFile, ...]:
    """A folder of this machine in the layout of an index, as uv and pip take it."""
    page = f"{url}index.html"
    data = _read_local(page, LARGEST_PAGE)
    return () if data is None else read_page(data, "text/html", page, page)


def _read_local(url: str, limit: int) -> bytes | None:
    """A file of this machine; None where there is none."""
    parts = urlsplit(url)
    path = Path(url2pathname(parts.path))
    try:
        if parts.netloc not in ("", "localhost"):
            raise OSError(f"{parts.netloc!r} is another machine")
        if not path.is_file():
            return None
        data = read_at_most(path, limit)
    except OSError as error:
        raise UndecidedError(f"{url} cannot be read: {reason(error)}") from error
    if len(data) > limit:
        raise UndecidedError(f"{url} is larger than {limit >> 20} MiB, which no honest page is")
    return data
