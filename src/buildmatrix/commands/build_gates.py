"""Gates `lock` and `push`: the lock of a target, and the publication of its image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    EXIT_INTERRUPTED,
    BuildError,
    BuildmatrixError,
    Interrupted,
    UndecidedError,
)
from buildmatrix.commands.build_work import BuildWork, Gates
from buildmatrix.judge.advisories import ask
from buildmatrix.judge.model import Finding, StagedImage
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Target
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.run import Report
from buildmatrix.sources import state_folder

if TYPE_CHECKING:
    from buildmatrix.net.registry_client import Registry
    from buildmatrix.signing.attached import Signer


class LockGate(Gates):
    """Takes the targets of a run through the gate `lock`."""

    def locks(self, works: Sequence[BuildWork]) -> None:
        """Bring the locks up to date, and judge them before anything is downloaded."""
        locks = self._present(works) if self.options.locked else self._fresh(works)
        for work in works:
            lock = locks[work.target.id]
            if isinstance(lock, BuildmatrixError):
                work.fail("lock", lock)
            elif isinstance(lock, str):
                work.gates["lock"] = "failed"
                work.errors.append(f"the lock is not current: {lock}; run `buildmatrix lock`")
            else:
                work.lock = lock
                work.findings = self.judge.lock(work.target, lock)
        if self.options.asking is not None:
            present = [work.lock for work in works if work.lock is not None]
            advisories = ask(present, self.spec.policy, self.options.asking, self.progress)
            for work in works:
                if work.lock is not None:
                    work.findings += self.judge.advisories(work.target, work.lock, advisories)
        for work in works:
            if work.lock is not None:
                work.gates["lock"] = self.judge.gate(work.findings)
            if work.gates["lock"] != "passed":
                self.progress.done(work.target.id, work.outcome(), work.ending)

    def _present(self, works: Sequence[BuildWork]) -> Mapping[str, Lock | str | BuildmatrixError]:
        """The locks as they are, or why they are not current.

        Nothing is resolved for a target whose project has the lock.
        """
        from buildmatrix.locks.status import current

        taken = self._fresh([work for work in works if work.target.committed_lock])
        return {
            work.target.id: taken.get(work.target.id) or current(self.spec, work.target)
            for work in works
        }

    def _fresh(self, works: Sequence[BuildWork]) -> Mapping[str, Lock | BuildmatrixError]:
        """The locks, of which those that are missing or stale were made anew."""
        from buildmatrix.locks.resolve import lock_targets

        works_by_target = {work.target.id: work for work in works}
        return lock_targets(
            self.spec,
            [work.target for work in works],
            upgrade=False,
            offline=self.options.workspace.offline,
            progress=self.progress,
            jobs=self.options.jobs,
            timed=lambda id: works_by_target[id].timed(),
        )

    def audit(self, works: Sequence[BuildWork]) -> None:
        """Read the wheels of targets to build, as far as an index serves parts of them.

        What fails here is reported without a build of some gigabytes. The rest is judged again,
        by all of its bytes, when it is installed: so nothing that could not be read here counts.
        """
        if not self.options.audit or not works:
            return
        from buildmatrix.commands.audit_run import audit_wheels
        from buildmatrix.sources.resolved import Resolved

        resolved = {
            work.target.id: Resolved(work.target, work.lock, None, work.target.lock_label)
            for work in works
            if work.lock is not None
        }
        with self.options.workspace.wheels() as reader:
            looked = audit_wheels(tuple(resolved.values()), reader, self.judge, self.progress)
        locked = (work for work in works if work.target.id in resolved)
        for work, audited in zip(locked, looked, strict=True):
            findings = tuple(self._installed(item, work.target) for item in audited.findings)
            if self.judge.gate(findings) == "failed":
                work.findings += findings
                work.verdicts = audited.verdicts
                work.gates["lock"] = "failed"
                self.progress.done(work.target.id, work.outcome(), work.ending)

    def _installed(self, finding: Finding, target: Target) -> Finding:
        """A finding about a wheel; a waiver may name the path that its file has in the image."""
        from buildmatrix.engines.dockerfile import site_folders

        if finding.path is None or finding.waived is not None:
            return finding
        for site in site_folders(target.python):
            evidence = tuple(replace(item, path=f"{site}/{item.path}") for item in finding.evidence)
            moved = replace(finding, path=f"{site}/{finding.path}", evidence=evidence)
            for settled in self.judge.settled([moved]):
                if settled.waived is not None:
                    return replace(finding, waived=settled.waived, acceptance=settled.acceptance)
        return finding


# Publication: images that passed their gates, then their verdicts, and their tags last.
#
# So a pull by tag finds the verdict with the image. Without verdicts, the engine publishes image
# and tags at once.


class Publication(Gates):
    """Publishes everything, or nothing when one target is not green."""

    def publish(
        self, works: Sequence[BuildWork], report: Callable[[], Report]
    ) -> BuildmatrixError | None:
        """Publish the images of all targets; what went wrong, which each target says as well.

        `report` makes the report of the run so far.
        """
        for work in works:
            work.push = "not-run"
        red = [work.target.id for work in works if not work.green]
        if red:
            self.progress.note(
                f"nothing was pushed, as these targets are not green: {', '.join(red)}"
            )
            return None
        signer = self.options.signer
        tagged = not self.options.stage and signer is None
        error = self._push(works, tagged=tagged)
        if error is not None or tagged:
            return error
        from buildmatrix.net.registry_client import Registry

        with Registry() as registry:
            if signer is not None:
                error = self._attest(registry, works, report(), signer)
            if error is None and not self.options.stage:
                error = self._tag(registry, works)
        return error

    def _push(self, works: Sequence[BuildWork], *, tagged: bool) -> BuildmatrixError | None:
        """The images; a target that comes to its end with this has passed."""
        jobs = [
            replace(work.job, config=work.record.config, digest=work.record.digest)
            for work in works
            if work.job and work.record
        ]
        surroundings = self.options.surroundings
        pushed = self.engine.push(jobs, surroundings, self.progress, tagged=tagged)
        for work in works:
            work.pushed = pushed.digests.get(work.target.id)
            if work.pushed is not None:
                name, tags = work.target.image, " ".join(work.target.references)
                if self.options.stage:
                    work.staged = StagedImage(name, work.pushed, work.target.tags)
                if tagged or self.options.stage:
                    work.push = "passed"
                    what = f"pushed {tags}" if tagged else f"staged {name}@{work.pushed}"
                    self.progress.done(work.target.id, what, "passed")
            elif work.target.id == pushed.stopped_at and pushed.error is not None:
                work.fail_to_publish("not pushed", pushed.error)
        if isinstance(pushed.error, UndecidedError):
            # The builder's image is not the scanned one: no record is reliable.
            for work in works:
                state_folder.forget(work.files)
        return pushed.error

    def _attest(
        self, registry: Registry, works: Sequence[BuildWork], report: Report, signer: Signer
    ) -> BuildmatrixError | None:
        """The verdict of each target, and its bill of materials."""
        from buildmatrix.signing.attached import attach, make_claims
        from buildmatrix.signing.verdict import make_verdict

        now = datetime.now(UTC)
        for work in works:
            assert work.pushed is not None and work.lock is not None
            self.progress.step(work.target.id, "push: signing its verdict")
            image = Reference.parse(work.target.image).at(work.pushed)
            try:
                judged = make_verdict(
                    self.spec,
                    work.target,
                    work.lock.digest,
                    report,
                    now,
                    fail_on=self.options.fail_on,
                    strict=self.options.strict,
                )
                verdict, contents = make_claims(judged, report, image)
                attach(registry, image, contents, signer, now)
                work.attestation = attach(registry, image, verdict, signer, now).digest
            except UndecidedError as error:
                work.fail_to_publish("not attested", error)
                return error
            self.progress.end(work.target.id)
        return None

    def _tag(self, registry: Registry, works: Sequence[BuildWork]) -> BuildmatrixError | None:
        """The tags of all targets."""
        from buildmatrix.commands.promote import move_tags
        from buildmatrix.reports.verify import TagMove

        moved = move_tags(
            registry,
            [
                TagMove(reference, work.target.id, work.pushed or "")
                for work in works
                for reference in work.target.references
            ],
            self.progress,
        )
        error = None
        if moved.code:
            kind = Interrupted if moved.code == EXIT_INTERRUPTED else BuildError
            error = kind("; ".join(moved.problems))
        for work in works:
            states = {item.state for item in moved.moves if item.target == work.target.id}
            if states <= {"moved", "already"}:
                work.push = "passed"
                tags = " ".join(work.target.references)
                self.progress.done(work.target.id, f"pushed {tags}", "passed")
            elif error is not None and "failed" in states:
                work.fail_to_publish("not pushed", error)
        if isinstance(error, Interrupted):
            raise error
        return error
