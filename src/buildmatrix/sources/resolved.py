"""Subjects of an audit: for each target, the distributions that would be installed.

A committed lock is used as it is. uv resolves everything else, for each target with that target's
Python, platform and indexes; equal questions are asked once. Only the cache is written, nothing is
built, and no code of the source runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.parsing import natural, parse_specifiers
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import listing
from buildmatrix.base.threads import side_by_side
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import unknown_backend
from buildmatrix.catalogue.releases import runtime_of_build
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.lines import format_extras
from buildmatrix.locks.lookup import Recent
from buildmatrix.locks.model import LeftOut, Lock, Staleness
from buildmatrix.locks.selection import PLATFORMS
from buildmatrix.locks.uv import NoSolution, find_uv
from buildmatrix.matrix.model import ANY, PLATFORM, Spec, Target, bare_target
from buildmatrix.sources.model import Declared
from buildmatrix.sources.parse import parse_declared
from buildmatrix.sources.questions import IndexQuestion, Questions

#: Backends that a source is held against where nothing says which ones matter.
BACKENDS = ("cuda", "rocm", "oneapi", "cpu")
#: `cuda12.8`: a backend and one of its runtimes.
_WITH_RUNTIME = re.compile(r"([a-z][a-z-]*?)(\d[0-9.]*)")
#: Pythons that a source is looked at with, where the running one is too old or too new for it.
_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def spec_targets(
    spec: Spec, globs: Sequence[str], subset: str | None, backends: Sequence[str]
) -> tuple[Target, ...]:
    """The targets of a specification that were asked for. Raises `UsageError` for none."""
    from buildmatrix.matrix.matrix import select

    targets = select(spec, globs, subset)
    if not backends:
        return targets
    chosen = tuple(t for t in targets if any(_is_of(t, backend) for backend in backends))
    for backend in backends:
        if not any(_is_of(target, backend) for target in targets):
            backend_names = ", ".join(dict.fromkeys(target.backend for target in targets))
            raise UsageError(
                f"{spec.path} has no target of backend {backend!r}; it has {backend_names}"
            )
    return chosen


def source_targets(
    spec: Spec | None,
    globs: Sequence[str],
    subset: str | None,
    backends: Sequence[str],
    catalogue_backends: Collection[str],
) -> tuple[Target, ...]:
    """The targets that a source is looked at for: what it would be in each of them.

    With a specification, one target for each backend and runtime of it (the newest Python, the
    first variant, linux/amd64 where there is one), with that target's indexes, replacements and
    images; or exactly those that `globs` and `subset` choose. `backends` narrows, and adds
    backends of the catalogue (`catalogue_backends`) that the specification does not have.
    """
    if spec is None or not spec.targets:
        if globs or subset:
            raise UsageError("--select and --subset need a specification; there is none here")
        return tuple(_bare(name, catalogue_backends) for name in backends or BACKENDS)
    # What reads a specification comes with it: a quarter of the start of a run that has none.
    from buildmatrix.matrix.matrix import select

    targets = select(spec, globs, subset)
    if not globs and subset is None:
        targets = _one_each(targets)
    if not backends:
        return targets
    chosen: dict[str, Target] = {}
    for name in backends:
        targets_of_backend = [target for target in targets if _is_of(target, name)] or [
            _bare(name, catalogue_backends)
        ]
        chosen |= {target.id: target for target in targets_of_backend}
    return tuple(chosen.values())


def choose_python(target: Target, python: str | None, requires_python: str) -> Target:
    """The target with a Python: the given one, its own, or one that `requires_python` allows.

    A target of a specification keeps its own. `requires_python` is a range of versions; empty for
    any. Of those in it the one nearest to the running Python is taken: a lock that was made with
    3.12 says `>=3.12`, and often has wheels for that one alone.
    """
    if python is not None:
        return replace(target, python=python)
    if target.python:
        return target
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        pythons = parse_specifiers(requires_python)
    except InvalidSpecifier:
        pythons = SpecifierSet()
    nearest = sorted(_PYTHONS, key=lambda version: abs(minor(version) - sys.version_info.minor))
    for version in (running, *nearest):
        if any(pythons.contains(f"{version}.{patch}") for patch in (0, 30)):
            return replace(target, python=version)
    return replace(target, python=running)


def minor(python: str) -> int:
    """Return the minor version that Pythons 3 are sorted by."""
    return int(python.partition(".")[2])


def check_python(python: str | None) -> None:
    """Raise `UsageError` unless the text is a minor version of Python 3."""
    if python is not None and not re.fullmatch(r"3\.\d{1,2}", python):
        raise UsageError(
            f"{python!r} is not a Python version; write its minor version, such as 3.12"
        )


def check_platform(platform: str | None) -> None:
    """Raise `UsageError` for a platform that no wheels can be locked for."""
    if platform is not None and platform not in PLATFORMS:
        raise UsageError(
            f"{platform!r} is not a platform that wheels can be chosen for; write "
            f"{' or '.join(PLATFORMS)}"
        )


def _is_of(target: Target, backend: str) -> bool:
    return backend in (target.backend, f"{target.backend}{target.runtime}")


def _one_each(targets: Sequence[Target]) -> tuple[Target, ...]:
    chosen: dict[tuple[str, str], Target] = {}
    for target in targets:
        key = target.backend, target.runtime
        best = chosen.get(key)
        if best is None or _rank(target) > _rank(best):
            chosen[key] = target
    return tuple(chosen.values())


def _rank(target: Target) -> tuple[bool, list[tuple[int, int | str]]]:
    return target.platform == PLATFORM, natural(target.python)


def _bare(name: str, catalogue_backends: Collection[str]) -> Target:
    backend, runtime = name, ANY
    if name not in catalogue_backends and (match := _WITH_RUNTIME.fullmatch(name)):
        backend, runtime = match[1], match[2].rstrip(".")
    if backend not in catalogue_backends:
        if (suggestion := _suggestion(name)) is not None:
            raise UsageError(f"there is no backend {name!r}; write {suggestion}")
        raise unknown_backend(name, catalogue_backends)
    return bare_target(name, backend, runtime)


def _suggestion(name: str) -> str | None:
    """The backend that somebody calls by another name, by that of an index, or misspells."""
    word = name.lower()
    entries = load().backends
    for backend, entry in entries.items():
        if word in entry.aliases:
            return backend
        if any(route.name == word for route in entry.indexes):
            runtime = runtime_of_build(word)
            return f"{backend}{runtime}" if runtime is not None else backend
    return next(iter(get_close_matches(word, entries, 1)), None)


# Extras and groups that are not audited


#: Extras and groups that a sentence names.
_NAMED = 8


def parts_left_out(out: LeftOut, label: str) -> str:
    """Return the unaudited parts of the file `label`, and how to request them; empty for none."""
    if out.environments:
        names = listing([f"`{name}`" for name in out.environments], _NAMED)
        return (
            f"not audited of {label}: environments {names}. `{label}[{out.environments[0]}]` looks "
            "there instead"
        )
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
        # An example shows how; a list of all would be too long.
        extras, groups = out.extras[:1], out.groups[:1]
    wider = label + format_extras(extras)
    wider += f":{','.join(groups)}" if groups else ""
    return f"not audited of {label}: {'; '.join(parts)}. `{wider}` looks {more}"


#: Resolutions at a time: each is a process of its own that mostly waits for an index.
JOBS = 4


class Resolved(Struct, frozen=True):
    """One target, and its resolved distributions."""

    target: Target
    lock: Lock
    #: Why the lock no longer fits its inputs; None where it does, or where that is not known.
    stale: Staleness | None
    #: Where the distributions come from: `uv.lock`, or `resolved from requirements.txt`.
    origin: str
    #: True if an index was asked: then another day may give another answer.
    is_asked: bool = True

    @property
    def left_out(self) -> str:
        """The parts of the source that were not selected, as a sentence; empty for none."""
        return parts_left_out(self.lock.left_out, self.target.lock_file)


class Unresolved(BuildmatrixError):
    """A target that cannot be resolved; its exit code is that of `error`."""

    def __init__(self, target: Target, error: BuildmatrixError) -> None:
        super().__init__(error.message, log=error.log)
        self.target = target
        self.error = error
        self.exit_code = error.exit_code


def resolve_sources(
    sources: Sequence[str],
    spec: Spec | None,
    *,
    backends: Sequence[str] = (),
    globs: Sequence[str] = (),
    subset: str | None = None,
    python: str | None = None,
    platform: str | None = None,
    root: Path = Path(),
    cache: Cache | None = None,
    offline: bool = False,
    missing_ok: bool = False,
    relock: bool = False,
    change: Callable[[Target], Target] | None = None,
    progress: Progress,
    jobs: int = JOBS,
) -> tuple[Resolved | BuildmatrixError, ...]:
    """Resolve every source for every target that it is audited for.

    Args:
        sources: SOURCEs (`sources.parse`); none for the targets of the specification.
        spec: the specification here, if there is one.
        backends: narrow to these (`rocm`, `cuda12.8`); without a specification they say which.
        globs: targets of the specification, as for `select`.
        subset: the same.
        python: minor version to look at in place of the target's.
        platform: the same for the platform, `linux/arm64`.
        root: folder that relative sources start from, and that places are named from.
        cache: has what was resolved in the last minutes; None asks again.
        offline: only what uv has in its cache, and any age of what `cache` has.
        missing_ok: a source that is not there asks for nothing (`--diff` with a new file).
        relock: locks of the specification's targets count as missing: say what they would be.
        change: applied to every target before it is resolved (a fix that is tried).
        progress: shows every step; targets are named by their identifiers.
        jobs: resolutions at a time.

    Returns:
        For each source, each of its targets in order: what it gets, or an `Unresolved` error.

    Raises:
        UsageError: the sources, or the choice of targets, cannot mean anything.
    """
    check_python(python)
    check_platform(platform)
    declarations = [parse_declared(source, root) for source in sources]
    work = list(_pairs(declarations, spec, backends, globs, subset))
    if change is not None:
        work = [(change(target), item) for target, item in work]
    questions = Questions(
        uv=find_uv(),
        spec=spec,
        root=root,
        recent=Recent(cache, offline=offline),
        progress=progress,
        jobs=jobs,
        offline=offline,
        missing_ok=missing_ok,
        relock=relock,
    )
    # Waivers and baselines know the targets of the specification by their identifiers.
    own = frozenset(t.id for t in spec.targets) if spec and len(declarations) == 1 else frozenset()

    def begin(pythons: Mapping[int, str | None]) -> dict[int, IndexQuestion | Unresolved]:
        return {
            number: _begin(questions, *work[number], root, python, platform, own)
            for number, python in pythons.items()
        }

    def finish(begun: Mapping[int, IndexQuestion | Unresolved]) -> dict[int, Resolved | Unresolved]:
        asked = [item for item in begun.values() if isinstance(item, IndexQuestion)]
        answers = _answers(asked, jobs, progress)
        return {
            number: _finish(item, answers[item.key]) if isinstance(item, IndexQuestion) else item
            for number, item in begun.items()
        }

    begun = begin(dict.fromkeys(range(len(work)), python))
    asked = {n: item for n, item in begun.items() if isinstance(item, IndexQuestion)}
    defaults = {item.target.python for n, item in asked.items() if not work[n][0].python}
    if python is None and defaults:
        names = " and ".join(sorted(defaults, key=minor))
        progress.note(f"looking at it with Python {names}; --python chooses another")
    if change is None:
        for text in sorted({item.unchecked for item in asked.values()} - {""}):
            progress.note(text)
    results = finish(begun)
    # The Python was not chosen, and some distribution is too new for the default.
    newer: dict[int, str | None] = {
        number: error.python
        for number, result in results.items()
        if python is None
        and not work[number][0].python
        and isinstance(result, Unresolved)
        and isinstance(error := result.error, NoSolution)
        and error.python is not None
    }
    for newer_python in sorted({*filter(None, newer.values())}):
        progress.note(f"something needs Python {newer_python}: looking at that one")
    results |= finish(begin(newer))
    return tuple(results.values())


def _pairs(
    sources: Sequence[Declared],
    spec: Spec | None,
    backends: Sequence[str],
    globs: Sequence[str],
    subset: str | None,
) -> list[tuple[Target, Declared | None]]:
    if not sources:
        if spec is None:
            raise UsageError(
                "there is nothing to audit: name a requirements file, a project file, a lock or "
                "pypi:NAME==VERSION, or write a buildmatrix.toml (`buildmatrix init`)"
            )
        return [(target, None) for target in spec_targets(spec, globs, subset, backends)]
    targets = source_targets(spec, globs, subset, backends, load().backends)
    return [(target, source) for source in sources for target in targets]


def _begin(
    questions: Questions,
    target: Target,
    source: Declared | None,
    root: Path,
    python: str | None,
    platform: str | None,
    own: Collection[str],
) -> IndexQuestion | Unresolved:
    try:
        if platform is not None:
            target = replace(target, platform=platform)
        if source is None:
            if python is not None:
                target = replace(target, python=python)
            return questions.of_target(target)
        if (named := source.platform()) is not None:
            if platform not in (None, named):
                raise UsageError(f"{source} is not for --platform {platform}: name one of them")
            target = replace(target, platform=named)
        target = choose_python(target, python, source.pythons(root, target.platform))
        target = _ask_for(target, source, root, own)
        return questions.of_source(target, source)
    except BuildmatrixError as error:
        return Unresolved(target, error)


def _ask_for(target: Target, source: Declared, root: Path, own: Collection[str]) -> Target:
    """The target, asking for a source in place of what the specification asks for."""
    label = source.label(root)
    return replace(
        target,
        id=target.id if target.id in own else f"{target.id}:{label}",
        requirements=(),
        pyproject=None,
        extras=(),
        lock=label if source.is_file else str(source),
        # The source has no base image: what the specification says of one is not asked here.
        base=replace(target.base, build_at=None, final_at=None),
    )


def _answers(
    questions: Sequence[IndexQuestion], jobs: int, progress: Progress
) -> Mapping[str, object]:
    """Key → the answer, or the error, of the first question that has it."""
    first = {item.key: item for item in reversed(questions)}

    def ask(question: IndexQuestion) -> object:
        try:
            return question.ask()
        except BuildmatrixError as error:
            return Unresolved(question.target, error)
        finally:
            progress.end(question.target.id)

    return dict(zip(first, side_by_side(ask, list(first.values()), jobs, "resolve"), strict=True))


def _finish(question: IndexQuestion, answer: object) -> Resolved | Unresolved:
    target = question.target
    if isinstance(answer, Unresolved):
        begin = f"{answer.target.id}: "
        if not answer.message.startswith(begin):
            return Unresolved(target, answer.error)
        # The question was asked for another target, and its answer says that one's name.
        message = f"{target.id}: {answer.message.removeprefix(begin)}"
        return Unresolved(target, answer.error.saying(message))
    try:
        lock = question.finish(answer)
    except BuildmatrixError as error:
        return Unresolved(target, error)
    return Resolved(target, lock, question.stale, question.origin, question.is_asked)
