"""Gates `build`, `scan` and `smoke`: build, judge and run the image of one target."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, ComponentError, Interrupted, UndecidedError
from buildmatrix.base.threads import prepare_type
from buildmatrix.commands import build_checks
from buildmatrix.commands.build_checks import Ascent, ascent, climb, place_rungs, skip_rungs
from buildmatrix.commands.build_work import Builders, BuildWork, Gates, Slot
from buildmatrix.engines.model import BuildOutcome
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.images import store
from buildmatrix.judge.judging import Judge, Judgement
from buildmatrix.judge.model import BuilderAttempt, Gate
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Target, has_to_run, select_in_force
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import BuildRecord, TargetFiles
from buildmatrix.sources.target_layers import add_layers, detach_layers


class ImageGates(Gates):
    """Takes targets through the gates that need an engine; several threads may use it."""

    builders: Builders

    def pass_next(self) -> None:
        """Wait for a free slot on a builder, and take the target that it is for through all."""
        with self.builders.slot() as slot:
            if slot is not None:
                self._pass_all(slot)
                if self.options.fail_fast and slot.work.red:
                    # Before the slot is free: the next target has it at once.
                    self.builders.stop()

    def _pass_all(self, slot: Slot) -> None:
        """Take one target from build to smoke, and give its image its tags."""
        work = slot.work
        with work.timed():
            self._pass_timed(slot)
        if work.green and not work.errors:
            self._through("build", work, self._keep_seconds)
        self.progress.done(work.target.id, work.outcome(), work.ending)

    def _pass_timed(self, slot: Slot) -> None:
        work = slot.work
        try:
            if self._through("build", work, lambda _: self._image(slot)):
                # An export takes as long as smoke commands do, and needs nothing of them.
                with ThreadPoolExecutor(1, thread_name_prefix="layers") as aside:
                    judged = aside.submit(self._judge_image, work)
                    self._through("smoke", work, self._smoke)
                    self._through("scan", work, lambda work: self._scan(work, judged.result()))
        except Interrupted:
            work.errors.append("stopped before it was done")
        work.demand(self.judge.policy.required_gates(work.target.backend), self._no_smoke(work))
        if work.green and not work.errors:
            self._through("build", work, self._release)

    def _keep_seconds(self, work: BuildWork) -> None:
        """Record the target's time in the journal, for shards of later runs."""
        if work.record is not None and not work.cached:
            work.record = msgspec.structs.replace(work.record, seconds=round(work.seconds, 3))
            state_folder.write(work.files, work.record)

    def _through(self, gate: Gate, work: BuildWork, step: Callable[[BuildWork], None]) -> bool:
        """Take `work` through one gate; False where it could not be tried. Raises `Interrupted`."""
        try:
            step(work)
        except Interrupted:
            raise
        except BuildmatrixError as error:
            work.fail(gate, error)
            return False
        return True

    def _image(self, slot: Slot) -> None:
        """Build and scan the image if the journal does not have it."""
        work = slot.work
        if work.record is None:
            outcome = self._built(slot)
            assert work.job is not None
            # The layers cannot say what the image's configuration does.
            inventory = replace(
                store.read(outcome.inventory),
                environment=outcome.environment,
                labels=outcome.labels,
            )
            if outcome.has_layers:
                note = partial(self.progress.step, work.target.id)
                inventory = detach_layers(work.files, outcome.digest, inventory, note)
            store.write(work.files.inventory, inventory)
            record = BuildRecord(
                key=work.key,
                engine=self.engine.name,
                builder=slot.builder,
                digest=outcome.digest,
                config=outcome.config,
                loaded=outcome.loaded,
                tags=(work.job.staged,) if outcome.loaded else (),
                inventory=state_folder.file_sha256(work.files.inventory),
                seconds=round(outcome.seconds, 3),
                bases=dict(outcome.bases),
            )
            state_folder.write(work.files, record)
            work.record = record
        work.gates["build"] = "passed"

    def _built(self, slot: Slot) -> BuildOutcome:
        """The image of one builder, or of a second one where the first dies."""
        work = slot.work
        try:
            return self._built_once(slot)
        except ComponentError as error:
            lost = slot.builder
            if not self.builders.move(slot):
                raise
            self.progress.note(
                f"{work.target.id}: builder {lost} failed, going on with {slot.builder}: "
                f"{error.message}"
            )
            try:
                return self._built_once(slot)
            except ComponentError as second:
                raise ComponentError(
                    f"builder {lost}: {error.message}\nbuilder {slot.builder}: {second.message}",
                    log=second.log,
                ) from second

    def _built_once(self, slot: Slot) -> BuildOutcome:
        work = slot.work
        work.place_on(slot.builder)
        assert work.job is not None
        attempt = None if slot.builder is None else BuilderAttempt(slot.builder)
        try:
            outcome = self.engine.build(work.job, self.options.surroundings, self.progress)
        except Interrupted:
            raise
        except BuildmatrixError as error:
            if attempt is not None:
                work.attempts.append(replace(attempt, error=error.message))
            raise
        if attempt is not None:
            work.attempts.append(attempt)
        return outcome

    def _judge_image(self, work: BuildWork) -> JudgedImage:
        """Judge the files of the image, and those that its layers hide."""
        assert work.record is not None
        files, id = work.files, work.target.id
        note = partial(self.progress.step, id)

        def add_hidden_files() -> tuple[Inventory, str | None]:
            dockerfile = self.spec.root / self.spec.output / id / "Dockerfile"
            scanned = store.read(files.inventory)
            inventory, unknown = add_layers(files, scanned, lambda: self.engine, note, dockerfile)
            if unknown:
                self.progress.note(f"{id}: files that its layers hide are not judged: {unknown}")
            return inventory, unknown

        return judge_image(
            files, work.record, work.target, work.lock, self.judge, add_hidden_files, note
        )

    def _scan(self, work: BuildWork, judged: JudgedImage) -> None:
        """Apply acceptances to the findings of the image."""
        work.scanned = judged.read
        judgement = self.judge.settle(judged.judgement)
        work.verdicts, work.nodes = judgement.verdicts, judgement.fits or None
        work.composition = judgement.composition
        work.findings += judgement.findings
        work.gates["scan"] = self.judge.gate(judgement.findings)

    def _smoke(self, work: BuildWork) -> None:
        """Run smoke commands, then rungs, in the scanned image, as far as possible here."""
        record, wanted = work.record, self.options.preflight
        if record is None:
            return
        if not record.loaded or not record.tags:
            self._skip_smoke(work)
            return
        kept = record
        if self.options.smoke:
            kept = msgspec.structs.replace(kept, smoke=self._commands(work, record))
        if wanted is not None and work.gates["smoke"] != "failed":
            kept = self._climb(work, kept, ascent(work.target, wanted, self.judge))
        if kept != record:
            work.record = kept
            state_folder.write(work.files, kept)

    def _skip_smoke(self, work: BuildWork) -> None:
        """Run nothing of an image that is not here, and say so."""
        target, why = work.target, UndecidedError("its image stays on its builder")
        commands = build_checks.runs_here(target, self.judge.has_device(target.backend))
        if self.options.smoke and commands:
            work.fail("smoke", build_checks.did_not_run(commands, why))
        if self.options.preflight is not None:
            self._skip_ladder(work, why)

    def _skip_ladder(self, work: BuildWork, why: BuildmatrixError) -> None:
        """Climb no rung: open where one was named, unless the gate is open for the same cause."""
        wanted = self.options.preflight
        work.rungs = skip_rungs(work.target, why.message)
        if wanted == "auto":
            work.why_no_climb = why
        elif work.gates["smoke"] != "undecided":
            work.fail("smoke", why.saying(f"`--level {wanted}` did not run: {why.message}"))

    def _commands(self, work: BuildWork, record: BuildRecord) -> tuple[str, ...]:
        """Run the smoke commands; digests of those that passed, now or earlier."""
        outcome = build_checks.run(
            work.target,
            self.judge.has_device(work.target.backend),
            record.tags[0],
            record.config or record.digest,
            record.smoke,
            self.engine,
            self.progress,
        )
        work.gates["smoke"] = outcome.state
        if outcome.why_not is not None:
            work.fail("smoke", outcome.why_not)
        if outcome.error is not None:
            work.errors.append(outcome.error)
        return outcome.passed

    def _climb(self, work: BuildWork, record: BuildRecord, way: Ascent) -> BuildRecord:
        """Climb the ladder where the journal does not know how far; the record, with that."""
        target, reference, today = work.target, record.tags[0], self.options.today
        digest = way.digest(
            record.config or record.digest, select_in_force(target.check_waivers, today)
        )
        is_asked_for = self.options.preflight != "auto"
        # `auto` may have got as far, and left to others what is asked for now.
        lacks = is_asked_for and any(
            rung.state == "not-run" and has_to_run(rung.rung, way.level) for rung in record.rungs
        )
        if way.why_not is None and record.climbed == digest and not lacks:
            work.rungs = place_rungs(target, record.rungs)
            if any(rung.state == "passed" for rung in record.rungs):
                work.merge_state("smoke", "passed")
            return record
        why_not = way.why_not or self.engine.cannot_run(reference)
        if why_not is not None:
            self._skip_ladder(work, why_not)
            return record
        climbed = climb(
            target,
            self.spec,
            work.files,
            reference,
            way.level,
            self.engine,
            self.progress,
            today,
            is_asked_for=is_asked_for,
        )
        work.rungs = climbed.rungs
        work.merge_state("smoke", climbed.state)
        if climbed.error is not None:
            work.errors.append(climbed.error)
            return msgspec.structs.replace(record, climbed="", rungs=())
        return msgspec.structs.replace(record, climbed=digest, rungs=climbed.rungs)

    def _no_smoke(self, work: BuildWork) -> BuildmatrixError:
        """Return the reason why nothing ran in its image."""
        if not self.options.smoke and work.target.smoke:
            return UndecidedError("--no-smoke left its commands out")
        commands = (
            "its [[smoke]] commands need a device that this machine does not have"
            if work.target.smoke
            else "the target has no [[smoke]] command"
        )
        if self.options.preflight is None:
            return UndecidedError(f"{commands}, and --level none left the ladder out")
        why = next((rung.why for rung in work.rungs or () if rung.why), "nothing to run")
        return (work.why_no_climb or UndecidedError(why)).saying(
            f"{commands}, and no rung ran: {why}"
        )

    def _release(self, work: BuildWork) -> None:
        """Move the target's tags on this machine to its image: all gates have passed."""
        record, job = work.record, work.job
        if record is None or job is None or not record.loaded:
            return
        if record.tags == (job.staged,) and job.tags:
            self.engine.release(job.staged, job.tags)
            work.record = msgspec.structs.replace(record, tags=job.tags)
            state_folder.write(work.files, work.record)


# Cached results of the rules, beside a target's inventory.
#
# Equal rules and facts give equal results, so a run with nothing to do reads these instead of the
# inventories of hundreds of images. All inputs of the rules are part of the key. Inputs that depend
# on the day, a baseline or other targets (waivers, severities, node classes of waivers) are not:
# every run applies them (`Judge.settle`).


#: Key of the last image's result.
JUDGEMENT = "judgement"


class JudgedImage(Struct, frozen=True):
    """Results of the rules for one image, and the parts of its inventory for a report."""

    #: Digest of all inputs.
    key: str
    judgement: Judgement
    #: Only contains unread files and counts.
    read: Inventory


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_JUDGED_IMAGE = msgspec.msgpack.Decoder(prepare_type(JudgedImage))


def judge_image(
    files: TargetFiles,
    record: BuildRecord,
    target: Target,
    lock: Lock | None,
    judge: Judge,
    inventory: Callable[[], tuple[Inventory, str | None]],
    note: Callable[[str], None],
) -> JudgedImage:
    """Apply the rules to the image of `record`, or return the cached result.

    `inventory` loads the facts, and returns the reason if some are missing: then the result is not
    cached, so that the next run tries again. `note` is called if the cache is unusable.
    """
    # Without the rules' code: `TargetFiles.derived` is of the current code. `record.key` includes
    # the Dockerfile, which determines the layers of the base.
    image = record.key, record.digest, record.inventory
    parts = image, target, lock.digest if lock is not None else None, judge.basis
    key = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
    store = files.derived(note)
    kept = store.load(JUDGEMENT, _JUDGED_IMAGE)
    if kept is not None and kept.key == key:
        return kept
    facts, unknown = inventory()
    judged = JudgedImage(
        key, judge.by_rules(target, facts, lock), Inventory(unread=facts.unread, stats=facts.stats)
    )
    if unknown is None:
        store.save(JUDGEMENT, judged)
    return judged
