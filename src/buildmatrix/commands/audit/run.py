"""Steps of an audit: lists of files first, then the beginnings of binaries that matter.

Every wheel is read once for all targets. Its list has its name, requirements and file names, which
settle most distributions. For the others, the beginnings of binaries are read within a budget
(`budget`), then more of those that are still open; with `deep`, everything. With `strict`,
distributions that are open after that are read whole, until the audit is certain.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from buildmatrix.base.errors import BuildmatrixError, UsageError
from buildmatrix.base.progress import Progress
from buildmatrix.commands.audit.symbols import (
    ROUNDS,
    Edge,
    find_edges,
    find_importers,
    find_unread,
    take_affordable,
    tell_more,
)
from buildmatrix.commands.audit.target import AuditWork, Merger, judge_target, link_tables, start
from buildmatrix.facts.inventory.model import Inventory, Stats, Unread
from buildmatrix.judge.acceptance import fails
from buildmatrix.judge.advisories.advisories import AdvisoryOptions, pending_advisories
from buildmatrix.judge.certainty import DECISIVE, Gain
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import merge_stale_locks
from buildmatrix.judge.model import GATES, AuditTotals, Gate, GateState, TargetResult
from buildmatrix.judge.registry import LOAD_FAILURES
from buildmatrix.judge.unread import merge_causes
from buildmatrix.locks.index.budget import (
    LARGEST_SOURCE,
    USUAL_SOURCE,
    Need,
    leftover_shares,
    most,
    shares,
    tables_cost,
)
from buildmatrix.locks.index.model import Member, WheelFacts
from buildmatrix.locks.index.reading import Reader, Readings, WheelRequest, key
from buildmatrix.locks.model import Wheel
from buildmatrix.reports.run.model import Report, assemble
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
    works = [start(resolved) for resolved in results if isinstance(resolved, Resolved)]
    readings = Readings(reader, jobs, progress)
    locks = [work.resolved.lock for work in works]
    with pending_advisories(locks, judge.policy, asking, progress) as answer:
        _read_and_judge(works, readings, judge, deep=deep, strict=strict)
        advisories = answer()
    for work in works:
        if advisories is not None:
            work.findings += judge.advisories(work.resolved.target, work.resolved.lock, advisories)
    return _report(subject, results, works, readings, judge, time.monotonic() - began)


def look(
    resolved: Sequence[Resolved], reader: Reader, judge: Judge, progress: Progress, jobs: int = JOBS
) -> tuple[AuditWork, ...]:
    """Audit the wheels of locks: one result per lock, in order."""
    works = tuple(start(item) for item in resolved)
    _read_and_judge(works, Readings(reader, jobs, progress), judge)
    return works


def _read_and_judge(
    works: Sequence[AuditWork],
    readings: Readings,
    judge: Judge,
    *,
    deep: bool = False,
    strict: bool = False,
) -> None:
    """Read the wheels of all targets as far as needed, and judge each target."""
    merger = Merger(judge)
    all_wheels = {key(wheel): wheel for work in works for wheel in work.wheels.values()}
    readings.read([WheelRequest(wheel, "listing") for wheel in all_wheels.values()], "file lists")
    unbuilt = {
        key(package.sdist): package
        for work in works
        for package in work.resolved.lock.packages
        if package.sdist is not None and package.name in work.without_wheel
    }
    readings.read_sources(unbuilt.values(), LARGEST_SOURCE if deep else USUAL_SOURCE)
    for work in works:
        lock = readings.with_requirements(work.resolved.lock)
        work.resolved = replace(work.resolved, lock=lock)
        judge_target(work, readings, merger, judge)
    gained = _find_gains(works, readings)
    if deep:
        whole = [WheelRequest(all_wheels[name], "whole") for name in sorted(gained)]
        readings.recall(request.wheel for request in whole)
        _read_on(works, readings, merger, judge, whole, "contents")
        return
    total = sum(facts.size for facts in readings.facts.values())
    wheel_facts = {name: readings.facts[name] for name in gained}
    needs = {name: Need.of(facts.size, facts.members) for name, facts in wheel_facts.items()}
    order: tuple[Gain, ...] = ("verdict", "evidence")
    groups = [{name: needs[name] for name in gained if gain in gained[name]} for gain in order]
    heads = frozenset(name for group in groups for name in group)
    for work in works:
        work.edges = _find_edges(work, readings, judge)
    reserved = _reserve_for_symbols(works, readings, heads, most(total))
    first = shares(groups, total, reserved)
    _read_on(works, readings, merger, judge, _heads(all_wheels, first), "beginnings of binaries")
    # Where device code lies behind most of the host's code, a beginning does not show it.
    open_still = {
        name: needs[name]
        for name, gain in _find_gains(works, readings).items()
        if not gain.isdisjoint(DECISIVE) and name in first
    }
    spent = sum(first.values()) + reserved
    more = leftover_shares(open_still, total, spent)
    _read_on(works, readings, merger, judge, _heads(all_wheels, more), "more of the binaries")
    left = max(0, most(total) - spent - sum(more.values()))
    allowed = min(reserved + left, MOST_FOR_SYMBOLS)
    _read_symbols(works, readings, merger, judge, allowed)
    # How bad it is depends on whether an import gets there, which Python files say.
    failing = _find_unread_failures(works, readings)
    needs = {name: Need.of(facts.size, facts.members) for name, facts in failing.items()}
    looks = {name: need.most for name, need in needs.items()}
    _read_on(works, readings, merger, judge, _heads(all_wheels, looks), "imports")
    if strict:
        undecided = _find_gains(works, readings, unless_failing=True)
        whole = [
            WheelRequest(all_wheels[name], "whole")
            for name in sorted(undecided)
            if not undecided[name].isdisjoint(DECISIVE)
        ]
        _read_on(works, readings, merger, judge, whole, "all bytes of what is undecided")


def _heads(wheels: Mapping[str, Wheel], shares: Mapping[str, int]) -> list[WheelRequest]:
    return [WheelRequest(wheels[name], "heads", most) for name, most in sorted(shares.items())]


def _read_on(
    works: Sequence[AuditWork],
    readings: Readings,
    merger: Merger,
    judge: Judge,
    requests: Sequence[WheelRequest],
    contents: str,
) -> None:
    """Read wheels deeper, and judge again those targets that have any of them."""
    if not requests:
        return
    merger.forget()
    readings.read(requests, contents)
    changed = {key(item.wheel) for item in requests}
    for work in works:
        if changed.intersection(work.keys):
            judge_target(work, readings, merger, judge)


def _find_unread_failures(
    works: Sequence[AuditWork], readings: Readings
) -> Mapping[str, WheelFacts]:
    """Wheels with Python of which only tables were read, and these say that loading fails."""
    return {
        key(work.wheels[name]): facts
        for work in works
        for finding in work.findings
        if finding.rule in LOAD_FAILURES
        for name, facts in work.facts(readings).items()
        if name == finding.distribution
        and facts.depth == "listing"
        and any(member.path.endswith(".py") for member in facts.members)
    }


def _find_edges(work: AuditWork, readings: Readings, judge: Judge) -> tuple[Edge, ...]:
    """Return the edges between wheels of a target that no pins vouch for."""
    facts = work.facts(readings)
    return find_edges(
        [item for wheel_facts in facts.values() for item in wheel_facts.inventory.distributions],
        {name: wheel_facts.members for name, wheel_facts in facts.items()},
        work.resolved.target,
        judge.catalogue,
    )


def _reserve_for_symbols(
    works: Sequence[AuditWork],
    readings: Readings,
    heads: Collection[str],
    most: int,
) -> int:
    """Bytes for tables of wheels that are not in `heads`; what they link costs as much."""
    costs: dict[str, int] = {}
    for work in works:
        for name, members in find_importers(work.edges, work.facts(readings)).items():
            if key(work.wheels[name]) not in heads:
                costs[key(work.wheels[name])] = sum(map(tables_cost, members))
    return min(2 * sum(costs.values()), most // PART_FOR_SYMBOLS, MOST_FOR_SYMBOLS)


def _read_symbols(
    works: Sequence[AuditWork],
    readings: Readings,
    merger: Merger,
    judge: Judge,
    most: int,
) -> None:
    """Read tables of symbols across wheels, and judge again the targets that have any."""
    for _ in range(ROUNDS):
        wanted: dict[str, dict[str, Member]] = {}
        wheels: dict[str, Wheel] = {}
        for work in works:
            for name, member in _find_wanted(work, readings):
                wheel = work.wheels[name]
                if member.path not in readings.tables.get(key(wheel), ()):
                    wheels[key(wheel)] = wheel
                    wanted.setdefault(key(wheel), {})[member.path] = member
        chosen = take_affordable(
            {name: list(found.values()) for name, found in wanted.items()}, most
        )
        if not chosen:
            break
        readings.read_tables(
            {
                name: (wheels[name], [member.path for member in members])
                for name, members in chosen.items()
            }
        )
        most -= sum(
            readings.tables[name][member.path].cost
            for name, members in chosen.items()
            for member in members
        )
        for work in works:
            if chosen.keys() & set(work.keys):
                link_tables(work, readings, merger)
    for work in works:
        if work.linked is not None and tell_more(
            work.linked, merger.merged(work, readings).resolution
        ):
            judge_target(work, readings, merger, judge)


def _find_wanted(work: AuditWork, readings: Readings) -> Iterator[tuple[str, Member]]:
    """Yield libraries that needed symbols depend on, then further importers."""
    facts = work.facts(readings)
    if work.linked is not None:
        yield from find_unread(work.linked, work.edges, facts)
    for name, members in find_importers(work.edges, facts).items():
        yield from ((name, member) for member in members)


def _find_gains(
    works: Sequence[AuditWork], readings: Readings, *, unless_failing: bool = False
) -> dict[str, set[Gain]]:
    """Wheel -> what a deeper look into it could say, on any target.

    With `unless_failing`, on targets where no finding about it fails the run already.
    """
    gained: dict[str, set[Gain]] = {}
    for work in works:
        failing = {
            name
            for finding in work.findings
            if unless_failing and fails(finding)
            for name in finding.distributions
        }
        for owner, gain in work.gains.items():
            name = owner.partition("==")[0]
            wheel = work.wheels.get(name)
            if wheel is not None and key(wheel) in readings.facts and name not in failing:
                gained.setdefault(key(wheel), set()).add(gain)
    return gained


def _report(
    subject: str,
    results: Sequence[Resolved | BuildmatrixError],
    works: Sequence[AuditWork],
    readings: Readings,
    judge: Judge,
    seconds: float,
) -> Report:
    judged = iter(works)
    targets = [
        _result(next(judged), judge, seconds)
        if isinstance(error, Resolved)
        else _fail_target(error)
        for error in results
    ]
    findings = [finding for work in works for finding in work.findings]
    return assemble(
        subject,
        judge.catalogue_date,
        targets=targets,
        # A waiver is unused only if it covers nothing in the image either, which `build` reports.
        findings=[*merge_stale_locks(findings), *judge.stale_waivers(findings, ())],
        verdicts=[
            replace(verdict, targets=(work.resolved.target.id,))
            for work in works
            for verdict in work.verdicts
        ],
        inventories=[_whole(works, readings, seconds)],
    )


def _whole(works: Sequence[AuditWork], readings: Readings, seconds: float) -> Inventory:
    """Return the cost of reading all wheels, and their unread parts."""
    facts = readings.facts.values()
    wheels = {key(wheel): wheel for work in works for wheel in work.wheels.values()}
    failed = merge_causes(
        Unread(wheel.filename, readings.failures[name])
        for name, wheel in wheels.items()
        if name in readings.failures
    )
    return Inventory(
        unread=(
            *failed,
            *(item for wheel_facts in facts for item in wheel_facts.inventory.unread),
            *dict.fromkeys(item for work in works for item in work.added),
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
