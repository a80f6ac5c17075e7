"""SOURCEs in the file system: `dir:`, a single binary, `report:`."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError, UsageError
from buildmatrix.base.parsing import parse_wheel_name, split_variant
from buildmatrix.base.text import path_in, remember
from buildmatrix.facts.trees.base import (
    File,
    RandomAccess,
    Symlink,
    Tree,
    Trouble,
    Unreadable,
    reason,
)
from buildmatrix.sources.model import (
    READING,
    RESOLVING,
    Argument,
    Declared,
    Facts,
    Installed,
    ReadingOptions,
    Source,
)

if TYPE_CHECKING:
    from buildmatrix.engines.model import OpenTree
    from buildmatrix.facts.inventory.model import Inventory
    from buildmatrix.images.store.facts import FactCache
    from buildmatrix.locks.requirement_lines import RequirementSet
    from buildmatrix.locks.selection import LockSelection

# Virtual environments: their location, and the other packages that their interpreter sees.
#
# Format: PEP 405 (`pyvenv.cfg`) and the `site` module. Nothing is executed: the folders of the base
# interpreter are found by their places.


#: Names of interpreters.
_INTERPRETER = re.compile(r"python[0-9.]*t?")
CONFIGURATION = "pyvenv.cfg"
#: Bytes of a pyvenv.cfg.
LARGEST_CONFIGURATION = 64 << 10


def environment_of(path: Path) -> Path | None:
    """The virtual environment that `path` is, or whose interpreter it is; None for neither."""
    for folder in (path, path.parent.parent):
        is_program = folder is path or _INTERPRETER.fullmatch(path.name)
        if is_program and (folder / CONFIGURATION).is_file():
            return folder
    return None


def system_packages(environment: Path) -> tuple[Path, ...]:
    """Folders of the base interpreter's packages that a virtual environment lets in.

    Empty unless its `include-system-site-packages` is true. Raises `UndecidedError` when they are
    let in, and cannot be found.
    """
    settings = _settings(environment / CONFIGURATION)
    if settings.get("include-system-site-packages", "false").lower() != "true":
        return ()
    home = settings.get("home", "")
    version = _version(settings, environment)
    folders: tuple[Path, ...] = ()
    if home.startswith("/") and version is not None:
        folders = tuple(_packages_below(Path(home), version))
    if not folders:
        raise UndecidedError(
            f"{environment} includes the packages of its base interpreter (home = {home!r} in "
            f"{CONFIGURATION}), which are not found; scan dir: with the folder that has both"
        )
    return folders


def _settings(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_CONFIGURATION)
    except OSError as error:
        raise UndecidedError(f"{path} cannot be read: {reason(error)}") from error
    lines = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines())
    return {key.strip().lower(): value.strip() for key, equals, value in lines if equals}


def _version(settings: Mapping[str, str], environment: Path) -> str | None:
    """`3.12`; None when neither the configuration (venv; virtualenv, uv) nor a folder says."""
    folders = [path.name.removeprefix("python") for path in environment.glob("lib/python3.*")]
    for text in (settings.get("version"), settings.get("version_info"), *folders):
        if text and (match := re.match(r"3\.\d+", text)):
            return match[0]
    return None


def _packages_below(home: Path, version: str) -> Iterator[Path]:
    """`site-packages` of a prefix, and the `dist-packages` that Debian has instead."""
    prefix = home.parent
    for base in (prefix / "local", prefix):
        for library in ("lib", "lib64"):
            if (base / library).is_symlink():
                continue
            # A free-threaded build has a `t`; Debian's `python3` serves every 3.x.
            for name in (f"python{version}", f"python{version}t", "python3"):
                for kind in ("site-packages", "dist-packages"):
                    folder = base / library / name / kind
                    if folder.is_dir():
                        yield folder


class JoinedTree(Tree):
    """Several trees as one, each below its prefix, which ends with a slash or is empty."""

    def __init__(self, parts: Mapping[str, Tree]) -> None:
        self._parts = sorted(parts.items(), key=lambda part: part[0])

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: one part after the other."""
        for prefix, tree in self._parts:
            for entry in tree.walk():
                yield replace(entry, path=prefix + entry.path)

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        """See `Tree.open`."""
        for prefix, tree in reversed(self._parts):
            if path.startswith(prefix):
                return tree.open(path.removeprefix(prefix))
        raise Unreadable("no part of the tree")


@contextmanager
def environment_tree(environment: Path) -> Iterator[Tree]:
    """A virtual environment, with the packages of its base where it lets them in.

    Those lie in the tree where they lie on this machine: `usr/lib/python3/dist-packages`. Raises
    OSError or `UndecidedError`.
    """
    from buildmatrix.facts.trees.archive import DirectoryTree

    with ExitStack() as held:
        own: Tree = held.enter_context(DirectoryTree(environment))
        base: dict[str, Tree] = {
            os.fspath(folder.resolve()).lstrip("/") + "/": held.enter_context(DirectoryTree(folder))
            for folder in system_packages(environment)
        }
        yield JoinedTree({"": own, **base}) if base else own


# `dir:PATH`: a virtual environment, a site-packages folder or a root file system


class Directory(Installed):
    """A folder; the interpreter of a virtual environment stands for that."""

    prefix = "dir"

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`."""
        return cls(str(environment_of(Path(name)) or name))

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        path = argument.path
        if path.is_dir():
            is_image = (path / "oci-layout").is_file() and environment_of(path) is None
            return None if is_image else cls.named(argument.text, argument)
        if argument.command == "inspect":
            return None  # An interpreter is a file as well.
        if environment_of(path) is not None:
            return cls.named(argument.text, argument)
        if path.is_file() and _INTERPRETER.fullmatch(path.name):
            raise UsageError(
                f"{argument.text} is not in a virtual environment, and interpreters are not run; "
                "name the folder with its packages, or /"
            )
        return None

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`."""
        path, cache = Path(self.name), options.cache()
        with self._tree() as tree, options.counting(str(self), "files") as watch:
            if cache is None:
                from buildmatrix.facts.inventory.collect import collect

                inventory = collect(tree, watch=watch)
            else:
                inventory = cache.folder(path, tree, watch)
        return Facts(str(self), inventory)

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        return self._tree

    def _tree(self) -> AbstractContextManager[Tree]:
        from buildmatrix.facts.trees.archive import DirectoryTree

        path = Path(self.name)
        return DirectoryTree(path) if environment_of(path) is None else environment_tree(path)


# A single file for `inspect`: a library, an archive of objects, or device code


#: Names of libraries and device code: no image has such a name.
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$|\.(cubin|fatbin|ptx|bc|hsaco|spv|kpack|a|o)$")


class SingleBinary(Source):
    """A file that holds code: it is described, and is no tree with facts."""

    prefix = ""
    commands = frozenset({"inspect"})
    judged_by = "inspect"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        path = argument.path
        is_meant = _LIBRARY.search(path.name) and not path.is_dir()
        return cls(argument.text) if is_meant or path.is_file() else None

    @property
    def single_file(self) -> Path:
        """See `Source.single_file`."""
        return Path(self.name)


# `report:FILE`: the report of a run, saved with `--format json`


class SavedReport(Source):
    """A report: it has findings, and not the facts that no rule objected to."""

    prefix = "report"
    commands = frozenset({"why", "diff"})
    judged_by = "report"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        is_report = argument.path.suffix == ".json" and argument.path.is_file()
        return cls(argument.text) if is_report else None

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.name)

    @property
    def is_wheel(self) -> None:
        """See `Source.is_wheel`."""
        return None


def is_wheel_label(text: str) -> bool:
    """Return True if a report's label is that of one wheel."""
    return text.startswith(f"{WheelFile.prefix}:")


def read_wheel(path: Path, cache: FactCache | None) -> Inventory:
    """Read a local wheel."""
    from buildmatrix.facts.inventory.collect import collect
    from buildmatrix.facts.trees.wheel import WheelTree
    from buildmatrix.images.store.facts import file_digest

    def scan() -> Inventory:
        with WheelTree(path) as tree:
            return collect(tree)

    return scan() if cache is None else cache.inventory(f"wheel {file_digest(path)}", scan)


class WheelFile(Installed):
    """A local wheel."""

    prefix = "wheel"
    commands = READING | RESOLVING
    form = "wheel"

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`: `audit` resolves what the wheel requires, and `scan` reads it."""
        if argument.command == "scan":
            return WheelOnServer(name) if "://" in name else cls(name)
        if argument.command != "audit" and "://" not in name:
            return cls(name)
        path = path_in(name) if "://" in name else name
        if not path.endswith(".whl"):
            raise UsageError(f"{argument.text} is not a wheel: wheel names end in .whl")
        # uv takes a scheme in capitals for the begin of a path.
        scheme, mark, rest = name.partition("://")
        return DeclaredWheel(scheme.lower() + mark + rest if mark else name, argument.text)

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        text, path = argument.text, argument.path
        name = path_in(text) if "://" in text else text
        if not name.endswith(".whl") or path.is_dir():
            return None
        if "://" not in text and argument.command != "audit" and not path.is_file():
            raise UsageError(f"there is no {text}")
        return cls.named(text, argument)

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`."""
        return Facts(str(self), read_wheel(Path(self.name), options.cache()))

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        from buildmatrix.facts.trees.wheel import WheelTree

        return lambda: WheelTree(Path(self.name))

    @property
    def single_file(self) -> Path:
        """See `Source.single_file`."""
        return Path(self.name)

    @property
    def is_wheel(self) -> bool:
        """See `Source.is_wheel`."""
        return True


class WheelOnServer(Installed):
    """A wheel on a server."""

    prefix = "wheel"
    form = "wheel"

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`. Raises `UsageError` for an address that names no wheel."""
        url, _, fragment = self.name.partition("#")
        filename = posixpath.basename(path_in(url))
        if not filename.endswith(".whl"):
            raise UsageError(f"{self} is not a wheel: wheel names end in .whl")
        # The form that pip and uv append to an address.
        claim = re.search(r"(?:^|&)sha256=([0-9A-Fa-f]{64})(?:&|$)", fragment)
        remember(url)
        from buildmatrix.locks.model import Wheel

        wheel = Wheel(filename, url, claim[1].lower() if claim is not None else "")
        return Facts(str(self), options.index().reader.read(wheel, "whole").inventory)


@dataclass(frozen=True)
class DeclaredWheel(Declared):
    """A wheel to install, with its requirements."""

    prefix = "wheel"

    @classmethod
    def named(cls, name: str, argument: Argument) -> Source:
        """See `Source.named`."""
        return WheelFile.named(name, argument)

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        from buildmatrix.locks.requirement_lines import add_line

        place = str(ask.path.absolute()) if self.is_file else self.name
        add_line(wanted, place, str(self), 0, root)

    def pythons(self, root: Path, platform: str) -> str:
        """See `Declared.pythons`: as the tags of its name say."""
        filename = posixpath.basename(path_in(self.name))
        try:
            tags = parse_wheel_name(split_variant(filename)[0])[3]
        except (InvalidWheelFilename, InvalidVersion):
            return ""
        for tag in sorted(tags, key=str):
            if match := re.fullmatch(r"cp3(\d+)", tag.interpreter):
                return f">=3.{match[1]}" if tag.abi in ("abi3", "none") else f"==3.{match[1]}.*"
        return ""
