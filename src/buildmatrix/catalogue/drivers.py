"""Drivers: the oldest one for a toolkit, the newest toolkit for a driver, and images' conditions.

The tables are data (`*.compat.toml`). A driver is a range (`matrix.kinds`) and judged by its
lowest end: what runs there runs on all of it, as drivers run what older ones ran. `570` alone
stands for the releases of that branch that the tables name. A driver that is newer than every row
of a table is judged by the newest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from buildmatrix.catalogue.entries import CatalogueEntry
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.tables import DriverFloor, DriverPair, ToolkitDriver
from buildmatrix.matrix.kinds import Numbers, VersionRange, compare, numbers

# Conditions of images. Source: NVIDIA/libnvidia-container, src/cli/dsl.c and configure.c. Blanks
# separate alternatives, commas separate conditions that all must hold; `cuda`, `driver` and `arch`
# are compared as versions, `brand` as text without case. A condition on an unknown property is
# undecided.


#: In the parser's order; it takes the first that matches.
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_PART = re.compile(r"([^<>=!]+)([<>=!]+)(.+)", re.DOTALL)
_VERSION = re.compile(r"[0-9.]+")
#: Characters to evaluate; conditions of NVIDIA's images have 4000.
LONGEST = 32_768


class InvalidConditionError(ValueError):
    """A condition that the container runtime cannot read; it does not start the container."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Known properties of a node; None or empty for unknown ones."""

    versions: Mapping[str, Numbers | None] = field(default_factory=dict)
    #: Names that the driver may give its devices.
    brands: frozenset[str] = frozenset()


def is_met(condition: str, node: NodeFacts) -> bool | None:
    """Return True if a node meets a condition; None if that is unknown.

    Raises `InvalidConditionError`. Alternatives after the first that holds are not read.
    """
    if len(condition) > LONGEST:
        raise InvalidConditionError(f"the condition has more than {LONGEST} characters")
    alternatives = [text for text in condition.split(" ") if text]
    is_open = False
    for alternative in alternatives:
        outcome = _all_met(alternative, node)
        if outcome is True:
            return True
        is_open |= outcome is None
    if not alternatives:
        return True
    return None if is_open else False


def _all_met(alternative: str, node: NodeFacts) -> bool | None:
    outcome: bool | None = True
    for text in filter(None, alternative.split(",")):
        part = _met(text, node)
        if part is False:
            return False
        outcome = None if part is None else outcome
    return outcome


def _met(text: str, node: NodeFacts) -> bool | None:
    match = _PART.fullmatch(text)
    operator = match and next((item for item in _OPERATORS if item.startswith(match[2])), None)
    if match is None or operator is None:
        raise InvalidConditionError(f"`{text[:80]}` is not a condition")
    name, value = match[1].lower(), match[3]
    if name == "brand":
        if operator not in ("=", "!="):
            raise InvalidConditionError(f"`{text[:80]}` compares names")
        outcomes = {(brand == value.lower()) == (operator == "=") for brand in node.brands}
        return outcomes.pop() if len(outcomes) == 1 else None
    if name not in ("cuda", "driver", "arch") or not _VERSION.fullmatch(value):
        raise InvalidConditionError(f"`{text[:80]}` is not a condition")
    present, wanted = node.versions.get(name), numbers(value)
    if wanted is None:
        raise InvalidConditionError(f"`{text[:80]}` has no version")
    if present is None:
        return None
    order = compare(present, wanted)
    return {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[operator]


# Tables


#: `full`: the driver runs everything of the toolkit. `line`: by minor-version compatibility,
#: without features of newer drivers. `refused`: nothing runs. `unknown`: the driver is not known
#: well enough, or the table lacks the toolkit.
DriverVerdict = Literal["full", "line", "refused", "unknown"]

EntryT = TypeVar("EntryT", bound=CatalogueEntry)


def select_entries(items: Iterable[Owned[EntryT]], backend: str) -> tuple[EntryT, ...]:
    """Return the entries of one backend."""
    return tuple(owned.entry for owned in items if owned.backend == backend)


def meets(present: Numbers, least: str) -> bool:
    """Return True if a version is not older than `least`, as far as its numbers go."""
    return compare(present, _numbers(least)[: len(present)]) >= 0


def minimum(toolkit: str, backend: str, catalogue: Catalogue) -> ToolkitDriver | None:
    """Return the oldest driver of a toolkit's (`12.8`) first release; None if no table has it."""
    rows = [
        row
        for row in select_entries(catalogue.toolkit_drivers, backend)
        if _numbers(row.toolkit) == _numbers(toolkit)[:2]
    ]
    return min(rows, key=lambda row: _numbers(row.driver), default=None)


def floor(toolkit: str, backend: str, catalogue: Catalogue) -> DriverFloor | None:
    """Return the oldest driver that runs anything of a toolkit's line: of `12` for `12.8`."""
    for row in select_entries(catalogue.driver_floors, backend):
        if _numbers(row.line) == _numbers(toolkit)[:1]:
            return row
    return None


def toolkit_of(driver: Numbers, backend: str, catalogue: Catalogue) -> str | None:
    """Return the newest toolkit that a driver has completely: `12.8` for 570.26."""
    rows = [
        row
        for row in select_entries(catalogue.toolkit_drivers, backend)
        if meets(driver, row.driver)
    ]
    return max((row.toolkit for row in rows), key=_numbers, default=None)


def newest_driver(backend: str, catalogue: Catalogue) -> str | None:
    """Return the newest driver of the tables."""
    drivers = (
        *(row.driver for row in select_entries(catalogue.toolkit_drivers, backend)),
        *(row.driver for row in select_entries(catalogue.driver_pairs, backend)),
    )
    return max(drivers, key=_numbers, default=None)


def has_tables(backend: str, catalogue: Catalogue) -> bool:
    """Return True if a table has the drivers of a backend's runtimes."""
    return any(
        select_entries(table, backend)
        for table in (
            catalogue.toolkit_drivers,
            catalogue.driver_pairs,
            catalogue.driver_floors,
            catalogue.driver_releases,
        )
    )


def is_beyond(driver: VersionRange, backend: str, catalogue: Catalogue) -> bool:
    """Return True if a driver is of a newer branch than every row of the tables."""
    newest = newest_driver(backend, catalogue)
    return (
        newest is not None
        and driver.lowest is not None
        and compare(driver.lowest[:1], _numbers(newest)[:1]) > 0
    )


def runs(toolkit: str, driver: VersionRange, backend: str, catalogue: Catalogue) -> DriverVerdict:
    """Return the driver's verdict on a toolkit, or on a whole line (`12`).

    A line is refused if its oldest release is, and full if its newest release is.
    """
    if driver.lowest is None or driver.is_empty:
        return "unknown"
    line_floor = floor(toolkit, backend, catalogue)
    is_line = len(_numbers(toolkit)) < 2
    row = _newest_of_line(toolkit, backend, catalogue) if is_line else None
    row = row or minimum(toolkit, backend, catalogue)
    if row is not None and meets(driver.lowest, row.driver):
        return "full"
    if line_floor is not None:
        if not meets(driver.lowest, line_floor.driver):
            return "refused"
        return "line" if row is not None else "unknown"
    if row is None or is_line:
        return "unknown"
    return "refused"


def _newest_of_line(toolkit: str, backend: str, catalogue: Catalogue) -> ToolkitDriver | None:
    rows = [
        row
        for row in select_entries(catalogue.toolkit_drivers, backend)
        if _numbers(row.toolkit)[:1] == _numbers(toolkit)[:1] and not row.update
    ]
    return max(rows, key=lambda row: _numbers(row.driver), default=None)


def compiles(kind: str, language: str, backend: str, catalogue: Catalogue) -> str | None:
    """Return the first toolkit whose driver compiles code of a kind; None if no table has it.

    None as well for a version that is newer than every row.
    """
    for row in select_entries(catalogue.code_versions, backend):
        if row.kind == kind and language in row.toolkits:
            return row.toolkits[language]
    return None


def pair_of(driver: VersionRange, backend: str, catalogue: Catalogue) -> DriverPair | None:
    """Return the row with the first numbers of a driver; the newest row for a driver beyond all."""
    if driver.lowest is None or driver.is_empty:
        return None
    rows: Sequence[DriverPair] = select_entries(catalogue.driver_pairs, backend)
    for row in rows:
        first = _numbers(row.driver)
        if (*driver.lowest, *(0,) * len(first))[: len(first)] == first:
            return row
    newest = max(rows, key=lambda row: _numbers(row.driver), default=None)
    beyond = newest is not None and compare(driver.lowest, _numbers(newest.driver)) > 0
    return newest if beyond else None


def _numbers(version: str) -> Numbers:
    """Parse a version of a checked data file, or one that was parsed before."""
    return numbers(version) or (0,)
