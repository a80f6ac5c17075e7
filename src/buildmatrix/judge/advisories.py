"""Queries an advisory service once for all distributions of a run, and caches its answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from typing import Annotated

import msgspec
from msgspec import Struct

from buildmatrix.base.child import scratch
from buildmatrix.base.progress import Progress, Silent
from buildmatrix.base.threads import prepare_type
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.model import Advisories, Advisory, Key, PinAnswer, Unchecked
from buildmatrix.judge.pip_audit import Pin, PipAuditRun, Reply, ServiceName, batches, pins_of
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Policy


class AdvisoryOptions(Struct, frozen=True):
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


# Cached answers, for runs without a network and runs in quick succession.
#
# pip-audit's own cache cannot serve these: OSV is queried by POST, which no HTTP cache stores, and
# PyPI's answers may be cached for a quarter of an hour only.


#: An answer so young is not asked for again; as long as PyPI lets its own answers be kept.
FRESH = timedelta(minutes=15)
#: An answer so old is no longer used.
STALE = timedelta(days=7)
#: Bytes of all answers together.
_LIMIT = 64_000_000
#: Changes with the layout of `Remembered`.
_VERSION = "2"


class Remembered(Struct, frozen=True):
    """One answer, and when the service gave it."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    advisories: tuple[Advisory, ...] = ()
    #: Why the service knows nothing, where it does not know the version.
    unknown: str | None = None


_ANSWER = msgspec.msgpack.Decoder(prepare_type(Remembered))


class AdvisoryMemory:
    """The answers of one service that a cache keeps."""

    def __init__(self, cache: Cache | None, service: str, now: datetime) -> None:
        self._now = now
        self._service = service
        self._store = (cache or Cache(None)).store(
            "advisories", _VERSION, limit=_LIMIT, age=STALE.total_seconds()
        )

    def recall(self, pin: Pin, oldest: timedelta) -> Remembered | None:
        """The answer about a pin, unless it is older than `oldest`."""
        answer = self._store.load(self._key(pin), _ANSWER)
        # An answer from the future is from a clock that was wrong.
        if answer is None or not timedelta(0) <= self._now - answer.at <= oldest:
            return None
        return answer

    def keep(self, answers: Mapping[Pin, Remembered]) -> None:
        """Remember answers."""
        for pin, answer in answers.items():
            self._store.save(self._key(pin), answer)

    def _key(self, pin: Pin) -> str:
        return f"{self._service} {pin}"


# `pip-audit` fails a whole run if the service fails for one package. So packages are queried in
# batches, a few processes at a time, and a failing batch is halved until that package is found. A
# service that answers nothing is given up after a few failures.


_TITLES: dict[ServiceName, str] = {"pypi": "PyPI", "osv": "OSV"}
_POLL_S = 0.02
_NO_VERSION = "its version is not known"
_STRANGE = "its name is not valid (PEP 508), or its version is not (PEP 440)"
_OFFLINE = f"offline, and no answer of the last {STALE.days} days is remembered"


class Limits(Struct, frozen=True):
    """Bounds of one check."""

    #: Seconds that one wait for the network may last.
    timeout: int = 10
    #: Seconds for everything, and further seconds for each package.
    base: float = 45.0
    each: float = 0.5
    #: Processes at a time, and packages that one of them asks about. It takes a second to start.
    processes: int = 4
    few: int = 8
    most: int = 40
    #: Failed runs, with no good one, after which the service is given up.
    failures: int = 3


def check(
    packages: Iterable[Key],
    *,
    service: ServiceName = "pypi",
    url: str | None = None,
    offline: bool = False,
    cache: Cache | None = None,
    progress: Progress | None = None,
    limits: Limits | None = None,
    now: datetime | None = None,
    stop: Event | None = None,
) -> Advisories:
    """Return the advisories against each of `packages`, (name, version) of all targets together.

    `url` is the OSV service to ask instead of the public one. `cache` keeps the HTTP cache of
    pip-audit and the answers of the last days; None for neither. Never raises for what a service
    does: what it did not answer is in `unchecked`. Once `stop` is set, it ends at once.
    """
    now = now or datetime.now(UTC)
    title = _TITLES[service] + (f" at {url}" if url is not None else "")
    pins, strange = pins_of(packages)
    unchecked = {
        key: Unchecked(_NO_VERSION if not key[1] else _STRANGE, "package") for key in strange
    }
    memory = AdvisoryMemory(cache, title, now)
    remembered_pins = {
        pin: remembered
        for pin in set(pins.values())
        if (remembered := memory.recall(pin, STALE if offline else FRESH)) is not None
    }
    missing = sorted(set(pins.values()) - set(remembered_pins))
    failed = dict.fromkeys(missing, _OFFLINE)
    if missing and not offline:
        (progress or Silent()).note(f"asking {title} for advisories about {len(missing)} packages")
        folder = cache.folder / "advisories" if cache is not None and cache.folder else None
        found, failed = _run_pip_audit(
            missing, service, url, folder, limits or Limits(), stop or Event()
        )
        new_answers = {pin: Remembered(now, *answer) for pin, answer in found.items()}
        memory.keep(new_answers)
        remembered_pins |= new_answers
    is_ignorant = len(remembered_pins) > 1 and all(
        item.unknown is not None for item in remembered_pins.values()
    )
    # One reason for all: it names a package.
    example = remembered_pins[min(remembered_pins)].unknown if remembered_pins else None
    answers = {}
    for key, pin in pins.items():
        remembered = remembered_pins.get(pin)
        if remembered is None:
            unchecked[key] = Unchecked(failed[pin], "service")
        elif remembered.unknown is None:
            answers[key] = PinAnswer(remembered.advisories, pin.version, remembered.at)
        elif is_ignorant:
            # A service that knows none of many packages is a broken mirror, or no such service.
            reason = f"it knows none of {len(remembered_pins)} packages: {example}"
            unchecked[key] = Unchecked(reason, "service")
        else:
            unchecked[key] = Unchecked(remembered.unknown, "package")
    return Advisories(title, answers, unchecked)


def _run_pip_audit(
    pins: Sequence[Pin],
    service: ServiceName,
    url: str | None,
    folder: Path | None,
    limits: Limits,
    stop: Event,
) -> tuple[dict[Pin, tuple[tuple[Advisory, ...], str | None]], dict[Pin, str]]:
    """Run `pip-audit` until every pin is answered, skipped, or given up.

    Return the advisories, or why the service knows none (exactly one of the two means something),
    and why there is no answer.
    """
    answers: dict[Pin, tuple[tuple[Advisory, ...], str | None]] = {}
    failed = dict.fromkeys(pins, "there was no time left to ask")
    waiting = deque(batches(pins, limits.processes, limits.few, limits.most))
    running: list[PipAuditRun] = []
    failures, last_reason = 0, ""
    deadline = time.monotonic() + limits.base + limits.each * len(pins)
    with scratch("pip-audit") as place:
        cache = folder / "pip-audit" if folder is not None else place / "cache"
        try:
            while (waiting or running) and not stop.is_set() and time.monotonic() < deadline:
                while waiting and len(running) < limits.processes:
                    own, batch = Path(mkdtemp(dir=place)), waiting.popleft()
                    run = PipAuditRun(
                        batch, own, service=service, url=url, cache=cache, timeout=limits.timeout
                    )
                    running.append(run)
                for run in [run for run in running if run.is_over()]:
                    running.remove(run)
                    try:
                        result = run.result()
                    finally:
                        run.stop()
                    if isinstance(result, Reply):
                        answers |= {pin: (found, None) for pin, found in result.advisories.items()}
                        answers |= {pin: ((), reason) for pin, reason in result.skipped.items()}
                        for pin in (*result.advisories, *result.skipped):
                            del failed[pin]
                        continue
                    failures, last_reason = failures + 1, result
                    failed |= dict.fromkeys(run.pins, result)
                    if len(run.pins) > 1:
                        middle = len(run.pins) // 2
                        waiting += (run.pins[:middle], run.pins[middle:])
                if failures >= limits.failures and not answers:
                    return answers, dict.fromkeys(failed, last_reason)
                time.sleep(_POLL_S)
        except OSError as error:
            failed = dict.fromkeys(failed, f"pip-audit cannot be run: {error.strerror or error}")
        finally:
            for run in running:
                run.stop()
    return answers, failed
