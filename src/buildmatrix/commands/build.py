"""`build`: lock → judge the lock, then its wheels → build, scan, judge the image → smoke → push.

Targets pass the gates in parallel, and a failing one does not affect others. Finished targets are
not built again (see `journal`), but judged by the rules, the catalogue and the policy of this run;
if these are unchanged, results come from a cache (see `image_gates`).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct

from buildmatrix.base import child
from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    EXIT_INTERRUPTED,
    BuildmatrixError,
    ComponentError,
    Interrupted,
    UndecidedError,
    most_severe,
)
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import count
from buildmatrix.base.threads import Crew
from buildmatrix.commands import build_checks
from buildmatrix.commands.build_gates import LockGate, Publication
from buildmatrix.commands.build_work import Builders, BuildWork, Gates, Options
from buildmatrix.commands.image_gates import ImageGates
from buildmatrix.engines.model import Engine
from buildmatrix.engines.process import writing
from buildmatrix.judge.judging import Judge
from buildmatrix.judge.locks import check_generated_file_out_of_date
from buildmatrix.judge.model import Finding, TargetResult
from buildmatrix.matrix.model import Spec, Target
from buildmatrix.matrix.settings import check_copied
from buildmatrix.reports.run import Report, assemble, exit_code
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import BuildRecord, State, machine_key

#: Name of all targets in progress.
TARGETS = "targets"


class Result(Struct, frozen=True):
    """Report of a run, and its exit code."""

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
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Take `targets` through all gates; `clock` says how long each takes.

    Raises `ComponentError` before anything is built when the engine cannot be used,
    `UndecidedError` when a registry that is to be pushed to cannot be reached, and `SpecError` for
    what is to be copied and is not there or a template that cannot be rendered. Everything else is
    in the result, also what was finished when the user stopped the run; that is in the journal.
    """
    check_copied(spec, targets)
    state = State.beside(spec.root)
    with state.lock(progress):
        run = _BuildRun(
            spec,
            options,
            engine,
            Judge(spec, options.fail_on, options.today, options.known_findings),
            progress,
            [BuildWork(target, state.target_files(target.id), clock=clock) for target in targets],
            options.builders,
        )
        try:
            return run.all()
        except (KeyboardInterrupt, Interrupted):
            return run.interrupted()


class _BuildRun(Gates):
    """The order of the gates, and the shared state of a run's targets."""

    works: list[BuildWork]
    #: Those that take part.
    builders: Sequence[str | None]
    push_error: BuildmatrixError | None = None
    #: About generated files that are committed; they belong to no target.
    outdated: tuple[Finding, ...] = ()

    def all(self) -> Result:
        """All steps, in order."""
        if self.options.push or self.options.stage:
            self.registries()
        lock_gate = LockGate(*self.shared)
        lock_gate.locks(self.works)
        ready = [work for work in self.works if work.gates["lock"] == "passed"]
        if not (self.options.fail_fast and len(ready) < len(self.works)):
            self.render()
            ready = [work for work in ready if work.job is not None]
            self.recall(ready)
            ready = self.accepted(ready)
            lock_gate.audit([work for work in ready if work.record is None])
            ready = [work for work in ready if work.gates["lock"] == "passed"]
        if not (self.options.fail_fast and len(ready) < len(self.works)):
            self.side_by_side(ready)
        if self.options.push or self.options.stage:
            self.publish()
        return self.result()

    def registries(self) -> None:
        """Find out before anything is built that a registry cannot be reached."""
        references = [tag for work in self.works for tag in work.target.references]
        for builder in self.options.builders:
            for reference, why in self.engine.unreachable(references, builder).items():
                raise UndecidedError(
                    f"the registry of {reference} cannot be reached, so nothing was built: {why}; "
                    "see that it answers, or build without --push"
                )

    def render(self) -> None:
        """Write the generated files, and plan the build of each target."""
        from buildmatrix.commands.build_plan import BuildPlan
        from buildmatrix.engines.dockerfile import generate, write

        self.build_projects()
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
            lock = locks[work.target.id]
            has_device = self.judge.has_device(work.target.backend)
            work.job = plan.job(work.target, lock, work.files, has_device)
            work.key_on = partial(plan.key, work.target, lock)

    def build_projects(self) -> None:
        """Make the wheels of projects that are installed themselves, each once."""
        from buildmatrix.locks.status import ProjectWheels

        projects = ProjectWheels(self.spec.root, offline=self.options.workspace.offline)
        for work in self.works:
            target = work.target
            if work.lock is None or not target.install_project or work.gates["lock"] != "passed":
                continue
            self.progress.step(target.id, f"wheel of {target.pyproject}")
            if (error := projects.provide(target)) is not None:
                work.lock = None
                work.fail("build", error)
                self.progress.done(target.id, work.outcome(), work.ending)

    def compare_with_git(self, files: Mapping[str, bytes]) -> None:
        """Find the generated files that somebody committed and that `files` had to correct."""
        try:
            stale = check_generated_file_out_of_date(find_outdated(self.spec, files))
            self.outdated = self.judge.settled(stale)
        except UndecidedError as error:
            self.progress.note(f"committed generated files were not checked: {error.message}")

    def accepted(self, works: Sequence[BuildWork]) -> list[BuildWork]:
        """Those that are built, or can be; the others are red, and nothing was fetched."""
        refusals = self.engine.refusals(
            [work.job for work in works if work.job and work.record is None]
        )
        accepted = []
        for work in works:
            error = refusals.get(work.target.id)
            if error is None:
                accepted.append(work)
            else:
                work.fail("build", error)
                self.progress.done(work.target.id, work.outcome(), work.ending)
        return accepted

    def recall(self, works: Sequence[BuildWork]) -> None:
        """Give the targets their records, where the images that these name are still there."""
        if foreign := sum(state_folder.is_foreign(work.files) for work in works):
            self.progress.note(
                f"the state of {count(foreign, 'target')} was not written by this user on this "
                "machine, so it is ignored, and the build starts over"
                + (f" ({trouble})" if (trouble := machine_key().trouble) else "")
            )
        for work in works:
            record = state_folder.load(work.files)
            if record is not None:
                work.home = record.builder
                if self.counts(record) and record.key == work.key_on(record.builder):
                    work.record = record
                    work.place_on(record.builder)
        loaded = [work.record for work in works if work.record and work.record.loaded]
        present = self.engine.present([tag for record in loaded for tag in record.tags])
        for work in works:
            record, job = work.record, work.job
            # Where this run wants it: here, or on its builder.
            is_on_builder = job is not None and not job.load
            if record and not (record.is_at(present) if record.loaded else is_on_builder):
                work.record = None
            work.cached = work.record is not None
        if any(work.record is None for work in works):
            self.check_builders()

    def counts(self, record: BuildRecord) -> bool:
        """Return True if this run can use the image of a record that has the same inputs.

        One that is here needs its builder for nothing but to be published.
        """
        if self.options.rebuild:
            return False
        is_enough = record.loaded and not (self.options.push or self.options.stage)
        return is_enough or record.builder in self.options.builders

    def check_builders(self) -> None:
        """Leave out builders that cannot be used. Raises `ComponentError` where all are such."""
        unusable: dict[str | None, ComponentError] = {}
        for builder in self.options.builders:
            try:
                self.engine.check(builder)
            except ComponentError as error:
                unusable[builder] = error
        self.builders = tuple(name for name in self.options.builders if name not in unusable)
        if not self.builders:
            messages = {error.message for error in unusable.values()}
            each = "\n".join(f"builder {name}: {error.message}" for name, error in unusable.items())
            # A shared cause is named once.
            raise ComponentError(
                messages.pop() if len(messages) == 1 else f"no builder can be used:\n{each}"
            )
        rest = ", ".join(str(name) for name in self.builders)
        for builder, why in unusable.items():
            self.progress.note(f"builder {builder} failed, going on with {rest}: {why.message}")

    def side_by_side(self, works: Sequence[BuildWork]) -> None:
        """Build, scan, judge and smoke-test, `jobs` targets at a time on each builder."""
        builders = Builders(self.builders, self.options.jobs, works)
        gates = ImageGates(*self.shared, builders)

        def stop() -> None:
            builders.stop()
            self.engine.cancel()

        slots = self.options.jobs * len(self.builders)
        # As many turns as targets; which one a turn is for, its slot says.
        crew = Crew[BuildWork, None](lambda _: gates.pass_next(), slots, "target", stop=stop)
        if len(works) > 1:
            self.progress.part(TARGETS, 0, len(works), TARGETS)
        for number, _ in enumerate(crew.answers(works), 1):
            if len(works) > 1:
                self.progress.part(TARGETS, number, len(works), TARGETS)
            if self.options.fail_fast and any(work.red for work in works):
                crew.send_home()

    def publish(self) -> None:
        """Publish the images, and other requested artifacts."""
        self.push_error = Publication(*self.shared).publish(self.works, self.report)

    def interrupted(self) -> Result:
        """Return the result up to the user's interruption."""
        finished = [work.target.id for work in self.works if work.record]
        for work in self.works:
            if not (work.green or work.red):
                work.errors = work.errors or ["stopped before it was done"]
        return replace(
            self.result(),
            exit_code=EXIT_INTERRUPTED,
            error=(
                f"interrupted; finished: {', '.join(finished) or 'nothing'}; run again to continue"
            ),
        )

    def result(self) -> Result:
        """Return the report of the run, and its exit code."""
        report = self.report()
        codes = [code for work in self.works for code in work.codes]
        if self.push_error:
            codes.append(self.push_error.exit_code)
        return Result(
            report,
            most_severe([*codes, exit_code(report, self.options.fail_on, self.options.strict)]),
            self.push_error.message if self.push_error else None,
        )

    def report(self) -> Report:
        """Return the report."""
        findings = [finding for work in self.works for finding in work.findings]
        judged = {work.target.id for work in self.works if work.scanned}
        return assemble(
            self.spec.path.name,
            self.judge.catalogue_date,
            targets=[self.target_result(work) for work in self.works],
            findings=[*findings, *self.judge.stale_waivers(findings, judged), *self.outdated],
            verdicts=[
                replace(verdict, targets=(work.target.id,))
                for work in self.works
                for verdict in work.verdicts
            ],
            inventories=[work.scanned for work in self.works if work.scanned],
            project=self.spec.title,
        )

    def target_result(self, work: BuildWork) -> TargetResult:
        """The gates of one target, and the smoke commands that another machine has to run."""
        not_run: tuple[str, ...] = ()
        # Earlier failures have other reasons for not running.
        if self.options.smoke and work.gates["build"] == "passed":
            commands = build_checks.not_run_here(
                work.target, self.judge.has_device(work.target.backend)
            )
            not_run = tuple(f"{command.name} ({command.level})" for command in commands)
        return work.result(self.spec.root, not_run)


# Outdated generated files in git


#: Seconds.
_PATIENCE = 30


def find_outdated(spec: Spec, generated: Collection[str]) -> tuple[str, ...]:
    """Paths of those files, relative to the specification; call it once all files are written.

    Git's index holds what somebody committed or is about to commit, so a file that a run corrects
    is named again until someone commits it. Files of targets that this run did not generate are not
    compared. Nothing is committed where there is no repository, or no git.

    Args:
        spec: its output folder is looked at.
        generated: paths of the files that were written.

    Raises:
        UndecidedError: git fails.
    """
    if not (spec.root / spec.output).is_dir():
        return ()
    arguments = ("ls-files", "--modified", "-z", "--", f":(literal){spec.output}")
    try:
        answer = child.ask_git(spec.root, *arguments, seconds=_PATIENCE)
    except FileNotFoundError:
        return ()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UndecidedError(f"git did not answer ({type(error).__name__})") from error
    if answer.returncode != 0:
        reason = child.git_complaint(answer) or "git failed"
        if reason.startswith("not a git repository"):
            return ()
        raise UndecidedError(reason)
    modified = {os.fsdecode(path) for path in answer.stdout.split(b"\0") if path}
    return tuple(
        path
        for path in sorted(modified)
        if path in generated or not os.path.lexists(spec.root / path)
    )
