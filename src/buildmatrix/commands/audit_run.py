"""Steps of an audit: lists of files first, then the beginnings of binaries that matter.

Every wheel is read once for all targets. Its list has its name, requirements and file names, which
settle most distributions. For the others, the beginnings of binaries are read within a budget
(`budget`), then more of those that are still open; with `deep`, everything. With `strict`,
distributions that are open after that are read whole, until the audit is certain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import shown
from buildmatrix.base.threads import prepare_type
from buildmatrix.commands.audit_symbols import (
    ROUNDS,
    find_edges,
    find_importers,
    find_unread,
    take_affordable,
    tell_more,
)
from buildmatrix.commands.audit_target import (
    AuditedTarget,
    AuditWork,
    Merger,
    judge_target,
    link_tables,
    list_failures,
    start,
)
from buildmatrix.facts.inventory.model import Inventory, Stats
from buildmatrix.images.store.cache import DAY, Cache, source_digest
from buildmatrix.judge.acceptance import fails
from buildmatrix.judge.certainty import DECISIVE, Gain
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.registry import LOAD_FAILURES
from buildmatrix.judge.unread import merge_causes
from buildmatrix.locks.index.model import (
    LARGEST_SOURCE,
    USUAL_SOURCE,
    Member,
    Need,
    WheelFacts,
    leftover_shares,
    most,
    shares,
    tables_cost,
)
from buildmatrix.locks.index.reading import Reader, Readings, WheelRequest, key
from buildmatrix.locks.index.wheels import local_path
from buildmatrix.locks.model import LockedFile, Package
from buildmatrix.sources.resolved import Resolved
from buildmatrix.sources.wheels_on_index import JOBS

# Results, cached by everything that they depend on.
#
# Equal locks, rules and settings give equal findings, so the same audit reads no wheel again and
# judges none. Facts of a wheel hold for its address and the hash that its lock claims
# (`locks.index.model`), and so do these results: a lock that names a file of this machine, or one
# without a hash, has none. Waivers, baselines and advisories depend on the day. Every run applies
# them.


#: Bytes of all entries; that of 100 distributions for four backends has 1 MB.
_CACHE_LIMIT = 128 << 20


class Audited(Struct, frozen=True):
    """Results of an audit, in the order of its targets."""

    targets: tuple[AuditedTarget, ...]
    #: Only contains unread files and counts.
    read: Inventory
    #: Number of wheels that were read.
    wheels: int


class AuditMemory:
    """The entry of one audit in a cache; `cache` is None for no cache."""

    def __init__(
        self, cache: Cache | None, resolved: Sequence[Resolved], judge: Judge, *, deep: bool
    ) -> None:
        version = source_digest() if cache is not None and cache.folder is not None else ""
        self._store = (cache or Cache(None)).store(
            "audits", version, limit=_CACHE_LIMIT, age=30 * DAY, by_use=True, is_shared=False
        )
        self._key = ""
        if self._store.is_enabled and all(map(_is_constant, _list_files(resolved))):
            # A set has no order.
            parts = [
                (item.target, item.lock, sorted(item.lock.decided), item.stale) for item in resolved
            ]
            data = msgspec.json.encode(
                (parts, judge.basis, deep), enc_hook=str, order="deterministic"
            )
            self._key = hashlib.sha256(data).hexdigest()

    def load(self) -> Audited | None:
        """Return the results of an earlier run; None without any."""
        if not self._key:
            return None
        audited = self._store.load(self._key, msgspec.msgpack.Decoder(prepare_type(Audited)))
        if audited is None:
            return None
        stats = replace(audited.read.stats, bytes_read=0, cached=audited.wheels)
        return replace(audited, read=replace(audited.read, stats=stats))

    def save(self, audited: Audited) -> None:
        """Cache results that only the locks and the rules decided, unless they hold a secret."""
        packages = [package for target in audited.targets for package in target.packages]
        if self._key and all(
            type(package) is Package and not _has_secret(package) for package in packages
        ):
            self._store.save(self._key, audited)


def _has_secret(package: Package) -> bool:
    """Return True if an address of a package has a password or a signature in it."""
    files = [*package.wheels, *([package.sdist] if package.sdist is not None else [])]
    urls = [*(file.url for file in files), package.index or "", package.source]
    return any(shown(url) != url for url in urls)


def _list_files(resolved: Sequence[Resolved]) -> Iterator[LockedFile]:
    """Yield the files that an audit reads."""
    for item in resolved:
        work = start(item)
        yield from work.wheels.values()
        for package in item.lock.packages:
            if package.sdist is not None and package.name in work.without_wheel:
                yield package.sdist


def _is_constant(file: LockedFile) -> bool:
    return bool(file.sha256) and local_path(file.url) is None


# Reading and judging


#: Bytes of tables of symbols, and their part of those beyond lists of files where others wait.
MOST_FOR_SYMBOLS = 16 << 20
PART_FOR_SYMBOLS = 3


def audit_wheels(
    resolved: Sequence[Resolved], reader: Reader, judge: Judge, progress: Progress
) -> tuple[AuditedTarget, ...]:
    """Audit the wheels of locks: one result per lock, in order."""
    run = AuditRun(resolved, Readings(reader, JOBS, progress), judge)
    run.read_and_judge()
    return tuple(
        replace(work.audited, findings=judge.settled(work.audited.findings)) for work in run.works
    )


class AuditRun:
    """The targets of an audit, and the bytes that were read for them."""

    def __init__(self, resolved: Sequence[Resolved], readings: Readings, judge: Judge) -> None:
        self.works = tuple(map(start, resolved))
        self.readings = readings
        self._judge = judge
        self._merger = Merger(judge)
        self._wheels = {key(wheel): wheel for work in self.works for wheel in work.wheels.values()}

    def read_and_judge(self, *, deep: bool = False, strict: bool = False) -> None:
        """Read the wheels of all targets as far as needed, and judge each target."""
        readings = self.readings
        lists = [WheelRequest(wheel, "listing") for wheel in self._wheels.values()]
        readings.read(lists, "file lists")
        unbuilt = {
            key(package.sdist): package
            for work in self.works
            for package in work.resolved.lock.packages
            if package.sdist is not None and package.name in work.without_wheel
        }
        readings.read_sources(unbuilt.values(), LARGEST_SOURCE if deep else USUAL_SOURCE)
        for work in self.works:
            lock = readings.with_requirements(work.resolved.lock)
            work.resolved = replace(work.resolved, lock=lock)
            judge_target(work, readings, self._merger, self._judge)
        gained = self._find_gains()
        if deep:
            whole = [WheelRequest(self._wheels[name], "whole") for name in sorted(gained)]
            readings.recall(request.wheel for request in whole)
            self._read_on(whole, "contents")
            return
        total = sum(facts.size for facts in readings.facts.values())
        needs = _find_needs({name: readings.facts[name] for name in gained})
        order: tuple[Gain, ...] = ("verdict", "evidence")
        groups = [{name: needs[name] for name in gained if gain in gained[name]} for gain in order]
        for work in self.works:
            facts = work.facts(readings)
            work.edges = find_edges(
                [item for read in facts.values() for item in read.inventory.distributions],
                {name: read.members for name, read in facts.items()},
                work.resolved.target,
                self._judge.catalogue,
            )
        heads = frozenset(name for group in groups for name in group)
        reserved = self._reserve_for_symbols(heads, most(total))
        first = shares(groups, total, reserved)
        self._read_heads(first, "beginnings of binaries")
        # Where device code lies behind most of the host's code, a beginning does not show it.
        open_still = {
            name: needs[name]
            for name, gain in self._find_gains().items()
            if not gain.isdisjoint(DECISIVE) and name in first
        }
        spent = sum(first.values()) + reserved
        more = leftover_shares(open_still, total, spent)
        self._read_heads(more, "more of the binaries")
        left = max(0, most(total) - spent - sum(more.values()))
        self._read_symbols(min(reserved + left, MOST_FOR_SYMBOLS))
        # How bad it is depends on whether an import gets there, which Python files say.
        failing = _find_needs(self._find_unread_failures())
        self._read_heads({name: need.most for name, need in failing.items()}, "imports")
        if strict:
            undecided = self._find_gains(unless_failing=True)
            whole = [
                WheelRequest(self._wheels[name], "whole")
                for name in sorted(undecided)
                if not undecided[name].isdisjoint(DECISIVE)
            ]
            self._read_on(whole, "all bytes of what is undecided")

    def _read_heads(self, shares: Mapping[str, int], contents: str) -> None:
        wheels = self._wheels
        heads = [WheelRequest(wheels[name], "heads", most) for name, most in sorted(shares.items())]
        self._read_on(heads, contents)

    def _read_on(self, requests: Sequence[WheelRequest], contents: str) -> None:
        """Read wheels deeper, and judge again those targets that have any of them."""
        if not requests:
            return
        self._merger.forget()
        self.readings.read(requests, contents)
        changed = {key(item.wheel) for item in requests}
        for work in self.works:
            if changed.intersection(work.keys):
                judge_target(work, self.readings, self._merger, self._judge)

    def _find_unread_failures(self) -> Mapping[str, WheelFacts]:
        """Wheels with Python of which only tables were read, and these say that loading fails."""
        return {
            key(work.wheels[name]): facts
            for work in self.works
            for finding in work.audited.findings
            if finding.rule in LOAD_FAILURES
            for name, facts in work.facts(self.readings).items()
            if name == finding.distribution
            and facts.depth == "listing"
            and any(member.path.endswith(".py") for member in facts.members)
        }

    def _reserve_for_symbols(self, heads: Collection[str], most: int) -> int:
        """Bytes for tables of wheels that are not in `heads`; what they link costs as much."""
        costs: dict[str, int] = {}
        for work in self.works:
            importers = find_importers(work.edges, work.facts(self.readings))
            for name, members in importers.items():
                if key(work.wheels[name]) not in heads:
                    costs[key(work.wheels[name])] = sum(map(tables_cost, members))
        return min(2 * sum(costs.values()), most // PART_FOR_SYMBOLS, MOST_FOR_SYMBOLS)

    def _read_symbols(self, most: int) -> None:
        """Read tables of symbols across wheels, and judge again the targets that have any."""
        readings = self.readings
        for _ in range(ROUNDS):
            wanted: dict[str, dict[str, Member]] = {}
            for work in self.works:
                for name, member in self._find_wanted(work):
                    wheel = key(work.wheels[name])
                    if member.path not in readings.tables.get(wheel, ()):
                        wanted.setdefault(wheel, {})[member.path] = member
            chosen = take_affordable(
                {name: list(found.values()) for name, found in wanted.items()}, most
            )
            if not chosen:
                break
            readings.read_tables(
                {
                    name: (self._wheels[name], [member.path for member in members])
                    for name, members in chosen.items()
                }
            )
            most -= sum(
                readings.tables[name][member.path].cost
                for name, members in chosen.items()
                for member in members
            )
            for work in self.works:
                if chosen.keys() & set(work.keys):
                    link_tables(work, readings, self._merger)
        for work in self.works:
            if work.linked is not None and tell_more(
                work.linked, self._merger.merged(work, readings).resolution
            ):
                judge_target(work, readings, self._merger, self._judge)

    def _find_wanted(self, work: AuditWork) -> Iterator[tuple[str, Member]]:
        """Yield libraries that needed symbols depend on, then further importers."""
        facts = work.facts(self.readings)
        if work.linked is not None:
            yield from find_unread(work.linked, work.edges, facts)
        for name, members in find_importers(work.edges, facts).items():
            yield from ((name, member) for member in members)

    def _find_gains(self, *, unless_failing: bool = False) -> dict[str, set[Gain]]:
        """Wheel -> what a deeper look into it could say, on any target.

        With `unless_failing`, on targets where no finding about it fails the run already.
        """
        gained: dict[str, set[Gain]] = {}
        for work in self.works:
            findings = self._judge.settled(work.audited.findings) if unless_failing else ()
            failing = {
                name for finding in filter(fails, findings) for name in finding.distributions
            }
            for owner, gain in work.gains.items():
                name = owner.partition("==")[0]
                wheel = work.wheels.get(name)
                if wheel is None or name in failing:
                    continue
                if key(wheel) in self.readings.facts:
                    gained.setdefault(key(wheel), set()).add(gain)
        return gained

    @property
    def is_complete(self) -> bool:
        """True if each file was read, so that another run would find the same."""
        sources = self.readings.sources.values()
        return not self.readings.failures and not any(isinstance(item, str) for item in sources)

    def results(self) -> Audited:
        """Return the results by the rules alone."""
        return Audited(
            tuple(work.audited for work in self.works),
            self._sum_inventories(),
            len(self.readings.facts),
        )

    def _sum_inventories(self) -> Inventory:
        """Return the cost of reading all wheels, and their unread parts."""
        readings = self.readings
        facts = readings.facts.values()
        failed = merge_causes(list_failures(self._wheels.values(), readings))
        return Inventory(
            unread=(
                *failed,
                *(item for wheel_facts in facts for item in wheel_facts.inventory.unread),
                *dict.fromkeys(item for work in self.works for item in work.added),
            ),
            stats=Stats(
                files=sum(len(wheel_facts.members) for wheel_facts in facts),
                binaries=sum(
                    len(wheel_facts.inventory.binaries)
                    + sum(file.by != "size" for file in wheel_facts.inventory.closed)
                    for wheel_facts in facts
                ),
                bytes_total=sum(wheel_facts.size for wheel_facts in facts),
                bytes_read=readings.bytes_read,
                cached=readings.cached,
            ),
        )


def _find_needs(facts: Mapping[str, WheelFacts]) -> dict[str, Need]:
    return {name: Need.of_facts(item) for name, item in facts.items()}
