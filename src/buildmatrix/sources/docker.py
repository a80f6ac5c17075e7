"""`docker:IMAGE`: an image that an engine of this machine has."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from buildmatrix import store
from buildmatrix.engines.exports import OpenTree, exported, layers_of_image
from buildmatrix.engines.model import Engine, ImageFacts
from buildmatrix.errors import BuildmatrixError, SpecError, UndecidedError, UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.platform import marker_environment
from buildmatrix.scratch import scratch
from buildmatrix.sources.model import (
    Argument,
    Facts,
    Installed,
    ReadingOptions,
    Source,
    with_lines,
)
from buildmatrix.sources.target import dockerfile_of, lock_of, targets_like
from buildmatrix.text import printable, shown

#: Label of an image that buildmatrix built, and that says what it is for.
BACKEND_LABEL = "dev.buildmatrix.backend"
#: Of the log of a scan that failed: lines that are shown, and bytes that they are looked for in.
_LOG_LINES = 10
_LOG_BYTES = 64 << 10


class DockerImage(Installed):
    """An image of an engine."""

    prefix = "docker"
    form = "image"
    is_near = False

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`: whatever is no path and no address."""
        text = argument.text
        is_path = text.startswith((".", "/")) or argument.path.exists()
        return None if is_path or "://" in text else cls(text)

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
        """See `Installed.read`: the scan runs in an image of its own beside the files."""
        engine, cache = options.engine(), options.cache()
        image = self._image(engine)

        def scan() -> Inventory:
            with scratch("scan") as folder:
                arguments = folder, options.scanner, options.surroundings
                try:
                    return store.read(engine.scan(self.name, *arguments))
                except BuildmatrixError as error:
                    raise _with_log(error) from error

        inventory = scan() if cache is None else cache.inventory(f"image {image.digest}", scan)
        if options.layers:
            # An image is named by the digest of its configuration or manifest, which name its
            # layers.
            def read_layers() -> Inventory:
                return layers_of_image(self.name, engine, inventory)

            key = f"layers {image.digest}"
            layers = read_layers() if cache is None else cache.inventory(key, read_layers)
            inventory = replace(
                inventory, layers=layers.layers, origins=layers.origins, buried=layers.buried
            )
        # The layers cannot say what the image's configuration does.
        inventory = replace(inventory, environment=image.environment)
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


def _with_log(error: BuildmatrixError) -> BuildmatrixError:
    """`error` with the end of its log, whose folder is removed before it could be read."""
    if error.log is None:
        return error
    try:
        with error.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    shown_lines = "".join(f"\n  {printable(shown(line))}" for line in lines)
    return type(error)(
        error.message + (f"\nThe log ends with:{shown_lines}" if shown_lines else "")
    )
