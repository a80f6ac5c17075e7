"""Client of image registries, with lists of repositories and tags."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO, TypeVar
from urllib.parse import quote

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.facts.trees.base import Closing
from buildmatrix.images.documents import Descriptor
from buildmatrix.net.addresses import HttpAddress, Patience, RequestError
from buildmatrix.net.registry_blobs import BlobPlace, blob_exists, push_blob, stream_blob
from buildmatrix.net.registry_manifests import ManifestBytes, Manifests, Referrers
from buildmatrix.net.registry_mirrors import Mirrors, Reference
from buildmatrix.net.registry_session import Session, error_about, next_page

# Lists. OCI distribution specification 1.1, "Listing Tags", and the catalog of distribution
# (https://distribution.github.io/distribution/spec/api/#catalog), which many registries lack or
# restrict to administrators. Both are paginated by the header `Link` (RFC 8288). Some registries
# omit the header, so a full page may not be the last one. Others limit the size of a page
# (`catalog.maxentries` of distribution).


#: Names per page; distribution's maximum.
_PAGE_NAMES = 1000
#: Bytes per page: a registry may send all tags at once, of 128 characters each.
_MAX_PAGE_BYTES = 16 << 20
#: Pages per list. Some are empty: registries omit what the user may not see.
_MAX_PAGES = 10_000
#: Names per list.
MAX_NAMES = 1_000_000


def _iter_names(
    session: Session, reference: Reference, where: str, wanted: str, key: str
) -> Iterator[str]:
    """Yield the names of all pages, each once. Raises RequestError, maybe after some names."""
    first = f"{where}?n={_PAGE_NAMES}"
    place: str | HttpAddress | None = first
    names: set[str] = set()
    pages: set[str] = set()
    #: True if the page was requested without a link to it.
    is_guessed = False
    while place is not None:
        try:
            page, place = _fetch_page(session, reference, place, wanted, key)
        except RequestError as error:
            if error.status != 400 or place != first:
                raise
            first = ""
            page, place = _fetch_page(session, reference, where, wanted, key)
        if is_guessed and page and names.issuperset(page):
            what = f"gives {_PAGE_NAMES:,} and no next page: there may be more"
            raise error_about(reference, wanted, what)
        is_guessed = place is None and len(page) == _PAGE_NAMES and bool(first)
        if is_guessed:
            place = f"{first}&last={quote(page[-1], safe='')}"
        for name in page:
            if name not in names:
                names.add(name)
                yield name
        if len(names) > MAX_NAMES:
            raise error_about(reference, wanted, f"lists more than {MAX_NAMES:,}")
        if place is not None:
            target = place.target if isinstance(place, HttpAddress) else place
            if target in pages or len(pages) >= _MAX_PAGES:
                raise error_about(reference, wanted, "has no last page")
            pages.add(target)


def _fetch_page(
    session: Session, reference: Reference, where: str | HttpAddress, wanted: str, key: str
) -> tuple[list[str], HttpAddress | None]:
    """Return the names of a page, and the address of the next one."""

    def work() -> tuple[list[str], HttpAddress | None]:
        with session.ask(
            reference,
            "GET",
            where,
            wanted,
            headers={"Accept": "application/json"},
            length=_MAX_PAGE_BYTES,
        ) as response:
            document = response.json_object(_MAX_PAGE_BYTES)
            if document is None:
                raise error_about(reference, wanted, "returned no JSON object")
            # `null`: all tags of the repository were deleted.
            names = document.get(key) or []
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise error_about(reference, wanted, "returned no list of names")
            return names, next_page(reference, wanted, response)

    return session.retry(work)


_Result = TypeVar("_Result")


class Registry(Closing):
    """Client of any number of registries, for all threads; reuses connections and tokens.

    Uses this machine's credentials, proxies and certificates (docs/registries.md). Connects on the
    first request. Retries temporary failures. Every method raises UndecidedError, in one sentence
    that names registry and repository.

    Args:
        plain_http: hosts (`HOST` or `HOST:PORT`) without TLS, besides loopback and those in
            BUILDMATRIX_PLAIN_HTTP.
        offline: fail every request.
        patience: timeouts and retries.
        mirrors: mirrors to read images from; None for none. Writes and lists of referrers always
            go to the registry itself.
        note: called once with each mirror that was used or skipped.
    """

    def __init__(
        self,
        *,
        plain_http: Sequence[str] = (),
        offline: bool = False,
        patience: Patience | None = None,
        mirrors: Mirrors | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        plain = (*plain_http, *os.environ.get("BUILDMATRIX_PLAIN_HTTP", "").split())
        self._note = note
        self._noted: set[str] = set()
        #: Hosts of mirrors that failed.
        self._broken: set[str] = set()
        self._session = Session(patience or Patience(), plain, os.environ, offline=offline)
        self._manifests = Manifests(self._session)
        self._mirrors = mirrors
        self._mirror_session, self._mirror_manifests = self._session, self._manifests
        if mirrors is not None:
            mirrors.plain_http, mirrors.note = plain, note
            self._mirror_session = Session(
                # One short attempt: the registry itself is the fallback.
                replace(patience or Patience(), tries=1, connect=3.0),
                plain,
                os.environ,
                offline=offline,
                authorities=mirrors.authorities,
            )
            self._mirror_manifests = Manifests(self._mirror_session)
        self._sessions = {self._session, self._mirror_session}
        self._referrers = Referrers(self._session, self._manifests)

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        for session in self._sessions:
            session.close()

    @property
    def bytes_read(self) -> int:
        """Bytes received so far, documents included."""
        return sum(session.received.bytes for session in self._sessions)

    @property
    def bytes_sent(self) -> int:
        """Bytes of blobs sent so far, repetitions included."""
        return self._session.sent.bytes

    @property
    def requests(self) -> int:
        """Number of requests so far, including those for tokens."""
        return sum(session.received.requests for session in self._sessions)

    # Reading

    def resolve(self, reference: Reference) -> Descriptor:
        """Resolve `reference` to a descriptor; continue with `reference.at(descriptor.digest)`.

        A tag may move at any time. Every call downloads the document, so that the digest is that of
        existing bytes.
        """
        return self._read(reference, Manifests.fetch).descriptor

    def digest(self, reference: Reference, known: str = "") -> str:
        """Return the digest that the registry states for `reference`.

        Cheaper than `resolve`: no document is downloaded. Reads by the digest verify it later.
        `known`: the previous digest, if there is one; it saves work in many registries.
        """
        if reference.digest:
            return reference.digest
        claimed = self._read(reference, lambda manifests, place: manifests.digest(place, known))
        return claimed or self.resolve(reference).digest

    def manifest(self, reference: Reference) -> ManifestBytes:
        """Return a manifest or an index, verified if `reference` has a digest. At most 8 MiB.

        Documents requested by digest are cached.
        """
        return self._read(reference, Manifests.read)

    @contextmanager
    def blob(self, reference: Reference, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        """Open a blob for reading; an interrupted download is resumed.

        The iterator verifies length and digest at its end and raises if they differ: bytes of an
        iterator that was not exhausted are unverified.
        """
        *mirrors, origin = self._locate(reference.at(descriptor.digest))
        places = [
            BlobPlace(
                self._mirror_session,
                place,
                partial(self._skip_mirror, place),
                partial(self._note_mirror, reference, place),
            )
            for place in mirrors
        ]
        chunks = stream_blob([*places, BlobPlace(self._session, origin)], origin, descriptor)
        try:
            yield chunks
        finally:
            chunks.close()

    def has_blob(self, reference: Reference, digest: str) -> bool:
        """Return True if the repository has the blob."""
        return blob_exists(self._session, reference, digest)

    def referrers(
        self, reference: Reference, digest: str, artifact_type: str = ""
    ) -> list[Descriptor]:
        """Return the manifests whose subject is `digest`, of one type or of all.

        Uses the referrers API, or the fallback tag of a registry without one.
        """
        return self._referrers.read(reference, digest, artifact_type)

    def repositories(self, host: str) -> Iterator[str]:
        """Yield the names of all repositories of a registry; never asks mirrors.

        Most public registries do not list them.
        """
        whole = Reference(host, "")
        return _iter_names(self._session, whole, "_catalog", "its repositories", "repositories")

    def tags(self, reference: Reference) -> Iterator[str]:
        """Yield the tags of a repository; never asks mirrors."""
        whole = Reference(reference.host, reference.repository)
        return _iter_names(self._session, whole, "tags/list", "its tags", "tags")

    def _locate(self, reference: Reference) -> tuple[Reference, ...]:
        """Return working mirrors, followed by the registry itself."""
        if self._mirrors is None:
            return (reference,)
        *mirrors, origin = self._mirrors.locate(reference)
        return (*(item for item in mirrors if item.host not in self._broken), origin)

    def _read(
        self, reference: Reference, work: Callable[[Manifests, Reference], _Result]
    ) -> _Result:
        *mirrors, origin = self._locate(reference)
        for place in mirrors:
            try:
                response = work(self._mirror_manifests, place)
            except UndecidedError as error:
                self._skip_mirror(place, error)
                continue
            self._note_mirror(reference, place)
            return response
        return work(self._manifests, origin)

    def _note_mirror(self, reference: Reference, place: Reference) -> None:
        self._note_once(f"{reference.name}: read from the mirror {place.host}")

    def _skip_mirror(self, place: Reference, error: UndecidedError) -> None:
        """Skip a mirror for this image, and for all if it does not respond."""
        status = error.status if isinstance(error, RequestError) else None
        if status is None or status >= 500:
            self._broken.add(place.host)
        self._note_once(f"the mirror {place.host} is skipped: {error.message}")

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)

    # Writing

    def push_blob(
        self,
        reference: Reference,
        descriptor: Descriptor,
        open: Callable[[], BinaryIO],
        mount_from: Sequence[str] = (),
    ) -> bool:
        """Upload a blob unless the repository has it; return True if its bytes were sent.

        Mounts it from one of the repositories `mount_from` of the same host if possible. Large
        blobs are sent in chunks and resumed after a failure.

        `open` returns the bytes from the start, for each attempt; preferably seekable. They are
        verified on their way: a blob with another digest is never completed.
        """
        return push_blob(self._session, reference, descriptor, open, mount_from)

    def push_manifest(self, reference: Reference, data: bytes, media_type: str) -> Descriptor:
        """Write a manifest or an index, under the digest or else the tag of `reference`.

        Without either, under its own digest. Push all its blobs first.
        """
        return self._manifests.write(reference, data, media_type)[0]

    def push_referrer(self, reference: Reference, data: bytes) -> Descriptor:
        """Write a manifest that has a subject, so that `referrers` finds it.

        Updates the fallback tag if the registry has no referrers API.
        """
        return self._referrers.push(reference, data)
