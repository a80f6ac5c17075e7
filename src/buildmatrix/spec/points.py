"""Points of the matrix: their identifiers, their order, and what selects them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.errors import UsageError
from buildmatrix.parsing import parse_specifiers, version_or_none
from buildmatrix.phrases import listing
from buildmatrix.spec.document import Problems
from buildmatrix.spec.hints import closest, did_you_mean
from buildmatrix.spec.keys_settings import WhenTable
from buildmatrix.spec.kinds import is_range
from buildmatrix.spec.layers import sound
from buildmatrix.spec.model import Spec, Target
from buildmatrix.spec.shapes import SourceText

#: The runtime of a backend that has none.
ANY = "any"


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of axis values."""

    backend: str
    runtime: str
    python: str
    variant: str
    platform: str

    @property
    def id(self) -> str:
        """`cuda12.8-py312-server`; the platform shows where it is not linux/amd64."""
        runtime = "" if self.runtime == ANY else self.runtime
        python = self.python.replace(".", "")
        machine = self.platform.removeprefix("linux/").replace("/", "-")
        suffix = "" if machine == "amd64" else f"-{machine}"
        return f"{self.backend}{runtime}-py{python}-{self.variant}{suffix}"


def version_order(version: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort key under which 3.9 comes before 3.10; works for any text."""
    return tuple(
        (part.isdecimal(), int(part) if part.isdecimal() and len(part) < 100 else 0, part)
        for part in re.split(r"[._-]", version)
    )


def match(globs: Iterable[str], ids: Iterable[str]) -> list[str]:
    """The identifiers that any of the globs matches, in their own order."""
    patterns = [re.compile(fnmatch.translate(glob)) for glob in globs]
    return [id for id in ids if any(pattern.match(id) for pattern in patterns)]


def suggest(glob: str, ids: Sequence[str]) -> str:
    """A hint for a glob that matches nothing: the identifiers that begin most like it."""
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
            problems.add(
                glob.at, f"`{glob.value}` matches only targets that are excluded", doubtful=True
            )
        else:
            message = f"no target matches `{glob.value}`"
            problems.add(glob.at, message, suggest(glob.value, ids), doubtful=True)
    return match((glob.value for glob in sound(globs)), ids)


def holds(when: WhenTable, point: Point) -> bool:
    """Whether a point meets all conditions."""
    return (
        _any(when.backend, point.backend)
        and _any(when.runtime, point.runtime)
        and _any(when.python, point.python)
        and _any(when.variant, point.variant)
        and _any(when.platform, point.platform)
    )


def _any(conditions: tuple[SourceText, ...], value: str) -> bool:
    return not conditions or any(_meets(text.value, value) for text in sound(conditions))


def _meets(condition: str, value: str) -> bool:
    if not is_range(condition):
        return condition == value
    version = version_or_none(value)
    return version is not None and parse_specifiers(condition).contains(version, prereleases=True)


def check_when(when: WhenTable, points: Sequence[Point], problems: Problems) -> None:
    """Values that no point has, and ranges over what cannot be ordered, are problems."""
    backends = {text.value for text in when.backend}
    for name in ("backend", "runtime", "python", "variant", "platform"):
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
                    problems.add(text.at, message, hint, doubtful=True)
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
    excluded_globs = [glob[1:] for glob in globs if glob.startswith("!")]
    chosen = set(match(chosen_globs, ids) if chosen_globs else ids) - set(
        match(excluded_globs, ids)
    )
    if not chosen and globs:
        raise UsageError(f"--select {' '.join(globs)} leaves no target of {place}")
    return tuple(target for target in spec.targets if target.id in chosen)


def _advice(glob: str, ids: Sequence[str], spec: Spec) -> str:
    for exclusion in spec.excluded:
        if match([glob], [exclusion.id]):
            return f"{exclusion.id} is excluded: {exclusion.reason}"
    return suggest(glob, ids)
