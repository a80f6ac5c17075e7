"""`docker:IMAGE`: an image that an engine of this machine has."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from buildmatrix.engines.exports import OpenTree, exported
from buildmatrix.engines.model import Engine, ImageFacts
from buildmatrix.errors import BuildmatrixError, SpecError, UndecidedError, UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.platform import marker_environment
from buildmatrix.sources.image import BACKEND_LABEL, image_facts, layer_reader
from buildmatrix.sources.model import (
    Facts,
    Installed,
    ReadingOptions,
    with_lines,
)
from buildmatrix.sources.target import dockerfile_of, lock_of, targets_like


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
        facts = replace(
            facts,
            environment=marker_environment(target),
            dockerfile=dockerfile_of(spec, target),
            target=(target, spec),
        )
        return with_lines(facts, lock_of(spec, target), spec.root)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`: the engine exports it, and the layers pass by."""
        from buildmatrix.layers.saved import read_export

        engine, cache = options.engine(), options.cache()
        image = self._image(engine)

        def read() -> Inventory:
            reader = layer_reader(options)
            layers = read_export(lambda: engine.export(self.name), reader)
            return image_facts(self.name, *layers, options, reader).inventory

        # An image is named by the digest of its configuration or manifest, which name its layers.
        # What its layers are shows in an export alone, which takes the engine its time.
        inventory = read() if cache is None else cache.inventory(f"engine {image.digest}", read)
        backend = image.labels.get(BACKEND_LABEL)
        return Facts(str(self), inventory, image=self.name, labels=image.labels, backend=backend)

    def _image(self, engine: Engine) -> ImageFacts:
        try:
            image = engine.image(self.name)
        except BuildmatrixError as error:
            # The daemon's words (distribution/reference, ErrReferenceInvalidFormat).
            if "invalid reference format" not in error.message:
                raise
            raise UsageError(
                f"{self.name!r} is no name of an image; write NAME:TAG in lower case, or the path "
                "of a folder that exists"
            ) from error
        if image is None:
            raise UndecidedError(
                f"there is no image {self.name} on this machine; pull or build it first"
            )
        return image

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`: it is exported into a temporary file."""
        return lambda: exported(options.engine(), self.name)
