"""A registry in memory, with the methods of `registry_client.Registry` that attestations need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from buildmatrix.base.errors import UndecidedError
from buildmatrix.images.documents import (
    MANIFEST,
    Descriptor,
    Manifest,
    encode,
    manifest_of,
    media_type_of,
)
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_client import ManifestBytes
from buildmatrix.net.registry_mirrors import Reference

IMAGE = Reference.parse("registry.example.com/demo:1")


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class MemoryRegistry:
    """`fails` is asked before each request: its name and reference; it may raise."""

    def __init__(self) -> None:
        self.tags: dict[tuple[str, str], str] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.listed: dict[str, list[Descriptor]] = {}
        self.fails: Callable[[str, Reference], None] = lambda name, reference: None
        self.asked: list[str] = []

    def _ask(self, name: str, reference: Reference) -> None:
        self.asked.append(f"{name} {reference}")
        self.fails(name, reference)

    def __enter__(self) -> MemoryRegistry:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to close."""

    def close(self) -> None:
        """Nothing to close."""

    def _missing(self, reference: Reference) -> RequestError:
        return RequestError(
            f"the registry {reference.host} does not have {reference.version} (404)", status=404
        )

    def resolve(self, reference: Reference) -> Descriptor:
        return self.manifest(reference).descriptor

    def digest(self, reference: Reference) -> str:
        return self.resolve(reference).digest

    def manifest(self, reference: Reference) -> ManifestBytes:
        self._ask("manifest", reference)
        digest = reference.digest or self.tags.get((reference.name, reference.version), "")
        data = self.manifests.get((reference.name, digest))
        if data is None:
            raise self._missing(reference)
        try:
            media_type = media_type_of(data, "a manifest")
        except UndecidedError:
            media_type = MANIFEST
        return ManifestBytes(data, media_type, digest)

    @contextmanager
    def blob(self, reference: Reference, descriptor: Descriptor) -> Iterator[Iterator[bytes]]:
        self._ask("blob", reference.at(descriptor.digest))
        data = self.blobs.get((reference.name, descriptor.digest))
        if data is None:
            raise self._missing(reference.at(descriptor.digest))
        if len(data) != descriptor.size or digest_of(data) != descriptor.digest:
            raise UndecidedError("the registry sent other bytes than were asked for")
        yield iter([data[:10], data[10:]])

    def has_blob(self, reference: Reference, digest: str) -> bool:
        self._ask("has_blob", reference.at(digest))
        return (reference.name, digest) in self.blobs

    def referrers(
        self, reference: Reference, digest: str, artifact_type: str = ""
    ) -> list[Descriptor]:
        self._ask("referrers", reference)
        return list(self.listed.get(digest, ()))

    def push_blob(
        self,
        reference: Reference,
        descriptor: Descriptor,
        open: Callable[[], BinaryIO],
        mount_from: Sequence[str] = (),
    ) -> bool:
        self._ask("push_blob", reference.at(descriptor.digest))
        data = open().read()
        assert digest_of(data) == descriptor.digest and len(data) == descriptor.size
        self.blobs[reference.name, descriptor.digest] = data
        return True

    def push_manifest(self, reference: Reference, data: bytes, media_type: str) -> Descriptor:
        self._ask("push_manifest", reference)
        digest = digest_of(data)
        assert reference.digest in ("", digest)
        assert media_type_of(data, "a manifest") == media_type
        self.manifests[reference.name, digest] = data
        if reference.tag and not reference.digest:
            self.tags[reference.name, reference.tag] = digest
        return Descriptor(media_type=media_type, digest=digest, size=len(data))

    def push_referrer(self, reference: Reference, data: bytes) -> Descriptor:
        manifest = manifest_of(data, "a referrer")
        assert manifest.subject is not None
        for blob in (manifest.config, *manifest.layers):
            assert (reference.name, blob.digest) in self.blobs, "push blobs first"
        pushed = self.push_manifest(Reference(reference.host, reference.repository), data, MANIFEST)
        pushed = msgspec.structs.replace(
            pushed, artifact_type=manifest.artifact_type, annotations=manifest.annotations
        )
        self.listed.setdefault(manifest.subject.digest, []).append(pushed)
        return pushed

    # For tests

    def image(self, reference: Reference = IMAGE, salt: str = "") -> Reference:
        """Put a small image under a tag; its name with its digest."""
        config = Descriptor(
            media_type="application/vnd.oci.image.config.v1+json",
            digest=digest_of(salt.encode()),
            size=len(salt),
        )
        self.blobs[reference.name, config.digest] = salt.encode()
        manifest = Manifest(schema_version=2, media_type=MANIFEST, config=config, layers=())
        data = encode(manifest)
        self.push_manifest(reference, data, MANIFEST)
        return reference.at(digest_of(data))
