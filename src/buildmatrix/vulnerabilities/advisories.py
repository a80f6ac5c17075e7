"""Advisories for all distributions of a run, asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

from buildmatrix.locks.model import Lock
from buildmatrix.progress import Progress
from buildmatrix.spec.model import Policy
from buildmatrix.store.cache import Cache
from buildmatrix.vulnerabilities.model import Advisories


@dataclass(frozen=True, slots=True)
class AdvisoryOptions:
    """Settings for asking for advisories."""

    #: Answers of the last days count; no service is asked.
    offline: bool = False
    #: Where answers are kept; None for nowhere.
    cache: Cache | None = None


@contextmanager
def pending_advisories(
    locks: Iterable[Lock], policy: Policy, asking: AdvisoryOptions | None, progress: Progress
) -> Iterator[Callable[[], Advisories | None]]:
    """Ask beside other work; the call waits for the answer, None where no service is asked.

    When the block is left early, asking ends too.
    """
    if asking is None:
        yield lambda: None
        return
    stop = Event()
    with ThreadPoolExecutor(1, thread_name_prefix="advisories") as pool:
        future = pool.submit(ask, locks, policy, asking, progress, stop)
        try:
            yield future.result
        finally:
            stop.set()


def ask(
    locks: Iterable[Lock],
    policy: Policy,
    asking: AdvisoryOptions,
    progress: Progress,
    stop: Event | None = None,
) -> Advisories:
    """Ask the service of the policy about all locked packages of others, for all targets."""
    from buildmatrix.vulnerabilities.check import check

    packages = (package for lock in locks for package in lock.packages)
    return check(
        {(package.name, package.version) for package in packages if not package.is_local},
        service=policy.vulnerabilities.service,
        url=policy.vulnerabilities.url,
        offline=asking.offline,
        cache=asking.cache,
        progress=progress,
        stop=stop,
    )
