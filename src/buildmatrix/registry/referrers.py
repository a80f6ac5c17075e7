"""Referrers: manifests with another manifest as their subject.

OCI distribution specification 1.1, "Listing Referrers". For a registry without the API, clients
maintain an index under a tag made of the digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from buildmatrix.errors import UndecidedError
from buildmatrix.http.addresses import HttpAddress
from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import (
    INDEX,
    MANIFEST,
    MAX_DOCUMENT,
    Descriptor,
    ImageIndex,
    encode,
    index_of,
    manifest_of,
)
from buildmatrix.registry.manifests import Manifests
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session

#: Pages per list, and entries in total.
_MAX_PAGES = 100
_MAX_REFERRERS = 10_000
#: Attempts to write the fallback tag against concurrent writers.
_TRIES = 5
_NEXT = re.compile(r'\s*<([^<>]{1,4096})>\s*;[^,]*\brel="?next"?')


class Referrers:
    """Referrers in all repositories."""

    def __init__(self, session: Session, manifests: Manifests) -> None:
        self._session = session
        self._manifests = manifests

    def read(self, reference: Reference, digest: str, artifact_type: str) -> list[Descriptor]:
        """See `client.Registry.referrers`."""
        reference = reference.at(digest)
        entries = self._read_api(reference, artifact_type)
        if entries is None:
            entries = self._read_tag(reference)
        kept = (entry for entry in entries if artifact_type in ("", entry.artifact_type))
        return list({entry.digest: entry for entry in kept}.values())

    def push(self, reference: Reference, data: bytes) -> Descriptor:
        """See `client.Registry.push_referrer`."""
        where = f"{reference.name}: what is to be attached"
        manifest = manifest_of(data, where)
        subject = manifest.subject
        if subject is None:
            raise UndecidedError(f"{where} names no subject")
        untagged = Reference(reference.host, reference.repository)
        written, taken = self._manifests.write(untagged, data, manifest.media_type or MANIFEST)
        entry = Descriptor(
            media_type=written.media_type,
            digest=written.digest,
            size=written.size,
            artifact_type=manifest.artifact_type or manifest.config.media_type,
            annotations=manifest.annotations,
        )
        if taken != subject.digest:
            self._add_to_tag(untagged.at(subject.digest), entry)
        return entry

    def _read_api(self, reference: Reference, artifact_type: str) -> list[Descriptor] | None:
        """Return the entries of the referrers API; None if the registry has none."""
        query = f"?artifactType={quote(artifact_type, safe='')}" if artifact_type else ""
        where: str | HttpAddress = f"referrers/{reference.digest}{query}"
        entries: list[Descriptor] = []
        for _ in range(_MAX_PAGES):
            page = self._fetch_page(reference, where)
            if page is None:
                # Only the first page can tell that the API is missing.
                if entries:
                    raise self._error(reference, "returned a part of them only")
                return None
            descriptors, following = page
            entries += descriptors
            if following is None:
                return entries
            if len(entries) > _MAX_REFERRERS:
                break
            where = following
        raise self._error(reference, f"returned more than {_MAX_REFERRERS}, or no last page")

    def _fetch_page(
        self, reference: Reference, where: str | HttpAddress
    ) -> tuple[Iterable[Descriptor], HttpAddress | None] | None:
        wanted = f"the referrers of {reference.digest}"

        def work() -> tuple[Iterable[Descriptor], HttpAddress | None] | None:
            with self._session.ask(
                reference,
                "GET",
                where,
                wanted,
                headers={"Accept": INDEX},
                # Status codes of registries without the API.
                accepted=(200, 400, 404, 405, 501),
                length=MAX_DOCUMENT,
            ) as response:
                if response.status != 200:
                    return None
                index = index_of(response.read(MAX_DOCUMENT), f"{reference.name}: {wanted}")
                link = _NEXT.match(response.headers.get("link", ""))
                if link is None:
                    return index.manifests, None
                following = response.address.join(link[1]).bare()
                if following.origin != response.address.origin:
                    raise self._error(reference, "has their next page on another server")
                return index.manifests, following

        return self._session.retry(work)

    def _read_tag(self, reference: Reference) -> list[Descriptor]:
        return list(self._read_tagged_index(reference).manifests)

    def _read_tagged_index(self, reference: Reference) -> ImageIndex:
        """Return the index under the fallback tag; empty if there is none."""
        tagged = reference.with_tag(_fallback_tag(reference.digest))
        try:
            manifest = self._manifests.fetch(tagged)
        except RequestError as error:
            if error.status != 404:
                raise
            return ImageIndex(manifests=(), media_type=INDEX)
        return index_of(manifest.data, str(tagged))

    def _add_to_tag(self, reference: Reference, entry: Descriptor) -> None:
        """Add an entry to the fallback tag; retry, as a concurrent writer may remove it."""
        tagged = reference.with_tag(_fallback_tag(reference.digest))
        for _ in range(_TRIES):
            index = self._read_tagged_index(reference)
            if any(other.digest == entry.digest for other in index.manifests):
                return
            grown = ImageIndex(
                manifests=(*index.manifests, entry),
                media_type=INDEX,
                annotations=index.annotations,
            )
            self._manifests.write(tagged, encode(grown), INDEX)
        if all(
            other.digest != entry.digest for other in self._read_tagged_index(reference).manifests
        ):
            raise self._error(reference, "did not store the new one")

    def _error(self, reference: Reference, what: str) -> RequestError:
        return RequestError(
            f"{reference.name}: the registry, asked for the referrers of {reference.digest}, {what}"
        )


def _fallback_tag(digest: str) -> str:
    """Return the fallback tag `sha256-...`: at most 32 and 64 characters of the two parts."""
    algorithm, _, encoded = digest.partition(":")
    return f"{algorithm[:32]}-{encoded[:64]}"
