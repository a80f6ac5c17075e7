"""Axes, `include` and `exclude` → the points of the matrix."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from buildmatrix.spec.document import Problems
from buildmatrix.spec.hints import did_you_mean
from buildmatrix.spec.keys import ExcludeTable, IncludeTable, SpecFile
from buildmatrix.spec.keys_settings import BackendTable
from buildmatrix.spec.layers import sound
from buildmatrix.spec.model import Exclusion
from buildmatrix.spec.points import ANY, Point, check_when, choose, holds, version_order
from buildmatrix.spec.shapes import SourceText

#: GitHub Actions starts at most 256 jobs from one matrix.
MAX_TARGETS = 500


@dataclass(frozen=True, slots=True)
class Axes:
    """The values of one backend's axes, in the order in which targets are listed."""

    runtimes: tuple[str, ...]
    pythons: tuple[str, ...]
    variants: tuple[str, ...]
    platforms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The points that are left, and those that were taken out."""

    points: tuple[Point, ...]
    excluded: tuple[Exclusion, ...]

    @property
    def ids(self) -> list[str]:
        """Identifiers of the points."""
        return [point.id for point in self.points]

    @property
    def gone(self) -> list[str]:
        """Identifiers of what was taken out."""
        return [exclusion.id for exclusion in self.excluded]


def runtimes_of(backend: BackendTable) -> dict[str, dict[str, SourceText]]:
    """Runtime → its derived values."""
    match backend.runtime:
        case SourceText() as runtime:
            return {runtime.value: {}} if runtime.sound else {}
        case dict() as runtimes:
            return runtimes
        case runtimes:
            return {runtime.value: {} for runtime in sound(runtimes)}


def expand(file: SpecFile, problems: Problems) -> Matrix:
    """All points: the product of the axes, less `exclude`, plus `include`."""
    axes = {name: _axes(name, backend, file, problems) for name, backend in file.backend.items()}
    count = sum(
        len(a.runtimes) * len(a.pythons) * len(a.variants) * len(a.platforms) for a in axes.values()
    )
    if count > MAX_TARGETS:
        at = next(iter(file.backend.values())).at
        problems.add(at, f"the matrix has {count:,} points; {MAX_TARGETS} is the limit")
        problems.stop()
    product = [
        Point(name, *values)
        for name, a in axes.items()
        for values in itertools.product(a.runtimes, a.pythons, a.variants, a.platforms)
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
        problems.add(end.at, "the matrix has no targets", doubtful=True)
    return Matrix(tuple(points), tuple(Exclusion(id, reason) for id, reason in excluded.items()))


def _axes(name: str, backend: BackendTable, file: SpecFile, problems: Problems) -> Axes:
    defaults = file.defaults
    runtimes = tuple(sorted(runtimes_of(backend), key=version_order))
    if isinstance(backend.runtime, tuple):
        _axis(backend.runtime, problems)
    if not runtimes:
        message = f"backend `{name}` has no runtimes"
        problems.add(backend.at, message, 'write `runtime = "any"`', doubtful=True)
    if ANY in runtimes and len(runtimes) > 1:
        message = f"backend `{name}` has the runtime `{ANY}` and others beside it"
        problems.add(backend.at, message, f"`{ANY}` means that there are no versions: remove it")
    python = _axis(backend.python or defaults.python, problems)
    if not python:
        message = f"backend `{name}` has no Python versions"
        hint = 'write `python = ["3.12"]` in [defaults]'
        problems.add(backend.at, message, hint, doubtful=True)
    return Axes(
        runtimes,
        # A stand-in, so that the rest of the file can be checked.
        tuple(sorted(python, key=version_order)) or ("3.12",),
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
    """Identifier → reason of the first entry that excludes it."""
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
            chosen &= {point.id for point in product if holds(entry.when, point)}
            if not chosen:
                at = entry.when.at
                problems.add(at, "no target meets this condition", doubtful=True)
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
        problems.add(include.backend.at, f"there is no backend `{name}`", hint, doubtful=True)
        return None
    backend_axes = axes[name]
    if include.runtime and include.runtime.value not in backend_axes.runtimes:
        hint = did_you_mean(include.runtime.value, backend_axes.runtimes, "runtimes")
        message = f"backend `{name}` has no runtime `{include.runtime.value}`"
        problems.add(include.runtime.at, message, hint, doubtful=True)
        return None

    values: dict[str, str] = {}
    for key, text, choices in (
        ("runtime", include.runtime, backend_axes.runtimes),
        ("variant", include.variant, backend_axes.variants),
        ("platform", include.platform, backend_axes.platforms),
    ):
        if text is None and len(choices) != 1:
            hint = f"write `{key} = ...` with one of {', '.join(choices)}"
            problems.add(include.at, f"`include` has no `{key}`", hint, doubtful=True)
            return None
        values[key] = text.value if text else choices[0]
    return Point(backend=name, python=include.python.value, **values)


def _check_identifiers(points: Sequence[Point], file: SpecFile, problems: Problems) -> None:
    first: dict[str, Point] = {}
    for point in points:
        # Bake files cannot have a `.` in names, so it counts as `_`.
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
