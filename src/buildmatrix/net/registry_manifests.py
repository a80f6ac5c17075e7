"""Manifests, indexes, and referrers: manifests with another manifest as their subject."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from urllib.parse import quote

from msgspec import Struct, structs

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import printable
from buildmatrix.images.documents import (
    INDEX,
    INDEXES,
    MANIFEST,
    MANIFESTS,
    MAX_DOCUMENT,
    Descriptor,
    ImageIndex,
    encode,
    index_of,
    manifest_of,
    media_type_of,
)
from buildmatrix.net.addresses import HttpAddress, RequestError
from buildmatrix.net.registry_mirrors import Reference, digest_of, is_digest
from buildmatrix.net.registry_session import Session, error_about, next_page
from buildmatrix.net.requests import HttpResponse

ACCEPT = ", ".join(sorted(MANIFESTS | INDEXES))
#: Bytes of cached documents.
MAX_CACHED_BYTES = 32 << 20


class ManifestBytes(Struct, frozen=True):
    """A manifest or an index, verified against its digest."""

    data: bytes
    media_type: str
    digest: str

    @property
    def descriptor(self) -> Descriptor:
        """Descriptor of the document, for an index or a referrer."""
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.data))


class Manifests:
    """Documents of all repositories; caches those with a digest."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cached: dict[tuple[str, str], ManifestBytes] = {}
        self._size = 0
        self._lock = threading.Lock()

    def read(self, reference: Reference) -> ManifestBytes:
        """See `client.Registry.manifest`."""
        with self._lock:
            held = self._cached.get((reference.name, reference.digest))
        return held or self.fetch(reference)

    def fetch(self, reference: Reference) -> ManifestBytes:
        """Return the current document of the registry, bypassing the cache."""
        manifest = self._session.retry(lambda: self._request(reference))
        with self._lock:
            if self._size + len(manifest.data) > MAX_CACHED_BYTES:
                self._cached.clear()
                self._size = 0
            if (reference.name, manifest.digest) not in self._cached:
                self._size += len(manifest.data)
            self._cached[reference.name, manifest.digest] = manifest
        return manifest

    def digest(self, reference: Reference, known: str = "") -> str:
        """Return the stated digest, see `client.Registry.digest`; empty if there is none."""
        headers = {"Accept": ACCEPT}
        if known:
            # The ETag of distribution's manifests is the digest, so that it only resolves the tag.
            # Others ignore the header.
            headers["If-None-Match"] = f'"{known}"'

        def work() -> str:
            with self._session.ask(
                reference,
                "HEAD",
                f"manifests/{reference.version}",
                f"the manifest {reference.version}",
                headers=headers,
                accepted=(200, 405, 501, *((304,) if known else ())),
            ) as response:
                claimed = response.headers.get("docker-content-digest", "")
                if response.status == 304:
                    return known if claimed in ("", known) else ""
                return claimed if response.status == 200 and is_digest(claimed) else ""

        return self._session.retry(work)

    def _request(self, reference: Reference) -> ManifestBytes:
        wanted = f"the manifest {reference.version}"
        with self._session.ask(
            reference,
            "GET",
            f"manifests/{reference.version}",
            wanted,
            headers={"Accept": ACCEPT},
            length=MAX_DOCUMENT,
        ) as response:
            data = response.read(MAX_DOCUMENT)
            digest = _verify_digest(reference, data, response)
            return ManifestBytes(data, _verify_media_type(reference, data, response), digest)

    def write(self, reference: Reference, data: bytes, media_type: str) -> tuple[Descriptor, str]:
        """Write a document; return its descriptor, and the subject that the registry noted."""
        algorithm = reference.digest.partition(":")[0] or "sha256"
        digest = digest_of(data, algorithm)
        if reference.digest and digest != reference.digest:
            raise RequestError(
                f"{reference.name}: the manifest to write has the digest {digest}, not "
                f"{reference.digest}"
            )
        version = reference.digest or reference.tag or digest

        def work() -> str:
            with self._session.ask(
                reference,
                "PUT",
                f"manifests/{version}",
                f"the manifest {version}",
                headers={"Content-Type": media_type},
                accepted=(200, 201, 202),
                body=lambda: iter((data,)),
                body_length=len(data),
                changes=True,
            ) as response:
                claimed = response.headers.get("docker-content-digest", digest)
                if claimed != digest and claimed.partition(":")[0] == algorithm:
                    raise RequestError(
                        f"{reference.name}: the registry took the manifest {version} as "
                        f"{printable(claimed)[:100]}, and its digest is {digest}"
                    )
                return response.headers.get("oci-subject", "")

        subject = self._session.retry(work)
        return Descriptor(media_type=media_type, digest=digest, size=len(data)), subject


def _verify_digest(reference: Reference, data: bytes, response: HttpResponse) -> str:
    """Return the digest of the data. Raises RequestError if another one was requested or stated."""
    claimed = response.headers.get("docker-content-digest", "")
    algorithm = (reference.digest or claimed).partition(":")[0]
    digest = digest_of(data, algorithm if algorithm == "sha512" else "sha256")
    wanted = f"{reference.name}: the manifest {reference.version}"
    if reference.digest and digest != reference.digest:
        raise RequestError(f"{wanted} is not what its digest says: its bytes have {digest}")
    if claimed and claimed.partition(":")[0] == digest.partition(":")[0] and claimed != digest:
        raise RequestError(
            f"{wanted} is damaged: the registry says {printable(claimed)[:100]}, its bytes have "
            f"{digest}"
        )
    return digest


def _verify_media_type(reference: Reference, data: bytes, response: HttpResponse) -> str:
    """Return the type of the document. Raises RequestError if it is ambiguous (CVE-2021-41190)."""
    where = f"{reference.name}: the manifest {reference.version}"
    inside = media_type_of(data, where)
    header = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    families = MANIFESTS, INDEXES
    for family in families:
        if inside in family and header in MANIFESTS | INDEXES and header not in family:
            raise RequestError(f"{where} calls itself {inside}, and the registry {header}")
    if inside not in MANIFESTS | INDEXES:
        raise RequestError(
            f"{where} is not a known kind of image manifest: "
            f"{printable(inside or header or 'it states no media type')[:200]}"
        )
    return header if header in MANIFESTS | INDEXES else inside


# Referrers. OCI distribution specification 1.1, "Listing Referrers". For a registry without the
# API, clients maintain an index under a tag made of the digest.


#: Pages per list, and entries in total.
_MAX_PAGES = 100
_MAX_REFERRERS = 10_000
#: Attempts to write the fallback tag against concurrent writers.
_TRIES = 5


class Referrers:
    """Referrers in all repositories."""

    def __init__(self, session: Session, manifests: Manifests) -> None:
        self._session = session
        self._manifests = manifests

    def read(self, reference: Reference, digest: str, artifact_type: str) -> list[Descriptor]:
        """See `client.Registry.referrers`."""
        reference = reference.at(digest)
        entries: Iterable[Descriptor] | None = self._read_api(reference, artifact_type)
        if entries is None:
            entries = self._read_tagged_index(reference).manifests
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
        entry = structs.replace(
            written,
            artifact_type=manifest.artifact_type or manifest.config.media_type,
            annotations=manifest.annotations,
        )
        if taken != subject.digest:
            self._add_to_tag(untagged.at(subject.digest), entry)
        return entry

    def _read_api(self, reference: Reference, artifact_type: str) -> list[Descriptor] | None:
        """Return the entries of the referrers API; None if the registry has none."""
        query = f"?artifactType={quote(artifact_type, safe='')}" if artifact_type else ""
        wanted = f"the referrers of {reference.digest}"
        where: str | HttpAddress = f"referrers/{reference.digest}{query}"
        entries: list[Descriptor] = []
        for _ in range(_MAX_PAGES):
            page = self._fetch_page(reference, where, wanted)
            if page is None:
                # Only the first page can tell that the API is missing.
                if entries:
                    raise error_about(reference, wanted, "returned a part of them only")
                return None
            descriptors, following = page
            entries += descriptors
            if following is None:
                return entries
            if len(entries) > _MAX_REFERRERS:
                break
            where = following
        what = f"returned more than {_MAX_REFERRERS}, or no last page"
        raise error_about(reference, wanted, what)

    def _fetch_page(
        self, reference: Reference, where: str | HttpAddress, wanted: str
    ) -> tuple[Iterable[Descriptor], HttpAddress | None] | None:
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
                return index.manifests, next_page(reference, wanted, response)

        return self._session.retry(work)

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
                manifests=(*index.manifests, entry), media_type=INDEX, annotations=index.annotations
            )
            self._manifests.write(tagged, encode(grown), INDEX)
        index = self._read_tagged_index(reference)
        if all(other.digest != entry.digest for other in index.manifests):
            wanted = f"the referrers of {reference.digest}"
            raise error_about(reference, wanted, "did not store the new one")


def _fallback_tag(digest: str) -> str:
    """Return the fallback tag `sha256-...`: at most 32 and 64 characters of the two parts."""
    algorithm, _, encoded = digest.partition(":")
    return f"{algorithm[:32]}-{encoded[:64]}"
