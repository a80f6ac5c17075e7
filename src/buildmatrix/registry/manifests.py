"""Manifests and indexes, read and written whole."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from buildmatrix.http.failures import RequestError
from buildmatrix.http.requests import HttpResponse
from buildmatrix.oci.documents import (
    INDEXES,
    LARGEST_DOCUMENT,
    MANIFESTS,
    Descriptor,
    media_type_of,
)
from buildmatrix.registry.digests import digest_of, is_digest
from buildmatrix.registry.reference import Reference
from buildmatrix.registry.session import Session
from buildmatrix.text import printable

ACCEPT = ", ".join(sorted(MANIFESTS | INDEXES))
#: Bytes of documents that are held in memory.
MOST_HELD = 32 << 20


@dataclass(frozen=True, slots=True)
class ManifestBytes:
    """A manifest or an index as a registry gave it; its bytes have the digest."""

    data: bytes
    media_type: str
    digest: str

    @property
    def descriptor(self) -> Descriptor:
        """What an index or a referrer says of it."""
        return Descriptor(media_type=self.media_type, digest=self.digest, size=len(self.data))


class Manifests:
    """The documents of all repositories; those that were asked for by digest are held."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._held: dict[tuple[str, str], ManifestBytes] = {}
        self._size = 0
        self._lock = threading.Lock()

    def read(self, reference: Reference) -> ManifestBytes:
        """See `client.Registry.manifest`."""
        with self._lock:
            held = self._held.get((reference.name, reference.digest))
        return held or self.ask(reference)

    def ask(self, reference: Reference) -> ManifestBytes:
        """The document as the registry has it now."""
        manifest = self._session.retry(lambda: self._ask(reference))
        with self._lock:
            if self._size + len(manifest.data) > MOST_HELD:
                self._held.clear()
                self._size = 0
            if (reference.name, manifest.digest) not in self._held:
                self._size += len(manifest.data)
            self._held[reference.name, manifest.digest] = manifest
        return manifest

    def digest(self, reference: Reference, known: str = "") -> str:
        """See `client.Registry.digest`; empty where the registry does not say."""
        headers = {"Accept": ACCEPT}
        if known:
            # As distribution has it, the ETag of a manifest is its digest; it looks at no more than
            # the tag then. Others send what they always send.
            headers["If-None-Match"] = f'"{known}"'

        def work() -> str:
            with self._session.ask(
                reference,
                "HEAD",
                f"manifests/{reference.version}",
                f"the manifest {reference.version}",
                headers=headers,
                accepted=(200, 405, 501, *((304,) if known else ())),
            ) as answer:
                claimed = answer.headers.get("docker-content-digest", "")
                if answer.status == 304:
                    return known if claimed in ("", known) else ""
                return claimed if answer.status == 200 and is_digest(claimed) else ""

        return self._session.retry(work)

    def _ask(self, reference: Reference) -> ManifestBytes:
        wanted = f"the manifest {reference.version}"
        with self._session.ask(
            reference,
            "GET",
            f"manifests/{reference.version}",
            wanted,
            headers={"Accept": ACCEPT},
            length=LARGEST_DOCUMENT,
        ) as answer:
            data = answer.read(LARGEST_DOCUMENT)
            digest = _digest(reference, data, answer)
            return ManifestBytes(data, _media_type(reference, data, answer), digest)

    def write(self, reference: Reference, data: bytes, media_type: str) -> tuple[Descriptor, str]:
        """See `client.Registry.push_manifest`; and the subject that the registry took note of."""
        algorithm = reference.digest.partition(":")[0] or "sha256"
        digest = digest_of(data, algorithm)
        if reference.digest and digest != reference.digest:
            raise RequestError(
                f"{reference.name}: the manifest to be written has the digest {digest}, and not "
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
            ) as answer:
                claimed = answer.headers.get("docker-content-digest", digest)
                if claimed != digest and claimed.partition(":")[0] == algorithm:
                    raise RequestError(
                        f"{reference.name}: the registry took the manifest {version} as "
                        f"{printable(claimed)[:100]}, and its digest is {digest}"
                    )
                return answer.headers.get("oci-subject", "")

        subject = self._session.retry(work)
        return Descriptor(media_type=media_type, digest=digest, size=len(data)), subject


def _digest(reference: Reference, data: bytes, answer: HttpResponse) -> str:
    """The digest that was asked for, or that the registry says; the bytes have it."""
    claimed = answer.headers.get("docker-content-digest", "")
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


def _media_type(reference: Reference, data: bytes, answer: HttpResponse) -> str:
    """What the document is. Two programs must not take it for two things (CVE-2021-41190)."""
    where = f"{reference.name}: the manifest {reference.version}"
    inside = media_type_of(data, where)
    header = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    families = MANIFESTS, INDEXES
    for family in families:
        if inside in family and header in MANIFESTS | INDEXES and header not in family:
            raise RequestError(f"{where} calls itself {inside}, and the registry {header}")
    if inside not in MANIFESTS | INDEXES:
        raise RequestError(
            f"{where} is no manifest of an image that is known here: "
            f"{printable(inside or header or 'it does not say what it is')[:200]}"
        )
    return header if header in MANIFESTS | INDEXES else inside
