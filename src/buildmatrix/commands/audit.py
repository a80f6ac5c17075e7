"""Steps of an audit: lists of files first, then the beginnings of binaries that matter.

Every wheel is read once for all targets. Its list has its name, requirements and file names, which
settle most distributions. For the others, the beginnings of binaries are read within a budget
(`budget`), then more of those that are still open; with `deep`, everything. With `strict`,
distributions that are open after that are read whole, until the audit is certain.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.commands.audit_symbols import (
    ROUNDS,
    find_edges,
    find_importers,
    find_unread,
    take_affordable,
    tell_more,
)
from buildmatrix.commands.audit_target import AuditWork, Merger, judge_target, link_tables, start
from buildmatrix.facts.inventory.model import Inventory, Stats, Unread
from buildmatrix.judge.acceptance import fails
from buildmatrix.judge.advisories import AdvisoryOptions, pending_advisories
from buildmatrix.judge.certainty import DECISIVE, Gain
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import merge_stale_locks
from buildmatrix.judge.model import GATES, AuditTotals, Gate, GateState, TargetResult
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
from buildmatrix.reports.run import Report, assemble
from buildmatrix.sources.resolved import Resolved, Unresolved

#: Wheels that are read at the same time. Most of the time is spent waiting for an index.
JOBS = 16
#: Bytes of tables of symbols, and their part of those beyond lists of files where others wait.
MOST_FOR_SYMBOLS = 16 << 20
PART_FOR_SYMBOLS = 3


def audit(
    subject: str,
    results: Sequence[Resolved | BuildmatrixError],
    reader: Reader,
    judge: Judge,
    progress: Progress,
    *,
    deep: bool = False,
    strict: bool = False,
    asking: AdvisoryOptions | None = None,
    jobs: int = JOBS,
) -> Report:
    """Judge the wheels of locks; no wheel is downloaded as a whole.

    Args:
        subject: what the report is about.
        results: what was resolved, or why it could not be; one entry per target.
        reader: reads wheels, wherever they are.
        judge: the rules, the catalogue and the waivers.
        progress: shows what is read.
        deep: read all bytes of what is not certain.
        strict: read all bytes of what could still turn a verdict, where nothing fails already.
        asking: how advisories are asked for; None asks for none.
        jobs: wheels that are read at a time.

    What could not be read or resolved is in the report, and makes it undecided.
    """
    began = time.monotonic()
    run = _AuditRun(
        [start(resolved) for resolved in results if isinstance(resolved, Resolved)],
        Readings(reader, jobs, progress),
        judge,
    )
    locks = [work.resolved.lock for work in run.works]
    with pending_advisories(locks, judge.policy, asking, progress) as answer:
        run.read_and_judge(deep=deep, strict=strict)
        advisories = answer()
    for work in run.works:
        if advisories is not None:
            work.findings += judge.advisories(work.resolved.target, work.resolved.lock, advisories)
    return run.report(subject, results, time.monotonic() - began)


def look(
    resolved: Sequence[Resolved], reader: Reader, judge: Judge, progress: Progress, jobs: int = JOBS
) -> tuple[AuditWork, ...]:
    """Audit the wheels of locks: one result per lock, in order."""
    works = tuple(start(item) for item in resolved)
    _AuditRun(works, Readings(reader, jobs, progress), judge).read_and_judge()
    return works


class _AuditRun:
    """The targets of an audit, and the bytes that were read for them."""

    def __init__(self, works: Sequence[AuditWork], readings: Readings, judge: Judge) -> None:
        self.works = works
        self._readings = readings
        self._judge = judge
        self._merger = Merger(judge)
        self._wheels = {key(wheel): wheel for work in works for wheel in work.wheels.values()}

    def read_and_judge(self, *, deep: bool = False, strict: bool = False) -> None:
        """Read the wheels of all targets as far as needed, and judge each target."""
        readings = self._readings
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
        self._readings.read(requests, contents)
        changed = {key(item.wheel) for item in requests}
        for work in self.works:
            if changed.intersection(work.keys):
                judge_target(work, self._readings, self._merger, self._judge)

    def _find_unread_failures(self) -> Mapping[str, WheelFacts]:
        """Wheels with Python of which only tables were read, and these say that loading fails."""
        return {
            key(work.wheels[name]): facts
            for work in self.works
            for finding in work.findings
            if finding.rule in LOAD_FAILURES
            for name, facts in work.facts(self._readings).items()
            if name == finding.distribution
            and facts.depth == "listing"
            and any(member.path.endswith(".py") for member in facts.members)
        }

    def _reserve_for_symbols(self, heads: Collection[str], most: int) -> int:
        """Bytes for tables of wheels that are not in `heads`; what they link costs as much."""
        costs: dict[str, int] = {}
        for work in self.works:
            importers = find_importers(work.edges, work.facts(self._readings))
            for name, members in importers.items():
                if key(work.wheels[name]) not in heads:
                    costs[key(work.wheels[name])] = sum(map(tables_cost, members))
        return min(2 * sum(costs.values()), most // PART_FOR_SYMBOLS, MOST_FOR_SYMBOLS)

    def _read_symbols(self, most: int) -> None:
        """Read tables of symbols across wheels, and judge again the targets that have any."""
        readings = self._readings
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
        facts = work.facts(self._readings)
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
            failing = {
                name
                for finding in work.findings
                if unless_failing and fails(finding)
                for name in finding.distributions
            }
            for owner, gain in work.gains.items():
                name = owner.partition("==")[0]
                wheel = work.wheels.get(name)
                if wheel is None or name in failing:
                    continue
                if key(wheel) in self._readings.facts:
                    gained.setdefault(key(wheel), set()).add(gain)
        return gained

    def report(
        self, subject: str, results: Sequence[Resolved | BuildmatrixError], seconds: float
    ) -> Report:
        """Make the report of the judged targets, and of those that were not resolved."""
        judged = iter(self.works)
        findings = [finding for work in self.works for finding in work.findings]
        return assemble(
            subject,
            self._judge.catalogue_date,
            targets=[
                _result(next(judged), self._judge, seconds)
                if isinstance(error, Resolved)
                else _fail_target(error)
                for error in results
            ],
            # A waiver is unused only if it covers nothing in the image either, as `build` reports.
            findings=[*merge_stale_locks(findings), *self._judge.stale_waivers(findings, ())],
            verdicts=[
                replace(verdict, targets=(work.resolved.target.id,))
                for work in self.works
                for verdict in work.verdicts
            ],
            inventories=[self._sum_inventories(seconds)],
        )

    def _sum_inventories(self, seconds: float) -> Inventory:
        """Return the cost of reading all wheels, and their unread parts."""
        readings = self._readings
        facts = readings.facts.values()
        failed = merge_causes(
            Unread(wheel.filename, readings.failures[name])
            for name, wheel in self._wheels.items()
            if name in readings.failures
        )
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
                seconds=seconds,
                cached=readings.cached,
            ),
        )


def _find_needs(facts: Mapping[str, WheelFacts]) -> dict[str, Need]:
    return {name: Need.of(item.size, item.members) for name, item in facts.items()}


def _gates(state: GateState) -> dict[Gate, GateState]:
    return {gate: state if gate == "lock" else "not-run" for gate in GATES}


def _result(work: AuditWork, judge: Judge, seconds: float) -> TargetResult:
    target = work.resolved.target
    return TargetResult(
        id=target.id,
        backend=target.backend,
        gates=_gates(judge.gate(work.findings)),
        seconds=seconds,
        audit=work.totals,
        left_out=work.resolved.left_out,
        composition=work.composition,
    )


def _fail_target(error: BuildmatrixError) -> TargetResult:
    """A target of which nothing is known."""
    target = error.target if isinstance(error, Unresolved) else None
    id = target.id if target is not None else ""
    return TargetResult(
        id=id,
        backend=target.backend if target is not None else "",
        gates=_gates("failed" if error.exit_code == UsageError.exit_code else "undecided"),
        error=error.message.removeprefix(f"{id}: "),
        audit=AuditTotals(),
    )
