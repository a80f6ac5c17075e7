"""The gate `lock`: locks are current, and neither they nor their wheels hold what fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.commands.audit.run import look
from buildmatrix.commands.build.options import Options
from buildmatrix.commands.build.work import BuildWork
from buildmatrix.errors import BuildmatrixError
from buildmatrix.judge import Judge
from buildmatrix.locks.model import Lock
from buildmatrix.progress import Progress
from buildmatrix.rules.model import Finding
from buildmatrix.sources.resolved import Resolved
from buildmatrix.spec.model import Spec, Target
from buildmatrix.vulnerabilities.advisories import ask


@dataclass(frozen=True, slots=True)
class LockGate:
    """Takes the targets of a run through the gate `lock`."""

    spec: Spec
    options: Options
    judge: Judge
    progress: Progress

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
        self._advisories(works)
        for work in works:
            if work.lock is not None:
                work.gates["lock"] = self.judge.gate(work.findings)
        for work in works:
            if work.gates["lock"] != "passed":
                self.progress.done(work.target.id, work.outcome(), ok=False)

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
            offline=self.options.offline,
            progress=self.progress,
            jobs=self.options.jobs,
            timed=lambda id: works_by_target[id].timed(),
        )

    def _advisories(self, works: Sequence[BuildWork]) -> None:
        """Ask once what is known against everything that is locked."""
        if self.options.asking is None:
            return
        locks = [work.lock for work in works if work.lock is not None]
        advisories = ask(locks, self.spec.policy, self.options.asking, self.progress)
        for work in works:
            if work.lock is not None:
                work.findings += self.judge.advisories(work.target, work.lock, advisories)

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
                Resolved(work.target, work.lock, None, work.target.lock_label)
                for work in works_by_target.values()
                if work.lock is not None
            ],
            self.options.reader,
            self.judge,
            self.progress,
        )
        for audited_lock in looked:
            work = works_by_target[audited_lock.resolved.target.id]
            findings = tuple(self._installed(item, work.target) for item in audited_lock.findings)
            if self.judge.gate(findings) == "failed":
                work.findings += findings
                work.verdicts = audited_lock.verdicts
                work.gates["lock"] = "failed"
                self.progress.done(work.target.id, work.outcome(), ok=False)

    def _installed(self, finding: Finding, target: Target) -> Finding:
        """A finding about a wheel; a waiver may name the path that its file has in the image."""
        from buildmatrix.render.bake import site_folders

        if finding.path is None or finding.waived is not None:
            return finding
        for folder in site_folders(target.python):
            evidence = tuple(
                replace(item, path=f"{folder}/{item.path}") for item in finding.evidence
            )
            moved = replace(finding, path=f"{folder}/{finding.path}", evidence=evidence)
            for settled in self.judge.settled([moved]):
                if settled.waived is not None:
                    return replace(finding, waived=settled.waived, acceptance=settled.acceptance)
        return finding
