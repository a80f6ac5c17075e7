"""SOURCEs that declare distributions: `requirements:`, `pyproject:`, `lock:`, `pypi:`."""

from __future__ import annotations

import posixpath
import re
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError, UsageError
from buildmatrix.base.parsing import parse_requirement
from buildmatrix.base.text import shown
from buildmatrix.sources.model import Argument, Declared

if TYPE_CHECKING:
    from buildmatrix.locks.requirement_lines import RequirementSet
    from buildmatrix.locks.selection import LockSelection

# Files with the requested extras and groups


#: `pyproject.toml[gpu,web]:dev`.
_PARTS = re.compile(r"(?P<path>.+?)(?:\[(?P<extras>[^\[\]]*)\])?(?::(?P<groups>[A-Za-z0-9._,-]+))?")
#: How files say which Pythons they are for.
_PYTHON = re.compile(
    r"""^\s*(?:requires-python|python-versions|"python_version":)\s*=?\s*"([^"]*)"|"""
    r"""^\#.*with\ Python\ ([0-9.]+)""",
    re.MULTILINE | re.VERBOSE,
)
_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True)
class DeclaredFile(Declared):
    """A file that declares what would be installed."""

    @classmethod
    def named(cls, name: str, argument: Argument) -> Self:
        """See `Source.named`: `PATH[EXTRA,...]:GROUP,...`, where a file can have such."""
        if "://" in name:
            raise UsageError(
                f"{shown(name)} cannot be read from the network; save it as a file first"
            )
        path, extras, groups = parts(name, argument.root)
        chosen = _names(groups)
        without = frozenset(group for group in chosen if group.startswith("-"))
        source = cls(
            path,
            argument.text,
            _names(extras),
            chosen - without,
            frozenset(group[1:] for group in without),
        )
        source.check_parts()
        return source

    @classmethod
    def recognized(cls, argument: Argument) -> Self | None:
        """See `Source.recognized`. A file need not be there: its name says what is meant."""
        if "://" in argument.text or argument.path.is_dir():
            return None
        name = posixpath.basename(parts(argument.text, argument.root)[0])
        return cls.named(argument.text, argument) if cls.is_named_so(name) else None

    @classmethod
    @abstractmethod
    def is_named_so(cls, name: str) -> bool:
        """Return True if a file is of this kind by its name."""

    def check_parts(self) -> None:
        """Raise `UsageError` for extras and groups that no such file has."""

    def unwritable(self, path: Path, label: str) -> str | None:
        """See `Declared.unwritable`."""
        from buildmatrix.locks.committed import is_lock

        return lock_again(label) if is_lock(path.name) else None

    def pythons(self, root: Path, platform: str) -> str:
        """See `Declared.pythons`."""
        try:
            with (root / self.name).open("rb") as file:
                text = file.read(_LARGEST).decode(errors="replace")
        except (OSError, ValueError):
            return ""  # The file that is needed reports it.
        version = self.python_in(text, platform)
        return f"=={version}.*" if re.fullmatch(r"3\.\d+", version) else version

    def python_in(self, text: str, platform: str) -> str:
        """The Python that `text`, the contents of the file, says it is for on a platform."""
        pythons = [match[1] or match[2] for match in _PYTHON.finditer(text)]
        # Poetry says it at the end, behind what each distribution says of itself.
        return pythons[-1 if self.name.endswith("poetry.lock") else 0] if pythons else ""


def lock_again(label: str) -> str:
    """Explain how to change a lock."""
    return f"{label} is a lock: change what it was made from, and lock again"


def parts(text: str, root: Path) -> tuple[str, str, str]:
    """Path, extras and groups."""
    if not (root / text).is_file() and (match := _PARTS.fullmatch(text)):
        return match["path"], match["extras"] or "", match["groups"] or ""
    return text, "", ""


def _names(text: str) -> frozenset[str]:
    return frozenset(canonicalize_name(name.strip()) for name in text.split(",") if name.strip())


# `requirements:FILE`: requirement lines, or a conda environment


@dataclass(frozen=True)
class RequirementsFile(DeclaredFile):
    """A requirements file, its input, or an environment of conda with a `pip:` section."""

    prefix = "requirements"

    @classmethod
    def is_named_so(cls, name: str) -> bool:
        """See `DeclaredFile.is_named_so`."""
        from buildmatrix.locks.requirement_files import is_environment
        from buildmatrix.matrix.model import is_conda_lock

        if is_conda_lock(name):
            return False
        return name.endswith((".txt", ".in")) or is_environment(name)

    def check_parts(self) -> None:
        """See `DeclaredFile.check_parts`."""
        from buildmatrix.matrix.model import is_conda_lock

        if is_conda_lock(self.name) or posixpath.basename(self.name) == _PIXI:
            raise UsageError(f"{self.name} is a lock; write lock:{self.name}")
        if self.extras or self.groups or self.without:
            raise UsageError(
                f"{self.text}: extras and groups belong to a pyproject.toml or to a lock"
            )

    def is_locked(self, ask: LockSelection) -> bool:
        """See `Declared.is_locked`: other tools write locks as requirements."""
        from buildmatrix.locks.pinned import is_pinned

        return is_pinned(ask.path, ask.label)

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        from buildmatrix.locks.requirement_files import add_file

        add_file(wanted, ask.path, ask.label)

    def unwritable(self, path: Path, label: str) -> str | None:
        """See `Declared.unwritable`."""
        from buildmatrix.locks.pinned import is_pinned

        if (why := super().unwritable(path, label)) is not None:
            return why
        try:
            if is_pinned(path, label):
                return f"{label} is the output of a tool: change its input, and run the tool again"
        except SpecError as error:
            return str(error)
        return None

    def python_in(self, text: str, platform: str) -> str:
        """See `DeclaredFile.python_in`."""
        from buildmatrix.locks.requirement_files import is_environment, read_environment

        if is_environment(self.name):
            return read_environment(text, self.name).python
        return super().python_in(text, platform)


# `pyproject:FILE`: requirements of a project


@dataclass(frozen=True)
class ProjectFile(DeclaredFile):
    """A pyproject.toml."""

    prefix = "pyproject"
    written_as = "project"

    @classmethod
    def is_named_so(cls, name: str) -> bool:
        """See `DeclaredFile.is_named_so`."""
        return name == "pyproject.toml"

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        from buildmatrix.locks.target_requirements import add_project

        add_project(wanted, ask)


# `lock:FILE`: a lock of any tool


_PIXI, _PIXI_LOCK = "pixi.toml", "pixi.lock"
#: Default name of a target's lock.
_NAME = re.compile(r"pylock\.(.+)\.toml")


@dataclass(frozen=True)
class LockSource(DeclaredFile):
    """A lock; of pixi, its manifest means the lock beside it.

    The lock of an environment of conda is for one platform: `pixi.lock[cuda]:linux-aarch64`.
    """

    prefix = "lock"

    @classmethod
    def named(cls, name: str, argument: Argument) -> Self:
        """See `DeclaredFile.named`."""
        source = super().named(name, argument)
        folder, slash, file = source.name.rpartition("/")
        return replace(source, name=f"{folder}{slash}{_PIXI_LOCK}") if file == _PIXI else source

    @classmethod
    def is_named_so(cls, name: str) -> bool:
        """See `DeclaredFile.is_named_so`."""
        from buildmatrix.locks.committed import export_command, is_lock

        return is_lock(name) or bool(export_command(name)) or name == _PIXI

    def is_locked(self, ask: LockSelection) -> bool:
        """See `Declared.is_locked`."""
        return True

    def platform(self) -> str | None:
        """See `Declared.platform`."""
        from buildmatrix.locks.condalock import CONDA_PLATFORMS, is_platform
        from buildmatrix.matrix.model import is_conda_lock

        named = sorted(filter(is_platform, self.groups)) if is_conda_lock(self.name) else []
        images = {conda: platform for platform, conda in CONDA_PLATFORMS.items()}
        if not named:
            return None
        if len(named) > 1 or named[0] not in images:
            raise UsageError(f"{self.text}: write one platform of images, {' or '.join(images)}")
        return images[named[0]]

    def python_in(self, text: str, platform: str) -> str:
        """See `DeclaredFile.python_in`."""
        from buildmatrix.locks.condalock import CONDA_PLATFORMS, locked_python
        from buildmatrix.matrix.model import is_conda_lock

        if not is_conda_lock(self.name):
            return super().python_in(text, platform)
        return locked_python(text, self.name, self.extras, CONDA_PLATFORMS.get(platform, ""))

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        raise AssertionError(f"{self} asks for nothing more than it holds")

    def made_for(self) -> str:
        """See `Declared.made_for`."""
        name = _NAME.fullmatch(Path(self.name).name)
        return name[1] if name else ""

    def unwritable(self, path: Path, label: str) -> str | None:
        """See `Declared.unwritable`."""
        return lock_again(label)


# `pypi:NAME==VERSION`: a distribution and its requirements


#: An image may be named by its digest: that is not a valid requirement with an address.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*(===?|~=|!=|[<>]=?|@(?!sha256:)).*"
)


@dataclass(frozen=True)
class PackageRequirement(Declared):
    """A requirement as pip takes it, without an address."""

    prefix = "pypi"
    written_as = "itself"

    @property
    def is_file(self) -> bool:
        """See `Declared.is_file`."""
        return False

    @classmethod
    def named(cls, name: str, argument: Argument) -> Self:
        """See `Source.named`."""
        try:
            requirement = parse_requirement(name)
        except InvalidRequirement as error:
            cause = str(error).splitlines()[0]
            raise UsageError(
                f"pypi:{name} is not a valid requirement: {cause}; write pypi:NAME==VERSION"
            ) from error
        if requirement.url is not None:
            raise UsageError(
                f"pypi:{name} names an address; write pypi:NAME==VERSION, or wheel:URL"
            )
        return cls(name.strip(), argument.text)

    @classmethod
    def recognized(cls, argument: Argument) -> Self | None:
        """See `Source.recognized`."""
        text = argument.text
        if "://" in text or not _REQUIREMENT.fullmatch(text) or argument.path.is_dir():
            return None
        return cls.named(text, argument)

    def add_to(self, wanted: RequirementSet, ask: LockSelection, root: Path) -> None:
        """See `Declared.add_to`."""
        from buildmatrix.locks.requirement_lines import add_line

        add_line(wanted, self.name, str(self), 0, root)

    def unwritable(self, path: Path, label: str) -> str | None:
        """See `Declared.unwritable`: the SOURCE itself is what a fix changes."""
        return None
