"""Subjects of a fleet, tasks and answers of workers, and their failures.

Subjects, tasks and answers are sent between processes.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from msgspec import Struct, field

from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.base.text import printable, shown
from buildmatrix.facts.trees.base import defect, reason
from buildmatrix.images.documents import Descriptor
from buildmatrix.matrix.model import NodeClass
from buildmatrix.net.addresses import RequestError
from buildmatrix.reports.fleet import BackendBy, FleetResult

# Images


Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


#: Seconds; enough for a layer of 20 GB at 6 MB/s.
TIME_LIMIT = 3600.0
#: Size of layers that are read along with other work.
SMALL_LAYER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One image of the fleet, before it is read."""

    #: `HOST/NAME[:TAG][@DIGEST]`, as formatted by `registry.reference.Reference`.
    reference: str
    #: Its sources in the fleet: `registry:HOST/PREFIX/*`, `images.txt:7`, `pod NAMESPACE/NAME`.
    places: tuple[str, ...]
    #: Names of its node classes, and the number of containers running it.
    node_classes: tuple[str, ...] = ()
    containers: int = 0
    #: Owner according to the source; empty if unknown.
    owner: str = ""
    #: Digest of its tag, if the registry was asked in this run; it is not asked again.
    digest: str = ""


class BackendPattern(Struct, frozen=True, kw_only=True):
    """References with a backend in their name: `*/rocm-*=rocm`."""

    pattern: str
    backend: str


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Settings for every worker, sent once. They contain no secrets, and nothing local.

    Credentials stay where they are: a worker reads the Docker configuration, the environment and
    the helpers of its own machine, like every command.
    """

    #: URL of the store shared by all workers, in fsspec syntax; empty for the local cache of each
    #: worker's machine.
    store: str
    #: `linux/amd64`: the platform of the image in an index.
    platform: str
    today: date
    #: Backend for images with no other source of it; empty for none.
    backend: str = ""
    patterns: tuple[BackendPattern, ...] = ()
    #: Those of the specification and of the cluster, which images are checked against.
    node_classes: tuple[NodeClass, ...] = ()
    #: Names of the node classes that every image is checked against (`--would-run-on`).
    would_run_on: tuple[str, ...] = ()
    #: Labels of an image that name its owner; the first one present wins.
    owner_labels: tuple[str, ...] = ()
    #: The user's data files for the catalogue: name to text.
    data_files: Mapping[str, str] = field(default_factory=dict)
    #: Time limit in seconds for reading each layer, and for each image.
    time_limit: float = TIME_LIMIT


#: Function of a worker, from `fleet.work`.
Work = Callable[[WorkerSettings, Argument], Answer]


class WorkerAnswer(Struct, frozen=True, kw_only=True):
    """Part of every answer: whether a retry may help, and messages."""

    #: True if a problem may be temporary, so that a retry may help.
    again: bool = False
    #: True if it concerns credentials: a worker with others may succeed.
    denied: bool = False
    #: Seconds of the registry's rate limit; 0 for none.
    wait: float = 0.0
    #: Other messages of this worker, sent once: its store is full.
    notes: tuple[str, ...] = ()


class LayerTask(Descriptor, frozen=True, kw_only=True):
    """A layer that must be read before an image can be judged."""

    #: An image that contains it, by digest.
    reference: str


class LayerDone(WorkerAnswer, frozen=True, kw_only=True):
    """Result of reading one layer."""

    digest: str
    #: Bytes downloaded.
    bytes_read: int = 0
    seconds: float = 0.0
    #: Why its facts are missing, in one sentence; None if the store has them now.
    error: str | None = None


class ImageTask(WorkerAnswer, frozen=True, kw_only=True):
    """An image by its digest, with missing inputs of its verdict."""

    subject: Subject
    #: `HOST/NAME[:TAG]@DIGEST` of the image for the platform.
    reference: str
    #: Layers missing from the store; none if the image can be judged now.
    unread: tuple[LayerTask, ...] = ()
    #: Layers that failed in this run, with the reason: the image is undecided.
    failed: tuple[LayerDone, ...] = ()
    #: Digest of the reference, possibly of an index; empty if unknown.
    pinned: str = ""
    #: Results known without reading: those of an earlier run, or its problem, without data of the
    #: subject. With results, there is no work.
    results: tuple[FleetResult, ...] = ()
    #: True if the results come from the store; True if it has them now.
    is_stored: bool = False
    is_kept: bool = False
    #: Digests of the layers read already, and bytes downloaded.
    read: tuple[str, ...] = ()
    bytes_read: int = 0
    #: Why there is nothing to judge, in one sentence: it is not an image (a signature, a chart), or
    #: there is none for the platform. Such a subject has no result and no work.
    left_out: str = ""


class ImageDone(WorkerAnswer, frozen=True, kw_only=True):
    """Result of judging one image."""

    #: At least one: an undecided one with the reason if it could not be judged. Without data of the
    #: subject.
    results: tuple[FleetResult, ...]
    #: Bytes downloaded: of layers that the store lost, of requested files.
    bytes_read: int
    seconds: float
    #: True if the store has the results now.
    is_kept: bool = False


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """Choice of workers."""

    #: Local processes; 0 for one per core.
    workers: int = 0
    #: Address of a Dask scheduler (`tcp://HOST:PORT`, `tls://HOST:PORT`) to use instead.
    scheduler: str = ""


# Repositories


class Holder(Struct, frozen=True, kw_only=True):
    """Location of a file; equal files of many repositories are one task."""

    #: Name in the fleet.
    repository: str
    #: Relative to the root of the repository.
    path: str
    #: Full commit id of the default branch, and its time in RFC 3339.
    commit: str
    created: str
    #: Source of the repository in the fleet: a folder, `repositories.txt:7`.
    place: str
    owner: str = ""
    backend_by: BackendBy = "nothing"


class AuditTask(Struct, frozen=True, kw_only=True):
    """A file that declares distributions, for one backend, with all files that it reads.

    It holds bytes and no local paths: a worker needs neither git nor the repository.
    """

    holders: tuple[Holder, ...]
    #: Key of the file in `files`.
    path: str
    #: Path to contents, compressed by zlib.
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Empty for a specification, which has one for each of its targets.
    backend: str = ""
    #: Why it cannot be judged, in one sentence; then there is no work.
    error: str = ""


class AuditDone(WorkerAnswer, frozen=True, kw_only=True):
    """Result of judging one file; `again` if an index did not respond."""

    #: At least one per holder: an undecided one if it could not be judged.
    results: tuple[FleetResult, ...]
    #: Bytes of wheels downloaded.
    bytes_read: int = 0
    seconds: float = 0.0
    #: True if it may do better at the end of the run: a disk was full, or a worker died.
    again_later: bool = False
    #: Host and port of an index that did not respond and may later; empty if all did.
    away: str = ""
    #: True if the results come from the store.
    is_stored: bool = False


# Failures of work, and the shared wait for registries that are unavailable or busy.
#
# Failures caused by a registry or the bytes of an image end here: one image never ends the work on
# others. A worker has retried a few times before it reports a temporary failure. If each of 10,000
# images then retried alone, a busy registry would get 10,000 times more requests, and all images
# would fail within the minute that it is unavailable.


#: Errors that only concern this machine at this moment.
_TEMPORARY = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
)
#: Credentials expire and are renewed.
_DENIED = (401, 403)
_LONGEST = 1000


class WorkerKilledError(Exception):
    """A task was returned since its workers died repeatedly."""


class WorkError(Exception):
    """A worker's code raised an unexpected exception; the text is a sentence about it."""


class LateError(WorkError):
    """A task exceeded its time limit; the text is a sentence about it."""


def describe_timeout(what: str, limit: float) -> str:
    """Return the sentence about work that exceeded the time limit, in seconds."""
    return (
        f"{what} took more than {limit:.0f} s, the time limit of one image or layer; run it again "
        "with a higher --time-limit if it is only slow"
    )


class Failure(Struct, frozen=True):
    """Failure of an operation."""

    #: One sentence, safe to display; empty for no failure.
    text: str = ""
    #: True if it may be temporary.
    again: bool = False
    #: True if a registry refused it for missing or invalid credentials.
    denied: bool = False
    #: Seconds of a registry's rate limit; 0 for none.
    wait: float = 0.0


def make_failure(error: Exception, what: str = "") -> Failure:
    """Convert an exception to a failure; `what` begins the sentence if it has no subject."""
    begin = f"{what}: " if what else ""
    denied, wait, again = False, 0.0, False
    if isinstance(error, BuildmatrixError):
        text = error.message
        if isinstance(error, RequestError):
            denied, wait = error.status in _DENIED, error.wait or 0.0
            again = error.is_temporary or denied
    elif isinstance(error, MemoryError):
        text, again = f"{begin}there was not enough memory", True
    elif isinstance(error, OSError):
        text, again = f"{begin}{reason(error)}", error.errno in _TEMPORARY
    else:
        text = f"{begin}{defect(error)}"
    return Failure(printable(shown(" ".join(text.split())))[:_LONGEST], again, denied, wait)


BoundAnswer = TypeVar("BoundAnswer", bound=WorkerAnswer)
#: Unanswered questions after which the user is notified.
_NOTIFIED_FAILURES = 2


class RegistryUnavailableError(Exception):
    """A registry was waited for long enough; the text is the sentence."""


class RequeuedError(Exception):
    """A question was not asked, since another one got a temporary failure."""


class WaitingOptions(Struct, frozen=True, kw_only=True):
    """Waiting times for registries, in seconds."""

    #: Without any useful answer; and if others get some.
    longest: float = 180.0
    longest_alone: float = 60.0
    #: Between two questions: doubles from the first to the last.
    first_pause: float = 1.0
    last_pause: float = 15.0

    def pause(self, failed: int) -> float:
        """Return the pause after this many unanswered questions."""
        return min(self.first_pause * 2.0 ** min(failed, 30), self.last_pause)


class _RegistryState(Struct):
    #: Time of its last useful answer, and questions without one since then.
    answered: float = float("-inf")
    failing: set[object] = field(default_factory=set)
    #: Start of the outage for everyone; None if unknown.
    away_since: float | None = None
    #: Time of the next question, and failures since the outage began.
    next: float = 0.0
    failed: int = 0
    #: True if caused by missing credentials.
    is_denied: bool = False
    #: Held by the one question at a time during an outage, in turn.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def state(self) -> str:
        """Describe its problem, for a sentence."""
        return "refusing the credentials of workers" if self.is_denied else "away or busy"


class RegistryWaiting:
    """State of the registries of a run. Belongs to one event loop."""

    def __init__(self, options: WaitingOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        self._hosts: dict[str, _RegistryState] = {}
        #: Number of repeated questions.
        self.repeated = 0

    async def ask(self, name: str, ask: Callable[[], Awaitable[BoundAnswer]]) -> BoundAnswer:
        """Return the answer of `ask` about the registry `name`, with limited retries if temporary.

        If the failure persists, that is the last answer. Raises `RegistryUnavailableError` if the
        registry has been unavailable for so long that it is not even asked.
        """
        host = self._hosts.setdefault(name, _RegistryState())
        first: float | None = None
        for failed in itertools.count():
            try:
                if host.away_since is None:
                    answer = await ask()
                else:
                    answer = await self._in_turn(host, name, ask)
            except RequeuedError:
                continue
            now = self._now()
            if not answer.again:
                host.answered, host.away_since = now, None
                host.failing.clear()
                return answer
            if answer.denied and host.answered == float("-inf"):
                # The credentials never worked, so there is nothing to renew.
                return answer
            host.is_denied = answer.denied
            first = now if first is None else first
            # A question that fails alone is itself broken; others need not wait for it.
            host.failing.add(ask)
            if len(host.failing) > 1 and host.away_since is None:
                host.away_since, host.failed = now, 0
                host.next = now + max(self._options.pause(0), answer.wait)
            is_alone = host.answered > first
            limit = self._options.longest_alone if is_alone else self._options.longest
            if now + answer.wait - first > limit:
                return answer
            self.repeated += 1
            if host.away_since is None:
                await asyncio.sleep(max(self._options.pause(failed), answer.wait))
        raise AssertionError("counting has no end")

    async def _in_turn(
        self, host: _RegistryState, name: str, ask: Callable[[], Awaitable[BoundAnswer]]
    ) -> BoundAnswer:
        """Ask an unavailable registry from time to time, one question at a time."""
        async with host.turn:
            since = host.away_since
            if since is not None:
                left, longest = host.next - self._now(), self._options.longest
                if left > longest:
                    raise RegistryUnavailableError(
                        f"{name} is rate-limited for {math.ceil(left)} s and was not asked for "
                        "this; run it again later"
                    )
                if self._now() - since > longest and left > 0:
                    raise RegistryUnavailableError(
                        f"{name} was {host.state} for {longest:.0f} s and was not asked for this; "
                        "run it again later"
                    )
                await asyncio.sleep(left)
                answer = await ask()
                if answer.again:
                    host.failed += 1
                    if host.failed == _NOTIFIED_FAILURES:
                        self._note(f"{name} is {host.state}: waiting for it")
                    host.next = self._now() + max(self._options.pause(host.failed), answer.wait)
                return answer
        # It answered another question meanwhile.
        return await ask()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
