"""Fixes that are advice and never written: removed modules, and builds from source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.utils import InvalidSdistFilename
from packaging.version import InvalidVersion

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.parsing import parse_sdist_name, parse_version
from buildmatrix.commands.audit import Results
from buildmatrix.judge.model import Finding, Trial
from buildmatrix.locks.index.model import WheelFacts
from buildmatrix.locks.index.reading import Reader
from buildmatrix.locks.model import Package
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.net.machine_indexes import configured
from buildmatrix.sources.questions import Listing
from buildmatrix.sources.resolved import Resolved

# Removed modules, and the code that imports them.
#
# File lists of wheels have the names of modules. Their imports are read from the project's sources
# and from the Python code of the remaining wheels.


#: Bytes of one wheel that may be read for its imports.
MOST_OF_ONE = 5_000_000
#: Source files of a project that are looked at, bytes of one, and folders that are skipped.
MOST_FILES = 5_000
LARGEST = 1 << 20
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__", "build", "dist"})
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([^#\n;]+))", re.M)


def modules(facts: WheelFacts) -> frozenset[str]:
    """The modules that a wheel brings: at the top, and those of namespaces below it."""
    paths = [_installed(member.path) for member in facts.members]
    python = [path for path in paths if path is not None and path.endswith((".py", ".so", ".pyd"))]
    packages = {path.removesuffix("/__init__.py") for path in python if "/__init__." in path}
    names: set[str] = set()
    for path in python:
        parts = path.split("/")
        if len(parts) == 1:
            names.add(parts[0].partition(".")[0])
        elif parts[0] in packages or len(parts) == 2:
            names.add(parts[0])
        else:
            # A namespace: `nvidia.nccl`, `google.protobuf`.
            names.add(f"{parts[0]}.{parts[1]}")
    return frozenset(name for name in names if all(map(str.isidentifier, name.split("."))))


def _installed(path: str) -> str | None:
    """Return the path of a member below site-packages; None if it lies elsewhere."""
    top, slash, below = path.partition("/")
    if top.endswith(".dist-info"):
        return None
    if top.endswith(".data"):
        kind, _, below = below.partition("/")
        return below if kind in ("purelib", "platlib") else None
    return path if slash or "." in top else None


class ChangedModules:
    """One target before and after a change."""

    def __init__(self, before: Resolved, after: Resolved, reader: Reader) -> None:
        """`reader` has read the wheels of both already."""
        self._reader = reader
        self._target = before.target
        self._after = after.lock.packages
        remaining = {package.name for package in after.lock.packages}
        removed = [item for item in before.lock.packages if item.name not in remaining]
        self._removed = {item.name: item for item in removed}
        still = frozenset[str]().union(*(self._modules(item) for item in after.lock.packages))
        #: Distribution that goes → its modules that nothing else brings.
        self.lost = {item.name: self._modules(item) - still for item in removed}
        self._had = {item.name: self._modules(item) for item in removed}

    def loses_all(self, name: str) -> str | None:
        """A module of a distribution that goes, where none of them remains."""
        lost = self.lost.get(name, frozenset())
        return min(lost) if lost and lost == self._had[name] else None

    def importer(self, root: Path) -> tuple[str, str] | None:
        """A known importer of a lost module, and the module; None for no importer."""
        lost = frozenset[str]().union(*self.lost.values())
        if not lost:
            return None
        return next(self._in_wheels(lost), None) or next(_in_sources(root, lost), None)

    def _in_wheels(self, lost: frozenset[str]) -> Iterator[tuple[str, str]]:
        askers = {name for item in self._removed.values() for name in item.via}
        for package in self._after:
            facts = self._facts(package, deeper=package.name in askers)
            for statement in facts.inventory.python_imports if facts is not None else ():
                if statement.how != "tried" and (name := _find_parent(statement.module, lost)):
                    yield f"{package.name} {package.version}", name

    def _modules(self, package: Package) -> frozenset[str]:
        facts = self._facts(package)
        return modules(facts) if facts is not None else frozenset()

    def _facts(self, package: Package, *, deeper: bool = False) -> WheelFacts | None:
        wheel = choose_wheel(package, self._target)
        if wheel is None or not wheel.url:
            return None
        try:
            if deeper:
                return self._reader.read(wheel, "heads", most=MOST_OF_ONE)
            return self._reader.recall_facts(wheel, "listing")
        except UndecidedError:
            return None


def _in_sources(root: Path, lost: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Places of a project's sources that import one of the modules `lost`."""
    for count, path in enumerate(_walk_python_files(root)):
        if count == MOST_FILES:
            return
        try:
            with path.open("rb") as file:
                text = file.read(LARGEST).decode("utf-8", "replace")
        except OSError:
            continue
        for match in _IMPORT.finditer(text):
            several = [name.strip().partition(" ")[0] for name in (match[2] or "").split(",")]
            for name in [match[1]] if match[1] else several:
                if module := _find_parent(name, lost):
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path.relative_to(root).as_posix()}:{line}", module


def _walk_python_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not Path(folder, name, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def _find_parent(dotted: str, names: Iterable[str]) -> str | None:
    """Return the element of `names` that a dotted name is or lies below."""
    return next((name for name in names if f"{dotted}.".startswith(f"{name}.")), None)


# Builds from source: looked up, never tried.
#
# A build runs a package's code from an index on this machine, so it is only known whether a source
# exists.


#: `Fix.kind` of those.
KIND = "rebuild"


def look_up(
    findings: Iterable[Finding], results: Results, listing: Listing | None
) -> tuple[Finding, ...]:
    """The findings, with what is known of the sources that their fixes would build.

    `listing` asks an index; None asks none.
    """
    packages = {
        (resolved.target.id, package.name): package
        for resolved in results
        if isinstance(resolved, Resolved)
        for package in resolved.lock.packages
    }
    trials: dict[tuple[str, str], Trial] = {}
    known = []
    for finding in findings:
        fix, package = finding.fix, packages.get((finding.target, finding.distribution or ""))
        if fix is None or fix.kind != KIND or finding.waived is not None or package is None:
            known.append(finding)
            continue
        key = package.name, package.version
        if key not in trials:
            trials[key] = _trial(package, listing)
        known.append(replace(finding, fix=replace(fix, tried=trials[key])))
    return tuple(known)


def _trial(package: Package, listing: Listing | None) -> Trial:
    pin = f"{package.name} {package.version}"
    if listing is None:
        return Trial(None, f"whether there is a source of {pin} is not known offline")
    indexes = [package.index] if package.index else [item.url for item in configured(os.environ)]
    failure = ""
    for index in indexes:
        try:
            files = listing(index, package.name)
        except UndecidedError as error:
            failure = error.message
            continue
        source = next(_find_source_files(files, package.version), None)
        if source is not None:
            return Trial(
                None, f"{source} is there, and building it runs its code, which is not done here"
            )
    if failure:
        return Trial(None, f"whether there is a source of {pin} is not known: {failure}")
    return Trial(False, f"there is no source of {pin} on its index")


def _find_source_files(files: Iterable[str], version: str) -> Iterator[str]:
    for name in files:
        try:
            _, parsed = parse_sdist_name(name)
            if parsed.public == parse_version(version).public:
                yield name
        except (InvalidSdistFilename, InvalidVersion):
            continue
