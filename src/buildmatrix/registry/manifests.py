"""Manifests and indexes."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from buildmatrix.http.failures import RequestError
from buildmatrix.http.requests import HttpResponse
from buildmatrix.oci.documents import (
    INDEXES,
    MANIFESTS,
    MAX_DOCUMENT,
    Descriptor,
    media_type_of,
)
from buildmatrix.registry.digests import digest_of, is_digest
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session
from buildmatrix.text import printable

ACCEPT = ", ".join(sorted(MANIFESTS | INDEXES))
#: Bytes of cached documents.
MAX_CACHED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class ManifestBytes:
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
