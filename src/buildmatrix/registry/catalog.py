"""Lists of a registry's repositories, and of a repository's tags.

OCI distribution specification 1.1, "Listing Tags", and the catalog of distribution
(https://distribution.github.io/distribution/spec/api/#catalog), which many registries lack or
restrict to administrators. Both are paginated by the header `Link` (RFC 8288). Some registries omit
the header, so a full page may not be the last one. Others limit the size of a page
(`catalog.maxentries` of distribution).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from json import JSONDecodeError
from urllib.parse import quote

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress
from buildmatrix.http.failures import RequestError
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session
from buildmatrix.strict_json import parse_json

#: Names per page; distribution's maximum.
_PAGE_NAMES = 1000
#: Bytes per page: a registry may send all tags at once, of 128 characters each.
_MAX_PAGE_BYTES = 16 << 20
#: Pages per list. Some are empty: registries omit what the user may not see.
_MAX_PAGES = 10_000
#: Names per list.
MAX_NAMES = 1_000_000
_NEXT = re.compile(r'\s*<([^<>]{1,4096})>\s*;[^,]*\brel="?next"?')


class RegistryLists:
    """Lists of all registries."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def repositories(self, host: str) -> Iterator[str]:
        """See `client.Registry.repositories`."""
        return self._iter_names(Reference(host, ""), "_catalog", "its repositories", "repositories")

    def tags(self, reference: Reference) -> Iterator[str]:
        """See `client.Registry.tags`."""
        whole = Reference(reference.host, reference.repository)
        return self._iter_names(whole, "tags/list", "its tags", "tags")

    def _iter_names(self, reference: Reference, where: str, wanted: str, key: str) -> Iterator[str]:
        """Yield the names of all pages, each once. Raises RequestError, maybe after some names."""
        first = f"{where}?n={_PAGE_NAMES}"
        place: str | HttpAddress | None = first
        names: set[str] = set()
        pages: set[str] = set()
        #: True if the page was requested without a link to it.
        is_guessed = False
        while place is not None:
            try:
                page, place = self._fetch_page(reference, place, wanted, key)
            except RequestError as error:
                if error.status != 400 or place != first:
                    raise
                first = ""
                page, place = self._fetch_page(reference, where, wanted, key)
            if is_guessed and page and names.issuperset(page):
                raise self._error(
                    reference, wanted, f"gives {_PAGE_NAMES:,} and no next page: there may be more"
                )
            is_guessed = place is None and len(page) == _PAGE_NAMES and bool(first)
            if is_guessed:
                place = f"{first}&last={quote(page[-1], safe='')}"
            for name in page:
                if name not in names:
                    names.add(name)
                    yield name
            if len(names) > MAX_NAMES:
                raise self._error(reference, wanted, f"lists more than {MAX_NAMES:,}")
            if place is not None:
                target = place.target if isinstance(place, HttpAddress) else place
                if target in pages or len(pages) >= _MAX_PAGES:
                    raise self._error(reference, wanted, "has no last page")
                pages.add(target)

    def _fetch_page(
        self, reference: Reference, where: str | HttpAddress, wanted: str, key: str
    ) -> tuple[list[str], HttpAddress | None]:
        """Return the names of a page, and the address of the next one."""

        def work() -> tuple[list[str], HttpAddress | None]:
            with self._session.ask(
                reference,
                "GET",
                where,
                wanted,
                headers={"Accept": "application/json"},
                length=_MAX_PAGE_BYTES,
            ) as response:
                try:
                    document = parse_json(response.read(_MAX_PAGE_BYTES))
                except JSONDecodeError:
                    document = None
                if not isinstance(document, dict):
                    raise self._error(reference, wanted, "returned no JSON object")
                # `null`: all tags of the repository were deleted.
                names = document.get(key) or []
                if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                    raise self._error(reference, wanted, "returned no list of names")
                link = _NEXT.match(response.headers.get("link", ""))
                if link is None:
                    return names, None
                try:
                    following = response.address.join(link[1])
                except UndecidedError as error:
                    raise self._error(reference, wanted, f"says: {error.message}") from None
                # Credentials stay with the registry.
                if following.host != response.address.host:
                    raise self._error(reference, wanted, "has the next page on another server")
                # A registry behind a proxy may not know its own scheme and port.
                return names, replace(response.address, target=following.target)

        return self._session.retry(work)

    def _error(self, reference: Reference, wanted: str, what: str) -> RequestError:
        return RequestError(f"{reference.name}: the registry, asked for {wanted}, {what}")
