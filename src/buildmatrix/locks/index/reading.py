"""Reading of the wheels of all locks, each once, as deep as requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import size
from buildmatrix.base.threads import Crew
from buildmatrix.facts.trees.base import defect
from buildmatrix.locks.index.model import DEPTHS, Depth, Tables, WheelFacts
from buildmatrix.locks.model import Lock, LockedFile, Package, SourceFacts
from buildmatrix.net.addresses import RequestError

#: Subject of progress messages; no target has a name like this.
STEP = "wheels"
Answer = TypeVar("Answer")
#: Concurrent whole reads, which do not wait for a server. Large libraries take up to 100 MB each.
MOST_WHOLE = 2
#: Bytes of a wheel that is read whole without others at the same time.
LARGE = 100_000_000


class Reader(Protocol):
    """Reader of facts of wheels: `index.wheels.WheelReader`; called from several threads."""

    def read(self, wheel: LockedFile, depth: Depth, *, most: int | None = None) -> WheelFacts:
        """Return the facts of a wheel. Raises `UndecidedError`."""

    def recall_facts(
        self, wheel: LockedFile, depth: Depth, *, most: int | None = None
    ) -> WheelFacts | None:
        """Return the result of `read` if it is available at once."""

    def read_source(self, archive: LockedFile, name: str, version: str, most: int) -> SourceFacts:
        """Return facts of a source distribution, of up to `most` bytes. See `read` for errors."""

    def read_tables(
        self, wheel: LockedFile, paths: Sequence[str]
    ) -> tuple[Mapping[str, Tables], int]:
        """Return tables of a wheel's libraries, and their cost in bytes. See `read` for errors."""


class CachingReader:
    """A reader that repeats results from memory."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        #: By `key`.
        self.facts: dict[str, WheelFacts] = {}
        #: The limit of bytes of each.
        self._most: dict[str, int | None] = {}

    def read(self, wheel: LockedFile, depth: Depth, *, most: int | None = None) -> WheelFacts:
        """Return the facts of a wheel, at least as deep as requested. Raises `UndecidedError`."""
        facts = self._held(wheel, depth, most)
        return facts or self._keep(wheel, self._reader.read(wheel, depth, most=most), most)

    def recall_facts(
        self, wheel: LockedFile, depth: Depth, *, most: int | None = None
    ) -> WheelFacts | None:
        """See `Reader.recall_facts`."""
        facts = self._held(wheel, depth, most)
        if facts is None:
            facts = self._reader.recall_facts(wheel, depth, most=most)
            return None if facts is None else self._keep(wheel, facts, most)
        return facts

    def read_source(self, archive: LockedFile, name: str, version: str, most: int) -> SourceFacts:
        """See `Reader.read_source`."""
        return self._reader.read_source(archive, name, version, most)

    def read_tables(
        self, wheel: LockedFile, paths: Sequence[str]
    ) -> tuple[Mapping[str, Tables], int]:
        """See `Reader.read_tables`."""
        return self._reader.read_tables(wheel, paths)

    def _held(self, wheel: LockedFile, depth: Depth, most: int | None) -> WheelFacts | None:
        facts = self.facts.get(key(wheel))
        if facts is None or DEPTHS.index(facts.depth) < DEPTHS.index(depth):
            return None
        if facts.depth == depth == "heads" and (most or 0) > (self._most[key(wheel)] or 0):
            return None
        return replace(facts, bytes_read=0)

    def _keep(self, wheel: LockedFile, facts: WheelFacts, most: int | None) -> WheelFacts:
        self.facts[key(wheel)] = facts
        self._most[key(wheel)] = most
        return facts


class WheelRequest(Struct, frozen=True):
    """A wheel to read, the depth, and the limit of bytes."""

    wheel: LockedFile
    depth: Depth
    most: int | None = None


def key(wheel: LockedFile) -> str:
    """Return the identity of a wheel in one run: its name and its place.

    Not its hash alone: a lock claims that, and another lock of the run may claim the same of
    another wheel.
    """
    return f"{wheel.filename} {wheel.sha256} {wheel.url}"


class Readings:
    """Results so far, and their cost."""

    def __init__(self, reader: Reader, jobs: int, progress: Progress) -> None:
        self._reader = reader
        self._jobs = max(1, jobs)
        self._progress = progress
        #: By `key`.
        self.facts: dict[str, WheelFacts] = {}
        #: Reason why a wheel could not be read, by `key`.
        self.failures: dict[str, str] = {}
        #: Those of them of which nothing was read, as no server gave it, by `key`.
        self.unanswered: set[str] = set()
        #: Facts of source distributions, or the reason why there are none, by `key` of the archive.
        self.sources: dict[str, SourceFacts | str] = {}
        #: Tables of libraries by path, by `key` of their wheels; see `index.depth`.
        self.tables: dict[str, dict[str, Tables]] = {}
        #: Bytes received over the network, and wheels that needed none.
        self.bytes_read = 0
        self._fetched: set[str] = set()
        #: Finished wheels of the current call, and their total.
        self._through = 0
        self._expected = 0

    @property
    def cached(self) -> int:
        """Wheels that were known completely before this run."""
        return sum(name not in self._fetched for name in self.facts)

    def read(self, requests: Iterable[WheelRequest], contents: str) -> None:
        """Read wheels in parallel; errors of one do not affect others."""
        work = {key(request.wheel): request for request in requests}
        if not work:
            return
        number = len(work)
        self._progress.step(STEP, f"{contents} of {number}")
        self._through, self._expected = 0, number
        for name, request in list(work.items()):
            facts = self._reader.recall_facts(request.wheel, request.depth, most=request.most)
            if facts is not None:
                self.facts[name] = facts
                del work[name]
        self._through = number - len(work)
        if work:
            self._progress.part(STEP, self._through, number, "wheels")
            self._progress.part(STEP, self.bytes_read, None, "bytes")
        large = {
            name: request
            for name, request in work.items()
            if request.depth == "whole" and name in self.facts and self.facts[name].size > LARGE
        }
        for name in large:
            del work[name]
            self._fetch({name: large[name]})
        if work:
            self._fetch(work)
        self._progress.step(STEP, f"{contents} of {number}: {size(self.bytes_read)} read so far")
        self._progress.end(STEP)

    def read_sources(self, packages: Iterable[Package], most: int) -> None:
        """Read the few source distributions of at most `most` bytes, one after the other."""
        for package in packages:
            archive = package.sdist
            if archive is None or not archive.url:
                continue
            if isinstance(self.sources.get(key(archive)), SourceFacts):
                continue
            self._progress.step(STEP, f"source of {package.name}")
            try:
                facts = self._reader.read_source(archive, package.name, package.version, most)
                self.sources[key(archive)] = facts
            except UndecidedError as error:
                self.sources[key(archive)] = _without_subject(error.message, archive)

    def read_tables(self, requests: Mapping[str, tuple[LockedFile, Sequence[str]]]) -> None:
        """Read the tables of libraries at these paths, by `key` of their wheels."""
        work = list(requests.items())
        if not work:
            return
        self._progress.step(STEP, f"symbols of {len(work)}")
        for (name, (wheel, paths)), answer in Crew(self._read_tables, self._jobs, "wheel").answers(
            work
        ):
            if isinstance(answer, UndecidedError):
                self.failures[name] = _without_subject(answer.message, wheel)
                answer = dict.fromkeys(paths, Tables(None)), 0
            tables, bytes_read = answer
            self.tables.setdefault(name, {}).update(tables)
            self.bytes_read += bytes_read
            if bytes_read:
                self._fetched.add(name)
        self._progress.end(STEP)

    def _read_tables(
        self, work: tuple[str, tuple[LockedFile, Sequence[str]]]
    ) -> tuple[Mapping[str, Tables], int] | UndecidedError:
        _, (wheel, paths) = work
        return _catch_undecided(wheel, lambda: self._reader.read_tables(wheel, paths))

    def with_requirements(self, lock: Lock) -> Lock:
        """Return the lock with the requirements that source distributions state."""
        packages = []
        for package in lock.packages:
            facts = self.sources.get(key(package.sdist)) if package.sdist is not None else None
            if isinstance(facts, SourceFacts):
                package = replace(package, requires=facts.requires)
            packages.append(package)
        return replace(lock, packages=tuple(packages))

    def recall(self, wheels: Iterable[LockedFile]) -> None:
        """Take cached facts of wheels from earlier reads: the rest may be out of reach now."""
        for wheel in wheels:
            facts = self._reader.recall_facts(wheel, "heads", most=0)
            if facts is not None:
                self.facts[key(wheel)] = facts

    def _fetch(self, work: Mapping[str, WheelRequest]) -> None:
        whole = any(request.depth == "whole" for request in work.values())
        jobs = min(self._jobs, MOST_WHOLE) if whole else self._jobs
        for (name, request), facts in Crew(self._read, jobs, "wheel").answers(list(work.items())):
            self._take(name, request, facts)

    def _read(self, work: tuple[str, WheelRequest]) -> WheelFacts | UndecidedError:
        _, request = work
        return _catch_undecided(
            request.wheel,
            lambda: self._reader.read(request.wheel, request.depth, most=request.most),
        )

    def _take(self, name: str, request: WheelRequest, facts: WheelFacts | UndecidedError) -> None:
        self._through += 1
        self._progress.part(STEP, self._through, self._expected, "wheels")
        if isinstance(facts, UndecidedError):
            # Facts of a shallower reading remain; it is noted that there is more.
            self.failures[name] = _without_subject(facts.message, request.wheel)
            if name not in self.facts and isinstance(facts, RequestError) and facts.has_no_answer:
                self.unanswered.add(name)
            self._progress.output(STEP, f"{request.wheel.filename}: {self.failures[name]}")
            return
        self.facts[name] = facts
        self.bytes_read += facts.bytes_read
        if facts.bytes_read:
            self._fetched.add(name)
            self._progress.part(STEP, self.bytes_read, None, "bytes")
        self._progress.output(STEP, request.wheel.filename)


def _catch_undecided(wheel: LockedFile, read: Callable[[], Answer]) -> Answer | UndecidedError:
    """Call `read`; return its error if it is undecided, so that other wheels are not affected."""
    try:
        return read()
    except UndecidedError as error:
        return error
    except BuildmatrixError:
        raise
    except Exception as error:
        return UndecidedError(f"{wheel.filename} cannot be read: {defect(error)}")


def _without_subject(message: str, wheel: LockedFile) -> str:
    """Return a message about a wheel without the wheel's name."""
    for name in (wheel.url, wheel.filename):
        if message.startswith(f"{name} "):
            return f"it {message.removeprefix(name).lstrip()}"
    return message
