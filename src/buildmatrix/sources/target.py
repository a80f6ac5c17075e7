"""`target:ID`: the last build of a target on this machine."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.sources.model import (
    READING,
    Argument,
    CacheLocation,
    Facts,
    ReadingOptions,
    Source,
    add_lines,
)

if TYPE_CHECKING:
    from buildmatrix.engines.model import Engine, OpenTree
    from buildmatrix.locks.model import Lock
    from buildmatrix.matrix.model import Spec, Target
    from buildmatrix.sources.state_folder import TargetFiles

#: Identifiers of targets (`matrix.matrix`): never a path.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class BuiltTarget(Source):
    """A target: its inventory lies in the state folder, its image in the engine."""

    prefix = "target"
    commands = READING
    judged_by = "why"

    specification: Path = Path()
    #: Loaded only where what is kept of the target does not serve.
    spec: Callable[[], Spec | None] = field(default=lambda: None, compare=False, repr=False)

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`."""
        return cls(name, argument.specification, argument.spec)

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        id = argument.text
        if not _ID.fullmatch(id) or argument.path.exists():
            return None
        source = cls(id, argument.specification, argument.spec)
        if source._files.inventory.is_file():
            return source
        spec = argument.spec()
        is_target = spec is not None and any(target.id == id for target in spec.targets)
        return source if is_target else None

    @property
    def _files(self) -> TargetFiles:
        from buildmatrix.sources.state_folder import FOLDER, State

        return State(self.specification.parent / FOLDER).target_files(self.name)

    @property
    def _checked_files(self) -> TargetFiles:
        """The same. Raises `UsageError` where Git tracks them."""
        from buildmatrix.sources.state_folder import State

        return State.beside(self.specification.parent).target_files(self.name)

    def target(self) -> tuple[Target, Spec]:
        """See `Source.target`."""
        id, spec = self.name, self.spec()
        if spec is None:
            raise UsageError(
                f"there is no specification here that could have a target {id}; give -f"
            )
        target = next((target for target in spec.targets if target.id == id), None)
        if target is not None:
            return target, spec
        near = targets_like(id, spec)
        hint = f"did you mean {' or '.join(near)}?" if near else "`buildmatrix targets` lists them"
        raise UsageError(f"{spec.path} has no target {id}; {hint}")

    def facts(self, options: ReadingOptions) -> Facts:
        """See `Source.facts`: what the last build found, and the layers of its image."""
        from buildmatrix.locks.pylock import read_lock
        from buildmatrix.locks.selection import marker_environment
        from buildmatrix.sources.state_folder import is_foreign, load_inventory
        from buildmatrix.sources.target_layers import LAYERS, add_layers

        (target, spec), files = self.target(), self._checked_files
        build = f"`buildmatrix build --select {target.id}`"
        why: str | None = None
        try:
            inventory = load_inventory(files)
        except UndecidedError as error:
            raise UndecidedError(f"{error.message}: {build}", log=error.log) from error
        if inventory is None:
            whose = " (its state is not this user's on this machine)" if is_foreign(files) else ""
            raise UndecidedError(
                f"target {target.id} was not built here{whose}, so its image is unknown; "
                f"run {build}, or ask its lock: `buildmatrix why lock:{target.lock_file} LIBRARY`"
            )
        dockerfile = dockerfile_of(spec, target)
        if options.layers:
            inventory, why = add_layers(
                files, inventory, self._engine(options), options.note, dockerfile[1]
            )
        layers = files.layers(options.note).path(LAYERS) or files.folder
        note = f"which layer put a file there: {why} (--layers tries again)"
        facts = Facts(
            f"target {target.id}",
            inventory,
            files=(
                spec.root / target.lock,
                *([spec.root / target.committed_lock] if target.committed_lock else []),
                layers,
                dockerfile[1],
            ),
            environment=marker_environment(target),
            notes=() if why is None else (note,),
            catalogue=spec.catalogue_files,
            dockerfile=dockerfile,
            target=(target, spec),
        )
        lock = lock_of(spec, target) if options.lock is None else read_lock(options.lock)
        return add_lines(facts, lock, spec.root)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        from buildmatrix.sources.target_layers import image_opener

        return image_opener(self._checked_files, self._engine(options))

    def _engine(self, options: ReadingOptions) -> Callable[[], Engine]:
        """The engine that has built it."""
        from buildmatrix.sources.state_folder import load

        record = load(self._files)
        return options.engine if record is None else partial(options.engine_of, record.engine)

    def cache_location(self, options: ReadingOptions) -> CacheLocation | None:
        """See `Source.cache_location`."""
        if options.lock is not None or not _ID.fullmatch(self.name):
            return None
        files = self._files
        return CacheLocation(files.derived(options.note), (files.inventory, self.specification))


def dockerfile_of(spec: Spec, target: Target) -> tuple[str, Path]:
    """The Dockerfile that was generated for a target: its name, and where it lies."""
    name = spec.dockerfile(target.id)
    return name, spec.root / name


def lock_of(spec: Spec, target: Target) -> Lock | None:
    """The lock of a target, where it is there."""
    from buildmatrix.locks.pylock import read_lock
    from buildmatrix.locks.taken import add_origin_lines

    path = spec.root / target.lock
    if not target.lock or not path.is_file():
        return None
    lock = read_lock(path)
    return add_origin_lines(spec.root, target, lock) if target.committed_lock else lock


def targets_like(id: str, spec: Spec) -> list[str]:
    """Targets whose identifiers are spelled nearly like `id`."""
    return difflib.get_close_matches(id, [target.id for target in spec.targets], 3, 0.8)
