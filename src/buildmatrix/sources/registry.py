"""`registry:HOST/NAME[:TAG][@DIGEST]`: an image in a registry, read without an engine.

And an image without a prefix: an engine's where one has it, else a registry's.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from buildmatrix.engines.exports import OpenTree
from buildmatrix.errors import BuildmatrixError, ComponentError, UndecidedError, UsageError
from buildmatrix.phrases import size
from buildmatrix.sources.docker import DockerImage
from buildmatrix.sources.image import image_facts, layer_reader
from buildmatrix.sources.model import Argument, Facts, Installed, ReadingOptions, Source
from buildmatrix.text import printable, shown

if TYPE_CHECKING:
    from buildmatrix.layers.image import LayerBlob
    from buildmatrix.layers.saved_image import Configuration
    from buildmatrix.oci.documents import Descriptor, ImageIndex, Manifest, Platform
    from buildmatrix.registry.client import Registry
    from buildmatrix.registry.manifests import ManifestBytes
    from buildmatrix.registry.reference import Reference
    from buildmatrix.trees.base import Tree

#: Entries of an index without platforms that are looked at.
_MOST_LOOKED_AT = 64
#: Words of the kernel for what Go calls otherwise.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def this_platform() -> str:
    """The platform of containers that this machine runs."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


class RegistryImage(Installed):
    """An image in a registry."""

    prefix = "registry"
    form = "image"
    is_near = False

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`."""
        reference_of(name)
        return cls(name)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`: layers that are not known are read as they come."""
        registry = options.registry()
        image = _find(registry, reference_of(self.name), options)
        layers = image.layers(registry)
        reader = layer_reader(options)
        unread = [layer for layer in layers if reader.known(layer.digest) is None]
        if unread:
            total = size(sum(layer.size for layer in unread))
            which = f"{len(unread)} of {len(layers)} layers"
            options.note(f"reading {which} of {image.reference} ({total}), once")
        return image_facts(str(self), image.configuration, layers, options, reader)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`: its layers are fetched into an unnamed temporary file."""
        return partial(self._fetched, options)

    @contextmanager
    def _fetched(self, options: ReadingOptions) -> Iterator[Tree]:
        from buildmatrix.trees.archive import Slice, Spool, iter_decompressed
        from buildmatrix.trees.archive_layers import LayeredTree
        from buildmatrix.trees.forward import ForwardSource

        registry = options.registry()
        image = _find(registry, reference_of(self.name), options)
        with ExitStack() as held:
            spool = Spool()
            held.callback(spool.close)
            layers = []
            for layer in image.manifest.layers:
                with registry.blob(image.reference, layer) as chunks:
                    layers.append(
                        spool.kept(iter_decompressed(Slice(ForwardSource(chunks), 0, layer.size)))
                    )
                    for _ in chunks:
                        pass  # What the digest counts and the archive does not.
            yield LayeredTree(layers)


@dataclass(frozen=True, slots=True)
class ImageDocuments:
    """Documents that describe one image of one platform, by its digest."""

    reference: Reference
    manifest: Manifest
    configuration: Configuration
    #: When it was made, as it says itself: RFC 3339, or empty.
    created: str

    def layers(self, registry: Registry) -> list[LayerBlob]:
        """Its layers, the lowest first; nothing of them is read yet."""
        from buildmatrix.layers.image import LayerBlob

        return [
            LayerBlob(layer.digest, layer.size, partial(registry.blob, self.reference, layer))
            for layer in self.manifest.layers
        ]


class DocumentSource(Protocol):
    """Source of manifests and configurations by their digests: `registry.client.Registry`."""

    def manifest(self, reference: Reference) -> ManifestBytes:
        """See `Registry.manifest`."""

    def blob(
        self, reference: Reference, descriptor: Descriptor
    ) -> AbstractContextManager[Iterator[bytes]]:
        """See `Registry.blob`."""


class NothingToRun(UndecidedError):
    """No image at all (a signature, a chart), or none for the platform."""


def reference_of(text: str) -> Reference:
    """The name of an image in a registry, with the prefix or without. Raises `UsageError`."""
    from buildmatrix.registry.reference import Reference

    try:
        return Reference.parse(text.removeprefix(f"{RegistryImage.prefix}:"))
    except UndecidedError as error:
        raise UsageError(error.message) from error


def _find(registry: Registry, reference: Reference, options: ReadingOptions) -> ImageDocuments:
    """The image that a reference means now; everything of it is read by digest from here on."""
    pinned = reference.at(registry.resolve(reference).digest)
    return image_documents(registry, pinned, options.platform)


def image_documents(
    documents: DocumentSource, pinned: Reference, platform: str | None
) -> ImageDocuments:
    """The image at a digest, or of the index there the one for `platform`; None for this machine's.

    Raises `NothingToRun`, and `UndecidedError` for what is damaged, broken or cannot be had.
    """
    from buildmatrix.layers.saved_image import read_configuration
    from buildmatrix.oci import documents as oci
    from buildmatrix.oci.choosing import check_configuration

    wanted = _wanted(platform)
    entry: Descriptor | None = None
    document = documents.manifest(pinned)
    if oci.media_type_of(document.data, str(pinned)) in oci.INDEXES:
        index = oci.index_of(document.data, str(pinned))
        entry = _chosen(_without_artifacts(index, documents, pinned), pinned, wanted)
        pinned = pinned.at(entry.digest)
        document = documents.manifest(pinned)
        if oci.media_type_of(document.data, str(pinned)) in oci.INDEXES:
            raise UndecidedError(
                f"{pinned} is an index inside of an index, which not every engine reads; name one "
                "of its images by its digest"
            )
    manifest = oci.manifest_of(document.data, str(pinned))
    unknown = [layer for layer in manifest.layers if layer.media_type not in oci.LAYERS]
    is_image = manifest.config.media_type in oci.CONFIGURATIONS
    if unknown or not is_image:
        kind = unknown[0].media_type if unknown else manifest.config.media_type
        text = f"{pinned} is no image that an engine runs: it has a {shown(kind)}"
        # Signatures have the configuration of an image and none of its layers.
        is_other = not is_image or len(unknown) == len(manifest.layers)
        raise NothingToRun(text) if is_other else UndecidedError(text)
    if manifest.config.size > oci.MAX_DOCUMENT:
        raise UndecidedError(f"{pinned}: its configuration has {manifest.config.size} bytes")
    with documents.blob(pinned, manifest.config) as chunks:
        data = b"".join(chunks)
    configuration = oci.configuration_of(data, str(pinned))
    own = configuration.platform
    if entry is not None:
        check_configuration(entry, wanted, own)
    elif platform is not None and str(own) and not wanted.runs(own):
        raise NothingToRun(
            f"{pinned} has no image for {wanted}: it is for {printable(str(own))} alone"
        )
    return ImageDocuments(
        pinned,
        manifest,
        read_configuration(configuration, len(manifest.layers)),
        configuration.created,
    )


def _wanted(platform: str | None) -> Platform:
    from buildmatrix.oci.documents import Platform

    try:
        return Platform.parse(platform or this_platform())
    except UndecidedError as error:
        raise UsageError(error.message) from error


def _without_artifacts(
    index: ImageIndex, documents: DocumentSource, pinned: Reference
) -> Sequence[Descriptor]:
    """The entries of an index; of one that names no platform at all, those that are images.

    The list of what is attached to an image, under a tag of its own, is such an index.
    """
    from buildmatrix.oci import documents as oci
    from buildmatrix.oci.choosing import is_unnamed

    entries = index.manifests
    if not 1 < len(entries) <= _MOST_LOOKED_AT or not all(map(is_unnamed, entries)):
        return entries
    kept = []
    for entry in entries:
        data = documents.manifest(pinned.at(entry.digest)).data
        is_index = oci.media_type_of(data, str(pinned)) in oci.INDEXES
        if is_index or oci.manifest_of(data, str(pinned)).config.media_type in oci.CONFIGURATIONS:
            kept.append(entry)
    return kept


def _chosen(entries: Sequence[Descriptor], pinned: Reference, wanted: Platform) -> Descriptor:
    """The entry for the platform that is wanted."""
    from buildmatrix.oci.choosing import choose, images_in

    entry = choose(entries, wanted, str(pinned))
    if entry is None:
        platforms = (str(image.platform) for image in images_in(entries) if image.platform)
        there = ", ".join(map(printable, dict.fromkeys(platforms)))
        raise NothingToRun(
            f"{pinned} has no image for {wanted}; give --platform one of these: "
            f"{there or 'none is named'}"
        )
    return entry


@dataclass(frozen=True)
class NamedImage(DockerImage):
    """An image without a prefix."""

    prefix = ""

    def __str__(self) -> str:
        return shown(self.name)

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`: whatever is no path and no address."""
        text = argument.text
        is_path = text.startswith((".", "/")) or argument.path.exists()
        return None if is_path or "://" in text else cls(text)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`; the label says who had it."""
        return self._meant(options).read(options)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        return self._meant(options).open(options)

    def _meant(self, options: ReadingOptions) -> DockerImage | RegistryImage:
        """The engine's image where one has it, else the registry's."""
        reference = reference_of(self.name)
        try:
            if options.engine().image(self.name) is not None:
                return DockerImage(self.name)
            missing = f"there is no image {self.name} on this machine"
        except ComponentError as error:
            missing = error.message
        except BuildmatrixError:
            return DockerImage(self.name)  # Which says what is wrong.
        try:
            options.registry().resolve(reference)
        except UndecidedError as error:
            raise UndecidedError(f"{missing}, and {error.message}") from error
        return RegistryImage(self.name)
