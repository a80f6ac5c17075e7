"""Files that declare what would be installed, with the extras and groups that are meant."""

from __future__ import annotations

import posixpath
import re
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from packaging.utils import canonicalize_name

from buildmatrix.errors import UsageError
from buildmatrix.locks.committed import is_lock
from buildmatrix.sources.model import Argument, Declared
from buildmatrix.text import shown

#: `pyproject.toml[gpu,web]:dev`.
_PARTS = re.compile(r"(?P<path>.+?)(?:\[(?P<extras>[^\[\]]*)\])?(?::(?P<groups>[A-Za-z0-9._,-]+))?")
#: How files say which Pythons they are for.
_PYTHON = re.compile(
    r"""^\s*(?:requires-python|python-versions|"python_version":)\s*=?\s*"([^"]*)"|"""
    r"""^\#.*with\ Python\ ([0-9.]+)""",
    re.MULTILINE | re.VERBOSE,
)
_LARGEST = 64 * 1024 * 1024
_LOCKS_OF_CONDA = ("conda-lock.yml", "conda-lock.yaml", "pixi.lock", "pixi.toml")


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
        if posixpath.basename(path) in _LOCKS_OF_CONDA:
            raise UsageError(
                f"{name} is a lock of conda or pixi, which audit does not read; create the "
                "environment and run `buildmatrix scan dir:PREFIX`, or audit its environment.yml"
            )
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
        return lock_again(label) if is_lock(path.name) else None

    def pythons(self, root: Path) -> str:
        """See `Declared.pythons`."""
        try:
            with (root / self.name).open("rb") as file:
                text = file.read(_LARGEST).decode(errors="replace")
        except (OSError, ValueError):
            return ""  # The file that is needed reports it.
        version = self.python_in(text)
        return f"=={version}.*" if re.fullmatch(r"3\.\d+", version) else version

    def python_in(self, text: str) -> str:
        """The Python that `text`, the contents of the file, says it is for."""
        pythons = [match[1] or match[2] for match in _PYTHON.finditer(text)]
        # Poetry says it at the end, behind what each distribution says of itself.
        return pythons[-1 if self.name.endswith("poetry.lock") else 0] if pythons else ""


def lock_again(label: str) -> str:
    """Why nothing is written into a lock."""
    return f"{label} is a lock: change what it was made from, and lock again"


def is_lock_of_conda(name: str) -> bool:
    """Return True if a file is a lock that no installer of wheels reads."""
    return name in _LOCKS_OF_CONDA


def parts(text: str, root: Path) -> tuple[str, str, str]:
    """Path, extras and groups."""
    if not (root / text).is_file() and (match := _PARTS.fullmatch(text)):
        return match["path"], match["extras"] or "", match["groups"] or ""
    return text, "", ""


def _names(text: str) -> frozenset[str]:
    return frozenset(canonicalize_name(name.strip()) for name in text.split(",") if name.strip())
