"""Fitness of workers: those with the same results as this process.

All their facts and results go into one store and one report. A worker with another version, or with
other sources or vendor data of the same version, could judge the same image differently. One that
does not reach the store would read everything again, and save nothing for others.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from buildmatrix import __version__
from buildmatrix.errors import BuildmatrixError
from buildmatrix.inventory.model import SCHEMA
from buildmatrix.store.cache import source_digest
from buildmatrix.store.shared import SharedEntries, open_storage
from buildmatrix.text import shown

#: Test entry that shows if workers reach the same store: its kind, its content; timeout in seconds.
_KIND = "workers"
_MARK = b"a run was here"
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Release:
    """Versions of an installation: different ones may judge an image differently."""

    buildmatrix: str
    python: str
    #: Schema of the facts in the store.
    schema: str
    #: Digests of the bundled vendor data, and of all sources.
    catalogue: str
    sources: str

    @classmethod
    def here(cls) -> Release:
        """Return the release of this process."""
        return _find_release()

    def __str__(self) -> str:
        return (
            f"buildmatrix {self.buildmatrix} (facts {self.schema}, catalogue {self.catalogue}, "
            f"sources {self.sources}), Python {self.python}"
        )


@cache
def _find_release() -> Release:
    python = ".".join(platform.python_version_tuple()[:2])
    return Release(__version__, python, SCHEMA, source_digest("catalogue")[:8], source_digest()[:8])


def find_release() -> Release:
    """Return the release of a worker, at the start of a run."""
    return Release.here()


def find_unfit(releases: Mapping[str, Release | BaseException]) -> str:
    """Return why workers cannot be used, in one sentence; empty if all can."""
    here = Release.here()
    for address, release in sorted(releases.items()):
        if isinstance(release, ModuleNotFoundError):
            return (
                f"the worker {address} has no {release.name}; install the same buildmatrix there: "
                f"pip install 'buildmatrix[fleet]=={__version__}'"
            )
        if isinstance(release, BaseException):
            return f"the worker {address} does not say what it runs: {shown(str(release))}"
        if not isinstance(release, Release):
            return f"the worker {address} runs another buildmatrix; install {__version__} there"
        if release != here:
            return describe_difference(address, release, here)
    return ""


def describe_difference(address: str, there: Release, here: Release) -> str:
    """Return the sentence about a worker with another release."""
    return (
        f"the worker {address} runs {there}, and here is {here}: verdicts could differ; install "
        "the same versions on both"
    )


def mark_store(store: str, run: str) -> str:
    """Leave an entry in the store for `check_mark`; return the reason if that fails."""
    return " ".join(_try_store(store, lambda entries: entries.write(_KIND, run, (_MARK,))))


def check_mark(store: str, run: str) -> str:
    """Return why this worker does not find the entry of `mark_store`; empty if it does.

    A store that does not respond at the moment fails no run: the report mentions it.
    """
    found: list[bytes | None] = []
    try:
        troubles = _try_store(
            store, lambda entries: found.append(entries.read(_KIND, run, len(_MARK)))
        )
    except BuildmatrixError as error:
        return error.message
    return "" if troubles or found == [_MARK] else "there is nothing of the kind"


def _try_store(store: str, work: Callable[[SharedEntries], object]) -> list[str]:
    """Return problems with the store. Raises the errors of opening it."""
    troubles: list[str] = []
    work(SharedEntries(open_storage(store), store, troubles.append, patience=_PATIENCE))
    return troubles


def find_astray(store: str, marker: str, missing: Mapping[str, str | BaseException]) -> str:
    """Return the sentence about workers that use another store than `marker`; empty for none."""
    for address, why in sorted(missing.items()):
        if why:
            return (
                f"the worker {address} does not find in the store {shown(store)} what the worker "
                f"{marker} has just left there ({shown(str(why))}); have all workers reach the "
                "same store, or leave --store out"
            )
    return ""
