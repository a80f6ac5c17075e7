"""Points of the matrix: axes, `include` and `exclude`, identifiers, order, selection and shards."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from buildmatrix.base.data import field_names
from buildmatrix.base.errors import UsageError
from buildmatrix.base.parsing import natural, parse_specifiers, version_or_none
from buildmatrix.base.text import listing
from buildmatrix.matrix.document import Problems, closest, did_you_mean
from buildmatrix.matrix.keys import ExcludeTable, IncludeTable, SpecFile
from buildmatrix.matrix.keys_settings import BackendTable, WhenTable
from buildmatrix.matrix.kinds import is_range
from buildmatrix.matrix.model import ANY, Exclusion, Spec, Target
from buildmatrix.matrix.settings import sound
from buildmatrix.matrix.shapes import SourceText

# Points


class Point(Struct, frozen=True):
    """One combination of axis values."""

    backend: str
    runtime: str
    python: str
    variant: str
    platform: str

    @property
    def id(self) -> str:
        """`cuda12.8-py312-server`; includes the platform unless it is linux/amd64."""
        runtime = "" if self.runtime == ANY else self.runtime
        python = self.python.replace(".", "")
        machine = self.platform.removeprefix("linux/").replace("/", "-")
        suffix = "" if machine == "amd64" else f"-{machine}"
        return f"{self.backend}{runtime}-py{python}-{self.variant}{suffix}"


def match(globs: Iterable[str], ids: Iterable[str]) -> list[str]:
    """Return the identifiers that any of the globs matches, in their own order."""
    patterns = [re.compile(fnmatch.translate(glob)) for glob in globs]
    return [id for id in ids if any(pattern.match(id) for pattern in patterns)]


def suggest(glob: str, ids: Sequence[str]) -> str:
    """Return a hint for a glob that matches nothing: identifiers with the longest common prefix."""
    begin = re.split(r"[*?\[]", glob)[0] or glob.strip("*?")
    near = closest(begin, {id[: len(begin)] for id in ids})
    shown = [id for id in ids if near and id.startswith(near)] or list(ids)
    return f"the closest are {listing(shown, 3)}" if shown else "there are no targets"


def choose(
    globs: tuple[SourceText, ...], ids: Sequence[str], gone: Sequence[str], problems: Problems
) -> list[str]:
    """The identifiers that the globs of a file select; a glob that selects none is a problem.

    Args:
        globs: as written; none at all selects everything.
        ids: what there is.
        gone: excluded identifiers, for a better message.
        problems: receives the globs that match nothing.
    """
    if not globs:
        return list(ids)
    for glob in sound(globs):
        if match([glob.value], ids):
            continue
        if match([glob.value], gone):
            problems.doubt(glob.at, f"`{glob.value}` matches only targets that are excluded")
        else:
            message = f"no target matches `{glob.value}`"
            problems.doubt(glob.at, message, suggest(glob.value, ids))
    return match((glob.value for glob in sound(globs)), ids)


def meets_conditions(when: WhenTable, point: Point) -> bool:
    """Return True if a point meets all conditions."""
    for name, value in asdict(point).items():
        conditions: tuple[SourceText, ...] = getattr(when, name)
        if conditions and not any(_meets(text.value, value) for text in sound(conditions)):
            return False
    return True


def _meets(condition: str, value: str) -> bool:
    if not is_range(condition):
        return condition == value
    version = version_or_none(value)
    return version is not None and parse_specifiers(condition).contains(version, prereleases=True)


def check_when(when: WhenTable, points: Sequence[Point], problems: Problems) -> None:
    """Note values that no point has, and ranges over values that cannot be ordered."""
    backends = {text.value for text in when.backend}
    for name in field_names(Point):
        conditions: tuple[SourceText, ...] = getattr(when, name)
        values = {
            getattr(point, name): None
            for point in points
            if name == "backend" or not backends or point.backend in backends
        }
        for text in sound(conditions):
            if not is_range(text.value):
                if text.value not in values:
                    hint = did_you_mean(text.value, values, f"values of `{name}`")
                    message = f"no target has {name} `{text.value}`"
                    problems.doubt(text.at, message, hint)
            elif vague := [v for v in values if v != ANY and version_or_none(v) is None]:
                problems.add(
                    text.at,
                    f"`{text.value}` cannot be compared with {name} `{vague[0]}`, which is not a "
                    "version number",
                    "list the values instead",
                )


def select(spec: Spec, globs: Sequence[str], subset: str | None = None) -> tuple[Target, ...]:
    """The targets that the user asked for, in matrix order.

    Args:
        spec: where they come from.
        globs: patterns for identifiers; a target is chosen when any matches, and left out when
            one that begins with `!` does. Without one of the first kind, all are chosen.
        subset: name of a subset that the specification describes; limits what the globs choose.

    Raises:
        UsageError: a pattern matches nothing, or there is no such subset.
    """
    ids = [target.id for target in spec.targets]
    if subset is not None:
        if subset not in spec.subsets:
            hint = did_you_mean(subset, spec.subsets, "subsets")
            raise UsageError(f"{spec.path} has no subset `{subset}`; {hint}")
        ids = [id for id in ids if id in spec.subsets[subset]]
    place = f"subset `{subset}`" if subset else str(spec.path)
    for glob in globs:
        pattern = glob.removeprefix("!")
        if not match([pattern], ids):
            advice = _advice(pattern, ids, spec)
            raise UsageError(f"no target of {place} matches `{pattern}`; {advice}")
    chosen_globs = [glob for glob in globs if not glob.startswith("!")]
    chosen = set(match(chosen_globs or ["*"], ids))
    chosen -= set(match((glob[1:] for glob in globs if glob.startswith("!")), ids))
    if not chosen and globs:
        raise UsageError(f"--select {' '.join(globs)} leaves no target of {place}")
    return tuple(target for target in spec.targets if target.id in chosen)


def _advice(glob: str, ids: Sequence[str], spec: Spec) -> str:
    for exclusion in spec.excluded:
        if match([glob], [exclusion.id]):
            return f"{exclusion.id} is excluded: {exclusion.reason}"
    return suggest(glob, ids)


# Expansion


#: GitHub Actions starts at most 256 jobs from one matrix.
MAX_TARGETS = 500


class Axes(NamedTuple):
    """The values of one backend's axes, in the order of the targets."""

    runtimes: tuple[str, ...]
    pythons: tuple[str, ...]
    variants: tuple[str, ...]
    platforms: tuple[str, ...]


class Matrix(Struct, frozen=True):
    """The remaining points, and the excluded ones."""

    points: tuple[Point, ...]
    excluded: tuple[Exclusion, ...]

    @property
    def ids(self) -> list[str]:
        """Identifiers of the points."""
        return [point.id for point in self.points]

    @property
    def gone(self) -> list[str]:
        """Identifiers of the excluded points."""
        return [exclusion.id for exclusion in self.excluded]


def runtimes_of(backend: BackendTable) -> dict[str, dict[str, SourceText]]:
    """Return runtime → its derived values."""
    match backend.runtime:
        case SourceText() as runtime:
            return {runtime.value: {}} if runtime.sound else {}
        case dict() as runtimes:
            return runtimes
        case runtimes:
            return {runtime.value: {} for runtime in sound(runtimes)}


def expand(file: SpecFile, problems: Problems) -> Matrix:
    """Return all points: the product of the axes, less `exclude`, plus `include`."""
    axes = {name: _axes(name, backend, file, problems) for name, backend in file.backend.items()}
    count = sum(math.prod(map(len, values)) for values in axes.values())
    if count > MAX_TARGETS:
        at = next(iter(file.backend.values())).at
        problems.add(at, f"the matrix has {count:,} points; {MAX_TARGETS} is the limit")
        problems.stop()
    product = [
        Point(name, *point) for name, values in axes.items() for point in itertools.product(*values)
    ]
    excluded = _exclude(file.exclude, product, problems)
    points = [point for point in product if point.id not in excluded]
    for include in file.include:
        if (point := _include(include, axes, problems)) is None:
            continue
        if point in points:
            problems.add(include.at, f"`{point.id}` is already in the matrix", "remove this entry")
        else:
            points.append(point)
            excluded.pop(point.id, None)
    _check_identifiers(points, file, problems)
    if not points:
        end = file.exclude[-1] if file.exclude else file
        problems.doubt(end.at, "the matrix has no targets")
    return Matrix(tuple(points), tuple(Exclusion(id, reason) for id, reason in excluded.items()))


def _axes(name: str, backend: BackendTable, file: SpecFile, problems: Problems) -> Axes:
    defaults = file.defaults
    runtimes = tuple(sorted(runtimes_of(backend), key=natural))
    if isinstance(backend.runtime, tuple):
        _axis(backend.runtime, problems)
    if not runtimes:
        message = f"backend `{name}` has no runtimes"
        problems.doubt(backend.at, message, 'write `runtime = "any"`')
    if ANY in runtimes and len(runtimes) > 1:
        message = f"backend `{name}` has the runtime `{ANY}` and others beside it"
        problems.add(backend.at, message, f"`{ANY}` means that there are no versions: remove it")
    python = _axis(backend.python or defaults.python, problems)
    if not python:
        message = f"backend `{name}` has no Python versions"
        hint = 'write `python = ["3.12"]` in [defaults]'
        problems.doubt(backend.at, message, hint)
    return Axes(
        runtimes,
        # A stand-in, so that the rest of the file can be checked.
        tuple(sorted(python, key=natural)) or ("3.12",),
        _axis(backend.variant or defaults.variant, problems) or ("default",),
        _axis(backend.platforms or defaults.platforms, problems) or ("linux/amd64",),
    )


def _axis(texts: tuple[SourceText, ...] | None, problems: Problems) -> tuple[str, ...]:
    values: dict[str, None] = {}
    for text in sound(texts):
        if text.value in values:
            problems.add(text.at, f"`{text.value}` is listed twice", "remove one of the two")
        values[text.value] = None
    return tuple(values)


def _exclude(
    entries: tuple[ExcludeTable, ...], product: Sequence[Point], problems: Problems
) -> dict[str, str]:
    """Return identifier → reason of the first entry that excludes it."""
    ids = [point.id for point in product]
    excluded: dict[str, str] = {}
    for entry in entries:
        if not entry.select and entry.when is None:
            hint = 'write `select = ["..."]` or `when = { ... }`'
            problems.add(entry.at, "this entry does not say what it excludes", hint)
            continue
        chosen = set(choose(entry.select, ids, (), problems))
        if entry.when is not None:
            check_when(entry.when, product, problems)
            chosen &= {point.id for point in product if meets_conditions(entry.when, point)}
            if not chosen:
                at = entry.when.at
                problems.doubt(at, "no target meets this condition")
        for id in ids:
            if id in chosen:
                excluded.setdefault(id, entry.reason.value)
    return excluded


def _include(include: IncludeTable, axes: dict[str, Axes], problems: Problems) -> Point | None:
    texts = (include.backend, include.python, include.variant, include.platform, include.runtime)
    if not all(text is None or text.sound for text in texts):
        return None
    name = include.backend.value
    if name not in axes:
        hint = did_you_mean(name, axes, "backends")
        problems.doubt(include.backend.at, f"there is no backend `{name}`", hint)
        return None
    backend_axes = axes[name]
    if include.runtime and include.runtime.value not in backend_axes.runtimes:
        hint = did_you_mean(include.runtime.value, backend_axes.runtimes, "runtimes")
        message = f"backend `{name}` has no runtime `{include.runtime.value}`"
        problems.doubt(include.runtime.at, message, hint)
        return None

    values: dict[str, str] = {}
    for key, text, choices in (
        ("runtime", include.runtime, backend_axes.runtimes),
        ("variant", include.variant, backend_axes.variants),
        ("platform", include.platform, backend_axes.platforms),
    ):
        if text is None and len(choices) != 1:
            hint = f"write `{key} = ...` with one of {', '.join(choices)}"
            problems.doubt(include.at, f"`include` has no `{key}`", hint)
            return None
        values[key] = text.value if text else choices[0]
    return Point(backend=name, python=include.python.value, **values)


def _check_identifiers(points: Sequence[Point], file: SpecFile, problems: Problems) -> None:
    first: dict[str, Point] = {}
    for point in points:
        # Bake does not allow `.` in names, so it counts as `_`.
        owner = first.setdefault(point.id.replace(".", "_"), point)
        if owner != point:
            problems.add(
                file.backend[point.backend].at,
                f"the identifiers of {_words(owner)} and of {_words(point)} are the same: "
                f"`{owner.id}` and `{point.id}` (`.` counts as `_`)",
                "rename a backend, a runtime or a variant",
            )


def _words(point: Point) -> str:
    return f"backend `{point.backend}` {point.runtime} {point.variant} {point.platform}"


# Shards, for machines of a CI matrix: `--shard 2/5`.
#
# Every machine divides the targets itself, so the answer depends on the arguments alone: the shards
# of one matrix have no target in common, and together they have all of them.


_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})", re.ASCII)


class Shard(Struct, frozen=True):
    """Part `number` of `count`; the first is 1."""

    number: int
    count: int

    def __str__(self) -> str:
        """The form that users write: `2/5`."""
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse `I/N`. Raises `UsageError`."""
        match = _SHARD.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            raise UsageError(
                f"--shard {text} is not a shard; write I/N with I from 1 to N: --shard 2/5"
            )
        return shard


def divide_targets(
    targets: Sequence[Target], seconds: Mapping[str, float], count: int
) -> Mapping[str, int]:
    """Return target → number of its shard, of `count`.

    `seconds` are the known durations of targets; any other counts as their median. Without any,
    neighbors stay together: they share bases and locks.
    """
    timed = [seconds[target.id] for target in targets if target.id in seconds]
    if not timed:
        total = len(targets)
        ends = [(number * total) // count for number in range(count + 1)]
        return {
            target.id: number
            for number, (first, end) in enumerate(pairwise(ends), 1)
            for target in targets[first:end]
        }
    from statistics import median

    usual = median(timed)
    # Whole numbers: sums of floats depend on their order.
    cost = {t.id: max(1, round(1000 * seconds.get(t.id, usual))) for t in targets}
    numbers: dict[str, int] = {}
    loads = [0] * count
    # The longest first, each to the shard with the least work (Graham 1969: at most 4/3 of the
    # optimum).
    for id in sorted(cost, key=lambda id: (-cost[id], id)):
        lightest = loads.index(min(loads))
        numbers[id] = lightest + 1
        loads[lightest] += cost[id]
    return numbers


def plan_digest(numbers: Mapping[str, int], count: int) -> str:
    """Return a digest that is equal on all machines that divide the same targets equally."""
    text = json.dumps([count, sorted(numbers.items())])
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
