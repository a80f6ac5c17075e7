"""`build`: lock → judge the lock, then its wheels → build, scan, judge the image → smoke → push.

Targets go through the gates side by side, and one that fails costs no other. What was finished
before is not done again (see `journal`), but always judged again: rules and catalogue may have
changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from buildmatrix import store
from buildmatrix.crew import Crew
from buildmatrix.engines.disk import writing
from buildmatrix.engines.model import BuildJob, Engine
from buildmatrix.errors import (
    BuildError,
    BuildmatrixError,
    Interrupted,
    UndecidedError,
    most_severe,
)
from buildmatrix.inventory.model import Inventory
from buildmatrix.lock.model import Lock
from buildmatrix.pipeline import journal, smoke
from buildmatrix.pipeline.advisories import ask
from buildmatrix.pipeline.audit.run import look
from buildmatrix.pipeline.journal import Record
from buildmatrix.pipeline.judge import Judge
from buildmatrix.pipeline.options import Options
from buildmatrix.pipeline.resolved import Resolved
from buildmatrix.pipeline.state import FOLDER, State, TargetFiles
from buildmatrix.pipeline.target_layers import with_layers
from buildmatrix.progress import Progress
from buildmatrix.reports.model import Report, assemble, exit_code
from buildmatrix.rules.model import GATES, Finding, Gate, GateState, TargetResult, Verdict
from buildmatrix.spec.copies import check_copied
from buildmatrix.spec.model import Spec, Target


@dataclass(frozen=True, slots=True)
class Result:
    """What a run says, and the exit code that follows from it."""

    report: Report
    exit_code: int
    #: Why images that are good were not published.
    error: str | None = None


@dataclass(slots=True)
class _Work:
    """One target on its way through the gates."""

    target: Target
    files: TargetFiles
    lock: Lock | None = None
    job: BuildJob | None = None
    key: str = ""
    record: Record | None = None
    cached: bool = False
    #: What of its inventory goes into the report: inventories are large, and there are many.
    scanned: Inventory | None = None
    gates: dict[Gate, GateState] = field(default_factory=lambda: dict.fromkeys(GATES, "not-run"))
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    #: Why gates did not hold, where it is no finding, and exit codes that only this says.
    errors: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    #: Where publishing was asked for: how it went, and the digest in the registry.
    push: GateState | None = None
    pushed: str | None = None

    def fail(self, gate: Gate, error: BuildmatrixError) -> None:
        """Note why a gate did not hold."""
        decided = isinstance(error, BuildError) or error.exit_code == 2
        self.gates[gate] = "failed" if decided else "undecided"
        self.errors.append(error.message)
        if not isinstance(error, UndecidedError):
            self.codes.append(error.exit_code)

    @property
    def green(self) -> bool:
        """Whether all gates held; smoke may not have run."""
        held = all(self.gates[gate] == "passed" for gate in ("lock", "build", "scan"))
        return held and self.gates["smoke"] in {"passed", "not-run"}

    @property
    def red(self) -> bool:
        """Whether a gate did not hold: what has not run yet still may."""
        return any(state in {"failed", "undecided"} for state in self.gates.values())

    def outcome(self) -> str:
        """One line for the progress display."""
        if self.errors:
            return self.errors[0].splitlines()[0]
        if not self.green:
            gate = next(gate for gate in GATES if self.gates[gate] != "passed")
            findings = sum(finding.waived is None for finding in self.findings)
            return f"{gate} {self.gates[gate]}, {findings} findings"
        return "nothing to do" if self.cached else "built"


def build(
    spec: Spec,
    targets: Sequence[Target],
    options: Options,
    engine: Engine,
    progress: Progress,
) -> Result:
    """Take `targets` through all gates.

    Raises `ComponentError` before anything is built when the engine cannot be used, `SpecError`
    for what is to be copied and is not there or a template that cannot be rendered, and
    `Interrupted` when the user stops the run; what was finished until then is in the journal.
    Everything else is in the result.
    """
    check_copied(spec, targets)
    state = State(spec.root / FOLDER)
    with state.held(progress):
        run = _Run(spec, options, engine, progress, [_Work(t, state.of(t.id)) for t in targets])
        try:
            return run.all()
        except KeyboardInterrupt:
            finished = [work.target.id for work in run.works if work.record]
            raise Interrupted(
                "interrupted; finished and kept: "
                + (", ".join(finished) or "nothing")
                + "; run again to go on from there"
            ) from None


class _Run:
    def __init__(
        self,
        spec: Spec,
        options: Options,
        engine: Engine,
        progress: Progress,
        works: list[_Work],
    ) -> None:
        self.spec = spec
        self.options = options
        self.engine = engine
        self.progress = progress
        self.works = works
        self.judge = Judge(spec, options.fail_on, options.today, options.known)
        self.push_error: BuildmatrixError | None = None

    def all(self) -> Result:
        """All steps, in order."""
        self.locks()
        ready = [work for work in self.works if work.gates["lock"] == "passed"]
        if not (self.options.fail_fast and len(ready) < len(self.works)):
            self.render()
            self.recall(ready)
            self.audit([work for work in ready if work.record is None])
            ready = [work for work in ready if work.gates["lock"] == "passed"]
        if not (self.options.fail_fast and len(ready) < len(self.works)):
            self.side_by_side(ready)
        if self.options.push:
            self.push()
        return self.result()

    # Lock

    def locks(self) -> None:
        """Bring the locks up to date, and judge them before anything is downloaded."""
        from buildmatrix.lock.resolve import lock_targets
        from buildmatrix.lock.status import staleness

        fresh: list[_Work] = []
        for work in self.works:
            if self.options.locked and (why := staleness(self.spec, work.target)):
                work.gates["lock"] = "failed"
                work.errors.append(f"the lock is not current: {why}; run `buildmatrix lock`")
            else:
                fresh.append(work)
        locks = lock_targets(
            self.spec,
            [work.target for work in fresh],
            upgrade=False,
            offline=self.options.offline,
            progress=self.progress,
            jobs=self.options.jobs,
        )
        for work in fresh:
            lock = locks[work.target.id]
            if isinstance(lock, BuildmatrixError):
                work.fail("lock", lock)
                continue
            work.lock = lock
            work.findings = self.judge.lock(work.target, lock)
        self.advisories()
        for work in self.works:
            if work.lock is not None:
                work.gates["lock"] = self.judge.gate(work.findings)
        for work in self.works:
            if work.gates["lock"] != "passed":
                self.progress.done(work.target.id, f"lock: {work.outcome()}", ok=False)

    def advisories(self) -> None:
        """Ask once what is known against everything that is locked."""
        if self.options.asking is None:
            return
        locks = [work.lock for work in self.works if work.lock is not None]
        known = ask(locks, self.spec.policy, self.options.asking, self.progress)
        for work in self.works:
            if work.lock is not None:
                work.findings += self.judge.advisories(work.target, work.lock, known)

    # Render

    def render(self) -> None:
        """Write the generated files, and say for each target what is to be built from what."""
        from buildmatrix.render.generate import generate, write
        from buildmatrix.render.names import bake_name, scan_name

        locked = [work for work in self.works if work.lock is not None]
        if not locked:
            return
        locks = {work.target.id: work.lock for work in locked if work.lock is not None}
        files = generate(self.spec, [work.target for work in locked], locks)
        with writing(self.spec.root / self.spec.output):
            write(self.spec, files)
        bake = f"{self.spec.output}/docker-bake.json"
        entries = msgspec.json.decode(files[bake])["target"]
        digests = journal.Digests(self.spec.root, self.spec.output)
        for work in locked:
            target = work.target
            names = bake_name(target.id), scan_name(target.id)
            own = (f"{self.spec.output}/{target.id}/", f"{self.spec.output}/scan/")
            work.job = BuildJob(
                id=target.id,
                bake_file=self.spec.root / bake,
                image_target=names[0],
                scan_target=names[1],
                context=self.spec.root,
                tags=target.references,
                log=work.files.log,
                scan_output=work.files.scan_output,
                load=self.options.smoke
                and bool(smoke.runs_here(target, self.judge.has_device(target.backend))),
            )
            work.key = journal.key(
                {
                    "engine": self.engine.name,
                    "builder": self.options.surroundings.builder,
                    "mirror": self.options.surroundings.mirror,
                    "bake": [entries[name] for name in names],
                    "generated": {path: digests.of(path) for path in files if path.startswith(own)},
                    "context": [digests.of(path) for path, _ in target.copy],
                    "lock": locks[target.id].digest,
                }
            )

    def recall(self, works: Sequence[_Work]) -> None:
        """Give the targets their records, where the images that these name are still there."""
        if not self.options.rebuild:
            for work in works:
                work.record = journal.read(work.files, work.key)
        loaded = [work.record for work in works if work.record and work.record.loaded]
        present = self.engine.present([tag for record in loaded for tag in record.tags])
        for work in works:
            if work.record and not _is_here(work.record, work.job, present):
                work.record = None
            work.cached = work.record is not None
        if any(work.record is None for work in works):
            self.engine.check(self.options.surroundings.builder)

    # Audit

    def audit(self, works: Sequence[_Work]) -> None:
        """Read the wheels of what is about to be built, as far as an index gives parts of them.

        What fails here needs no build of some gigabytes to be told. What does not is judged again,
        by all of its bytes, when it is installed: so nothing that could not be read here counts.
        """
        if self.options.reader is None or not works:
            return
        found = {work.target.id: work for work in works if work.lock is not None}
        looked = look(
            [
                Resolved(work.target, work.lock, None, work.target.lock)
                for work in found.values()
                if work.lock is not None
            ],
            self.options.reader,
            self.judge,
            self.progress,
        )
        for one in looked:
            work = found[one.resolved.target.id]
            findings = tuple(self.installed(item, work.target) for item in one.findings)
            if self.judge.gate(findings) == "failed":
                work.findings += findings
                work.verdicts = one.verdicts
                work.gates["lock"] = "failed"
                self.progress.done(work.target.id, f"lock: {work.outcome()}", ok=False)

    def installed(self, finding: Finding, target: Target) -> Finding:
        """A finding about a wheel; a waiver may name the path that its file has in the image."""
        from buildmatrix.render.names import site_folders

        if finding.path is None or finding.waived is not None:
            return finding
        for folder in site_folders(target.python):
            evidence = tuple(
                replace(item, path=f"{folder}/{item.path}") for item in finding.evidence
            )
            moved = replace(finding, path=f"{folder}/{finding.path}", evidence=evidence)
            for one in self.judge.settled([moved]):
                if one.waived is not None:
                    return replace(finding, waived=one.waived)
        return finding

    # Build, scan, smoke

    def side_by_side(self, works: Sequence[_Work]) -> None:
        """Build, scan, judge and smoke-test, `jobs` targets at a time."""
        crew = Crew(self.one, self.options.jobs, "target", stop=self.engine.cancel)
        for _ in crew.answers(works):
            if self.options.fail_fast and any(work.red for work in works):
                crew.send_home()

    def one(self, work: _Work) -> None:
        """One target from build to smoke."""
        gate: Gate = "build"
        try:
            self.image(work)
            gate = "scan"
            self.scan(work)
            gate = "smoke"
            self.smoke(work)
        except Interrupted:
            work.errors.append("stopped before it was done")
        except BuildmatrixError as error:
            work.fail(gate, error)
        ok = work.green and not work.errors
        self.progress.done(work.target.id, work.outcome(), ok)

    def image(self, work: _Work) -> None:
        """Build and scan what the journal does not have."""
        if work.record is None:
            assert work.job is not None
            outcome = self.engine.build(work.job, self.options.surroundings, self.progress)
            # The layers cannot say what the image's configuration does.
            inventory = replace(store.read(outcome.inventory), environment=outcome.environment)
            store.write(work.files.inventory, inventory)
            record = Record(
                key=work.key,
                digest=outcome.digest,
                config=outcome.config,
                loaded=outcome.loaded,
                tags=work.job.tags,
                inventory=journal.inventory_digest(work.files),
                seconds=round(outcome.seconds, 3),
                bases=dict(outcome.bases),
            )
            journal.write(work.files, record)
            work.record = record
        work.gates["build"] = "passed"

    def scan(self, work: _Work) -> None:
        """Judge what lies in the image, and what its layers hide."""
        inventory, unknown = with_layers(
            work.files,
            store.read(work.files.inventory),
            lambda: self.engine,
            lambda text: self.progress.step(work.target.id, text),
        )
        if unknown:
            self.progress.note(f"{work.target.id}: what its layers hide is not judged: {unknown}")
        work.scanned = Inventory(unread=inventory.unread, stats=inventory.stats)
        findings, work.verdicts = self.judge.image(work.target, inventory, work.lock)
        work.findings += findings
        work.gates["scan"] = self.judge.gate(findings)

    def smoke(self, work: _Work) -> None:
        """Run what can run here, in the image that was scanned."""
        record = work.record
        if not self.options.smoke or record is None or not record.loaded or not record.tags:
            return
        outcome = smoke.run(
            work.target,
            self.judge.has_device(work.target.backend),
            record.tags[0],
            record.config or record.digest,
            record.smoke,
            self.engine,
            self.progress,
        )
        work.gates["smoke"] = outcome.state
        if outcome.error is not None:
            work.errors.append(outcome.error)
        if outcome.passed != record.smoke:
            work.record = msgspec.structs.replace(record, smoke=outcome.passed)
            journal.write(work.files, work.record)

    # Push

    def push(self) -> None:
        """Publish everything, or nothing when one target is not green."""
        for work in self.works:
            work.push = "not-run"
        red = [work.target.id for work in self.works if not work.green]
        if red:
            self.progress.note(f"nothing was pushed: not green are {', '.join(red)}")
            return
        jobs = [
            replace(work.job, config=work.record.config)
            for work in self.works
            if work.job and work.record
        ]
        pushed = self.engine.push(jobs, self.options.surroundings, self.progress)
        for work in self.works:
            work.pushed = pushed.digests.get(work.target.id)
            if work.pushed is not None:
                work.push = "passed"
                tags = " ".join(work.target.references)
                self.progress.done(work.target.id, f"pushed {tags}", ok=True)
            elif work.target.id == pushed.stopped_at and pushed.error is not None:
                work.push = "failed" if isinstance(pushed.error, BuildError) else "undecided"
                work.errors.append(f"not pushed: {pushed.error.message}")
        self.push_error = pushed.error
        if isinstance(pushed.error, UndecidedError):
            # What the builder has is not what was scanned: no record can be relied upon.
            for work in self.works:
                journal.forget(work.files)

    # Result

    def result(self) -> Result:
        """What is to be reported."""
        findings = [finding for work in self.works for finding in work.findings]
        judged = {work.target.id for work in self.works if work.scanned}
        report = assemble(
            self.spec.path.name,
            self.judge.catalogue_date,
            targets=[self.target_result(work) for work in self.works],
            findings=[*findings, *self.judge.stale_waivers(findings, judged)],
            verdicts=[verdict for work in self.works for verdict in work.verdicts],
            inventories=[work.scanned for work in self.works if work.scanned],
        )
        codes = [code for work in self.works for code in work.codes]
        if self.push_error:
            codes.append(self.push_error.exit_code)
        return Result(
            report,
            most_severe([*codes, exit_code(report, self.options.fail_on, self.options.strict)]),
            self.push_error.message if self.push_error else None,
        )

    def target_result(self, work: _Work) -> TargetResult:
        """The gates of one target."""
        record, target = work.record, work.target
        # A log of an earlier run says nothing of this one.
        log = work.files.log if work.gates["build"] != "not-run" else None
        return TargetResult(
            id=target.id,
            backend=target.backend,
            gates=dict(work.gates),
            image=target.references[0] if target.tags else target.image,
            digest=work.pushed or (record.digest if record else None),
            size=work.scanned.stats.bytes_total if work.scanned else None,
            log=log.relative_to(self.spec.root).as_posix() if log and log.is_file() else None,
            error="\n".join(work.errors) or None,
            seconds=record.seconds if record and not work.cached else 0.0,
            cached=work.cached,
            smoke_not_run=self.smoke_not_run(work) if self.options.smoke else (),
            push=work.push,
            bases=record.bases if record else {},
        )

    def smoke_not_run(self, work: _Work) -> tuple[str, ...]:
        """Smoke commands that a machine with the device still has to run."""
        commands = smoke.not_run_here(work.target, self.judge.has_device(work.target.backend))
        return tuple(f"{command.name} ({command.level})" for command in commands)


def _is_here(record: Record, job: BuildJob | None, present: Mapping[str, str]) -> bool:
    """Whether the image of a record is where this run wants it."""
    if record.loaded:
        return record.is_at(present)
    return job is not None and not job.load
