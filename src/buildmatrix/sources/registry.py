"""`registry:HOST/NAME[:TAG][@DIGEST]`: an image in a registry, read without an engine.

And an image without a prefix: an engine's where one has it, else a registry's.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from buildmatrix.engines.exports import OpenTree
from buildmatrix.errors import BuildmatrixError, ComponentError, UndecidedError, UsageError
from buildmatrix.phrases import size
from buildmatrix.sources.docker import DockerImage
from buildmatrix.sources.image import image_facts, layer_reader
from buildmatrix.sources.model import Argument, Facts, Installed, ReadingOptions, Source
from buildmatrix.text import shown

if TYPE_CHECKING:
    from buildmatrix.oci.documents import ImageIndex, Manifest, Platform
    from buildmatrix.registry.client import Registry
    from buildmatrix.registry.reference import Reference
    from buildmatrix.trees.archive_image import Configuration
    from buildmatrix.trees.base import Tree

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
        from buildmatrix.layers.image import LayerBlob

        registry = options.registry()
        image = _find(registry, reference_of(self.name), options)
        layers = [
            LayerBlob(
                layer.digest,
                layer.size,
                partial(registry.blob, image.reference, layer),
                layer.annotations,
                partial(registry.blob_range, image.reference, layer),
            )
            for layer in image.manifest.layers
        ]
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
        from buildmatrix.trees.archive import Slice, Spool, inflated
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
                    layers.append(spool.kept(inflated(Slice(ForwardSource(chunks), 0, layer.size))))
                    for _ in chunks:
                        pass  # What the digest counts and the archive does not.
            yield LayeredTree(layers)


@dataclass(frozen=True, slots=True)
class _Image:
    """One image of one platform, by its digest."""

    reference: Reference
    manifest: Manifest
    configuration: Configuration


def reference_of(text: str) -> Reference:
    """The name of an image in a registry, with the prefix or without. Raises `UsageError`."""
    from buildmatrix.registry.reference import Reference

    try:
        return Reference.parse(text.removeprefix(f"{RegistryImage.prefix}:"))
    except UndecidedError as error:
        raise UsageError(error.message) from error


def _find(registry: Registry, reference: Reference, options: ReadingOptions) -> _Image:
    """The image that a reference means now; everything of it is read by digest from here on."""
    from buildmatrix.layers.saved import configuration_of
    from buildmatrix.oci import documents

    pinned = reference.at(registry.resolve(reference).digest)
    document = registry.manifest(pinned)
    if documents.media_type_of(document.data, str(pinned)) in documents.INDEXES:
        pinned = pinned.at(_chosen(documents.index_of(document.data, str(pinned)), pinned, options))
        document = registry.manifest(pinned)
    manifest = documents.manifest_of(document.data, str(pinned))
    unknown = [layer for layer in manifest.layers if layer.media_type not in documents.LAYERS]
    if unknown or manifest.config.media_type not in documents.CONFIGURATIONS:
        kind = unknown[0].media_type if unknown else manifest.config.media_type
        raise UndecidedError(f"{pinned} is no image that an engine runs: it has a {shown(kind)}")
    if manifest.config.size > documents.LARGEST_DOCUMENT:
        raise UndecidedError(f"{pinned}: its configuration has {manifest.config.size} bytes")
    with registry.blob(pinned, manifest.config) as chunks:
        data = b"".join(chunks)
    platform_of_image = documents.configuration_of(data, str(pinned)).platform
    wanted = _wanted(options)
    if options.platform is not None and not wanted.runs(platform_of_image):
        raise UndecidedError(
            f"{pinned} has no image for {wanted}: it is for {platform_of_image} alone"
        )
    return _Image(pinned, manifest, configuration_of(document.data, manifest.config.digest, data))


def _wanted(options: ReadingOptions) -> Platform:
    from buildmatrix.oci.documents import Platform

    try:
        return Platform.parse(options.platform or this_platform())
    except UndecidedError as error:
        raise UsageError(error.message) from error


def _chosen(index: ImageIndex, pinned: Reference, options: ReadingOptions) -> str:
    """The digest of the image for the platform that is wanted."""
    wanted = _wanted(options)
    images = index.of(wanted)
    if not images:
        there = ", ".join(str(image.platform) for image in index.images() if image.platform)
        raise UndecidedError(
            f"{pinned} has no image for {wanted}; give --platform one of these: "
            f"{there or 'none is named'}"
        )
    return images[0].digest


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
