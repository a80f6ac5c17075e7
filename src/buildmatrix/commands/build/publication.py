"""Images whose gates held go into a registry, then their verdicts, and their tags last.

A pull by tag then finds the verdict with the image. Without verdicts, and with tags, it is
the engine that publishes both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from buildmatrix.attestation.attach import Signer, attach, make_claims
from buildmatrix.commands.build.options import Options
from buildmatrix.commands.build.work import BuildWork
from buildmatrix.commands.promote.tags import move_tags
from buildmatrix.engines.model import Engine
from buildmatrix.errors import (
    EXIT_INTERRUPTED,
    BuildError,
    BuildmatrixError,
    Interrupted,
    UndecidedError,
)
from buildmatrix.progress import Progress
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.promote import TagMove
from buildmatrix.reports.run.model import Report
from buildmatrix.rules.model import StagedImage
from buildmatrix.spec.model import Spec
from buildmatrix.state import journal

if TYPE_CHECKING:
    from buildmatrix.registry.client import Registry


class Publication:
    """Publishes everything, or nothing when one target is not green."""

    def __init__(self, spec: Spec, options: Options, engine: Engine, progress: Progress) -> None:
        self._spec = spec
        self._options = options
        self._engine = engine
        self._progress = progress

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
            self._progress.note(f"nothing was pushed: not green are {', '.join(red)}")
            return None
        signer = self._options.signer
        tagged = not self._options.stage and signer is None
        error = self._push(works, tagged=tagged)
        if error is not None or tagged:
            return error
        from buildmatrix.registry.client import Registry

        with Registry() as registry:
            if signer is not None:
                error = self._attest(registry, works, report(), signer)
            if error is None and not self._options.stage:
                error = self._tag(registry, works)
        return error

    def _push(self, works: Sequence[BuildWork], *, tagged: bool) -> BuildmatrixError | None:
        """The images; a target that comes to its end with this has passed."""
        jobs = [
            replace(work.job, config=work.record.config, digest=work.record.digest)
            for work in works
            if work.job and work.record
        ]
        surroundings = self._options.surroundings
        pushed = self._engine.push(jobs, surroundings, self._progress, tagged=tagged)
        for work in works:
            work.pushed = pushed.digests.get(work.target.id)
            if work.pushed is not None:
                name, tags = work.target.image, " ".join(work.target.references)
                if self._options.stage:
                    work.staged = StagedImage(name, work.pushed, work.target.tags)
                if tagged or self._options.stage:
                    work.push = "passed"
                    what = f"pushed {tags}" if tagged else f"staged {name}@{work.pushed}"
                    self._progress.done(work.target.id, what, ok=True)
            elif work.target.id == pushed.stopped_at and pushed.error is not None:
                work.fail_to_publish("not pushed", pushed.error)
        if isinstance(pushed.error, UndecidedError):
            # What the builder has is not what was scanned: no record can be relied upon.
            for work in works:
                journal.forget(work.files)
        return pushed.error

    def _attest(
        self, registry: Registry, works: Sequence[BuildWork], report: Report, signer: Signer
    ) -> BuildmatrixError | None:
        """The verdict of each target, and its bill of materials."""
        now = datetime.now(UTC)
        for work in works:
            assert work.pushed is not None and work.lock is not None
            self._progress.step(work.target.id, "push: signing its verdict")
            image = Reference.parse(work.target.image).at(work.pushed)
            try:
                verdict, contents = make_claims(
                    self._spec,
                    work.target,
                    work.lock.digest,
                    report,
                    image,
                    now,
                    fail_on=self._options.fail_on,
                    strict=self._options.strict,
                )
                attach(registry, image, contents, signer, now)
                work.attestation = attach(registry, image, verdict, signer, now).digest
            except UndecidedError as error:
                work.fail_to_publish("not attested", error)
                return error
            self._progress.end(work.target.id)
        return None

    def _tag(self, registry: Registry, works: Sequence[BuildWork]) -> BuildmatrixError | None:
        """The tags of all targets."""
        moved = move_tags(
            registry,
            [
                TagMove(reference, work.target.id, work.pushed or "")
                for work in works
                for reference in work.target.references
            ],
            self._progress,
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
                self._progress.done(work.target.id, f"pushed {tags}", ok=True)
            elif error is not None and "failed" in states:
                work.fail_to_publish("not pushed", error)
        if isinstance(error, Interrupted):
            raise error
        return error
