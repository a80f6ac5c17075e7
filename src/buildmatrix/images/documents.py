"""Manifests, indexes and configurations of images, and the entry of an index that engines run.

Formats: OCI image specification 1.1 (https://github.com/opencontainers/image-spec/blob/v1.1.1/),
descriptor.md, manifest.md, image-index.md and config.md; Docker's "image manifest version 2, schema
2" and Docker's additional fields of a configuration. The two families differ only in media types.

Ambiguous documents are refused, since an engine could run another layer than was scanned: repeated
keys, keys that differ from a field only in case (Go's decoder accepts them, and the last one wins),
and a manifest that is an index as well (CVE-2021-41190).
"""

from __future__ import annotations

import platform as machine
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.strict import check_spelling, parse_json
from buildmatrix.base.text import listing, printable
from buildmatrix.base.threads import prepare_type

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


def this_platform() -> Platform:
    """Return the platform of containers that this machine runs."""
    name = machine.machine()
    # Names of the kernel that no engine knows.
    name = {"armv7l": "arm", "i686": "386"}.get(name, name)
    return Platform(os="linux", architecture=name).normalized()


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


# Choice of an index entry.
#
# Engines differ. containerd, Docker and BuildKit normalize platforms and fall back to what the same
# processor can run (`normalizeArch` and `platformVector` of github.com/containerd/platforms 1.0).
# podman, skopeo and CRI-O compare the words as they are written (`WantedPlatforms` and
# `chooseInstance` of github.com/containers/image 5.36). All take an entry without a platform if no
# other fits. An entry is chosen if no engine runs another one; annotations decide nothing.
# `tests/fuzz/image_differences.py` compares this with both.


#: Variants by podman's `compatibility`: each also accepts the later ones.
_COMPATIBLE = {"arm": ("v8", "v7", "v6", "v5"), "arm64": ("v8",)}
#: The first minor version of arm64's architecture 8 that one of 9 runs: v9.2 runs v8.7.
_ARM64_9_RUNS_8 = 5

#: One step of an engine's search: platforms of equal rank.
_Step = frozenset[tuple[str, str, str]]


def images_in(entries: Iterable[Descriptor]) -> tuple[Descriptor, ...]:
    """Return the entries that may be run somewhere: all but attestations of BuildKit.

    Those have the platform `unknown/unknown`, which no machine has. Annotations are ignored.
    """
    unknown = Platform(os="unknown", architecture="unknown")
    return tuple(entry for entry in entries if entry.platform != unknown)


def is_unnamed(entry: Descriptor) -> bool:
    """Return True if an entry states no platform: Docker reads its configuration."""
    return entry.platform is None or not (entry.platform.os or entry.platform.architecture)


def choose(entries: Sequence[Descriptor], wanted: Platform, where: str) -> Descriptor | None:
    """Return the entry that engines run on a platform; None if no engine runs any.

    Raises `UndecidedError`, which names the entries, if it depends on the engine.
    """
    unnamed = [entry for entry in entries if is_unnamed(entry)]
    named = [entry for entry in entries if not is_unnamed(entry)]
    own = wanted.normalized()
    # containerd's package skips entries with features since its version 1.0.
    plain = [entry for entry in named if entry.platform and not entry.platform.os_features]
    searches = (
        _first_match(named, _containerd_steps(own)),
        _first_match(plain, _containerd_steps(own)),
        _first_match(named, _podman_steps(own, wanted.variant), is_exact=True),
        _first_match(named, _podman_steps(own, own.variant), is_exact=True),
    )
    distinct = {entry.digest: entry for found in searches for entry in found or unnamed}
    if len(distinct) > 1:
        raise UndecidedError(
            f"{where} has several images that engines may run on {wanted}: "
            f"{_format_entries(distinct.values())}; name one by its digest"
        )
    for entry in distinct.values():
        platform = own if is_unnamed(entry) or entry.platform is None else entry.platform
        if platform.normalized().architecture != own.architecture:
            other = printable(str(platform))
            raise UndecidedError(
                f"{where} has no image for {wanted}: containerd runs the one for {other} there, "
                f"and podman none; give --platform {other} to judge that"
            )
        return entry
    return None


def check_configuration(entry: Descriptor, wanted: Platform, configured: Platform) -> None:
    """Raise `UndecidedError` if a chosen entry and its image's configuration disagree.

    Engines use the platform in the index; containerd reads the configuration if there is none.
    """
    if not configured.os and not configured.architecture:
        return
    if is_unnamed(entry) or entry.platform is None:
        if not wanted.runs(configured):
            raise UndecidedError(
                f"{entry.digest} has no platform in its index, and its configuration says "
                f"{printable(str(configured))}: whether it runs on {wanted} depends on the engine"
            )
        return
    one, other = entry.platform.normalized(), configured.normalized()
    if (one.os, one.architecture) != (other.os, other.architecture) or (
        entry.platform.variant and configured.variant and one.variant != other.variant
    ):
        raise UndecidedError(
            f"the index says that {entry.digest} is for {printable(str(entry.platform))}, and its "
            f"configuration says {printable(str(configured))}"
        )


def _first_match(
    entries: Iterable[Descriptor], steps: Iterable[_Step], *, is_exact: bool = False
) -> list[Descriptor]:
    """Return the entries that fit the first step that any fits."""
    fitting: dict[tuple[str, str, str], list[Descriptor]] = {}
    for entry in entries:
        if entry.platform is not None:
            platform = entry.platform if is_exact else entry.platform.normalized()
            fitting.setdefault(_platform_key(platform), []).append(entry)
    for step in steps:
        if found := [entry for words in sorted(step) for entry in fitting.get(words, ())]:
            return found
    return []


def _platform_key(platform: Platform) -> tuple[str, str, str]:
    return platform.os, platform.architecture, platform.variant


def _containerd_steps(wanted: Platform) -> Iterator[_Step]:
    """Yield normalized platforms in the order of `platforms.Only`."""
    for architecture, variant in _containerd_vector(wanted.architecture, wanted.variant):
        step = Platform(os=wanted.os, architecture=architecture, variant=variant)
        yield frozenset({_platform_key(step.normalized())})


def _containerd_vector(architecture: str, variant: str) -> Iterator[tuple[str, str]]:
    number = variant.removeprefix("v")
    version = int(number) if number.isascii() and number.isdigit() and len(number) < 3 else 0
    if architecture == "arm64":
        major, _, minor = (variant or "v8").removeprefix("v").partition(".")
        highest = {"8": 9, "9": 7}.get(major, -1)
        if not (minor or "0").isascii() or not (minor or "0").isdigit() or len(minor) > 1:
            return
        lowest = int(minor or 0)
        if lowest > highest:
            return
        levels = [(major, lowest)]
        if major == "9":
            levels.append(("8", min(lowest + _ARM64_9_RUNS_8, 9)))
        for level, last in levels:
            for number in map(str, range(last, -1, -1)):
                yield "arm64", f"v{level}" if number == "0" else f"v{level}.{number}"
        yield from _containerd_vector("arm", "v8")
        return
    yield architecture, variant
    lowest = {"amd64": 1, "arm": 5}.get(architecture, version)
    for lower in range(version - 1, lowest - 1, -1):
        yield architecture, f"v{lower}"
    if architecture == "amd64":
        yield "386", ""


def _podman_steps(wanted: Platform, variant: str) -> Iterator[_Step]:
    """Yield platforms in the order of `WantedPlatforms`."""
    known = _COMPATIBLE.get(wanted.architecture, ())
    variants: tuple[str, ...] = ("", *known)
    if variant:
        start = known.index(variant) if variant in known else None
        variants = (*(known[start:] if start is not None else (variant,)), "")
    if wanted.architecture == "arm64" and variant in ("", "v8"):
        # Which of the two comes first depends on the machine.
        yield frozenset({(wanted.os, "arm64", ""), (wanted.os, "arm64", "v8")})
        return
    for one in variants:
        yield frozenset({(wanted.os, wanted.architecture, one)})


def _format_entries(entries: Iterable[Descriptor]) -> str:
    return listing(
        f"{entry.digest} for {'any' if is_unnamed(entry) else printable(str(entry.platform))}"
        for entry in entries
    )
