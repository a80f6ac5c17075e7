"""Preparation of a cluster's workers for a run: same code, same store, its settings.

Workers may end at any time: Dask starts others, which learn of the run from its plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from distributed import Client

from buildmatrix.commands.fleet.fitness import (
    Release,
    check_mark,
    find_astray,
    find_release,
    find_unfit,
    mark_store,
)
from buildmatrix.commands.fleet.performing import RunPlugin
from buildmatrix.errors import ComponentError

#: Attempts to ask and instruct workers while some of them end, and seconds between these.
_MOST_ASKED = 10
_PAUSE = 0.5


async def prepare_workers(client: Client, where: str, plugin: RunPlugin) -> Mapping[str, int]:
    """Give all workers the settings of a run; return their addresses with thread counts.

    Raises `ComponentError` if one is unfit or reaches another store, or none stays.
    """
    store = plugin.settings.store
    try:
        releases = await _collect_releases(client)
        if problem := find_unfit(releases):
            raise ComponentError(problem)
        if store and not plugin.is_local:
            await _check_store(client, store, plugin.name, sorted(releases))
        await _hand_out(client, where, plugin)
        threads: Mapping[str, int] = await client.nthreads()
    except OSError as error:
        raise make_scheduler_lost(where) from error
    return threads


async def _collect_releases(client: Client) -> Mapping[str, Release | BaseException]:
    """Return the workers' releases; those that end meanwhile are asked again, or are gone."""
    for _ in range(_MOST_ASKED):
        releases: dict[str, Release | BaseException] = await client.run(
            find_release, on_error="return"
        )
        if not any(isinstance(release, OSError) for release in releases.values()):
            break
        await asyncio.sleep(_PAUSE)
    return releases


async def _hand_out(client: Client, where: str, plugin: RunPlugin) -> None:
    """Send the settings of a run to all workers. Raises OSError if the scheduler is gone.

    If a worker ends meanwhile, the scheduler closes this client's connection.
    """
    for _ in range(_MOST_ASKED):
        try:
            await client.register_plugin(plugin)
            return
        except OSError:
            if client.status != "running":
                raise
        await asyncio.sleep(_PAUSE)
    raise ComponentError(
        f"the workers of {where} end as soon as they are told of this run; give each more memory, "
        "or look at what ends them, and run the same command again"
    )


async def _check_store(client: Client, store: str, run: str, workers: Sequence[str]) -> None:
    """Raise `ComponentError` if a worker does not reach the store of the first one."""
    if len(workers) < 2:
        return
    first, *others = workers
    troubles = await client.run(mark_store, store, run, workers=[first], on_error="return")
    # The report mentions a store that no worker can write to.
    if not any(troubles.values()):
        answers = await client.run(check_mark, store, run, workers=others, on_error="return")
        # Workers that ended meanwhile do not count.
        missing = {who: why for who, why in answers.items() if not isinstance(why, OSError)}
        if problem := find_astray(store, first, missing):
            raise ComponentError(problem)


def make_scheduler_lost(where: str) -> ComponentError:
    """Return the error of a run whose scheduler is gone."""
    return ComponentError(
        f"{where} is gone; what was read until then is kept in the store: run the same command "
        "again, and it goes on from there"
    )
