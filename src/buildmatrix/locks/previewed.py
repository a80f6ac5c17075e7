"""The packages of a resolution that was made without writing a lock (`locks.preview`)."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.locks.compile import TWINS
from buildmatrix.locks.graph import ResolvedNode
from buildmatrix.locks.lines import RequirementLine
from buildmatrix.locks.model import Package
from buildmatrix.locks.plan import INDEX_PROJECT
from buildmatrix.locks.platform import marker_environment
from buildmatrix.locks.preview import REQUEST_FILE, PreviewedResolution
from buildmatrix.locks.pylock_reader import entries_of
from buildmatrix.locks.requirement_set import RequirementSet, applies
from buildmatrix.locks.uv_errors import REQUEST_PROJECT
from buildmatrix.spec.model import Target
from buildmatrix.text import without_login


def packages_of(
    resolution: PreviewedResolution, target: Target, requirements: RequirementSet
) -> tuple[Package, ...]:
    """The packages of a resolution, with the lines that asked for them; sorted by name."""
    environment = marker_environment(target)
    lines = [line for line in requirements.lines if applies(line, environment)]
    hashes: dict[str, set[str]] = {}
    for line in (*lines, *requirements.constraints):
        if line.hashes:
            hashes.setdefault(line.name, set()).update(line.hashes)
    built = {*target.no_binary, *requirements.no_binary}
    packages: dict[str, Package] = {}
    for package in _read(resolution.body):
        node = resolution.nodes.get(package.name)
        package = dataclasses.replace(
            package,
            index=without_login(node.index) if node and node.index else package.index,
            via=tuple(sorted(set(_askers(node, resolution, target, lines)))) if node else (),
        )
        if package.name in {*built, *resolution.sources} or ":all:" in built:
            package = dataclasses.replace(package, wheels=(), source_only=True)
        packages[package.name] = _allowed(package, hashes.get(package.name))
    dropped = set(map(canonicalize_name, target.drop))
    for unbuilt in requirements.unbuilt:
        if unbuilt.name not in dropped and applies(unbuilt, environment):
            packages[unbuilt.name] = Package(
                unbuilt.name, "", None, (), True, (unbuilt.place,), source=unbuilt.source
            )
    return tuple(packages[name] for name in sorted(packages))


def _allowed(package: Package, hashes: set[str] | None) -> Package:
    """A package with those of its wheels that the user's lines allow."""
    if not hashes or not package.wheels:
        return package
    wheels = tuple(wheel for wheel in package.wheels if wheel.sha256 in hashes)
    if wheels:
        return dataclasses.replace(package, wheels=wheels)
    pin = f"{package.name} {package.version}"
    unknown = f"the index has {pin} with other hashes than the requirement allows"
    return dataclasses.replace(package, wheels=(), unknown=unknown)


def _askers(
    node: ResolvedNode,
    resolution: PreviewedResolution,
    target: Target,
    lines: Sequence[RequirementLine],
) -> Iterator[str]:
    """Askers as `Package.via` has them: names, and `file:line`."""

    def expand(askers: Sequence[str], names: Collection[str]) -> Iterator[str]:
        for asker in askers:
            if asker.startswith((INDEX_PROJECT, "-c ")):
                continue
            if asker.startswith("-r ") and posixpath.basename(asker) == TWINS:
                originals = {
                    canonicalize_name(name)
                    for name, twin in target.replace.items()
                    if canonicalize_name(twin) in names
                }
                for twin in resolution.twins:
                    if twin.name in names:
                        yield from expand(twin.asked_by, originals)
            elif asker == REQUEST_FILE or asker.startswith(("-r ", REQUEST_PROJECT)):
                yield from (str(line) for line in lines if line.name in names)
            else:
                yield asker

    yield from expand(node.via, {node.name})


def _read(body: str) -> tuple[Package, ...]:
    if not body:
        return ()
    lock, _ = entries_of(body.encode(), Path("pylock.toml"), "the resolution", lambda _: True)
    return tuple(dataclasses.replace(package, place="") for package in lock.packages)
