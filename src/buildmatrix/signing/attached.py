"""Attestations of an image in its registry: under its tag, and as manifests that refer to it.

cosign and admission controllers find them there, in two places with the same envelope. Since
cosign 3, a bundle is in a manifest that refers to the image (OCI distribution specification 1.1,
"referrers"). cosign 2, and controllers without bundle support, read the layers of the manifest
under the tag `sha256-<digest>.att`. The formats are those of cosign 3.1.1
(`WriteAttestationNewBundleFormat` and `WriteAttestations` in its `pkg/oci/remote/write.go`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.strict import decode_json
from buildmatrix.images.documents import (
    CONFIGURATION,
    EMPTY,
    MANIFEST,
    Descriptor,
    HistoryStep,
    ImageConfiguration,
    Manifest,
    RootFileSystem,
    encode,
    manifest_of,
)
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.run import Report, whole
from buildmatrix.signing import documents, verdict
from buildmatrix.signing.documents import IN_TOTO, MAX_BYTES, PREDICATE_TYPE, Envelope, PrivateKey
from buildmatrix.signing.keyless import KeylessSigner
from buildmatrix.signing.verdict import TargetVerdict

# The tag `sha256-<digest>.att`, read by cosign 2.
#
# The format is that of cosign 3.1.1 (`WriteAttestations` in `pkg/oci/remote/write.go`, and the
# annotations in `pkg/oci/static/options.go`). Tags have no lock: a writer may overwrite the layers
# that another one added a moment before. So each attestation is first attached as a manifest that
# refers to the image, and the last writer of the tag restores from these what it overwrote.


#: Media type of an envelope without a bundle.
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
#: Annotation of a layer, as read by cosign: the type of its predicate.
LAYER_PREDICATE_TYPE = "predicateType"
#: Annotation: UTC time of attachment, as `2026-11-22T15:04:26Z`.
CREATED = "org.opencontainers.image.created"
#: Our own annotation: the target. A new attestation replaces the previous one of its target.
TARGET = "dev.buildmatrix.target"
#: Our own annotation: digest of the manifest with the bundle of the same envelope.
_BUNDLE = "dev.buildmatrix.bundle"
_SIGNATURE = "dev.cosignproject.cosign/signature"
#: Maximum envelopes under a tag.
_MAX_LAYERS = 64
#: Attempts to write a tag that others write at the same time.
_ATTEMPTS = 8


def attestation_tag(image: Reference) -> Reference:
    """Return the tag of an image's attestations in cosign 2."""
    return image.with_tag(image.digest.replace(":", "-") + ".att")


def is_missing(error: UndecidedError) -> bool:
    """Return True if a registry does not have the requested content."""
    return isinstance(error, RequestError) and error.status in (404, 410)


def list_tagged_layers(registry: Registry, tag: Reference) -> tuple[Descriptor, ...]:
    """List the envelopes under a tag of `attestation_tag`; none if it does not exist."""
    try:
        held = registry.manifest(tag)
    except UndecidedError as error:
        if is_missing(error):
            return ()
        raise
    return manifest_of(held.data, str(tag)).layers


def push_data(registry: Registry, image: Reference, data: bytes, media_type: str) -> Descriptor:
    """Push a small blob to the repository of an image."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    descriptor = Descriptor(media_type=media_type, digest=digest, size=len(data))
    registry.push_blob(image, descriptor, lambda: BytesIO(data))
    return descriptor


def add_to_tag(registry: Registry, image: Reference, attached: Descriptor) -> None:
    """Add an attestation to the tag, and keep those of others.

    Raises `UndecidedError` if the registry fails, or others overwrite the tag in every attempt.

    Args:
        registry: registry of the image.
        image: reference with a digest.
        attached: manifest that refers to the image, with its annotations.
    """
    (own,) = _parse_referrers([attached])
    held = {own: _push_layer(registry, image, own)}
    for attempt in range(_ATTEMPTS):
        # The tag first: its layers were in the list before.
        layers = list_tagged_layers(registry, attestation_tag(image))
        listed = registry.referrers(image, image.digest)
        lost = [
            item
            for item in _select_newest((own, *_parse_referrers(listed)))
            # If two verdicts are of the same second, the last one counts.
            if not item.is_in(layers) or (item == own and attempt == 0)
        ]
        for item in lost:
            if item not in held:
                try:
                    held[item] = _push_layer(registry, image, item)
                except UndecidedError as error:
                    if isinstance(error, RequestError) and not is_missing(error):
                        raise
                    # Others may list anything.
                    held[item] = None
        added = {item: layer for item in lost if (layer := held[item]) is not None}
        if added:
            _write_tag(registry, image, layers, added)
        elif not _restore_referrers(registry, image, layers, {item.digest for item in listed}):
            return
    if not added:
        # Registries may list referrers with some seconds of delay.
        return
    raise UndecidedError(
        f"{attestation_tag(image)} is being overwritten by others"
        ", and loses the new attestation; try again"
    )


@dataclass(frozen=True, slots=True)
class _Referrer:
    """One of our manifests that refer to an image, by its descriptor in the list."""

    digest: str
    #: Target and predicate type, which are unique under the tag.
    key: tuple[str, str] = field(compare=False)
    created: str = field(compare=False)

    def is_replacing(self, layer: Descriptor) -> bool:
        """Return True if an envelope has the same target and predicate type."""
        annotations = layer.annotations
        return self.key == (annotations.get(TARGET), annotations.get(LAYER_PREDICATE_TYPE))

    def is_in(self, layers: Iterable[Descriptor]) -> bool:
        """Return True if the attestation, or a later one in its place, is in `layers`."""
        return any(
            self.is_replacing(layer) and layer.annotations.get(CREATED, "") >= self.created
            for layer in layers
        )


def _parse_referrers(listed: Iterable[Descriptor]) -> Iterator[_Referrer]:
    """Yield our attestations among the manifests that refer to an image."""
    for item in listed:
        held = item.annotations
        if TARGET in held and PREDICATE_TYPE in held:
            key = held[TARGET], held[PREDICATE_TYPE]
            yield _Referrer(item.digest, key, held.get(CREATED, ""))


def _select_newest(items: Iterable[_Referrer]) -> list[_Referrer]:
    """Return the newest attestation of each key, the oldest first."""
    newest: dict[tuple[str, str], _Referrer] = {}
    for item in items:
        before = newest.get(item.key)
        if before is None or before.created < item.created:
            newest[item.key] = item
    # Others may have listed more than are ever read.
    return sorted(newest.values(), key=lambda item: item.created)[-_MAX_LAYERS:]


def _write_tag(
    registry: Registry,
    image: Reference,
    layers: Sequence[Descriptor],
    added: Mapping[_Referrer, Descriptor],
) -> None:
    tag = attestation_tag(image)
    others = [layer for layer in layers if not any(item.is_replacing(layer) for item in added)]
    if len(others) + len(added) > _MAX_LAYERS:
        raise UndecidedError(
            f"{tag} has {len(others)} attestations already"
            f", and the limit is {_MAX_LAYERS}; delete the tag"
        )
    layers = (*others, *added.values())
    configuration = ImageConfiguration(
        architecture="",
        os="",
        created="0001-01-01T00:00:00Z",
        history=tuple(HistoryStep(created="0001-01-01T00:00:00Z") for _ in layers),
        rootfs=RootFileSystem(diff_ids=tuple(item.digest for item in layers)),
    )
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        config=push_data(registry, image, encode(configuration), CONFIGURATION),
        layers=layers,
    )
    registry.push_manifest(tag, encode(manifest), MANIFEST)


def _push_layer(registry: Registry, image: Reference, item: _Referrer) -> Descriptor | None:
    """Push a bundle's envelope in the format of cosign 2; None if that cannot express it.

    Raises `UndecidedError`, also for an invalid bundle.
    """
    where = image.at(item.digest)
    manifest = manifest_of(registry.manifest(where).data, str(where))
    if len(manifest.layers) != 1 or manifest.layers[0].size > MAX_BYTES:
        raise UndecidedError(f"{where} has no bundle, or one larger than {MAX_BYTES >> 20} MiB")
    with registry.blob(image, manifest.layers[0]) as chunks:
        try:
            converted = documents.convert_for_cosign2(b"".join(chunks))
        except ValueError as error:
            raise UndecidedError(f"{where} has no valid bundle: {error}") from error
    if converted is None:
        return None
    envelope, more = converted
    layer = push_data(registry, image, envelope, ENVELOPE)
    target, predicate_type = item.key
    annotations = {
        _SIGNATURE: "",
        LAYER_PREDICATE_TYPE: predicate_type,
        TARGET: target,
        CREATED: item.created,
        _BUNDLE: item.digest,
        **more,
    }
    return msgspec.structs.replace(layer, annotations=annotations)


def _restore_referrers(
    registry: Registry, image: Reference, layers: Iterable[Descriptor], listed: set[str]
) -> bool:
    """List manifests again that others removed from the list; return True if there were any.

    The list may be a tag, too, without a lock. Deleted manifests stay deleted.
    """
    is_restored = False
    for layer in layers:
        digest = layer.annotations.get(_BUNDLE, "")
        if digest and digest not in listed:
            try:
                data = registry.manifest(image.at(digest)).data
            except UndecidedError as error:
                if not is_missing(error):
                    raise
            else:
                registry.push_referrer(image, data)
                is_restored = True
    return is_restored


# Attached envelopes, not trusted yet; their number and size are limited.


#: Maximum manifests, envelopes per manifest, and total bytes.
_MAX_MANIFESTS = 64
_MAX_ENVELOPES = 64
_MAX_TOTAL_BYTES = 64 << 20
#: Types of referrers that may contain an envelope. For a registry without a referrers API, the list
#: may have the type of the (empty) configuration instead.
_TYPES = ("", EMPTY, IN_TOTO, ENVELOPE)


class AttachedEnvelope(Struct, frozen=True):
    """An envelope attached to an image, or the reason why it is unusable."""

    #: Digest of its manifest, or its tag.
    place: str
    envelope: Envelope | None = None
    #: `PublicKey.hint` of the key in its bundle; empty if unknown.
    hint: str = ""
    #: The whole bundle, if it was signed by an identity instead of a key.
    certified: bytes = b""
    #: `gone`: listed, but missing in the registry. `unreadable`: invalid, or above a limit.
    trouble: Literal["", "gone", "unreadable"] = ""
    #: One sentence about the trouble.
    why: str = ""


class AttestationReader:
    """Reader of what is attached to `image`, which has a digest, for one type of predicate.

    Raises `UndecidedError` if the registry cannot be reached.
    """

    def __init__(self, registry: Registry, image: Reference, predicate_type: str) -> None:
        self._registry = registry
        self._image = image
        self._type = predicate_type
        self._left = _MAX_TOTAL_BYTES

    def referrers(self) -> Iterator[AttachedEnvelope]:
        """Yield envelopes in manifests that refer to the image, except those of another type.

        The latest come first, by their annotations: an image may be attested every day, and the
        number is limited.
        """
        listed = [
            item
            for item in self._registry.referrers(self._image, self._image.digest)
            if item.annotations.get(PREDICATE_TYPE, self._type) == self._type
            and (
                item.artifact_type in _TYPES
                or item.artifact_type.startswith(documents.MEDIA_TYPE_PREFIX)
            )
        ]
        listed.sort(key=lambda item: item.annotations.get(CREATED, ""), reverse=True)
        for item in listed[:_MAX_MANIFESTS]:
            try:
                held = self._registry.manifest(self._image.at(item.digest))
                manifest = manifest_of(held.data, item.digest)
            except UndecidedError as error:
                yield _unusable_envelope(item.digest, error)
                continue
            if manifest.annotations.get(PREDICATE_TYPE, self._type) == self._type:
                yield from self._read_envelopes(item.digest, manifest.layers)
        if len(listed) > _MAX_MANIFESTS:
            yield _unread_envelopes(
                self._image.digest, f"{len(listed)} attestations", _MAX_MANIFESTS
            )

    def tagged(self) -> Iterator[AttachedEnvelope]:
        """Yield the envelopes under the tag of cosign 2."""
        tag = attestation_tag(self._image)
        yield from self._read_envelopes(tag.tag, list_tagged_layers(self._registry, tag))

    def _read_envelopes(
        self, place: str, layers: tuple[Descriptor, ...]
    ) -> Iterator[AttachedEnvelope]:
        envelopes = [
            layer
            for layer in layers
            if (
                layer.media_type == ENVELOPE
                or layer.media_type.startswith(documents.MEDIA_TYPE_PREFIX)
            )
            and layer.annotations.get(LAYER_PREDICATE_TYPE, self._type) == self._type
        ]
        # New envelopes are appended.
        for layer in envelopes[: -_MAX_ENVELOPES - 1 : -1]:
            try:
                data = self._read_layer(layer)
                if layer.media_type == ENVELOPE:
                    yield AttachedEnvelope(place, decode_json(data, Envelope))
                    continue
                held = documents.parse_bundle(data)
            except UndecidedError as error:
                yield _unusable_envelope(place, error)
            except ValueError as error:
                why = f"its envelope is damaged: {error}"
                yield AttachedEnvelope(place, trouble="unreadable", why=why)
            else:
                hint = held.verification_material.public_key.hint
                if held.dsse_envelope is not None:
                    certified = data if held.is_by_identity else b""
                    yield AttachedEnvelope(place, held.dsse_envelope, hint, certified)
        if len(envelopes) > _MAX_ENVELOPES:
            yield _unread_envelopes(place, f"{len(envelopes)} envelopes", _MAX_ENVELOPES)

    def _read_layer(self, layer: Descriptor) -> bytes:
        if layer.size > min(MAX_BYTES, self._left):
            raise ValueError(f"it has {layer.size} bytes, more than are read")
        self._left -= layer.size
        with self._registry.blob(self._image, layer) as chunks:
            return b"".join(chunks)


def _unusable_envelope(place: str, error: UndecidedError) -> AttachedEnvelope:
    """Return an unusable entry; raises errors of an unreachable registry."""
    if is_missing(error):
        return AttachedEnvelope(place, trouble="gone", why=error.message)
    if isinstance(error, RequestError):
        raise error
    return AttachedEnvelope(place, trouble="unreadable", why=error.message)


def _unread_envelopes(place: str, many: str, most: int) -> AttachedEnvelope:
    why = f"there are {many}, of which {most} were looked at"
    return AttachedEnvelope(place, trouble="unreadable", why=why)


#: in-toto's type for bills of materials in CycloneDX; cosign calls it `cyclonedx`.
CYCLONEDX = "https://cyclonedx.org/bom"
#: A private key, or the identity of a CI job.
Signer: TypeAlias = PrivateKey | KeylessSigner


class Claim(Struct, frozen=True):
    """A predicate about an image."""

    #: ID of its target.
    target: str
    predicate_type: str
    #: JSON.
    predicate: bytes


def make_claims(own: TargetVerdict, report: Report, image: Reference) -> tuple[Claim, Claim]:
    """Return the verdict and the bill of materials of one target; `image` has a digest."""
    # The library is imported only where a bill is written.
    from buildmatrix.reports import cyclonedx

    target = own.target.id
    held = replace(whole(verdict.select_target(report, target)), subject=str(image))
    return (
        Claim(target, verdict.PREDICATE_TYPE, verdict.encode(own)),
        Claim(target, CYCLONEDX, cyclonedx.render(held).encode("utf-8", "backslashreplace")),
    )


def attach(
    registry: Registry, image: Reference, claim: Claim, signer: Signer, now: datetime
) -> Descriptor:
    """Sign a claim about `image`, which has a digest, and attach it; return the referrer.

    Raises `UndecidedError` if the registry or a signing service fails.
    """
    payload = documents.encode_statement(
        image.name, image.digest, claim.predicate_type, claim.predicate
    )
    if isinstance(signer, KeylessSigner):
        signed = signer.sign(payload)
    else:
        signed = documents.encode_bundle(Envelope.sign(payload, signer), signer.public.hint)
    subject = registry.resolve(image)
    manifest = Manifest(
        schema_version=2,
        media_type=MANIFEST,
        artifact_type=documents.MEDIA_TYPE,
        config=push_data(registry, image, b"{}", EMPTY),
        layers=(push_data(registry, image, signed, documents.MEDIA_TYPE),),
        subject=msgspec.structs.replace(subject, annotations={}, platform=None),
        annotations={
            "dev.sigstore.bundle.content": "dsse-envelope",
            documents.PREDICATE_TYPE: claim.predicate_type,
            CREATED: now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            TARGET: claim.target,
        },
    )
    attached = registry.push_referrer(image, encode(manifest))
    add_to_tag(registry, image, attached)
    return attached
