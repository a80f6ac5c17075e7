"""Which driver a toolkit asks for, and what a driver runs.

The tables are data (`*.compat.toml`). A driver is a range (`spec.version_range`) and judged by its
lowest end: what runs there runs on all of it, as drivers run what older ones ran. `570` alone
stands for the releases of that branch that the tables name. A driver that is newer than every row
of a table is judged by the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

from buildmatrix.catalogue.format.entry import CatalogueEntry
from buildmatrix.catalogue.format.versions import DriverFloor, DriverPair, ToolkitDriver
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.spec.version_range import Numbers, VersionRange, compare, numbers

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
