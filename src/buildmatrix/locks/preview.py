"""Preview of a target's resolution, with nothing written and nothing built.

As in `locks.resolve`, with three differences. uv runs in a folder of its own, with only those
settings of the project that affect the resolution. Source code is never run, not even for its
metadata: distributions that need a build are left out of the resolution and named. And all inputs
of a resolution are one value, so that targets with equal ones share it.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.child import scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.parsing import parse_requirement, parse_version
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import without_login
from buildmatrix.base.threads import prepare_type
from buildmatrix.base.toml import string, tables
from buildmatrix.facts.trees.base import reason
from buildmatrix.locks.lines import RequirementLine, expand_variables, format_extras
from buildmatrix.locks.lookup import Recent, local_state
from buildmatrix.locks.model import Package
from buildmatrix.locks.plan import (
    INDEX_PROJECT,
    ResolvedNode,
    Twin,
    UvPlan,
    first_plan,
    index_of,
    torch_backend,
)
from buildmatrix.locks.pylock import entries_of
from buildmatrix.locks.requirement_lines import RequirementSet, applies
from buildmatrix.locks.resolve import TWINS, Compiler, check_indexes, settle
from buildmatrix.locks.selection import marker_environment, python_platform
from buildmatrix.locks.uv import (
    REQUEST_PROJECT,
    NeedsBuilding,
    NoSolution,
    Uv,
    compile_arguments,
    project_text,
)
from buildmatrix.matrix.model import Target

#: Format of cached resolutions.
_SCHEMA = 2
#: The generated file with the requirements.
REQUEST_FILE = "asked.in"
#: Maximum distributions of one resolution that exist as source code only.
_MOST_SOURCES = 30


class PreviewedResolution(Struct, frozen=True):
    """uv's answer."""

    #: PEP 751.
    body: str
    nodes: Mapping[str, ResolvedNode]
    twins: tuple[Twin, ...] = ()
    #: Distributions that an installer would build. Their requirements are unknown.
    sources: tuple[str, ...] = ()


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_RESOLUTION = msgspec.json.Decoder(prepare_type(PreviewedResolution))


def request_key(uv: Uv, target: Target, requirements: RequirementSet) -> str:
    """Return a key of all inputs of a resolution, which is equal for equal answers.

    Raises errors of `first_plan`.
    """
    environment = marker_environment(target)
    first_plan(target, [line for line in requirements.lines if applies(line, environment)])
    lines, constraints = (
        _format_requirements(requirements.lines, target),
        _format_requirements(requirements.constraints, target),
    )
    addresses = list(target.index.values())
    for line in (*lines, *constraints):
        addresses += line.partition(" @ ")[2:] if " @ file:" in line else []
    content = [
        uv.version,
        local_state(os.environ, requirements.settings, requirements.options, addresses),
        target.python,
        python_platform(target),
        torch_backend(target),
        target.index,
        target.replace,
        sorted(target.drop),
        lines,
        constraints,
        list(dict.fromkeys(requirements.options)),
        requirements.bound,
        requirements.settings,
        requirements.prerelease,
    ]
    # uv replaces variables in addresses: other values are another request.
    text = expand_variables(json.dumps([_SCHEMA, *content], sort_keys=True, default=str))
    return hashlib.sha256(text.encode()).hexdigest()


def resolve(
    uv: Uv,
    target: Target,
    requirements: RequirementSet,
    recent: Recent,
    progress: Progress,
    *,
    offline: bool,
) -> PreviewedResolution:
    """Resolve the requirements of `target`, or find the result among recent resolutions.

    Raises `UndecidedError` if uv cannot, with uv's reason in terms of the target.
    """
    key = request_key(uv, target, requirements)
    answer = recent.get(key)
    if answer is not None:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return _RESOLUTION.decode(answer)
    with scratch("audit") as folder:
        session = _Session(uv, target, requirements, folder, offline)
        resolution = _resolve(session, target, progress)
    recent.put(key, msgspec.json.encode(resolution))
    return resolution


def _resolve(session: _Session, target: Target, progress: Progress) -> PreviewedResolution:
    #: Distribution → the older version that has a wheel, where there is one.
    unbuilt: dict[str, str | None] = {}
    doubted, cleared = "", set[str]()
    while True:
        try:
            compiler, plan, graph = session.settle(unbuilt, progress)
            node = graph.get(doubted)
            fits = node is None or node.version != unbuilt[doubted]
        except NeedsBuilding as error:
            if error.name in unbuilt or len(unbuilt) >= _MOST_SOURCES:
                raise
            unbuilt[error.name] = None
            continue
        except NoSolution:
            if not doubted:
                raise
            fits = False
        if not fits:
            # Its newest release is out of bounds: an installer takes the wheel after all.
            cleared.add(doubted)
            del unbuilt[doubted]
            doubted = ""
            continue
        newer = session.newer_sources(graph, {*unbuilt, *cleared})
        if not newer:
            break
        if len(unbuilt) >= _MOST_SOURCES:
            raise UndecidedError(
                f"{target.id}: more than {_MOST_SOURCES} distributions would be built from source, "
                f"{min(newer)} among them; their requirements are unknown."
            )
        # One at a time: if uv finds no solution, the cause is then known.
        doubted = min(newer)
        unbuilt[doubted] = newer[doubted]
    progress.step(target.id, "lock: collecting hashes")
    body = compiler.pylock(plan, graph)
    check_indexes(session.target, graph)
    return PreviewedResolution(
        without_login(body), graph, plan.twins, tuple(sorted({*unbuilt} & {*graph}))
    )


class _Session:
    """One resolution in a folder of its own."""

    def __init__(
        self, uv: Uv, target: Target, requirement_set: RequirementSet, folder: Path, offline: bool
    ) -> None:
        self._uv = uv
        self._requirement_set = requirement_set
        self._options = list(dict.fromkeys(requirement_set.options))
        self._folder = folder
        requirements = [
            parse_requirement(text) for text in _format_requirements(requirement_set.lines, target)
        ]
        self._lines = [
            RequirementLine(REQUEST_FILE, 0, canonicalize_name(requirement.name), requirement)
            for requirement in requirements
        ]
        self._flags = [
            f"--constraints={folder / 'limits.txt'}",
            *(["--offline"] if offline else []),
            *(["--prerelease=allow"] if requirement_set.prerelease else []),
        ]
        # uv resolves only these requirements; the rest of the target does not matter.
        self.target = replace(
            target,
            requirements=(str(folder / REQUEST_FILE),),
            pyproject=str(folder / "pyproject.toml"),
            extras=(),
            no_binary=(),
        )
        (folder / "uv").mkdir()
        _write(folder / "limits.txt", _format_requirements(requirement_set.constraints, target))

    def settle(
        self, unbuilt: Collection[str], progress: Progress
    ) -> tuple[Compiler, UvPlan, Mapping[str, ResolvedNode]]:
        """Resolve with wheels alone, except for `unbuilt`: those count as requiring nothing."""
        bound = [line for line in self._lines if line.name in self._requirement_set.bound]
        free = [str(line.requirement) for line in self._lines if line not in bound]
        _write(self._folder / REQUEST_FILE, [*self._options, *free])
        self._write_project(self._folder, [str(line.requirement) for line in bound], unbuilt)
        flags = [
            *self._flags,
            "--only-binary=:all:",
            *(f"--no-binary={name}" for name in sorted(unbuilt)),
        ]
        compiler = Compiler(
            self._uv,
            self._folder,
            self.target,
            self._folder / "uv",
            flags,
            self._options,
            self._uv.interpreter(self.target.python, self._folder.parent),
        )
        plan, graph = settle(
            compiler, self.target, first_plan(self.target, self._lines), {}, progress
        )
        return compiler, plan, graph

    def newer_sources(
        self, graph: Mapping[str, ResolvedNode], settled: Collection[str]
    ) -> dict[str, str]:
        """Return distributions whose newest release has no wheel, with the chosen older version.

        An installer builds the newest, and a resolution without builds would hide that. Without
        dependencies uv needs no metadata, so nothing is built for this.
        """
        names = [
            name
            for name, node in graph.items()
            if node.version is not None and name not in settled and not index_of(name, self.target)
        ]
        named = {line.name for line in self._lines if line.name in names}
        requested = [str(line.requirement) for line in self._lines if line.name in named]
        folder = self._folder / "newest"
        folder.mkdir(exist_ok=True)
        plain = [name for name in names if name not in named]
        _write(folder / REQUEST_FILE, [*self._options, *requested, *plain])
        self._write_project(folder, [], ())
        flags = ["--no-deps", "--format=pylock.toml", *self._flags]
        arguments = compile_arguments(self.target, torch_backend(self.target), flags)
        sources = [REQUEST_FILE, "pyproject.toml"]
        process = self._uv.run([*arguments, "--", *sources], folder, self._options)
        if process.returncode != 0:
            return {}  # The index changed meanwhile; collecting the hashes says so.
        lock, _ = entries_of(process.stdout.encode(), folder, "uv's answer")
        older: dict[str, str] = {}
        for package in lock.packages:
            chosen = graph[package.name].version if package.name in graph else None
            if (
                package.source_only
                and chosen
                and parse_version(package.version) > parse_version(chosen)
            ):
                older[package.name] = chosen
        return older

    def _write_project(self, folder: Path, lines: list[str], unbuilt: Collection[str]) -> None:
        settings = dict(self._requirement_set.settings)
        metadata = tables(settings.get("dependency-metadata"))
        described = {canonicalize_name(string(entry.get("name"))) for entry in metadata}
        nothing = [
            {"name": name, "requires-dist": []} for name in sorted(unbuilt) if name not in described
        ]
        if nothing:
            settings["dependency-metadata"] = [*metadata, *nothing]
        text = project_text(self._requirement_set.bound, settings, lines)
        _write(folder / "pyproject.toml", [text.rstrip("\n")])


def _format_requirements(lines: Iterable[RequirementLine], target: Target) -> list[str]:
    """Return the requirements that apply to `target`, without markers, sorted."""
    environment = marker_environment(target)
    texts = set()
    for requirement in (line.requirement for line in lines if applies(line, environment)):
        version = f" @ {requirement.url}" if requirement.url else str(requirement.specifier)
        texts.add(f"{requirement.name}{format_extras(requirement.extras)}{version}")
    return sorted(texts)


def _write(path: Path, lines: Sequence[str]) -> None:
    try:
        path.write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise UndecidedError(f"{path} cannot be written: {reason(error)}.") from error


# Packages


def packages_of(
    resolution: PreviewedResolution, target: Target, requirements: RequirementSet
) -> tuple[Package, ...]:
    """Return the packages of a resolution, with their requirement lines; sorted by name."""
    environment = marker_environment(target)
    lines = [line for line in requirements.lines if applies(line, environment)]
    hashes: dict[str, set[str]] = {}
    for line in (*lines, *requirements.constraints):
        if line.hashes:
            hashes.setdefault(line.name, set()).update(line.hashes)
    built = {*target.no_binary, *requirements.no_binary}
    packages: dict[str, Package] = {}
    answer = entries_of(resolution.body.encode(), Path("pylock.toml"), "the resolution")[0]
    for package in answer.packages:
        node = resolution.nodes.get(package.name)
        package = replace(
            package,
            place="",
            index=without_login(node.index) if node and node.index else package.index,
            via=tuple(sorted(set(_iter_askers(node, resolution, target, lines)))) if node else (),
        )
        if package.name in {*built, *resolution.sources} or ":all:" in built:
            package = replace(package, wheels=(), source_only=True)
        packages[package.name] = _filter_wheels(package, hashes.get(package.name))
    dropped = set(map(canonicalize_name, target.drop))
    for unbuilt in requirements.unbuilt:
        if unbuilt.name not in dropped and applies(unbuilt, environment):
            packages[unbuilt.name] = Package(
                unbuilt.name, "", None, (), True, (unbuilt.place,), source=unbuilt.source
            )
    return tuple(packages[name] for name in sorted(packages))


def _filter_wheels(package: Package, hashes: set[str] | None) -> Package:
    """Return a package with the wheels that the user's lines allow."""
    if not hashes or not package.wheels:
        return package
    wheels = tuple(wheel for wheel in package.wheels if wheel.sha256 in hashes)
    if wheels:
        return replace(package, wheels=wheels)
    pin = f"{package.name} {package.version}"
    unknown = f"the index has {pin} with other hashes than the requirement allows"
    return replace(package, wheels=(), unknown=unknown)


def _iter_askers(
    node: ResolvedNode,
    resolution: PreviewedResolution,
    target: Target,
    lines: Sequence[RequirementLine],
) -> Iterator[str]:
    """Yield askers in the form of `Package.via`: names, and `file:line`."""

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
