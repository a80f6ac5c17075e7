"""Which workers may work for a run: those that would say the same as this process.

Facts and results of all of them go into one store and one report. A worker with another version, or
with other sources or vendor data under the same version, could say something else about the same
image; one that does not reach the store would read everything again, and leave nothing for others.
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

#: Where in the store workers look whether they reach the same one; what stands there; seconds.
_KIND = "workers"
_MARK = b"a run was here"
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Release:
    """What runs somewhere: two of them that differ may say different things about one image."""

    buildmatrix: str
    python: str
    #: Of the facts that are kept in the store.
    schema: str
    #: Digests of the vendor data that come with it, and of all of its sources.
    catalogue: str
    sources: str

    @classmethod
    def here(cls) -> Release:
        """That of this process."""
        return _here()

    def __str__(self) -> str:
        return (
            f"buildmatrix {self.buildmatrix} (facts {self.schema}, catalogue {self.catalogue}, "
            f"sources {self.sources}), Python {self.python}"
        )


@cache
def _here() -> Release:
    python = ".".join(platform.python_version_tuple()[:2])
    return Release(__version__, python, SCHEMA, source_digest("catalogue")[:8], source_digest()[:8])


def release_of_worker() -> Release:
    """What a worker runs; asked of all of them at the start."""
    return Release.here()


def unfit(releases: Mapping[str, Release | BaseException]) -> str:
    """Why workers cannot be used, in one sentence; empty where they all can."""
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
            return differs(address, release, here)
    return ""


def differs(address: str, there: Release, here: Release) -> str:
    """The sentence about a worker that runs something else."""
    return (
        f"the worker {address} runs {there}, and here is {here}: verdicts could differ; install "
        "the same versions on both"
    )


def mark_store(store: str, run: str) -> str:
    """Leave something in the store for `miss_mark`, and say why that cannot be, if it cannot."""
    return " ".join(_reached(store, lambda entries: entries.write(_KIND, run, (_MARK,))))


def miss_mark(store: str, run: str) -> str:
    """Why this worker does not find what `mark_store` of another one left; empty where it does.

    A store that gives no answer for now fails no run: that is said in the report.
    """
    found: list[bytes | None] = []
    try:
        troubles = _reached(
            store, lambda entries: found.append(entries.read(_KIND, run, len(_MARK)))
        )
    except BuildmatrixError as error:
        return error.message
    return "" if troubles or found == [_MARK] else "there is nothing of the kind"


def _reached(store: str, work: Callable[[SharedEntries], object]) -> list[str]:
    """What is wrong with the store. Raises what opening it raises."""
    troubles: list[str] = []
    work(SharedEntries(open_storage(store), store, troubles.append, patience=_PATIENCE))
    return troubles


def astray(store: str, marker: str, missing: Mapping[str, str | BaseException]) -> str:
    """The sentence about workers that reach another store than `marker`; empty for none."""
    for address, why in sorted(missing.items()):
        if why:
            return (
                f"the worker {address} does not find in the store {shown(store)} what the worker "
                f"{marker} has just left there ({shown(str(why))}); have all workers reach the "
                "same store, or leave --store out"
            )
    return ""
