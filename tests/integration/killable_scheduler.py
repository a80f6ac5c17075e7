"""A Dask scheduler with two workers in a process of its own, for tests to kill."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

#: Seconds until it is there, on a machine that has much else to do.
_STARTED = 120


@contextmanager
def killable_scheduler(
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Its address, and what kills it; `environment` adds to that of this process."""
    from distributed.utils import get_mp_context

    context = get_mp_context()
    queue = context.Queue()
    process = context.Process(target=_serve, args=(dict(environment or {}), queue))
    process.start()
    try:
        yield queue.get(timeout=_STARTED), process.kill
    finally:
        process.kill()
        process.join()


def _serve(environment: Mapping[str, str], address: Any) -> None:
    from distributed import Scheduler, Worker

    os.environ.update(environment)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    async def serve() -> None:
        async with (
            Scheduler(port=0, host="127.0.0.1", dashboard=False) as scheduler,
            Worker(scheduler.address, nthreads=1, dashboard=False),
            Worker(scheduler.address, nthreads=1, dashboard=False),
        ):
            address.put(scheduler.address)
            await scheduler.finished()

    asyncio.run(serve())
