"""SOURCE of `audit`: what is declared somewhere and not installed yet."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from buildmatrix.errors import UsageError
from buildmatrix.locks.committed import is_lock
from buildmatrix.locks.environment import is_environment
from buildmatrix.locks.model import LeftOut
from buildmatrix.parsing import parse_requirement
from buildmatrix.phrases import listing
from buildmatrix.text import shown
from buildmatrix.urls import path_in, remember

#: What a SOURCE can be said to be.
KINDS = ("requirements", "pyproject", "lock", "pypi", "wheel")
#: What `scan` reads, and `audit` does not.
#: Extras and groups that a sentence names.
_NAMED = 8
_INSTALLED = ("dir", "docker", "oci", "tar", "report")
_LOCKS_OF_CONDA = ("conda-lock.yml", "conda-lock.yaml", "pixi.lock", "pixi.toml")
_PARTS = re.compile(r"(?P<path>.+?)(?:\[(?P<extras>[^\[\]]*)\])?(?::(?P<groups>[A-Za-z0-9._,-]+))?")
_WISH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*(===?|~=|!=|[<>]=?|@(?!sha256:)).*")


@dataclass(frozen=True, slots=True)
class Asked:
    """One SOURCE."""

    kind: str
    #: Path, requirement or URL, without extras and groups.
    name: str
    #: Normalised names; only what has them can be asked for them.
    extras: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    #: Groups that are a default of the project, and not wanted: `uv.lock:-dev`.
    without: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind}:{shown(self.name)}"

    @property
    def is_file(self) -> bool:
        """Whether it names a file of this machine."""
        return self.kind != "pypi" and "://" not in self.name


def parse(text: str, root: Path) -> Asked:
    """Recognise a SOURCE, said outright (`requirements:`, `lock:`, ...) or by its looks.

    `pyproject.toml[gpu,web]:dev` asks for two extras and a dependency group; `uv.lock` and
    `poetry.lock` take the same, and `uv.lock:-dev` leaves a default group out. Relative paths start
    from `root`. Raises `UsageError`.
    """
    if not text.strip():
        raise UsageError("SOURCE is empty; name a requirements file, a lock or pypi:NAME==VERSION")
    remember(text)
    kind, colon, rest = text.partition(":")
    if colon and kind in _INSTALLED:
        raise UsageError(
            f"{text} is something installed, and audit reads what is declared; "
            f"run `buildmatrix scan {text}`"
        )
    if colon and kind in KINDS:
        if not rest.strip():
            raise UsageError(f"{text} names nothing; write {kind}: and what to read")
        return _pypi(rest) if kind == "pypi" else _file(rest, kind, root)
    if (root / text).is_dir():
        raise UsageError(
            f"{text} is a folder; name the requirements file, the project file or the lock in it, "
            f"or run `buildmatrix scan {text}` for what is installed there"
        )
    return _file(text, None, root)


def _pypi(text: str) -> Asked:
    try:
        requirement = parse_requirement(text)
    except InvalidRequirement as error:
        why = str(error).splitlines()[0]
        raise UsageError(
            f"pypi:{text} is no requirement: {why}; write pypi:NAME==VERSION"
        ) from error
    if requirement.url is not None:
        raise UsageError(f"pypi:{text} names an address; write pypi:NAME==VERSION, or wheel:URL")
    return Asked("pypi", text.strip())


def _file(text: str, kind: str | None, root: Path) -> Asked:
    if "://" in text:
        if kind in (None, "wheel") and path_in(text).endswith(".whl"):
            # uv takes a scheme in capitals for the begin of a path.
            scheme, mark, rest = text.partition("://")
            return Asked("wheel", scheme.lower() + mark + rest)
        raise UsageError(f"{shown(text)} cannot be read from the network; save it as a file first")
    path, extras, groups = _parts(text, root)
    if posixpath.basename(path) in _LOCKS_OF_CONDA:
        raise UsageError(
            f"{text} is a lock of conda or pixi, which audit does not read; create the environment "
            "and run `buildmatrix scan dir:PREFIX`, or audit its environment.yml"
        )
    named = kind or looks(text, root)
    if named is None:
        raise _unrecognised(path, text, root)
    if named == "wheel" and not path.endswith(".whl"):
        raise UsageError(f"{text} is no wheel: the name of one ends in .whl")
    if named == "pypi":
        return _pypi(text)
    if (extras or groups) and named not in ("pyproject", "lock"):
        raise UsageError(f"{text}: extras and groups belong to a pyproject.toml or to a lock")
    asked = _names(groups)
    without = frozenset(name for name in asked if name.startswith("-"))
    return Asked(
        named, path, _names(extras), asked - without, frozenset(name[1:] for name in without)
    )


def looks(text: str, root: Path = Path()) -> str | None:
    """The kind that the name of a file, or a requirement, says by itself; None for neither.

    A file need not be there: who names one does not mean an image.
    """
    name = posixpath.basename(_parts(text, root)[0])
    if name.endswith(".whl"):
        return "wheel"
    if is_lock(name):
        return "lock"
    if name == "pyproject.toml":
        return "pyproject"
    if name.endswith((".txt", ".in")) or is_environment(name):
        return "requirements"
    return "pypi" if _WISH.fullmatch(text) else None


def _unrecognised(path: str, text: str, root: Path) -> UsageError:
    name = posixpath.basename(path)
    if name in ("Pipfile", "setup.py", "setup.cfg"):
        hint = "audit Pipfile.lock" if name == "Pipfile" else "audit a requirements file or a lock"
        return UsageError(f"{text} does not say what is installed before it runs; {hint}")
    if not (root / path).exists():
        return UsageError(f"there is no {text}; name a file, or write pypi:NAME==VERSION")
    return UsageError(
        f"{text} is nothing that audit recognises; write what it is: "
        f"{', '.join(f'{kind}:' for kind in KINDS)}"
    )


def _parts(text: str, root: Path) -> tuple[str, str, str]:
    """Path, extras and groups."""
    if not (root / text).is_file() and (found := _PARTS.fullmatch(text)):
        return found["path"], found["extras"] or "", found["groups"] or ""
    return text, "", ""


def _names(text: str) -> frozenset[str]:
    return frozenset(canonicalize_name(one.strip()) for one in text.split(",") if one.strip())


def parts_left_out(out: LeftOut, label: str) -> str:
    """What of the file `label` is not looked at, and how it is asked for; empty for nothing."""
    kinds = (("extras", out.extras), ("groups", out.groups))
    parts = [
        f"{kind} {listing([f'`{name}`' for name in names], _NAMED)}"
        for kind, names in kinds
        if names
    ]
    if not parts:
        return ""
    extras, groups = out.more_extras, out.more_groups
    more = "at more of it"
    if not {*extras}.intersection(out.extras) and not {*groups}.intersection(out.groups):
        # All that is left excludes what was asked for.
        extras, groups, more = out.extras[:1], () if out.extras else out.groups[:1], "there instead"
    if len(extras) + len(groups) > _NAMED:
        # Nobody reads all of them: an example shows how.
        extras, groups = out.extras[:1], out.groups[:1]
    wider = label + (f"[{','.join(extras)}]" if extras else "")
    wider += f":{','.join(groups)}" if groups else ""
    return f"not audited of {label}: {'; '.join(parts)}. `{wider}` looks {more}"


def label_of(path: str, root: Path) -> str:
    """What a file is called: as seen from `root` where it lies below it, else as it was given."""
    try:
        relative = os.path.relpath(root / path, root)
    except ValueError:
        return path
    outside = relative.startswith("..") and Path(path).is_absolute()
    return path if outside else posixpath.normpath(relative)
