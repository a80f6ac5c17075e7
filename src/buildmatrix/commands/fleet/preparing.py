"""Makes the workers of a cluster ready for a run: the same code, the same store, its settings.

Workers may end at any time, also now: Dask starts others, which are told of the run by its plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from distributed import Client

from buildmatrix.commands.fleet.fitness import (
    Release,
    astray,
    mark_store,
    miss_mark,
    release_of_worker,
    unfit,
)
from buildmatrix.commands.fleet.performing import RunPlugin
from buildmatrix.errors import ComponentError

#: Times that workers are asked what they run, and told what to do, while some of them end, and the
#: seconds between these.
_MOST_ASKED = 10
_PAUSE = 0.5


async def prepare(client: Client, where: str, plugin: RunPlugin) -> Mapping[str, int]:
    """Give all workers the settings of a run; their addresses → threads.

    Raises `ComponentError` where one is unfit or reaches another store, or none stays.
    """
    store = plugin.settings.store
    try:
        releases = await _releases(client)
        if problem := unfit(releases):
            raise ComponentError(problem)
        if store and not plugin.is_local:
            await _check_store(client, store, plugin.name, sorted(releases))
        await _hand_out(client, where, plugin)
        threads: Mapping[str, int] = await client.nthreads()
    except OSError as error:
        raise scheduler_lost(where) from error
    return threads


async def _releases(client: Client) -> Mapping[str, Release | BaseException]:
    """What workers run; one that ends while it is asked is asked again, or is gone."""
    for _ in range(_MOST_ASKED):
        releases: dict[str, Release | BaseException] = await client.run(
            release_of_worker, on_error="return"
        )
        if not any(isinstance(release, OSError) for release in releases.values()):
            break
        await asyncio.sleep(_PAUSE)
    return releases


async def _hand_out(client: Client, where: str, plugin: RunPlugin) -> None:
    """Give all workers the settings of a run. Raises OSError where the scheduler is gone.

    When a worker ends meanwhile, the scheduler closes the connection of this client.
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
    """Raise `ComponentError` where a worker does not reach the store that the first one has."""
    if len(workers) < 2:
        return
    first, *others = workers
    troubles = await client.run(mark_store, store, run, workers=[first], on_error="return")
    # A store that nobody can write to is said in the report.
    if not any(troubles.values()):
        answers = await client.run(miss_mark, store, run, workers=others, on_error="return")
        # Who has ended meanwhile is no worker.
        missing = {who: why for who, why in answers.items() if not isinstance(why, OSError)}
        if problem := astray(store, first, missing):
            raise ComponentError(problem)


def scheduler_lost(where: str) -> ComponentError:
    """The error of a run whose scheduler is gone."""
    return ComponentError(
        f"{where} is gone; what was read until then is kept in the store: run the same command "
        "again, and it goes on from there"
    )
