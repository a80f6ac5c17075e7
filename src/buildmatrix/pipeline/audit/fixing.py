"""Fixes of findings, each tried: put into the inputs, resolved again, audited again.

A fix works when its finding, and every other one with the same fix, is gone and nothing new came.
Those that work are put together, tried once more as a whole, and offered as one patch. Nothing is
written here.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from buildmatrix.errors import BuildmatrixError
from buildmatrix.lock.explain import NoSolution
from buildmatrix.lock.model import Lock
from buildmatrix.pipeline.asked import parse
from buildmatrix.pipeline.audit.overlay import overlay
from buildmatrix.pipeline.audit.patches import (
    CannotWrite,
    Draft,
    in_source,
    in_spec,
    snippet,
    unwritable,
)
from buildmatrix.pipeline.audit.session import Found, Inputs, Session, common_python, target_of
from buildmatrix.pipeline.resolved import Resolved, Unresolved
from buildmatrix.reports.model import FixesTried, Report, Saved
from buildmatrix.rules.model import AuditTotals, Change, Finding, Fix, Trial
from buildmatrix.rules.text import listing

#: Fixes that are tried, and seconds after which no further try is begun.
MOST = 10
SECONDS = 120.0
#: Rules about advisories: no try asks for them.
_ADVISORIES = "BM8"
_STEP = "fixes"


@dataclass(frozen=True, slots=True)
class _Way:
    """One change in one place."""

    #: Number of the SOURCE; None for the specification.
    source: int | None
    #: The backend whose entry changes; empty for a SOURCE, which has one text for all.
    backend: str
    change: Change


@dataclass(slots=True)
class _Case:
    """One finding, and the ways that are left to make it go away."""

    target: str
    finding: Finding
    ways: list[_Way]


@dataclass(frozen=True, slots=True)
class _Tried:
    """What came of one way."""

    way: _Way
    trial: Mapping[str, Trial]
    #: The change in the files, where it works and a file can say it for all that it touches.
    draft: Draft | None = None
    only: str | None = None
    #: Why no file says it.
    why_not_written: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The audit with what came of its fixes, and all that work together."""

    report: Report
    draft: Draft | None


def try_fixes(
    session: Session,
    found: Found,
    report: Report,
    *,
    most: int = MOST,
    seconds: float = SECONDS,
) -> Outcome:
    """Try the fixes of `report`, which is the audit of `found`.

    What was not tried, and why, is in the notes of `Report.fixes`.
    """
    return _Fixing(session, found, report, most, time.monotonic() + seconds).run()


@dataclass(slots=True)
class _Fixing:
    session: Session
    found: Found
    report: Report
    most: int
    until: float
    notes: list[str] = field(default_factory=list)
    #: Audits to compare with: of the locks as they are, and of what they would be.
    _as_if_unlocked: Report | None = None
    _tries: int = 0

    def run(self) -> Outcome:
        cases = list(self._cases())
        done: dict[_Way, _Tried] = {}
        left_out: set[_Way] = set()
        pending = cases
        while pending:
            groups: dict[_Way, list[_Case]] = {}
            for case in pending:
                groups.setdefault(case.ways[0], []).append(case)
            for way, mine in groups.items():
                if way in done or way in left_out:
                    continue
                if self._tries >= self.most or time.monotonic() > self.until:
                    left_out.add(way)
                    continue
                done[way] = self._try(way, mine)
            pending = [case for case in pending if self._goes_on(case, done)]
        if left_out:
            names = listing((_said(way.change) for way in left_out), 5)
            self.notes.append(f"not tried, since enough was tried already: {names}")
        chosen, draft = self._together([one for one in done.values() if one.draft is not None])
        findings = _with_trials(self.report, cases, done)
        return Outcome(
            replace(
                self.report,
                findings=findings,
                fixes=FixesTried(
                    patch=draft.patch if draft is not None else "",
                    files=tuple(sorted(one.label for one in draft.texts.values()))
                    if draft is not None
                    else (),
                    saved=_saved(chosen),
                    notes=tuple(dict.fromkeys(self.notes)),
                ),
            ),
            draft,
        )

    # What there is to try

    def _cases(self) -> Iterator[_Case]:
        targets = [target_of(one) for one in self.found]
        per_source = len(self.found) // max(1, len(self.session.inputs.sources))
        numbers = {
            target.id: number // per_source if self.session.inputs.sources else None
            for number, target in enumerate(targets)
            if target is not None
        }
        for one in self.report.findings:
            if one.fix is None or not one.fix.changes or one.waived is not None:
                continue
            if one.severity == "note" or one.target not in numbers:
                continue
            source = numbers[one.target]
            backend = one.backend if source is None else ""
            yield _Case(
                one.target, one, [_Way(source, backend, change) for change in one.fix.changes]
            )

    @staticmethod
    def _goes_on(case: _Case, done: Mapping[_Way, _Tried]) -> bool:
        """Whether another way is left for a finding; the one that was taken is the first then."""
        tried = done.get(case.ways[0])
        if tried is None or len(case.ways) == 1:
            return False
        trial = tried.trial.get(case.target)
        if trial is None or trial.works:
            return False
        del case.ways[0]
        return True

    # One way

    def _try(self, way: _Way, cases: Sequence[_Case]) -> _Tried:
        ids = frozenset(case.target for case in cases)
        why = self._impossible(way)
        if why is not None:
            self.notes.append(f"not tried: {_said(way.change)}: {why}")
            return _Tried(way, {})
        self._tries += 1
        self.session.progress.step(_STEP, f"trying: {_said(way.change)}")
        gone = {(case.target, case.finding.fingerprint) for case in cases}
        tried = self._attempt(way, ids, gone, None)
        first = tried
        for only in self._other_ranges(way, ids, tried):
            again = self._attempt(way, ids, gone, only)
            version = _version_of(again, way.change.value)
            if version is not None:
                tried = self._attempt(way, ids, gone, f"=={version}")
                break
        if not tried.works:
            tried = first
        return self._told(way, ids, tried)

    def _impossible(self, way: _Way) -> str | None:
        if way.source is None:
            return None
        root = self.session.inputs.root
        asked = parse(self.session.inputs.sources[way.source], root)
        if asked.kind == "pypi":
            return None
        why = unwritable(asked, root / asked.name, asked.name)
        return why

    def _attempt(
        self, way: _Way, ids: Collection[str], gone: Collection[tuple[str, str]], only: str | None
    ) -> _Attempt:
        draft = Draft(self.session.inputs)
        why = ""
        try:
            _put(draft, way, only)
        except CannotWrite as error:
            why = str(error)
            draft = Draft(self.session.inputs, hooks=[(frozenset(ids), way.change)])
        tried = self._run(draft, self._touched(way, ids), gone, why)
        return replace(tried, only=only)

    def _touched(self, way: _Way, ids: Collection[str]) -> frozenset[str]:
        """The targets that a change is looked at for: an entry of a backend is for all of its."""
        if way.source is not None:
            return frozenset(ids)
        known = (target_of(one) for one in self.found)
        return frozenset(
            target.id for target in known if target is not None and target.backend == way.backend
        )

    def _run(
        self,
        draft: Draft,
        ids: frozenset[str],
        gone: Collection[tuple[str, str]],
        why: str = "",
    ) -> _Attempt:
        try:
            found = self._resolve(draft, ids)
        except BuildmatrixError as error:
            return _Attempt(draft, why_not_written=why, failure=_short(error))
        for one in found:
            if isinstance(one, BuildmatrixError):
                no_solution = isinstance(one, Unresolved) and isinstance(one.error, NoSolution)
                return _Attempt(draft, why, _short(one), (), no_solution)
        after = self.session.report(found, advisories=False)
        before = self._before(ids) if not self.session.inputs.sources else self.report
        failure = _failure(before, after, ids, gone)
        return _Attempt(draft, why, failure, tuple(found), False, _differences(before, after, ids))

    def _resolve(self, draft: Draft, ids: frozenset[str]) -> Found:
        inputs = self.session.inputs
        is_spec = not inputs.sources
        with ExitStack() as stack:
            root, spec = inputs.root, inputs.spec
            if draft.texts:
                contents = {one.at: one.after.encode() for one in draft.texts.values()}
                root = stack.enter_context(overlay(inputs.root, contents, draft.beside))
                if spec is not None and any(
                    one.path == spec.path.resolve() for one in draft.texts.values()
                ):
                    place = root / _below(spec.path, inputs.root)
                    spec = self.session.load(place)
            sources = tuple(_relative(source, inputs.root) for source in draft.sources)
            found = self.session.resolve(
                Inputs(sources, spec, root),
                globs=sorted(ids) if is_spec else None,
                python=common_python(self.found) if inputs.sources else None,
                relock=is_spec,
                change=draft.hooked if draft.hooks else None,
            )
        if inputs.sources:
            # Names of targets have those of their sources in them.
            found = tuple(map(_called, found, self.found))
        return [one for one in found if (known := target_of(one)) is None or known.id in ids]

    def _before(self, ids: frozenset[str]) -> Report:
        """The audit to compare with: a lock would be another one after a change in any case."""
        spec = self.session.inputs.spec
        assert spec is not None
        if not any((spec.root / target.lock).exists() for target in spec.targets):
            return self.report
        if self._as_if_unlocked is None:
            all_ids = [target.id for target in map(target_of, self.found) if target is not None]
            found = self.session.resolve(globs=all_ids, relock=True)
            self._as_if_unlocked = self.session.report(found, advisories=False)
        return self._as_if_unlocked

    def _other_ranges(self, way: _Way, ids: Collection[str], tried: _Attempt) -> Iterator[str]:
        """Ranges for a twin that does not have the version of the original."""
        if not tried.has_no_solution or way.change.key != "replace" or tried.why_not_written:
            return
        if way.source is None:
            return
        versions = {
            package.version
            for one in self.found
            if isinstance(one, Resolved) and one.target.id in ids
            for package in one.lock.packages
            if package.name == way.change.name
        }
        if len(versions) == 1:
            version = versions.pop().partition("+")[0]
            yield f"<={version}"
            yield f">={version}"

    def _told(self, way: _Way, ids: frozenset[str], tried: _Attempt) -> _Tried:
        outcome = tried.failure or ""
        why = tried.why_not_written
        if tried.works and tried.draft.texts:
            why = self._opposed(way, ids) or ""
        if tried.works and why:
            self.notes.append(self._by_hand(way, ids, why))
        trial = {id: Trial(tried.works, outcome or why, *tried.saved.get(id, (0, 0))) for id in ids}
        is_written = tried.works and not why and bool(tried.draft.texts)
        draft = tried.draft if is_written else None
        return _Tried(way, trial, draft, tried.only, why)

    def _opposed(self, way: _Way, ids: Collection[str]) -> str | None:
        """Why a change that is right for some targets is not for the others of a SOURCE."""
        if way.source is None:
            return None
        per_source = len(self.found) // len(self.session.inputs.sources)
        mine = self.found[way.source * per_source : (way.source + 1) * per_source]
        others = []
        for one in mine:
            target = target_of(one)
            if target is None or target.id in ids:
                continue
            if not isinstance(one, Resolved) or _has(one.lock, way.change.name):
                others.append(target.backend)
        if not others:
            return None
        name = parse(self.session.inputs.sources[way.source], self.session.inputs.root).name
        return f"{name} is shared with {listing(dict.fromkeys(others))}, where it is wrong"

    def _by_hand(self, way: _Way, ids: Collection[str], why: str) -> str:
        backends = {
            target.backend: None
            for target in map(target_of, self.found)
            if target is not None and target.id in ids
        }
        said = " and ".join(
            f"`{snippet(way.change, backend).partition(chr(10))[2]}` under [backend.{backend}]"
            for backend in backends
        )
        return f"{_said(way.change)} works and is not written: {why}; write {said}"

    # All of them

    def _together(self, works: Sequence[_Tried]) -> tuple[Sequence[_Tried], Draft | None]:
        chosen = list(works)
        while chosen:
            draft = Draft(self.session.inputs)
            for one in chosen:
                _put(draft, one.way, one.only)
            if len(chosen) == 1:
                return chosen, draft
            self.session.progress.step(_STEP, f"trying all {len(chosen)} together")
            ids = frozenset().union(*(self._touched(one.way, one.trial.keys()) for one in chosen))
            gone = {
                (target.id, finding.fingerprint)
                for target in map(target_of, self.found)
                if target is not None and target.id in ids
                for finding in self.report.findings
                if finding.target == target.id
                and finding.fix is not None
                and any(
                    one.way.change == change and target.id in one.trial
                    for one in chosen
                    for change in finding.fix.changes[:1]
                )
            }
            tried = self._run(draft, ids, gone)
            if tried.works:
                return chosen, draft
            last = chosen.pop()
            self.notes.append(
                f"{_said(last.way.change)} works alone and not with the others: {tried.failure}"
            )
        return (), None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One resolution and audit with a change."""

    draft: Draft
    why_not_written: str = ""
    #: Why it does not work; None where it does.
    failure: str | None = None
    found: Found = ()
    has_no_solution: bool = False
    #: Target -> bytes that it downloads and installs less.
    saved: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    only: str | None = None

    @property
    def works(self) -> bool:
        return self.failure is None


def _put(draft: Draft, way: _Way, only: str | None) -> None:
    if way.source is None:
        in_spec(draft, way.change, way.backend)
    else:
        in_source(draft, way.source, way.change, only)


def _failure(
    before: Report, after: Report, ids: Collection[str], gone: Collection[tuple[str, str]]
) -> str | None:
    """Why an audit is not what was hoped for; None where it is."""
    for target in after.targets:
        if target.error is not None:
            return target.error.splitlines()[0]
    if after.unread:
        return f"{after.unread[0].path} could not be read: {after.unread[0].why}"
    known = {(one.target, one.fingerprint) for one in before.findings}
    for one in after.findings:
        if one.waived is not None or one.target not in ids:
            continue
        if (one.target, one.fingerprint) in gone:
            return f"the finding stays: {one.message}"
        if (one.target, one.fingerprint) not in known and one.severity != "note":
            return f"it brings something new: {one.rule} {one.message}"
    return None


def _differences(
    before: Report, after: Report, ids: Collection[str]
) -> Mapping[str, tuple[int, int]]:
    old = {one.id: one.audit or AuditTotals() for one in before.targets}
    new = {one.id: one.audit or AuditTotals() for one in after.targets}
    return {
        id: (old[id].download - new[id].download, old[id].installed - new[id].installed)
        for id in ids
        if id in old and id in new
    }


def _saved(chosen: Sequence[_Tried]) -> tuple[Saved, ...]:
    found: dict[str, Saved] = {}
    for one in chosen:
        for id, trial in one.trial.items():
            known = found.get(id, Saved(id, 0, 0))
            found[id] = Saved(
                id, known.download + trial.download, known.installed + trial.installed
            )
    return tuple(found[id] for id in sorted(found))


def _with_trials(
    report: Report, cases: Sequence[_Case], done: Mapping[_Way, _Tried]
) -> tuple[Finding, ...]:
    fixes: dict[tuple[str, str], Fix] = {}
    for case in cases:
        tried = done.get(case.ways[0])
        trial = tried.trial.get(case.target) if tried is not None else None
        fix = case.finding.fix
        assert fix is not None
        if tried is None or trial is None:
            continue
        if tried.way.change != fix.changes[0]:
            fix = _alternative(fix, tried.way.change, case.finding.backend)
        patch = tried.draft.patch if tried.draft is not None else fix.patch
        fixes[case.target, case.finding.fingerprint] = replace(
            fix, trial=trial, patch=patch or fix.patch
        )
    return tuple(
        replace(one, fix=fixes.get((one.target, one.fingerprint), one.fix))
        for one in report.findings
    )


def _alternative(fix: Fix, change: Change, backend: str) -> Fix:
    said = snippet(change, backend)
    header, _, line = said.partition("\n")
    return replace(
        fix,
        kind="remove" if change.key == "drop" else fix.kind,
        text=f"write `{line}` under {header}",
        patch=f"{said}\n",
    )


def _said(change: Change) -> str:
    match change.key:
        case "replace":
            return f"{change.value} in place of {change.name}"
        case "drop":
            return f"without {change.name}"
        case "torch":
            return f"torch from uv's `{change.value}`"
        case _:
            return f"{change.name} from source"


def _has(lock: Lock, name: str) -> bool:
    return any(package.name == name for package in lock.packages)


def _version_of(attempt: _Attempt, twin: str) -> str | None:
    if not attempt.works:
        return None
    versions = {
        package.version
        for one in attempt.found
        if isinstance(one, Resolved)
        for package in one.lock.packages
        if package.name == twin
    }
    return versions.pop() if len(versions) == 1 else None


def _called(one: Resolved | BuildmatrixError, as_before: object) -> Resolved | BuildmatrixError:
    """A result under the name that its target had before the change."""
    target = target_of(one)
    before = as_before.target if isinstance(as_before, Resolved | Unresolved) else None
    if target is None or before is None:
        return one
    named = replace(target, id=before.id)
    if isinstance(one, Unresolved):
        return Unresolved(named, one.error)
    assert isinstance(one, Resolved)
    return replace(one, target=named, lock=replace(one.lock, target=named.id))


def _relative(source: str, root: Path) -> str:
    """A SOURCE that holds in an overlay of `root` too."""
    import os

    asked = parse(source, root)
    if not asked.is_file or not Path(asked.name).is_absolute():
        return source
    name = os.path.relpath(
        Path(asked.name).parent.resolve() / Path(asked.name).name, root.resolve()
    )
    extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
    groups = f":{','.join(sorted(asked.groups))}" if asked.groups else ""
    return f"{asked.kind}:{name}{extras}{groups}"


def _below(path: Path, root: Path) -> Path:
    import os

    return Path(os.path.relpath(path.resolve(), root.resolve()))


def _short(error: BuildmatrixError) -> str:
    target = target_of(error)
    return error.message.removeprefix(f"{target.id}: " if target else "").splitlines()[0]
