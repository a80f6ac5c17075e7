"""Code that all kinds of image SOURCE share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from buildmatrix.sources.model import Facts, ReadingOptions

if TYPE_CHECKING:
    from buildmatrix.layers.image import LayerBlob, LayerReader
    from buildmatrix.layers.saved_image import Configuration
    from buildmatrix.oci.documents import Platform

#: Label of an image that buildmatrix built, and that says what it is for.
BACKEND_LABEL = "dev.buildmatrix.backend"


def wanted_platform(options: ReadingOptions) -> Platform | None:
    """The image that is meant among several; None without a choice."""
    if options.platform is None:
        return None
    from buildmatrix.oci.documents import Platform

    return Platform.parse(options.platform)


def layer_reader(options: ReadingOptions) -> LayerReader:
    """Reads the layers that are not known here."""
    from buildmatrix.layers.image import LayerReader
    from buildmatrix.store.cache import Cache

    cache = options.cache()
    return LayerReader(
        Cache(None) if cache is None else cache.cache,
        progress=options.progress,
    )


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
