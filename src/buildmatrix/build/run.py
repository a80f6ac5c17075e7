"""`build`: lock → judge the lock, then its wheels → build, scan, judge the image → smoke → push.

Targets go through the gates side by side, and one that fails costs no other. What was finished
before is not done again (see `journal`), but always judged again: rules and catalogue may have
changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import msgspec

from buildmatrix import store
from buildmatrix.audit.run import look
from buildmatrix.build import smoke
from buildmatrix.build.committed import outdated
from buildmatrix.build.options import Options
from buildmatrix.build.work import BuildWork
from buildmatrix.engines.disk import writing
from buildmatrix.engines.model import BuildJob, Engine
from buildmatrix.errors import (
    EXIT_INTERRUPTED,
    BuildError,
    BuildmatrixError,
    Interrupted,
    UndecidedError,
    most_severe,
)
from buildmatrix.inventory.model import Inventory
from buildmatrix.judge import Judge
from buildmatrix.progress import Progress
from buildmatrix.reports.run.model import Report, assemble, exit_code
from buildmatrix.rules import generated_file
from buildmatrix.rules.model import Finding, Gate, TargetResult
from buildmatrix.sources.resolution.resolved import Resolved
from buildmatrix.spec.model import Spec, Target
from buildmatrix.spec.paths import check_copied
from buildmatrix.state import journal
from buildmatrix.state.folder import FOLDER, State
from buildmatrix.state.journal import BuildRecord
from buildmatrix.state.target_layers import with_layers
from buildmatrix.threads import Crew
from buildmatrix.vulnerabilities.advisories import ask


@dataclass(frozen=True, slots=True)
class Result:
    """What a run says, and the exit code that follows from it."""

    report: Report
    exit_code: int
    #: Why images that are good were not published, or that the user stopped the run.
    error: str | None = None


def build(
    spec: Spec,
    targets: Sequence[Target],
    options: Options,
    engine: Engine,
    progress: Progress,
) -> Result:
    """Take `targets` through all gates.

    Raises `ComponentError` before anything is built when the engine cannot be used,
    `UndecidedError` when a registry that is to be pushed to cannot be reached, and `SpecError` for
    what is to be copied and is not there or a template that cannot be rendered. Everything else is
    in the result, also what was finished when the user stopped the run; that is in the journal.
    """
    check_copied(spec, targets)
    state = State(spec.root / FOLDER)
    with state.held(progress):
        run = _BuildRun(
            spec, options, engine, progress, [BuildWork(t, state.of(t.id)) for t in targets]
        )
        try:
            return run.all()
        except (KeyboardInterrupt, Interrupted):
            return run.interrupted()


class _BuildRun:
    def __init__(
        self,
        spec: Spec,
        options: Options,
        engine: Engine,
        progress: Progress,
        works: list[BuildWork],
    ) -> None:
        self.spec = spec
        self.options = options
        self.engine = engine
        self.progress = progress
        self.works = works
        self.judge = Judge(spec, options.fail_on, options.today, options.known_findings)
        self.push_error: BuildmatrixError | None = None
        #: About generated files that are committed; they belong to no target.
        self.outdated: tuple[Finding, ...] = ()

    def all(self) -> Result:
        """All steps, in order."""
        if self.options.push:
            self.registries()
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

    def registries(self) -> None:
        """Find out before anything is built that a registry cannot be reached."""
        references = [tag for work in self.works for tag in work.target.references]
        for reference, why in self.engine.unreachable(
            references, self.options.surroundings.builder
        ).items():
            raise UndecidedError(
                f"the registry of {reference} cannot be reached, so nothing was built: {why}; see "
                "that it answers, or build without --push"
            )

    # Lock

    def locks(self) -> None:
        """Bring the locks up to date, and judge them before anything is downloaded."""
        from buildmatrix.locks.resolve import lock_targets
        from buildmatrix.locks.status import staleness

        fresh: list[BuildWork] = []
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
                self.progress.done(work.target.id, work.outcome(), ok=False)

    def advisories(self) -> None:
        """Ask once what is known against everything that is locked."""
        if self.options.asking is None:
            return
        locks = [work.lock for work in self.works if work.lock is not None]
        advisories = ask(locks, self.spec.policy, self.options.asking, self.progress)
        for work in self.works:
            if work.lock is not None:
                work.findings += self.judge.advisories(work.target, work.lock, advisories)

    # Render

    def render(self) -> None:
        """Write the generated files, and say for each target what is to be built from what."""
        from buildmatrix.build.plan import BuildPlan
        from buildmatrix.render.generate import generate, write

        locked = [work for work in self.works if work.lock is not None]
        if not locked:
            return
        locks = {work.target.id: work.lock for work in locked if work.lock is not None}
        files = generate(self.spec, [work.target for work in locked], locks)
        with writing(self.spec.root / self.spec.output):
            write(self.spec, files)
        self.compare_with_git(files)
        plan = BuildPlan(self.spec, self.options, self.engine.name, files)
        for work in locked:
            work.job = plan.job(work.target, work.files, self.judge.has_device(work.target.backend))
            work.key = plan.key(work.target, locks[work.target.id])

    def compare_with_git(self, files: Mapping[str, bytes]) -> None:
        """Find the generated files that somebody committed and that `files` had to correct."""
        try:
            self.outdated = generated_file.check(outdated(self.spec, files))
        except UndecidedError as error:
            self.progress.note(f"committed generated files were not checked: {error.message}")

    def recall(self, works: Sequence[BuildWork]) -> None:
        """Give the targets their records, where the images that these name are still there."""
        if not self.options.rebuild:
            for work in works:
                work.record = journal.read(work.files, work.key)
        loaded = [work.record for work in works if work.record and work.record.loaded]
        present = self.engine.present([tag for record in loaded for tag in record.tags])
        for work in works:
            if work.record and not _is_present(work.record, work.job, present):
                work.record = None
            work.cached = work.record is not None
        if any(work.record is None for work in works):
            self.engine.check(self.options.surroundings.builder)

    # Audit

    def audit(self, works: Sequence[BuildWork]) -> None:
        """Read the wheels of what is about to be built, as far as an index gives parts of them.

        What fails here is reported without a build of some gigabytes. The rest is judged again,
        by all of its bytes, when it is installed: so nothing that could not be read here counts.
        """
        if self.options.reader is None or not works:
            return
        works_by_target = {work.target.id: work for work in works if work.lock is not None}
        looked = look(
            [
                Resolved(work.target, work.lock, None, work.target.lock)
                for work in works_by_target.values()
                if work.lock is not None
            ],
            self.options.reader,
            self.judge,
            self.progress,
        )
        for audited_lock in looked:
            work = works_by_target[audited_lock.resolved.target.id]
            findings = tuple(self.installed(item, work.target) for item in audited_lock.findings)
            if self.judge.gate(findings) == "failed":
                work.findings += findings
                work.verdicts = audited_lock.verdicts
                work.gates["lock"] = "failed"
                self.progress.done(work.target.id, work.outcome(), ok=False)

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
            for settled in self.judge.settled([moved]):
                if settled.waived is not None:
                    return replace(finding, waived=settled.waived)
        return finding

    # Build, scan, smoke

    def side_by_side(self, works: Sequence[BuildWork]) -> None:
        """Build, scan, judge and smoke-test, `jobs` targets at a time."""
        crew = Crew(self.build_one_target, self.options.jobs, "target", stop=self.engine.cancel)
        for _ in crew.answers(works):
            if self.options.fail_fast and any(work.red for work in works):
                crew.send_home()

    def build_one_target(self, work: BuildWork) -> None:
        """One target from build to smoke."""
        try:
            if self.through("build", work, self.image):
                # An export takes as long as smoke commands do, and needs nothing of them.
                with ThreadPoolExecutor(1, thread_name_prefix="layers") as aside:
                    scanned = aside.submit(self.scanned, work)
                    self.through("smoke", work, self.smoke)
                    self.through("scan", work, lambda work: self.scan(work, scanned.result()))
        except Interrupted:
            work.errors.append("stopped before it was done")
        if work.green and not work.errors:
            self.through("build", work, self.release)
        ok = work.green and not work.errors
        self.progress.done(work.target.id, work.outcome(), ok)

    def through(self, gate: Gate, work: BuildWork, step: Callable[[BuildWork], None]) -> bool:
        """Take `work` through one gate; False where it could not be tried. Raises `Interrupted`."""
        try:
            step(work)
        except Interrupted:
            raise
        except BuildmatrixError as error:
            work.fail(gate, error)
            return False
        return True

    def image(self, work: BuildWork) -> None:
        """Build and scan what the journal does not have."""
        if work.record is None:
            assert work.job is not None
            outcome = self.engine.build(work.job, self.options.surroundings, self.progress)
            # The layers cannot say what the image's configuration does.
            inventory = replace(store.read(outcome.inventory), environment=outcome.environment)
            store.write(work.files.inventory, inventory)
            record = BuildRecord(
                key=work.key,
                digest=outcome.digest,
                config=outcome.config,
                loaded=outcome.loaded,
                tags=(work.job.staged,) if outcome.loaded else (),
                inventory=journal.sha256_of(work.files.inventory),
                seconds=round(outcome.seconds, 3),
                bases=dict(outcome.bases),
            )
            journal.write(work.files, record)
            work.record = record
        work.gates["build"] = "passed"

    def scanned(self, work: BuildWork) -> Inventory:
        """What lies in the image, and what its layers hide."""
        inventory, unknown = with_layers(
            work.files,
            store.read(work.files.inventory),
            lambda: self.engine,
            lambda text: self.progress.step(work.target.id, text),
            self.spec.root / self.spec.output / work.target.id / "Dockerfile",
        )
        if unknown:
            self.progress.note(f"{work.target.id}: what its layers hide is not judged: {unknown}")
        return inventory

    def scan(self, work: BuildWork, inventory: Inventory) -> None:
        """Judge what lies in the image."""
        work.scanned = Inventory(unread=inventory.unread, stats=inventory.stats)
        findings, work.verdicts = self.judge.image(work.target, inventory, work.lock)
        work.findings += findings
        work.gates["scan"] = self.judge.gate(findings)

    def smoke(self, work: BuildWork) -> None:
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

    def release(self, work: BuildWork) -> None:
        """Move the target's tags on this machine to its image: all gates have passed."""
        record, job = work.record, work.job
        if record is None or job is None or not record.loaded:
            return
        if record.tags == (job.staged,) and job.tags:
            self.engine.release(job.staged, job.tags)
            work.record = msgspec.structs.replace(record, tags=job.tags)
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

    def interrupted(self) -> Result:
        """What the run came to until the user stopped it."""
        finished = [work.target.id for work in self.works if work.record]
        for work in self.works:
            if not (work.green or work.red):
                work.errors = work.errors or ["stopped before it was done"]
        return replace(
            self.result(),
            exit_code=EXIT_INTERRUPTED,
            error=(
                f"interrupted; finished and kept: {', '.join(finished) or 'nothing'}; run again to "
                "go on from there"
            ),
        )

    def result(self) -> Result:
        """What is to be reported."""
        findings = [finding for work in self.works for finding in work.findings]
        judged = {work.target.id for work in self.works if work.scanned}
        report = assemble(
            self.spec.path.name,
            self.judge.catalogue_date,
            targets=[self.target_result(work) for work in self.works],
            findings=[
                *findings,
                *self.judge.stale_waivers(findings, judged),
                *self.outdated,
            ],
            verdicts=[
                replace(verdict, targets=(work.target.id,))
                for work in self.works
                for verdict in work.verdicts
            ],
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

    def target_result(self, work: BuildWork) -> TargetResult:
        """The gates of one target, and the smoke commands that another machine has to run."""
        not_run: tuple[str, ...] = ()
        if self.options.smoke:
            has_device = self.judge.has_device(work.target.backend)
            commands = smoke.not_run_here(work.target, has_device)
            not_run = tuple(f"{command.name} ({command.level})" for command in commands)
        return work.result(self.spec.root, not_run)


def _is_present(record: BuildRecord, job: BuildJob | None, present: Mapping[str, str]) -> bool:
    """Whether the image of a record is where this run wants it."""
    if record.loaded:
        return record.is_at(present)
    return job is not None and not job.load
