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

# Source: NVIDIA/libnvidia-container, src/cli/dsl.c and configure.c. Blanks part alternatives,
# commas what all must hold; `cuda`, `driver` and `arch` are compared as versions, `brand` as a text
# without upper and lower case. What a condition asks of something that is not known may be met or
# not.


#: The order in which the parser tries them; it takes the first that begins with what is written.
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_PART = re.compile(r"([^<>=!]+)([<>=!]+)(.+)", re.DOTALL)
_VERSION = re.compile(r"[0-9.]+")
#: Characters that are evaluated; those of NVIDIA's images have 4000.
LONGEST = 32_768


class InvalidConditionError(ValueError):
    """A condition that the container runtime cannot read, and so does not start the container."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node; None and nothing for what is not."""

    versions: Mapping[str, Numbers | None] = field(default_factory=dict)
    #: What the driver may call its devices.
    brands: frozenset[str] = frozenset()


def met(condition: str, node: NodeFacts) -> bool | None:
    """Whether a node meets a condition; None where that is not known.

    Raises `InvalidConditionError`. What stands behind the alternative that holds is not read.
    """
    if len(condition) > LONGEST:
        raise InvalidConditionError(f"it has more than {LONGEST} characters")
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
        raise InvalidConditionError(f"`{text[:80]}` is no condition")
    name, value = match[1].lower(), match[3]
    if name == "brand":
        if operator not in ("=", "!="):
            raise InvalidConditionError(f"`{text[:80]}` compares names")
        outcomes = {(brand == value.lower()) == (operator == "=") for brand in node.brands}
        return outcomes.pop() if len(outcomes) == 1 else None
    if name not in ("cuda", "driver", "arch") or not _VERSION.fullmatch(value):
        raise InvalidConditionError(f"`{text[:80]}` is no condition")
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


# The tables are data (`*.compat.toml`). A driver is a range (`matrix.kinds`) and judged by
# its lowest end: what runs there runs on all of it, as drivers run what older ones ran. `570` alone
# stands for the releases of that branch that the tables name. A driver that is newer than every row
# of a table is judged by the newest.


#: `full`: everything of the toolkit runs. `line`: by minor-version compatibility, which leaves out
#: what only a newer driver has. `refused`: nothing runs. `unknown`: the driver is not known well
#: enough, or the table does not have the toolkit.
DriverVerdict = Literal["full", "line", "refused", "unknown"]

EntryT = TypeVar("EntryT", bound=CatalogueEntry)


def of_backend(items: Iterable[Owned[EntryT]], backend: str) -> tuple[EntryT, ...]:
    """The entries of one backend."""
    return tuple(owned.entry for owned in items if owned.backend == backend)


def meets(present: Numbers, least: str) -> bool:
    """Whether a version is not older than `least`, as far as it says its numbers."""
    return compare(present, _numbers(least)[: len(present)]) >= 0


def minimum(toolkit: str, backend: str, catalogue: Catalogue) -> ToolkitDriver | None:
    """The oldest driver of a toolkit (`12.8`), of its first release; None where no table has it."""
    rows = [
        row
        for row in of_backend(catalogue.toolkit_drivers, backend)
        if _numbers(row.toolkit) == _numbers(toolkit)[:2]
    ]
    return min(rows, key=lambda row: _numbers(row.driver), default=None)


def floor(toolkit: str, backend: str, catalogue: Catalogue) -> DriverFloor | None:
    """The oldest driver that runs anything of the line of a toolkit, of `12` for `12.8`."""
    for row in of_backend(catalogue.driver_floors, backend):
        if _numbers(row.line) == _numbers(toolkit)[:1]:
            return row
    return None


def toolkit_of(driver: Numbers, backend: str, catalogue: Catalogue) -> str | None:
    """The newest toolkit of which a driver has everything: `12.8` for 570.26."""
    rows = [
        row for row in of_backend(catalogue.toolkit_drivers, backend) if meets(driver, row.driver)
    ]
    return max((row.toolkit for row in rows), key=_numbers, default=None)


def newest_driver(backend: str, catalogue: Catalogue) -> str | None:
    """The newest driver of the tables."""
    drivers = (
        *(row.driver for row in of_backend(catalogue.toolkit_drivers, backend)),
        *(row.driver for row in of_backend(catalogue.driver_pairs, backend)),
    )
    return max(drivers, key=_numbers, default=None)


def has_tables(backend: str, catalogue: Catalogue) -> bool:
    """Whether anything says which runtimes of a backend run on which driver."""
    return any(
        of_backend(table, backend)
        for table in (
            catalogue.toolkit_drivers,
            catalogue.driver_pairs,
            catalogue.driver_floors,
            catalogue.driver_releases,
        )
    )


def is_beyond(driver: VersionRange, backend: str, catalogue: Catalogue) -> bool:
    """Whether a driver is of a newer branch than every row of the tables."""
    newest = newest_driver(backend, catalogue)
    return (
        newest is not None
        and driver.lowest is not None
        and compare(driver.lowest[:1], _numbers(newest)[:1]) > 0
    )


def runs(toolkit: str, driver: VersionRange, backend: str, catalogue: Catalogue) -> DriverVerdict:
    """What a driver makes of a toolkit, of which the line alone may be known (`12`).

    Of such a one the oldest release counts where the driver is refused, and the newest where all
    of it is to run.
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
        for row in of_backend(catalogue.toolkit_drivers, backend)
        if _numbers(row.toolkit)[:1] == _numbers(toolkit)[:1] and not row.update
    ]
    return max(rows, key=lambda row: _numbers(row.driver), default=None)


def compiles(kind: str, language: str, backend: str, catalogue: Catalogue) -> str | None:
    """The first toolkit whose driver compiles device code of a kind; None where no table says it.

    A version that is newer than every row asks for more than the newest does, and gives None.
    """
    for row in of_backend(catalogue.code_versions, backend):
        if row.kind == kind and language in row.toolkits:
            return row.toolkits[language]
    return None


def pair_of(driver: VersionRange, backend: str, catalogue: Catalogue) -> DriverPair | None:
    """The row with the first numbers of a driver; the newest row for a driver beyond all rows."""
    if driver.lowest is None or driver.is_empty:
        return None
    rows: Sequence[DriverPair] = of_backend(catalogue.driver_pairs, backend)
    for row in rows:
        first = _numbers(row.driver)
        if (*driver.lowest, *(0,) * len(first))[: len(first)] == first:
            return row
    newest = max(rows, key=lambda row: _numbers(row.driver), default=None)
    beyond = newest is not None and compare(driver.lowest, _numbers(newest.driver)) > 0
    return newest if beyond else None


def _numbers(version: str) -> Numbers:
    """Of a data file, which was checked to have some, or of a version that was read as numbers."""
    return numbers(version) or (0,)
