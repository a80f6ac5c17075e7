"""Image SOURCEs: `tar:`, `oci:`, `docker:`, `registry:`, and images without a prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    BuildmatrixError,
    ComponentError,
    SpecError,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.text import printable, shown, size
from buildmatrix.engines import DOCKER
from buildmatrix.sources.model import Argument, Facts, Installed, ReadingOptions, Source, add_lines
from buildmatrix.sources.target import dockerfile_of, lock_of, targets_like

if TYPE_CHECKING:
    from buildmatrix.engines.model import Engine, ImageFacts, OpenTree
    from buildmatrix.facts.inventory.model import Inventory
    from buildmatrix.facts.trees.base import Tree
    from buildmatrix.images.documents import Descriptor, ImageIndex, Manifest, Platform
    from buildmatrix.images.image import LayerBlob, LayerReader
    from buildmatrix.images.saved_image import Configuration
    from buildmatrix.net.registry_client import Registry
    from buildmatrix.net.registry_manifests import ManifestBytes
    from buildmatrix.net.registry_mirrors import Reference


# Shared code


#: Label of an image that buildmatrix built, and that says what it is for.
BACKEND_LABEL = "dev.buildmatrix.backend"


def wanted_platform(options: ReadingOptions) -> Platform | None:
    """The image that is meant among several; None without a choice."""
    if options.platform is None:
        return None
    from buildmatrix.images.documents import Platform

    return Platform.parse(options.platform)


def layer_reader(options: ReadingOptions) -> LayerReader:
    """Reads the layers that are not known here."""
    from buildmatrix.images.image import LayerReader
    from buildmatrix.images.store.cache import Cache

    cache = options.cache()
    return LayerReader(Cache(None) if cache is None else cache.cache, progress=options.progress)


def image_facts(
    label: str,
    configuration: Configuration,
    layers: Sequence[LayerBlob],
    options: ReadingOptions,
    reader: LayerReader | None = None,
    image: str | None = None,
) -> Facts:
    """The facts of an image that has these layers. Raises OSError, and what opening them raises."""
    reader = reader or layer_reader(options)
    inventory = reader.inventory(configuration, layers, options.cache())
    labels, backend = configuration.labels, configuration.labels.get(BACKEND_LABEL)
    return Facts(label, inventory, image=image, labels=labels, backend=backend)


# `tar:FILE` and `oci:LAYOUT`: saved images (docker save, OCI archives and layouts)


#: Names of archives, which `docker save` and its like write.
_ARCHIVE = re.compile(r"\.(tar|tar\.gz|tgz|tar\.zst|oci)$")


class ImageArchive(Installed):
    """An image in one file."""

    prefix = "tar"
    form = "image"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        if not _ARCHIVE.search(argument.text) or argument.path.is_dir():
            return None
        if not argument.path.is_file():
            raise UsageError(f"there is no {argument.text}")
        return cls(argument.text)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`; the layers are always read."""
        from buildmatrix.images.image import read_saved_layers
        from buildmatrix.images.saved_image import SavedImage

        with SavedImage(Path(self.name), wanted_platform(options)) as image:
            layers = read_saved_layers(image, options.progress)
            return image_facts(str(self), image.configuration, layers, options)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        from buildmatrix.engines.model import saved_image

        return lambda: saved_image(Path(self.name), wanted_platform(options))


class ImageLayout(ImageArchive):
    """An image in a folder (OCI image layout)."""

    prefix = "oci"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        return cls(argument.text) if (argument.path / "oci-layout").is_file() else None


# `docker:IMAGE`: an image of a local engine


class DockerImage(Installed):
    """An image of an engine."""

    prefix = "docker"
    form = "image"
    is_near = False

    def facts(self, options: ReadingOptions) -> Facts:
        """See `Source.facts`; of a target's image, the lock and the Dockerfile are known."""
        try:
            facts = super().facts(options)
        except UndecidedError as error:
            near: list[str] = []
            with suppress(SpecError):
                if (spec := options.spec()) is not None:
                    near = targets_like(self.name, spec)
            if not near:
                raise
            hint = " or ".join(f"target:{id}" for id in near)
            raise UndecidedError(f"{error.message}; did you mean {hint}?", log=error.log) from error
        spec = options.spec() if options.lock is None else None
        if spec is None:
            return facts
        name = self.name if ":" in self.name.rpartition("/")[2] else f"{self.name}:latest"
        target = next((target for target in spec.targets if name in target.references), None)
        if target is None:
            return facts
        from buildmatrix.locks.selection import marker_environment

        facts = replace(
            facts,
            environment=marker_environment(target),
            dockerfile=dockerfile_of(spec, target),
            target=(target, spec),
        )
        return add_lines(facts, lock_of(spec, target), spec.root)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`: the engine exports it, and the layers pass by."""
        from buildmatrix.images.image import read_export

        engine, cache = options.engine(), options.cache()
        image = self._image(engine)

        def read() -> Inventory:
            reader = layer_reader(options)
            layers = read_export(lambda: engine.export(self.name), reader)
            return image_facts(self.name, *layers, options, reader).inventory

        # An image is named by the digest of its configuration or manifest, which name its layers.
        # Only an export has its layers, which takes time.
        inventory = read() if cache is None else cache.inventory(f"engine {image.digest}", read)
        backend = image.labels.get(BACKEND_LABEL)
        # `oci:` is the prefix of a layout, so an image of our own engine has none.
        label = str(self) if engine.name == DOCKER else shown(self.name)
        return Facts(label, inventory, image=self.name, labels=image.labels, backend=backend)

    def _image(self, engine: Engine) -> ImageFacts:
        try:
            image = engine.image(self.name)
        except ComponentError as error:
            raise error.saying(
                f"{error.message}, or name the image as registry:HOST/NAME, tar:FILE or oci:LAYOUT"
            ) from error
        except BuildmatrixError as error:
            # The daemon's words (distribution/reference, ErrReferenceInvalidFormat).
            if "invalid reference format" not in error.message:
                raise
            raise UsageError(
                f"{self.name!r} is not an image name; write NAME:TAG in lower case, or the path "
                "of a folder that exists"
            ) from error
        if image is None:
            raise UndecidedError(
                f"there is no image {self.name} on this machine; pull or build it first"
            )
        return image

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`: it is exported into a temporary file."""
        from buildmatrix.engines.model import export_image

        return lambda: export_image(options.engine(), self.name)


# `registry:HOST/NAME[:TAG][@DIGEST]`: an image in a registry, read without an engine.
#
# Also images without a prefix: an engine's if one has it, else a registry's.


#: Entries of an index without platforms that are looked at.
_MOST_LOOKED_AT = 64


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
        from buildmatrix.facts.trees.archive import Slice, Spool, iter_decompressed
        from buildmatrix.facts.trees.archive_layers import LayeredTree
        from buildmatrix.facts.trees.decompression import ForwardSource

        registry = options.registry()
        image = _find(registry, reference_of(self.name), options)
        with ExitStack() as held:
            spool = Spool()
            held.callback(spool.close)
            layers = []
            for layer in image.manifest.layers:
                with registry.blob(image.reference, layer) as chunks:
                    layers.append(
                        spool.store(iter_decompressed(Slice(ForwardSource(chunks), 0, layer.size)))
                    )
                    for _ in chunks:
                        pass  # What the digest counts and the archive does not.
            yield LayeredTree(layers)


class ImageDocuments(Struct, frozen=True):
    """Documents that describe one image of one platform, by its digest."""

    reference: Reference
    manifest: Manifest
    configuration: Configuration
    #: When it was made, as it says itself: RFC 3339, or empty.
    created: str

    def layers(self, registry: Registry) -> list[LayerBlob]:
        """Its layers, the lowest first; nothing of them is read yet."""
        from buildmatrix.images.image import LayerBlob

        return [
            LayerBlob(layer.digest, layer.size, partial(registry.blob, self.reference, layer))
            for layer in self.manifest.layers
        ]


class DocumentSource(Protocol):
    """Source of manifests and configurations by their digests: `registry_client.Registry`."""

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
    from buildmatrix.net.registry_mirrors import Reference

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
    from buildmatrix.images import documents as oci
    from buildmatrix.images.documents import check_configuration
    from buildmatrix.images.saved_image import read_configuration

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
                f"{pinned} is a nested index, which not every engine reads; name one "
                "of its images by its digest"
            )
    manifest = oci.manifest_of(document.data, str(pinned))
    unknown = [layer for layer in manifest.layers if layer.media_type not in oci.LAYERS]
    is_image = manifest.config.media_type in oci.CONFIGURATIONS
    if unknown or not is_image:
        kind = unknown[0].media_type if unknown else manifest.config.media_type
        text = f"{pinned} is not an image that an engine can run: it has a {shown(kind)}"
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
    from buildmatrix.images.documents import Platform, this_platform

    try:
        return Platform.parse(platform) if platform else this_platform()
    except UndecidedError as error:
        raise UsageError(error.message) from error


def _without_artifacts(
    index: ImageIndex, documents: DocumentSource, pinned: Reference
) -> Sequence[Descriptor]:
    """The entries of an index; of one that names no platform at all, those that are images.

    The list of what is attached to an image, under a tag of its own, is such an index.
    """
    from buildmatrix.images import documents as oci
    from buildmatrix.images.documents import is_unnamed

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
    from buildmatrix.images.documents import choose, images_in

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
