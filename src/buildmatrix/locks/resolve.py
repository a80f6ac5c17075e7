"""Resolution: one lock per target, by `uv pip compile`, distinct questions in parallel."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from msgspec import Struct

from buildmatrix.base import toml
from buildmatrix.base.child import scratch
from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import shown
from buildmatrix.base.threads import side_by_side
from buildmatrix.facts.files import write_changed
from buildmatrix.facts.trees.base import reason
from buildmatrix.locks.lines import RequirementLine
from buildmatrix.locks.model import Lock
from buildmatrix.locks.plan import (
    INDEX_PROJECT,
    ResolvedNode,
    UvPlan,
    first_plan,
    index_of,
    is_from_its_index,
    read_graph,
    refine,
    torch_backend,
)
from buildmatrix.locks.pylock import Origin, document, read_lock
from buildmatrix.locks.requirement_lines import applies
from buildmatrix.locks.selection import marker_environment
from buildmatrix.locks.status import current, unused_locks
from buildmatrix.locks.taken import take
from buildmatrix.locks.target_requirements import Question, group_questions, question
from buildmatrix.locks.uv import Uv, compile_arguments, explain_failure, find_uv, project_text
from buildmatrix.matrix.model import Spec, Target

# Calls of `uv pip compile`


#: The generated file that requires twins.
TWINS = "buildmatrix-twins.in"


class Compiler(Struct, frozen=True):
    """Resolves one target."""

    uv: Uv
    root: Path
    target: Target
    #: Scratch space of its own.
    folder: Path
    flags: Sequence[str]
    #: Index options of the target's requirements files.
    options: Sequence[str] = ()
    #: The Python that builds.
    builder: str | None = None

    def graph(
        self, plan: UvPlan, preferred: Mapping[str, str], *, explore: bool = False
    ) -> Mapping[str, ResolvedNode]:
        """Resolve, with `preferred` versions if they fit; raises `UndecidedError` if uv cannot.

        `explore` opens the target's explicit indexes to all distributions and searches them first.
        """
        indexes = sorted(set(self.target.index.values())) if explore else []
        # uv prefers the versions in its present output file.
        resolved = self._write_file("resolved.txt", _format_pins(preferred))
        self._run(
            plan,
            "--format=requirements.txt",
            "--annotation-style=split",
            "--emit-index-annotation",
            f"--output-file={resolved}",
            *(["--index-strategy=unsafe-first-match"] if indexes else []),
            *(f"--index={url}" for url in indexes),
        )
        return read_graph(resolved.read_text())

    def pylock(self, plan: UvPlan, graph: Mapping[str, ResolvedNode]) -> str:
        """Return the resolution `graph` as PEP 751 text with hashes."""
        pins = {name: node.version for name, node in graph.items() if node.version is not None}
        pylock = self.folder / "pylock.toml"
        constraints = self._write_file("pins.txt", _format_pins(pins))
        self._run(
            plan, "--format=pylock.toml", f"--output-file={pylock}", f"--constraints={constraints}"
        )
        text = pylock.read_text()
        locked = {package["name"] for package in toml.loads(text).get("packages", [])}
        if locked != set(graph):
            raise UndecidedError(
                f"{self.target.id}: the index changed while it was read; run this again."
            )
        return text

    def _run(self, plan: UvPlan, *flags: str) -> None:
        target = self.target
        arguments = [
            *compile_arguments(target, torch_backend(target), (*self.flags, *flags)),
            *([f"--python={self.builder}"] if self.builder else []),
            *(f"--extra={extra}" for extra in target.extras),
            *(f"--no-binary={name}" for name in target.no_binary),
        ]
        if plan.excluded:
            excluded = self._write_file("excluded.txt", sorted(plan.excluded))
            arguments.append(f"--excludes={excluded}")
        # uv requires a source, even for a target without requirements.
        sources = [
            *target.requirements,
            str(self._write_file(TWINS, [t.requirement for t in plan.twins])),
        ]
        if target.pyproject is not None:
            sources.append(target.pyproject)
        if plan.bound:
            sources.append(str(self._write_file("pyproject.toml", [_make_project(plan.bound)])))
        process = self.uv.run([*arguments, "--", *sources], self.root, self.options)
        if process.returncode != 0:
            raise explain_failure(target, process.stderr)

    def _write_file(self, name: str, lines: Sequence[str]) -> Path:
        path = self.folder / name
        try:
            path.write_text("".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise UndecidedError(
                f"{self.target.id}: {path} cannot be written: {reason(error)}."
            ) from error
        return path


def _format_pins(versions: Mapping[str, str]) -> list[str]:
    return [f"{name}=={versions[name]}" for name in sorted(versions)]


def _make_project(bound: Mapping[str, str]) -> str:
    """Return a `pyproject.toml` that ties distributions to explicit indexes."""
    names = {url: f"index-{number}" for number, url in enumerate(sorted(set(bound.values())))}
    indexes = [{"name": name, "url": url, "explicit": True} for url, name in names.items()]
    sources = {name: names[url] for name, url in bound.items()}
    return project_text(sources, {"index": indexes}, sorted(bound), INDEX_PROJECT)


#: Real targets need one to three.
_ROUNDS = 10
_PROJECT_ASKER = re.compile(r"\S+ \((.+)\)")


def lock_targets(
    spec: Spec,
    targets: Sequence[Target],
    *,
    upgrade: bool | Sequence[str],
    offline: bool,
    progress: Progress,
    jobs: int,
    timed: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> Mapping[str, Lock | BuildmatrixError]:
    """Bring the locks of `targets` up to date; return target → its lock or its error.

    A project's own lock is never resolved: the files of the target are taken from it. A lock that
    fits its inputs is only read. Any other is resolved again, and keeps its versions where they
    still fit: `upgrade` gives up those of all distributions (True) or of the named ones. `offline`
    resolves from uv's cache alone. Targets with equal questions share one resolution, and `jobs` of
    these run at a time. One resolution's error stops no other. `timed` returns a context for each
    target that is entered while it is locked.
    """
    results: dict[str, Lock | BuildmatrixError] = {}
    questions: list[Question] = []
    taken = [target for target in targets if target.committed_lock]

    def take_one(target: Target) -> Lock | BuildmatrixError:
        with timed(target.id):
            try:
                return take(spec.root, target, offline=offline, jobs=jobs, progress=progress)
            except BuildmatrixError as error:
                return error
            finally:
                progress.end(target.id)

    for target, outcome in zip(taken, side_by_side(take_one, taken, jobs, "lock"), strict=True):
        results[target.id] = outcome
    for target in targets:
        if target.id in results:
            continue
        try:
            present = "" if upgrade else current(spec, target)
            if isinstance(present, Lock):
                results[target.id] = present
            else:
                questions.append(question(spec.root, target, upgrade))
        except BuildmatrixError as error:
            results[target.id] = error
    for line in unused_locks(spec.root, [item.target for item in questions]):
        progress.note(line)
    flags = ["--offline"] if offline else []
    if upgrade is True:
        flags.append("--refresh")
    else:
        flags += [f"--refresh-package={name}" for name in upgrade or ()]

    def work(group: Sequence[Question]) -> Mapping[str, Lock | BuildmatrixError]:
        with ExitStack() as stack:
            for item in group:
                stack.enter_context(timed(item.target.id))
                stack.callback(progress.end, item.target.id)
            return _lock(spec.root, group, flags, progress)

    for answers in side_by_side(work, group_questions(questions), jobs, "lock"):
        results.update(answers)
    return {target.id: results[target.id] for target in targets}


def _lock(
    root: Path, group: Sequence[Question], flags: Sequence[str], progress: Progress
) -> Mapping[str, Lock | BuildmatrixError]:
    """Resolve once for targets with equal questions, and write the lock of each."""
    first, *others = group
    for other in others:
        progress.step(other.target.id, f"lock: shares the resolution of {first.target.id}")
    try:
        write = _resolve(find_uv(), root, first, flags, progress)
    except BuildmatrixError as error:
        return {item.target.id: _rename_error(error, first.target, item.target) for item in group}
    results: dict[str, Lock | BuildmatrixError] = {}
    for item in group:
        path = root / item.target.lock
        try:
            write_changed(path, write(item.inputs).encode())
            results[item.target.id] = read_lock(path)
        except BuildmatrixError as error:
            results[item.target.id] = error
    return results


def _resolve(
    uv: Uv, root: Path, question: Question, flags: Sequence[str], progress: Progress
) -> Callable[[Mapping[str, str]], str]:
    """Return the text of the locks that share a resolution, as a function of their inputs."""
    target, requirements = question.target, question.requirements
    environment = marker_environment(target)
    lines = [line for line in requirements.lines if applies(line, environment)]
    limits = [line for line in requirements.constraints if applies(line, environment)]
    with scratch("lock") as folder:
        builder = uv.interpreter(target.python, root)
        compiler = Compiler(uv, root, target, folder, flags, requirements.options, builder)
        first = first_plan(target, lines)
        plan, graph = settle(compiler, target, first, question.preferred, progress)
        progress.step(target.id, "lock: collecting hashes")
        body = compiler.pylock(plan, graph)
    check_indexes(target, graph)
    _check_hashes(target, body, [line for line in (*lines, *limits) if line.hashes])
    origins = {
        name: Origin(
            node.index, tuple(sorted(set(_iter_askers(node, node.via, plan, lines, root))))
        )
        for name, node in graph.items()
    }
    return lambda inputs: document(body, uv.version, inputs, origins)


def _rename_error(error: BuildmatrixError, resolved: Target, target: Target) -> BuildmatrixError:
    """Return the error of a resolution for `resolved`, in terms of `target`."""
    text = error.message.removeprefix(f"{resolved.id}: ")
    if target is resolved or text == error.message:
        return error
    return error.saying(f"{target.id}: {text}")


def settle(
    compiler: Compiler,
    target: Target,
    plan: UvPlan,
    preferred: Mapping[str, str],
    progress: Progress,
) -> tuple[UvPlan, Mapping[str, ResolvedNode]]:
    """Resolve and refine the plan until it holds."""
    for number in range(1, _ROUNDS + 1):
        progress.step(target.id, f"lock: resolving, round {number}")
        twins = {twin.name: twin.version for twin in plan.twins if twin.version is not None}
        explore = number == 1 and bool(target.index)
        graph = compiler.graph(plan, {**twins, **preferred}, explore=explore)
        refined = refine(plan, graph, target)
        if refined == plan and not explore:
            return plan, graph
        plan = refined
    raise UndecidedError(
        f"{target.id}: after {_ROUNDS} rounds the resolution still changes; name the members of "
        f"the {' and '.join(target.index)} family in a requirement file."
    )


def check_indexes(target: Target, graph: Mapping[str, ResolvedNode]) -> None:
    """Check that no member of an `index` family comes from elsewhere."""
    for name, node in graph.items():
        prescribed = index_of(name, target)
        if prescribed is None or node.version is None or is_from_its_index(node, target):
            continue
        raise UndecidedError(
            f"{target.id}: {name} would come from {shown(node.index or 'elsewhere')} instead of "
            f"{shown(prescribed)}; name it in a requirement file."
        )


def _check_hashes(target: Target, body: str, hashed: Sequence[RequirementLine]) -> None:
    """Check uv's lock `body` against the hashes of the user's lines; uv itself ignores them."""
    packages = {package["name"]: package for package in toml.loads(body).get("packages", [])}
    for line in hashed:
        package = packages.get(line.name, {})
        files = package.get("wheels") or [package[k] for k in ("sdist", "archive") if k in package]
        for file in files:
            sha256 = file.get("hashes", {}).get("sha256", "none")
            if sha256 not in line.hashes:
                name = file.get("name") or posixpath.basename(file.get("url", line.name))
                raise UndecidedError(
                    f"{target.id}: {line}: the index has {name} with sha256 {sha256}, which this "
                    "line does not allow; add that hash if you trust the file, or ask for another "
                    "version."
                )


def _iter_askers(
    node: ResolvedNode,
    askers: Sequence[str],
    plan: UvPlan,
    lines: Sequence[RequirementLine],
    root: Path,
) -> Iterator[str]:
    """Yield `askers` (see `ResolvedNode.via`) as in `Package.via`: names, and `file:line`."""
    for asker in askers:
        project = _PROJECT_ASKER.fullmatch(asker)
        if asker.startswith(("-c ", INDEX_PROJECT)):
            continue
        if asker.startswith("-r ") and posixpath.basename(asker) == TWINS:
            for twin in plan.twins:
                if twin.name == node.name:
                    yield from _iter_askers(node, twin.asked_by, plan, lines, root)
        elif asker.startswith("-r ") or project is not None:
            name = project[1] if project else asker.removeprefix("-r ")
            file = posixpath.normpath(os.path.relpath(root / name, root))
            places = [str(line) for line in lines if (line.file, line.name) == (file, node.name)]
            yield from places or [file]
        else:
            yield asker
