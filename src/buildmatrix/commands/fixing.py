"""Try the fixes of findings, combine those that work, and with `--fix` write and audit them.

A fix works if its finding, and every other one with the same fix, is gone and there is no new one.
Working fixes are combined, tried once more as a whole, and offered as one patch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.text import listing
from buildmatrix.commands.audit import AuditInputs, AuditSession, Results, common_python, target_of
from buildmatrix.commands.fix_patches import (
    CannotWrite,
    Case,
    Draft,
    Tried,
    Way,
    add_trials,
    change_phrase,
    snippet,
    write,
    write_to_source,
    write_to_spec,
)
from buildmatrix.commands.fix_trials import Attempt, Bench, ChangedModules, look_up
from buildmatrix.judge.model import Trial
from buildmatrix.reports.run import FixesTried, Report, Saved
from buildmatrix.sources.parse import parse_declared
from buildmatrix.sources.questions import ask_index
from buildmatrix.sources.resolved import Resolved

#: Fixes that are tried, and seconds after which no further try is begun.
MOST = 10
SECONDS = 120.0
_STEP = "fixes"
#: A range that allows one version only.
_PIN = re.compile(r"===?([^*,]+)")


class Outcome(Struct, frozen=True):
    """The audit with the results of its fixes, and all that work together."""

    report: Report
    draft: Draft | None


def try_fixes(
    session: AuditSession,
    results: Results,
    report: Report,
    *,
    most: int = MOST,
    seconds: float = SECONDS,
) -> Outcome:
    """Try the fixes of `report`, which is the audit of `results`.

    What was not tried, and why, is in the notes of `Report.fixes`.
    """
    bench = Bench(session, results, report)
    return _FixTrials(bench, session, results, report, most, time.monotonic() + seconds).run()


class _FixTrials(Struct):
    bench: Bench
    session: AuditSession
    results: Results
    report: Report
    most: int
    until: float
    notes: list[str] = field(default_factory=list)
    _tries: int = 0

    def run(self) -> Outcome:
        cases = list(self._cases())
        tried_ways: dict[Way, Tried] = {}
        left_out: set[Way] = set()
        pending = cases
        while pending:
            groups: dict[Way, list[Case]] = {}
            for case in pending:
                groups.setdefault(case.way, []).append(case)
            for way, cases_of_way in groups.items():
                if way in tried_ways or way in left_out:
                    continue
                if self._tries >= self.most or time.monotonic() > self.until:
                    left_out.add(way)
                    continue
                tried_ways[way] = self._try(way, cases_of_way)
            pending = [case for case in pending if _goes_on(case, tried_ways)]
        if left_out:
            names = listing((change_phrase(way.change) for way in left_out), 5)
            self.notes.append(f"not tried, since enough was tried already: {names}")
        draft, saved = self._together(
            [tried for tried in tried_ways.values() if tried.draft is not None]
        )
        self.session.progress.end(_STEP)
        index = None if self.session.options.workspace.offline else ask_index
        findings = look_up(add_trials(self.report, cases, tried_ways), self.results, index)
        return Outcome(
            replace(
                self.report,
                findings=findings,
                fixes=FixesTried(
                    patch=draft.patch if draft is not None else "",
                    files=tuple(sorted(text.label for text in draft.texts.values()))
                    if draft is not None
                    else (),
                    saved=tuple(Saved(id, *saved[id]) for id in sorted(saved)),
                    notes=tuple(dict.fromkeys(self.notes)),
                ),
            ),
            draft,
        )

    # Cases to try

    def _cases(self) -> Iterator[Case]:
        sources = self.session.inputs.sources
        per_source = len(self.results) // max(1, len(sources))
        numbers = {
            target.id: number // per_source if sources else None
            for number, target in enumerate(map(target_of, self.results))
            if target is not None
        }
        for finding in self.report.findings:
            if finding.fix is None or not finding.fix.changes or finding.waived is not None:
                continue
            if finding.severity == "note" or finding.target not in numbers:
                continue
            source = numbers[finding.target]
            backend = finding.backend if source is None else ""
            ways = tuple(Way(source, backend, change) for change in finding.fix.changes)
            yield Case(finding.target, finding, ways)

    # One way

    def _try(self, way: Way, cases: Sequence[Case]) -> Tried:
        ids = frozenset(case.target for case in cases)
        reason = None
        if way.source is not None:
            root = self.session.inputs.root
            parsed = parse_declared(self.session.inputs.sources[way.source], root)
            reason = parsed.unwritable(root / parsed.name, parsed.name)
        if reason is not None:
            self.notes.append(f"not tried: {change_phrase(way.change)}: {reason}")
            return Tried(way, {})
        self._tries += 1
        self.session.progress.step(_STEP, f"trying: {change_phrase(way.change)}")
        gone = frozenset((case.target, case.finding.fingerprint) for case in cases)
        tried = self._attempt(way, ids, gone, None)
        first = tried
        nearest = ""
        for only in self._other_ranges(tried):
            again = self._attempt(way, ids, gone, only)
            version = _version_of(again, way.change.value)
            if version is not None:
                tried = self._attempt(way, ids, gone, f"=={version}")
                nearest = f"{way.change.value} {version} is the nearest to what is pinned"
                break
        if not tried.works and first.is_known and first.draft.texts:
            tried = self._as_an_entry(way, ids, gone, first)
        outcome = self._outcome(way, ids, tried if tried.works else first, nearest)
        return replace(outcome, gone=gone)

    def _as_an_entry(
        self, way: Way, ids: frozenset[str], gone: frozenset[tuple[str, str]], line: Attempt
    ) -> Attempt:
        """The change as a key of a specification, which counts for all requirers; `line` failed."""
        askers = {
            asker
            for resolved in line.results
            if isinstance(resolved, Resolved)
            for package in resolved.lock.packages
            if package.name == way.change.name
            for asker in package.via
        }
        reason = (
            f"{listing(sorted(askers))} {'asks' if len(askers) == 1 else 'ask'} for "
            f"{way.change.name} too, so a changed line does not do"
            if askers
            else f"a changed line does not do: {line.failure}"
        )
        self._tries += 1
        draft = Draft(self.session.inputs, hooks=[(ids, way.change)])
        return self.bench.attempt(draft, self._touched(way, ids), gone, reason)

    def _attempt(
        self, way: Way, ids: Collection[str], gone: Collection[tuple[str, str]], only: str | None
    ) -> Attempt:
        draft = Draft(self.session.inputs)
        reason = ""
        try:
            _put(draft, way, only)
        except CannotWrite as error:
            reason = str(error)
            draft = Draft(self.session.inputs, hooks=[(frozenset(ids), way.change)])
        tried = self.bench.attempt(draft, self._touched(way, ids), gone, reason)
        return replace(tried, only=only)

    def _touched(self, way: Way, ids: Collection[str]) -> frozenset[str]:
        """The targets that a change is looked at for: an entry of a backend is for all of its."""
        if way.source is not None:
            return frozenset(ids)
        targets = filter(None, map(target_of, self.results))
        return frozenset(target.id for target in targets if target.backend == way.backend)

    def _other_ranges(self, tried: Attempt) -> Iterator[str]:
        """Ranges for a twin that does not have the version that the original is pinned to.

        A range that a person wrote (`>=2`) is not overruled by a fix.
        """
        pins = {_PIN.fullmatch(item) for item in tried.draft.ranges}
        if tried.has_no_solution and len(pins) == 1 and (pin := pins.pop()) is not None:
            yield f"<={pin[1]}"
            yield f">={pin[1]}"

    def _outcome(self, way: Way, ids: frozenset[str], tried: Attempt, nearest: str) -> Tried:
        reason = tried.why_not_written
        if tried.works and tried.draft.texts:
            reason = self._opposed(way, ids) or self._breaks(way, tried) or ""
        if tried.works and reason:
            self.notes.append(self._by_hand(way, ids, reason))
        if tried.works and not reason and not tried.draft.texts and way.source is None:
            nearest = "written already"
            self.notes.append(
                f"{change_phrase(way.change)} is written already, and the locks are older: run "
                "`buildmatrix lock`"
            )
        works = tried.works if tried.is_known else None
        saved = tried.saved if works else {}
        unwritten = f"not written: {reason}" if reason else ""
        phrases = [nearest, unwritten] if works else [tried.failure or ""]
        outcome = "; ".join(filter(None, phrases))
        trial = {id: Trial(works, outcome, *saved.get(id, (0, 0))) for id in ids}
        is_written = tried.works and not reason and bool(tried.draft.texts)
        draft = tried.draft if is_written else None
        return Tried(way, trial, draft=draft, only=tried.only)

    def _opposed(self, way: Way, ids: Collection[str]) -> str | None:
        """Return the reason why a change does not fit all targets of a SOURCE; None if it does."""
        if way.source is None:
            return None
        per_source = len(self.results) // len(self.session.inputs.sources)
        results = self.results[way.source * per_source : (way.source + 1) * per_source]
        backends = []
        for resolved in results:
            target = target_of(resolved)
            if target is None or target.id in ids:
                continue
            if not isinstance(resolved, Resolved) or way.change.name in {
                package.name for package in resolved.lock.packages
            }:
                backends.append(target.backend)
        if not backends:
            return None
        name = parse_declared(
            self.session.inputs.sources[way.source], self.session.inputs.root
        ).name
        return f"{name} is shared with {listing(dict.fromkeys(backends))}, where it is wrong"

    def _breaks(self, way: Way, tried: Attempt) -> str | None:
        """Return the import that a change would break; None if none is known."""
        before = {item.target.id: item for item in self.results if isinstance(item, Resolved)}
        for resolved in tried.results:
            if not isinstance(resolved, Resolved) or resolved.target.id not in before:
                continue
            change = ChangedModules(before[resolved.target.id], resolved, self.session.reader)
            if way.change.key == "replace" and (module := change.loses_all(way.change.name)):
                return (
                    f"{way.change.value} has no module `{module}`, so code that imports it has to "
                    "change as well"
                )
            if (importer := change.importer(self.session.inputs.root)) is not None:
                return f"{importer[0]} imports `{importer[1]}`, which would be gone"
        return None

    def _by_hand(self, way: Way, ids: Collection[str], reason: str) -> str:
        targets = filter(None, map(target_of, self.results))
        backends = dict.fromkeys(target.backend for target in targets if target.id in ids)
        line = snippet(way.change, "").partition("\n")[2]
        tables = " and ".join(f"[backend.{backend}]" for backend in backends)
        return (
            f"{change_phrase(way.change)} works and is not written: {reason}; write `{line}` under "
            f"{tables} of a specification, which has an entry for each backend"
        )

    # All of them

    def _together(
        self, works: Sequence[Tried]
    ) -> tuple[Draft | None, Mapping[str, tuple[int, int]]]:
        """One draft of all that go together, and the bytes that targets save by it."""
        chosen = list(works)
        while chosen:
            draft = Draft(self.session.inputs)
            try:
                for item in chosen:
                    _put(draft, item.way, item.only)
            except CannotWrite as error:
                last = chosen.pop()
                self.notes.append(f"{change_phrase(last.way.change)} is not written: {error}")
                continue
            if len(chosen) == 1:
                (item,) = chosen
                return draft, {
                    id: (trial.saved_download, trial.saved_installed)
                    for id, trial in item.trial.items()
                }
            self.session.progress.step(_STEP, f"trying all {len(chosen)} together")
            ids = frozenset().union(
                *(self._touched(tried_way.way, tried_way.trial.keys()) for tried_way in chosen)
            )
            gone = frozenset().union(*(tried_way.gone for tried_way in chosen))
            tried = self.bench.attempt(draft, ids, gone)
            if tried.works:
                return draft, tried.saved
            last = chosen.pop()
            change = change_phrase(last.way.change)
            self.notes.append(f"{change} works alone, but not with the others: {tried.failure}")
        return None, {}


def _goes_on(case: Case, tried_ways: Mapping[Way, Tried]) -> bool:
    """Return True if a change does not work and another one is left to try."""
    tried = tried_ways.get(case.way)
    trial = tried.trial.get(case.target) if tried is not None else None
    if trial is None or trial.works is not False or case.turn + 1 == len(case.ways):
        return False
    case.turn += 1
    return True


def _put(draft: Draft, way: Way, only: str | None) -> None:
    if way.source is None:
        write_to_spec(draft, way.change, way.backend)
    else:
        write_to_source(draft, way.source, way.change, only)


def _version_of(attempt: Attempt, twin: str) -> str | None:
    if not attempt.works:
        return None
    versions = {
        package.version
        for resolved in attempt.results
        if isinstance(resolved, Resolved)
        for package in resolved.lock.packages
        if package.name == twin
    }
    return versions.pop() if len(versions) == 1 else None


# `audit --fix`


def fixed(
    session: AuditSession, results: Results, report: Report, *, dry_run: bool
) -> tuple[Results, Report]:
    """Try the fixes of `report`, which is the audit of `results`, and write those that work.

    Returns what is there afterwards, and its audit; with `dry_run`, or where nothing can be
    written, the same as before with what came of the tries. Raises `UndecidedError` when a file
    changed meanwhile; then nothing was written.
    """
    outcome = try_fixes(session, results, report)
    if dry_run or outcome.draft is None or not outcome.draft.texts:
        return results, outcome.report
    write(outcome.draft.texts.values())
    fixes_tried = outcome.report.fixes or FixesTried()
    notes = list(fixes_tried.notes)
    inputs = session.inputs
    if not inputs.sources and inputs.spec is not None:
        inputs = AuditInputs((), session.options.workspace.load(inputs.spec.path), inputs.root)
        spec = inputs.spec
        if spec is not None and any(
            (spec.root / target.lock_file).exists() for target in spec.targets
        ):
            notes.append(
                f"this is what the locks will be: they are older than {spec.path.name} now, so "
                "run `buildmatrix lock`"
            )
    again = session.resolve(
        inputs, python=common_python(results) if inputs.sources else None, relock=not inputs.sources
    )
    report = session.report(again)
    tried = {
        (finding.target, finding.fingerprint): finding.fix for finding in outcome.report.findings
    }
    return again, replace(
        report,
        findings=tuple(
            replace(finding, fix=tried.get((finding.target, finding.fingerprint)) or finding.fix)
            for finding in report.findings
        ),
        fixes=replace(fixes_tried, written=True, notes=tuple(notes)),
    )
