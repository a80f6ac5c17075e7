"""What a registry has: the names of its repositories, and the tags of each.

OCI distribution specification 1.1, "Listing Tags", and the catalog of distribution
(https://distribution.github.io/distribution/spec/api/#catalog), which many registries do not have,
or give to administrators alone. Both come in pages; the header `Link` leads to the next one (RFC
8288). Some leave it out, and a page that is full may not be the last one. Others want smaller pages
than they are asked for (`catalog.maxentries` of distribution).
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

#: Names of one page; distribution takes no more.
_PAGE = 1000
#: Bytes of one page: a registry may send all tags of a repository at once, of 128 characters each.
_LARGEST_PAGE = 16 << 20
#: Pages of one list. Some are empty where a registry leaves out what one may not see.
_MOST_PAGES = 10_000
#: Names of one list.
MOST_NAMES = 1_000_000
_NEXT = re.compile(r'\s*<([^<>]{1,4096})>\s*;[^,]*\brel="?next"?')


class Lists:
    """Those of all registries."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def repositories(self, host: str) -> Iterator[str]:
        """See `client.Registry.repositories`."""
        return self._names(Reference(host, ""), "_catalog", "its repositories", "repositories")

    def tags(self, reference: Reference) -> Iterator[str]:
        """See `client.Registry.tags`."""
        whole = Reference(reference.host, reference.repository)
        return self._names(whole, "tags/list", "its tags", "tags")

    def _names(self, reference: Reference, where: str, wanted: str, key: str) -> Iterator[str]:
        """The names of all pages, each once. Raises RequestError, maybe after some names."""
        first = f"{where}?n={_PAGE}"
        place: str | HttpAddress | None = first
        names: set[str] = set()
        pages: set[str] = set()
        #: Whether the page was asked for although no answer has named it.
        is_guessed = False
        while place is not None:
            try:
                page, place = self._page(reference, place, wanted, key)
            except RequestError as error:
                if error.status != 400 or place != first:
                    raise
                first = ""
                page, place = self._page(reference, where, wanted, key)
            if is_guessed and page and names.issuperset(page):
                raise self._failure(
                    reference, wanted, f"gives {_PAGE:,} and no next page: there may be more"
                )
            is_guessed = place is None and len(page) == _PAGE and bool(first)
            if is_guessed:
                place = f"{first}&last={quote(page[-1], safe='')}"
            for name in page:
                if name not in names:
                    names.add(name)
                    yield name
            if len(names) > MOST_NAMES:
                raise self._failure(reference, wanted, f"lists more than {MOST_NAMES:,}")
            if place is not None:
                target = place.target if isinstance(place, HttpAddress) else place
                if target in pages or len(pages) >= _MOST_PAGES:
                    raise self._failure(reference, wanted, "has no last page")
                pages.add(target)

    def _page(
        self, reference: Reference, where: str | HttpAddress, wanted: str, key: str
    ) -> tuple[list[str], HttpAddress | None]:
        """The names of a page, and where the next one is."""

        def work() -> tuple[list[str], HttpAddress | None]:
            with self._session.ask(
                reference,
                "GET",
                where,
                wanted,
                headers={"Accept": "application/json"},
                length=_LARGEST_PAGE,
            ) as answer:
                try:
                    document = parse_json(answer.read(_LARGEST_PAGE))
                except JSONDecodeError:
                    document = None
                if not isinstance(document, dict):
                    raise self._failure(reference, wanted, "answers with no JSON object")
                # `null`, of a repository whose tags were all deleted.
                names = document.get(key) or []
                if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                    raise self._failure(reference, wanted, "answers with something else")
                link = _NEXT.match(answer.headers.get("link", ""))
                if link is None:
                    return names, None
                try:
                    following = answer.address.join(link[1])
                except UndecidedError as error:
                    raise self._failure(reference, wanted, f"says: {error.message}") from None
                # Whoever is shown the credentials of a registry is that registry.
                if following.host != answer.address.host:
                    raise self._failure(reference, wanted, "has the next page on another server")
                # Behind a proxy it may not know that it is spoken to with TLS, or at which port.
                return names, replace(answer.address, target=following.target)

        return self._session.retry(work)

    def _failure(self, reference: Reference, wanted: str, what: str) -> RequestError:
        return RequestError(f"{reference.name}: the registry, asked for {wanted}, {what}")
