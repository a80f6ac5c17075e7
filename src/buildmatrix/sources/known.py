"""SOURCE → everything that `why` and `inspect` start from: facts, lock, requirement lines, files.

Beside the kinds of SOURCE that `scan` reads (`sources.source`) there are some that are known
without reading a tree: a target of the specification, whose inventory the last build left in the
state folder, and a lock, whose wheels are read on their index.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from buildmatrix.engines.exports import OpenTree, exported
from buildmatrix.engines.model import Engine, Surroundings
from buildmatrix.errors import SpecError, UndecidedError, UsageError
from buildmatrix.inventory.model import Inventory
from buildmatrix.locks.model import Lock
from buildmatrix.locks.platform import marker_environment
from buildmatrix.sources.opening import tree_of
from buildmatrix.sources.requirement_lines import requirement_lines, root_of
from buildmatrix.spec.model import Spec, Target
from buildmatrix.state.folder import FOLDER, State

if TYPE_CHECKING:
    from buildmatrix.sources.source import Facts as SourceFacts
    from buildmatrix.sources.source import Source
    from buildmatrix.store.cache import Store
    from buildmatrix.store.facts import FactCache

__all__ = ["Facts", "Keep", "Known", "Machine", "OpenTree", "is_file", "known_of", "with_lines"]

#: Names of libraries and device code: nobody calls an image so.
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$|\.(cubin|fatbin|ptx|bc|hsaco|spv|kpack|a|o)$")
#: Names of saved images.
_ARCHIVE = re.compile(r"\.(tar|tar\.gz|tgz|tar\.zst|oci)$")


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read of a source."""

    inventory: Inventory
    lock: Lock | None = None
    #: Text of the requirement lines that the lock names, by `file:line`.
    lines: Mapping[str, str] = field(default_factory=dict)
    #: The files that those lines stand in.
    files: tuple[Path, ...] = ()
    #: What these facts lack, and why.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """Where what is made of a target is kept, and the files that it is made from."""

    store: Store
    files: tuple[Path, ...]
    #: Whether it is made again where what is kept lacks the layers.
    again: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """A source that a question can be put to."""

    #: As the answer calls it: `dir:/srv/venv`, `target cpu-py311`.
    source: str
    read: Callable[[], Facts]
    #: Values of environment markers; None for those of the tree's own interpreter.
    environment: Mapping[str, str] | None = None
    #: Opens the files again; None where only their facts are left.
    tree: OpenTree | None = None
    #: Whether that costs little; an image has to be exported by its engine.
    is_near: bool = True
    #: What the answer cannot say, and why.
    notes: tuple[str, ...] = ()
    #: Files of the catalogue that the specification adds.
    catalogue: tuple[Path, ...] = ()
    #: For sources whose graph is kept between two questions.
    keep: Keep | None = None
    #: Whether the layers of an engine's image were wanted.
    layers: bool = True
    #: The Dockerfile that the image was built with, as people know it, and where it lies.
    dockerfile: tuple[str, Path] | None = None
    #: The target of the specification that it is, and that specification.
    target: tuple[Target, Spec] | None = None


def with_lines(inventory: Inventory, lock: Lock | None, root: Path) -> Facts:
    """Facts with the requirement lines that `lock` names, where their files are still there.

    A lock may be somebody else's: only files below `root` are opened.
    """
    lines, files = requirement_lines(lock, root)
    return Facts(inventory, lock, lines, files)


@dataclass(frozen=True, slots=True)
class Machine:
    """What reading a source may need of this machine; see `sources.source.read`."""

    engine: Callable[[], Engine]
    #: Image that the scan of another image runs in; None for the usual one.
    scanner: str | None
    surroundings: Surroundings
    cache: Callable[[], FactCache | None] = lambda: None
    #: Whether to tell which layer of an engine's image brought what, which costs an export.
    layers: bool = True
    #: Whether to try that again where an earlier answer about a target could not tell.
    again: bool = False
    #: The user's own data files for the catalogue, for what is no target of a specification.
    data_files: Callable[[], tuple[Path, ...]] = tuple
    #: Told what takes long.
    note: Callable[[str], None] = lambda _: None

    def read(self, source: Source) -> SourceFacts:
        """The facts of a source. Raises the errors of `sources.source.read`."""
        from buildmatrix.sources.source import read
        from buildmatrix.spec.model import DEFAULT_TOOLS

        return read(
            source,
            self.engine,
            self.scanner or DEFAULT_TOOLS["scanner"],
            self.surroundings,
            self.cache(),
            layers=self.layers,
        )

    def exported(self, image: str) -> OpenTree:
        """How the files of an engine's image are opened: it is exported into a temporary file."""
        return lambda: exported(self.engine(), image)


def is_file(text: str) -> Path | None:
    """The single file that is meant: a binary, device code or a wheel; None for a SOURCE."""
    path = Path(text.removeprefix("wheel:"))
    if path.suffix == ".whl" or _LIBRARY.search(path.name):
        return path
    return path if path.is_file() and not _ARCHIVE.search(path.name) else None


def known_of(
    text: str,
    machine: Machine,
    spec: Callable[[], Spec | None],
    lock: Path | None = None,
) -> Known:
    """Read what `text` names: a SOURCE, `target:ID`, or the identifier of a target.

    `spec` loads the specification of this folder, or returns None where there is none: it says
    which image is a target's, and so which lock tells the requirement lines. `lock` is a lock that
    the tree was installed from. Raises the errors of `sources.source`, and `SpecError`.
    """
    given = None if lock is None else _read_lock(lock)
    if text.startswith("target:"):
        return _target(text.removeprefix("target:"), spec(), given, machine)
    if not Path(text).exists() and ":" not in text and "/" not in text:
        found = spec()
        if found is not None and any(target.id == text for target in found.targets):
            return _target(text, found, given, machine)
    from buildmatrix.sources.source import parse

    source = parse(text)
    try:
        facts = machine.read(source)
    except UndecidedError as error:
        near = _near_targets(text, spec) if source.kind == "docker" else ()
        if not near:
            raise
        hint = " or ".join(f"target:{one}" for one in near)
        raise UndecidedError(f"{error.message}; did you mean {hint}?", log=error.log) from error
    root = Path() if given is None else root_of(given)
    environment = dockerfile = built = None
    if given is None and source.kind == "docker":
        specification = spec()
        target = None if specification is None else _built_as(specification, source.name)
        if specification is not None and target is not None:
            given, root = _lock_of(specification, target), specification.root
            environment = marker_environment(target)
            dockerfile = _dockerfile(specification, target)
            built = target, specification
    return Known(
        str(source),
        lambda: with_lines(facts.inventory, given, root),
        environment,
        tree_of(source.kind, source.name) or machine.exported(source.name),
        is_near=source.kind != "docker",
        catalogue=machine.data_files(),
        dockerfile=dockerfile,
        target=built,
    )


def _target(id: str, spec: Spec | None, lock: Lock | None, machine: Machine) -> Known:
    """A target of the specification, as its last build left it."""
    from buildmatrix import store

    if spec is None:
        raise UsageError(f"there is no specification here that could have a target {id}; give -f")
    target = next((one for one in spec.targets if one.id == id), None)
    if target is None:
        raise UsageError(f"{spec.path} has no target {id}; {_meant(id, spec)}")
    from buildmatrix.state.target_layers import LAYERS, image_tree, with_layers

    files = State(spec.root / FOLDER).of(id)
    if not files.inventory.is_file():
        raise UndecidedError(
            f"target {id} was not built here, so nothing is known of its image; run "
            f"`buildmatrix build --select {id}`, or ask its lock: `buildmatrix why "
            f"lock:{target.lock} LIBRARY`"
        )

    dockerfile = _dockerfile(spec, target)

    def read() -> Facts:
        try:
            inventory, why = store.read(files.inventory), None
        except UndecidedError as error:
            again = f"{error.message}: `buildmatrix build --select {id}`"
            raise UndecidedError(again, log=error.log) from error
        if machine.layers:
            inventory, why = with_layers(
                files, inventory, machine.engine, machine.note, dockerfile[1]
            )
        facts = with_lines(inventory, lock or _lock_of(spec, target), spec.root)
        if why is None:
            return facts
        note = f"which layer put a file there: {why} (--layers tries again)"
        return replace(facts, notes=(note,))

    layers = files.layers(machine.note).path(LAYERS) or files.folder
    keep = Keep(
        files.made(machine.note),
        (files.inventory, spec.root / target.lock, spec.path, layers, dockerfile[1]),
        again=machine.again,
    )
    return Known(
        f"target {id}",
        read,
        marker_environment(target),
        image_tree(files, machine.engine),
        is_near=False,
        catalogue=spec.catalogue_files,
        keep=keep if lock is None else None,
        layers=machine.layers,
        dockerfile=dockerfile,
        target=(target, spec),
    )


def _dockerfile(spec: Spec, target: Target) -> tuple[str, Path]:
    """The Dockerfile that was generated for a target."""
    name = f"{spec.output}/{target.id}/Dockerfile"
    return name, spec.root / name


def _meant(id: str, spec: Spec) -> str:
    near = _close(id, spec)
    return f"did you mean {' or '.join(near)}?" if near else "`buildmatrix targets` lists them"


def _close(id: str, spec: Spec) -> list[str]:
    return difflib.get_close_matches(id, [one.id for one in spec.targets], 3, 0.8)


def _near_targets(text: str, spec: Callable[[], Spec | None]) -> list[str]:
    """Targets whose identifiers are spelled like an image that is not there."""
    try:
        found = spec()
    except SpecError:
        return []
    return _close(text, found) if found is not None else []


def _built_as(spec: Spec, image: str) -> Target | None:
    """The target that an image is named as."""
    name = image if ":" in image.rpartition("/")[2] else f"{image}:latest"
    return next((one for one in spec.targets if name in one.references), None)


def _lock_of(spec: Spec, target: Target) -> Lock | None:
    path = spec.root / target.lock
    return _read_lock(path) if target.lock and path.is_file() else None


def _read_lock(path: Path) -> Lock:
    from buildmatrix.locks.read import read_lock

    return read_lock(path)
