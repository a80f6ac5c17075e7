"""Manifests, indexes and configurations of images, as frozen data.

Formats: OCI image specification 1.1 (https://github.com/opencontainers/image-spec/blob/v1.1.1/),
descriptor.md, manifest.md, image-index.md and config.md; Docker's "image manifest version 2, schema
2" and Docker's additional fields of a configuration. The two families differ only in media types.

Ambiguous documents are refused, since an engine could run another layer than was scanned: repeated
keys, keys that differ from a field only in case (Go's decoder accepts them, and the last one wins),
and a manifest that is an index as well (CVE-2021-41190).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from buildmatrix.errors import UndecidedError
from buildmatrix.strict_json import check_spelling, parse_json
from buildmatrix.threads import prepare_type

# Media types

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIGURATION = "application/vnd.oci.image.config.v1+json"
#: Media type of the configuration of an artifact that is not an image.
EMPTY = "application/vnd.oci.empty.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = f"{LAYER}+gzip"
LAYER_ZSTD = f"{LAYER}+zstd"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIGURATION = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar"
DOCKER_LAYER_GZIP = f"{DOCKER_LAYER}.gzip"
DOCKER_LAYER_ZSTD = f"{DOCKER_LAYER}.zstd"

MANIFESTS = frozenset({MANIFEST, DOCKER_MANIFEST})
INDEXES = frozenset({INDEX, DOCKER_INDEX})
CONFIGURATIONS = frozenset({CONFIGURATION, DOCKER_CONFIGURATION})
LAYERS = frozenset(
    {LAYER, LAYER_GZIP, LAYER_ZSTD, DOCKER_LAYER, DOCKER_LAYER_GZIP, DOCKER_LAYER_ZSTD}
)

#: Bytes per document; registries accept 4 MiB, and images with thousands of labels have less.
MAX_DOCUMENT = 8 << 20
_DIGEST = r"^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z"

#: Aliases of architectures, and the variant that an alias implies; see `Platform.normalized`.
_ARCHITECTURE_VARIANTS = {"i386": ("386", ""), "armhf": ("arm", "v7"), "armel": ("arm", "v6")}
_ARCHITECTURE_ALIASES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
_VARIANTS = {
    "amd64": {"v1": ""},
    "arm64": {
        **dict.fromkeys(("8", "v8", "v8.0"), ""),
        **dict.fromkeys(("9", "9.0", "v9.0"), "v9"),
    },
    "arm": {"": "v7", "7": "v7", "5": "v5", "6": "v6", "8": "v8"},
}

#: Digest of content: an algorithm and a hexadecimal hash.
Digest = Annotated[str, msgspec.Meta(pattern=_DIGEST)]
#: 1 EiB: larger than any blob, and fits into every counter.
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
MediaType = Annotated[str, msgspec.Meta(max_length=255)]
#: Part of a platform's name.
PlatformWord = Annotated[str, msgspec.Meta(max_length=255)]
Annotations = Mapping[str, str]


class Platform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Platform of an image, in Go's terms (`linux`, `arm64`, `v8`); empty if not stated."""

    os: PlatformWord = ""
    architecture: PlatformWord = ""
    variant: PlatformWord = ""
    os_version: PlatformWord = msgspec.field(default="", name="os.version")
    os_features: tuple[PlatformWord, ...] = msgspec.field(default=(), name="os.features")

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Parse `linux/amd64` or `linux/arm/v7`. Raises UndecidedError."""
        parts = text.split("/")
        if len(parts) not in (2, 3) or not all(parts):
            raise UndecidedError(
                f"{text[:100]!r} is not a platform; write OS/ARCHITECTURE[/VARIANT]"
            )
        return cls(os=parts[0], architecture=parts[1], variant="".join(parts[2:]))

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))

    def normalized(self) -> Platform:
        """Return the platform in containerd's canonical form.

        https://github.com/containerd/platforms/blob/v1.0.0-rc.1/database.go
        """
        architecture, variant = self.architecture.lower(), self.variant.lower()
        architecture = _ARCHITECTURE_ALIASES.get(architecture, architecture)
        architecture, usual = _ARCHITECTURE_VARIANTS.get(architecture, (architecture, variant))
        variants = _VARIANTS.get(architecture, {})
        system = self.os.lower() or "linux"
        return Platform(
            os={"macos": "darwin"}.get(system, system),
            architecture=architecture,
            variant=variants.get(usual, usual),
            os_version=self.os_version,
            os_features=self.os_features,
        )

    def runs(self, image: Platform) -> bool:
        """Return True if a machine of this platform runs an image for platform `image`.

        An image without a variant runs on all of them.
        """
        own, other = self.normalized(), image.normalized()
        if (own.os, own.architecture) != (other.os, other.architecture):
            return False
        return not image.variant or own.variant == other.variant


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Reference to content: media type, digest and size."""

    media_type: MediaType
    digest: Digest
    size: Size
    artifact_type: MediaType = ""
    annotations: Annotations = {}
    platform: Platform | None = None


def _schema_version() -> Literal[2]:
    return 2


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One image of one platform, or an artifact."""

    config: Descriptor
    #: Bottom layer first.
    layers: tuple[Descriptor, ...]
    #: Always written, unlike other defaults.
    schema_version: Literal[2] = msgspec.field(default_factory=_schema_version)
    media_type: MediaType = ""
    artifact_type: MediaType = ""
    #: Manifest that this one refers to.
    subject: Descriptor | None = None
    annotations: Annotations = {}


class ImageIndex(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Images of several platforms under one name, or a list of referrers."""

    manifests: tuple[Descriptor, ...]
    #: Always written, unlike other defaults.
    schema_version: Literal[2] = msgspec.field(default_factory=_schema_version)
    media_type: MediaType = ""
    artifact_type: MediaType = ""
    subject: Descriptor | None = None
    annotations: Annotations = {}


class Execution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="pascal"):
    """Settings to run containers of an image: `config` of its configuration."""

    user: str = ""
    exposed_ports: Mapping[str, Any] = {}
    #: `NAME=VALUE`
    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    volumes: Mapping[str, Any] = {}
    working_dir: str = ""
    labels: Mapping[str, str] = {}
    stop_signal: str = ""
    # Docker's
    healthcheck: Mapping[str, Any] = {}
    on_build: tuple[str, ...] = ()
    shell: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """`env` by name; the last of repeated names wins."""
        variables = (text.partition("=") for text in self.env)
        return {name: value for name, _, value in variables}


class RootFileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """Digests of the uncompressed layers of an image, bottom layer first."""

    diff_ids: tuple[Digest, ...] = ()
    type: str = "layers"


class HistoryStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Step that made a layer, or only changed the configuration."""

    created: str = ""
    created_by: str = ""
    author: str = ""
    comment: str = ""
    empty_layer: bool = False


class ImageConfiguration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Layers and settings of an image."""

    architecture: PlatformWord = ""
    os: PlatformWord = ""
    rootfs: RootFileSystem = RootFileSystem()
    config: Execution = Execution()
    history: tuple[HistoryStep, ...] = ()
    #: RFC 3339
    created: str = ""
    author: str = ""
    variant: PlatformWord = ""
    os_version: PlatformWord = msgspec.field(default="", name="os.version")
    os_features: tuple[str, ...] = msgspec.field(default=(), name="os.features")

    @property
    def platform(self) -> Platform:
        """Platform that the image states."""
        return Platform(
            os=self.os,
            architecture=self.architecture,
            variant=self.variant,
            os_version=self.os_version,
            os_features=self.os_features,
        )


Read = TypeVar("Read", Manifest, ImageIndex, ImageConfiguration)


def encode(document: Manifest | ImageIndex | ImageConfiguration) -> bytes:
    """Return the canonical encoding: equal data has equal digests."""
    return msgspec.json.encode(document, order="sorted")


def manifest_of(data: bytes, where: str) -> Manifest:
    """Parse a manifest. Raises UndecidedError; `where`, its source, starts the sentence."""
    return _decode(data, Manifest, MANIFESTS, "manifests", where)


def index_of(data: bytes, where: str) -> ImageIndex:
    """Parse an index, or Docker's manifest list. Raises UndecidedError as `manifest_of`."""
    return _decode(data, ImageIndex, INDEXES, "layers", where)


def configuration_of(data: bytes, where: str) -> ImageConfiguration:
    """Parse the configuration of an image. Raises UndecidedError as `manifest_of`."""
    return _decode(data, ImageConfiguration, CONFIGURATIONS, "layers", where)


def media_type_of(data: bytes, where: str) -> str:
    """Return the media type of a manifest or an index: the stated one, or the one of its fields.

    Empty for other documents. Raises UndecidedError as `manifest_of`.
    """
    document = _parse_json(data, where)
    if not isinstance(document, dict):
        return ""
    media_type = document.get("mediaType")
    if isinstance(media_type, str):
        return media_type
    return INDEX if "manifests" in document else MANIFEST if "layers" in document else ""


def _decode(
    data: bytes, kind: type[Read], media_types: Iterable[str], foreign: str, where: str
) -> Read:
    document = _parse_json(data, where)
    name = {Manifest: "manifest", ImageIndex: "index"}.get(kind, "configuration")
    try:
        if isinstance(document, dict):
            if any(key.casefold() == foreign for key in document):
                raise ValueError(f"it has `{foreign}`, so is something else as well")
            if document.get("mediaType", "") not in ("", *media_types):
                raise ValueError(f"it calls itself {str(document['mediaType'])[:100]!r}")
        check_spelling(document, kind)
        return msgspec.convert(_without_nulls(document), prepare_type(kind))
    except ValueError as error:
        raise UndecidedError(f"{where} is not a valid {name} of an image: {error}") from None


def _parse_json(data: bytes, where: str) -> Any:
    try:
        if len(data) > MAX_DOCUMENT:
            raise ValueError(f"it has more than {MAX_DOCUMENT >> 20} MiB")
        return parse_json(data)
    except ValueError as error:
        raise UndecidedError(f"{where} is not a JSON document: {error}") from None


def _without_nulls(value: Any) -> Any:
    """Remove nulls, which Go writes for empty values."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value
