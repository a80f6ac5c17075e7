"""Manifests that say something about another one, and how they are found.

OCI distribution specification 1.1, "Listing Referrers". A registry that does not know of them has
an index under a tag made of the digest, which whoever pushes a referrer keeps up to date.
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
    LARGEST_DOCUMENT,
    MANIFEST,
    Descriptor,
    ImageIndex,
    encode,
    index_of,
    manifest_of,
)
from buildmatrix.registry.manifests import Manifests
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session

#: Pages of one list, and entries of all.
_MOST_PAGES = 100
_MOST_REFERRERS = 10_000
#: Times that the tag is written again after somebody else wrote it at the same moment.
_TRIES = 5
_NEXT = re.compile(r'\s*<([^<>]{1,4096})>\s*;[^,]*\brel="?next"?')


class Referrers:
    """Those of all repositories."""

    def __init__(self, session: Session, manifests: Manifests) -> None:
        self._session = session
        self._manifests = manifests

    def read(self, reference: Reference, digest: str, artifact_type: str) -> list[Descriptor]:
        """See `client.Registry.referrers`."""
        reference = reference.at(digest)
        entries = self._of_api(reference, artifact_type)
        if entries is None:
            entries = self._of_tag(reference)
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
            self._add(untagged.at(subject.digest), entry)
        return entry

    def _of_api(self, reference: Reference, artifact_type: str) -> list[Descriptor] | None:
        """None where the registry has no such list."""
        query = f"?artifactType={quote(artifact_type, safe='')}" if artifact_type else ""
        where: str | HttpAddress = f"referrers/{reference.digest}{query}"
        entries: list[Descriptor] = []
        for _ in range(_MOST_PAGES):
            page = self._page(reference, where)
            if page is None:
                # Only the first page can say that there are none.
                if entries:
                    raise self._failure(reference, "lists them in part only")
                return None
            descriptors, following = page
            entries += descriptors
            if following is None:
                return entries
            if len(entries) > _MOST_REFERRERS:
                break
            where = following
        raise self._failure(reference, f"lists more than {_MOST_REFERRERS}, or has no last page")

    def _page(
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
                # What registries answer that never heard of it.
                accepted=(200, 400, 404, 405, 501),
                length=LARGEST_DOCUMENT,
            ) as answer:
                if answer.status != 200:
                    return None
                index = index_of(answer.read(LARGEST_DOCUMENT), f"{reference.name}: {wanted}")
                link = _NEXT.match(answer.headers.get("link", ""))
                if link is None:
                    return index.manifests, None
                following = answer.address.join(link[1]).bare()
                if following.origin != answer.address.origin:
                    raise self._failure(reference, "has their next page on another server")
                return index.manifests, following

        return self._session.retry(work)

    def _of_tag(self, reference: Reference) -> list[Descriptor]:
        return list(self._tagged(reference).manifests)

    def _tagged(self, reference: Reference) -> ImageIndex:
        """The index under the tag that stands in for the list; empty where there is none."""
        tagged = reference.tagged(_tag(reference.digest))
        try:
            manifest = self._manifests.ask(tagged)
        except RequestError as error:
            if error.status != 404:
                raise
            return ImageIndex(manifests=(), media_type=INDEX)
        return index_of(manifest.data, str(tagged))

    def _add(self, reference: Reference, entry: Descriptor) -> None:
        """Put one more into the tag. Whoever writes at the same moment may take it out again."""
        tagged = reference.tagged(_tag(reference.digest))
        for _ in range(_TRIES):
            index = self._tagged(reference)
            if any(other.digest == entry.digest for other in index.manifests):
                return
            grown = ImageIndex(
                manifests=(*index.manifests, entry),
                media_type=INDEX,
                annotations=index.annotations,
            )
            self._manifests.write(tagged, encode(grown), INDEX)
        if all(other.digest != entry.digest for other in self._tagged(reference).manifests):
            raise self._failure(reference, "does not keep what was added to them")

    def _failure(self, reference: Reference, what: str) -> RequestError:
        return RequestError(
            f"{reference.name}: the registry, asked for the referrers of {reference.digest}, {what}"
        )


def _tag(digest: str) -> str:
    """`sha256-...`: the algorithm has at most 32 characters, and the rest 64."""
    algorithm, _, encoded = digest.partition(":")
    return f"{algorithm[:32]}-{encoded[:64]}"
