"""Interface of a SOURCE: facts, files that can be opened again, or a lock to resolve.

A kind of SOURCE is one class in a module of its own, named in `sources.parse`. It belongs to a
family: `Installed` exists and is read, `Declared` names distributions, which are resolved and read
on the package index, and a saved report has findings in place of facts (`sources.local`). Commands
distinguish the families, and never the kinds.
"""

from __future__ import annotations

import os
import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.base.text import shown
from buildmatrix.facts.trees.base import reason

if TYPE_CHECKING:
    from buildmatrix.engines.model import Engine, OpenTree
    from buildmatrix.facts.inventory.model import Inventory
    from buildmatrix.facts.inventory.workers import Watch
    from buildmatrix.images.store.cache import Cache, Store
    from buildmatrix.images.store.facts import FactCache
    from buildmatrix.locks.index.reading import Reader
    from buildmatrix.locks.model import Lock
    from buildmatrix.locks.requirement_lines import RequirementSet
    from buildmatrix.locks.selection import LockSelection
    from buildmatrix.matrix.model import Spec, Target
    from buildmatrix.net.registry_client import Registry


# Requirement lines named by a lock, with their text if their files still exist


#: Folders above a lock in which its requirement files are looked for.
_ABOVE = 3
#: Bytes of a requirement file of which a line is shown.
LARGEST_REQUIREMENTS = 1 << 20


def requirement_lines(lock: Lock | None, root: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Text of the lines that a lock names, by `file:line`, and their files."""
    lines: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    packages = (*lock.packages, *lock.conda) if lock is not None else ()
    names = {package.name for package in packages}
    for label in (via for package in packages for via in package.via):
        file, colon, number = label.rpartition(":")
        if label in names or not colon or not re.fullmatch(r"\d{1,9}", number, re.ASCII):
            continue
        if file not in files:
            files[file] = _lines_of(root, file)
        if 0 < int(number) <= len(files[file]):
            text = files[file][int(number) - 1].partition(" #")[0].strip().rstrip(",\\").strip()
            lines[label] = _unquoted(text.removeprefix("- "))
    return lines, tuple(root / file for file in files)


def _unquoted(text: str) -> str:
    """An element of a TOML array without its quotes; `xgboost = "*"` keeps the one at its end."""
    quote = text[:1]
    whole = quote in ("'", '"') and len(text) > 1 and text.endswith(quote)
    return text[1:-1] if whole and quote not in text[1:-1] else text


def _lines_of(root: Path, name: str) -> list[str]:
    path = root / name
    try:
        if not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
            return []
        with path.open("rb") as file:
            return file.read(LARGEST_REQUIREMENTS).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def root_of(lock: Lock) -> Path:
    """The folder that the requirement lines of a lock are relative to: where their files are."""
    files = [
        via.rpartition(":")[0] for package in lock.packages for via in package.via if ":" in via
    ]
    folders = (lock.path.parent, *lock.path.absolute().parent.parents[:_ABOVE])
    for folder in folders:
        if any((folder / file).is_file() for file in files):
            return folder
    return lock.path.parent


#: A command that takes SOURCE.
Command = Literal["scan", "audit", "why", "inspect", "diff", "explore"]
#: The commands that look at one SOURCE after the other, whatever it is.
LOOKING = frozenset[Command]({"why", "inspect", "diff", "explore"})
READING = frozenset[Command]({"scan", *LOOKING})
RESOLVING = frozenset[Command]({"audit", *LOOKING})


class Argument(Struct, frozen=True):
    """SOURCE as it was typed, and what it is relative to."""

    text: str
    command: Command
    #: Folder that relative paths start from.
    root: Path = Path()
    #: File of the specification, which need not be there, and how it is loaded: None without one.
    specification: Path = Path("buildmatrix.toml")
    spec: Callable[[], Spec | None] = lambda: None

    @property
    def path(self) -> Path:
        """Path that the text names."""
        return self.root / self.text


class OnlineIndex(Struct, frozen=True):
    """Settings for reading wheels on a package index."""

    reader: Reader
    progress: Progress
    #: Keeps what was resolved in the last minutes; None resolves again.
    cache: Cache | None = None
    offline: bool = False
    #: Read whole wheels.
    deep: bool = False
    #: Minor version in place of the target's.
    python: str | None = None


def _uncounted(_label: str, _unit: str) -> AbstractContextManager[Watch]:
    return nullcontext(lambda _done, _total: None)


def _no_index() -> OnlineIndex:
    raise AssertionError("nothing was to be read on an index")


def _no_registry() -> Registry:
    raise AssertionError("nothing was to be read in a registry")


class ReadingOptions(Struct, frozen=True):
    """Settings for reading a SOURCE: what it may use of this machine, and how deep it goes."""

    engine: Callable[[], Engine]
    cache: Callable[[], FactCache | None] = lambda: None
    #: Opens the package index.
    index: Callable[[], OnlineIndex] = _no_index
    #: Opens the door to image registries.
    registry: Callable[[], Registry] = _no_registry
    #: `linux/arm64`: which image is meant where there is one for each platform.
    platform: str | None = None
    #: True to read which layer of a target's image brought what, which costs an export.
    layers: bool = True
    #: True to try that again where an earlier answer could not say.
    again: bool = False
    #: The user's own data files for the catalogue, for what is no target of a specification.
    data_files: Callable[[], tuple[Path, ...]] = tuple
    #: The specification that says which image is a target's, and so which lock it was made from.
    spec: Callable[[], Spec | None] = lambda: None
    #: The lock that something was installed from.
    lock: Path | None = None
    #: Requested target or backend, if there are several.
    select: str | None = None
    backend: str | None = None
    #: Told what takes long.
    note: Callable[[str], None] = lambda _: None
    #: Opens the display of how much of that is done.
    progress: Callable[[], Progress] = Silent
    #: Opens the same for files of a tree, by a label and a unit.
    counting: Callable[[str, str], AbstractContextManager[Watch]] = _uncounted
    #: The engine of a name, for what an engine has built; None where there is one alone.
    engine_named: Callable[[str], Engine] | None = None

    def engine_of(self, name: str) -> Engine:
        """The engine that has built something: it has the image."""
        return self.engine() if self.engine_named is None else self.engine_named(name)


#: Note in answers when wheels were not read whole.
SHALLOW = (
    "of large binaries only the beginnings were read: links and copies further in may be missing "
    "(--deep reads everything)"
)


class Facts(Struct, frozen=True):
    """Facts that were read of a SOURCE, and its own claims."""

    #: Name in answers: `dir:/srv/venv`, `target cpu-py311`.
    label: str
    inventory: Inventory
    #: The name by which an engine has it.
    image: str | None = None
    #: Labels of an image's configuration, and the backend that it claims to be for.
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    backend: str | None = None
    lock: Lock | None = None
    #: Text of the requirement lines that the lock names, by `file:line`.
    lines: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: More files that these facts depend on.
    files: tuple[Path, ...] = ()
    #: Values of environment markers; None for those of the tree's own interpreter.
    environment: Mapping[str, str] | None = None
    #: Gaps of these facts, with reasons.
    notes: tuple[str, ...] = ()
    #: Files that add to the catalogue.
    catalogue: tuple[Path, ...] = ()
    #: The Dockerfile that the image was built with, as people know it, and where it lies.
    dockerfile: tuple[str, Path] | None = None
    #: The target of the specification that it is, and that specification.
    target: tuple[Target, Spec] | None = None


def add_lines(facts: Facts, lock: Lock | None, root: Path) -> Facts:
    """`facts` with the requirement lines that `lock` names, where their files are still there.

    A lock may come from another user: only files below `root` are opened.
    """
    lines, files = requirement_lines(lock, root)
    return replace(facts, lock=lock, lines=lines, files=(*facts.files, *files))


class CacheLocation(Struct, frozen=True):
    """Location of cached results about a SOURCE."""

    store: Store
    #: Files that it is made from; facts name more.
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Source(ABC):
    """Something that a command can be asked about."""

    #: Text before the colon; empty without a prefix.
    prefix: ClassVar[str]
    #: The commands that take it, and the one that a refusal of the others names.
    commands: ClassVar[frozenset[Command]]
    judged_by: ClassVar[str]
    #: True if opening the files again costs little; an image has to be exported by its engine.
    is_near: ClassVar[bool] = False

    #: Path, name, requirement or URL.
    name: str

    def __str__(self) -> str:
        return shown(f"{self.prefix}:{self.name}" if self.prefix else self.name)

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """The SOURCE behind the prefix. Raises `UsageError` for a name that it cannot have."""
        return cls(name)

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """The SOURCE that `argument` is by its looks, without a prefix; None for another one."""
        return None

    def facts(self, options: ReadingOptions) -> Facts:
        """Read everything; nothing is executed.

        Raises `UndecidedError` for what cannot be read, `UsageError` where nothing says what is
        meant.
        """
        raise UndecidedError(f"{self} has no facts")

    def open(self, options: ReadingOptions) -> OpenTree | None:
        """Open the files again; None if only their facts are left."""
        return None

    @property
    def single_file(self) -> Path | None:
        """The one file that it is, a binary or a wheel."""
        return None

    @property
    def is_wheel(self) -> bool | None:
        """True for one wheel, False for a set of distributions; None if only reading tells."""
        return False

    def target(self) -> tuple[Target, Spec] | None:
        """Return the selected target. Raises `UsageError` for an unknown one."""
        return None

    def cache_location(self, options: ReadingOptions) -> CacheLocation | None:
        """Return the location of cached graphs and sides of comparisons; None to make them anew."""
        return None


class Installed(Source):
    """Something installed: files, a wheel, an image."""

    commands = READING
    judged_by = "scan"
    is_near = True
    #: Kind of side in a comparison.
    form: ClassVar[Literal["tree", "wheel", "image"]] = "tree"

    def facts(self, options: ReadingOptions) -> Facts:
        """See `Source.facts`."""
        lock = None
        if options.lock is not None:
            from buildmatrix.locks.pylock import read_lock

            lock = read_lock(options.lock)
        try:
            facts = self.read(options)
        except OSError as error:
            raise UndecidedError(f"{self} cannot be read: {reason(error)}") from error
        inventory = facts.inventory
        if not (
            inventory.distributions or inventory.binaries or inventory.artefacts or inventory.unread
        ):
            raise UndecidedError(f"{self} holds no distribution and no binary: nothing to judge")
        facts = replace(facts, catalogue=options.data_files())
        return facts if lock is None else add_lines(facts, lock, root_of(lock))

    @abstractmethod
    def read(self, options: ReadingOptions) -> Facts:
        """The facts alone. Raises OSError, too."""


@dataclass(frozen=True)
class Declared(Source):
    """A declaration of distributions, resolved for one target at a time."""

    commands = RESOLVING
    judged_by = "audit"
    #: Object of a fix: lines, the tables of a project, or the SOURCE itself.
    written_as: ClassVar[Literal["lines", "project", "itself"]] = "lines"

    #: Text as typed.
    text: str = field(default="", compare=False)
    #: Normalized names; only what has them can be asked for them.
    extras: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    #: Groups that are a default of the project, and not wanted: `uv.lock:-dev`.
    without: frozenset[str] = frozenset()

    @property
    def is_file(self) -> bool:
        """True if it names a file of this machine."""
        return "://" not in self.name

    def label(self, root: Path) -> str:
        """Return its label in reports."""
        return label_of(self.name, root) if self.is_file else shown(self.name)

    def at(self, path: str) -> str:
        """The same SOURCE as text, of a file that lies elsewhere."""
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        groups = [*sorted(self.groups), *(f"-{name}" for name in sorted(self.without))]
        return f"{self.prefix}:{path}{extras}" + (f":{','.join(groups)}" if groups else "")

    def facts(self, options: ReadingOptions) -> Facts:
        """See `Source.facts`: the wheels that it comes to for one target are read."""
        from buildmatrix.sources.wheels_on_index import facts_of

        return facts_of(self, options)

    def is_locked(self, ask: LockSelection) -> bool:
        """Return True if it pins the version of everything, so that nothing is resolved."""
        return False

    @abstractmethod
    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """Add its requirements. Raises `SpecError` and `UsageError`."""

    def pythons(self, root: Path, platform: str) -> str:
        """The range of Pythons that it is for, as it says; empty where it does not."""
        return ""

    def platform(self) -> str | None:
        """The platform that it names (`linux/arm64`); None if it names none.

        Raises `UsageError` for one that no images run on.
        """
        return None

    def made_for(self) -> str:
        """The identifier of the target that it was made for, by its name; empty for none."""
        return ""

    def unwritable(self, path: Path, label: str) -> str | None:
        """Return the reason why no fix can be written into it; None if one can."""
        return f"{self} is not a file with requirements"


def label_of(path: str, root: Path) -> str:
    """Return the label of a file: relative to `root` if it lies below, else as given."""
    try:
        relative = os.path.relpath(root / path, root)
    except ValueError:
        return path
    outside = relative.startswith("..") and Path(path).is_absolute()
    return path if outside else posixpath.normpath(relative)
