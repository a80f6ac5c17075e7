"""`promote`: from the reports of one run to the tags of its images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from buildmatrix.commands.promote.tags import MoveProgress, move_tags
from buildmatrix.errors import EXIT_FINDINGS, UndecidedError, UsageError
from buildmatrix.oci.documents import manifest_of
from buildmatrix.phrases import count, listing
from buildmatrix.progress import Progress
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.promote import Promotion, TagMove
from buildmatrix.reports.run.model import Report, exit_code
from buildmatrix.reports.run.saved import merge
from buildmatrix.rules.acceptance import FailOn, fails, ran_out
from buildmatrix.rules.model import TargetResult


def promote(
    registry: Registry,
    reports: Sequence[Report],
    fail_on: FailOn,
    strict: bool,
    today: date,
    progress: Progress,
) -> tuple[Promotion, int]:
    """Set the tags of all images in the reports, or none unless all are green.

    Returns the exit code, too. Raises `UsageError` for reports that contradict each other, or are
    not of staged images.
    """
    report = merge(reports)
    code = exit_code(report, fail_on, strict)
    red = [target.id for target in report.targets if not _is_green(target)]
    staged = _list_moves(report) if code else _list_staged(report)
    over = list(_find_expired(report, fail_on, today))
    if code or red:
        why = f"not green are {listing(red)}" if red else f"the reports give exit code {code}"
        moved = MoveProgress(staged, [f"no tag was set: {why}"], code or UndecidedError.exit_code)
    elif over:
        moved = MoveProgress(staged, [f"no tag was set: {why}" for why in over], EXIT_FINDINGS)
    else:
        moved = _move_tags(registry, report, staged, progress)
    promotion = Promotion(
        subject=report.subject,
        promoted=not moved.code,
        moves=tuple(moved.moves),
        problems=tuple(moved.problems),
    )
    return promotion, moved.code


def _find_expired(report: Report, fail_on: FailOn, today: date) -> Iterator[str]:
    """Yield acceptances of the reports that have expired and would fail their run today."""
    for finding in report.findings:
        over = ran_out(finding.rule, finding.distribution, finding.acceptance, today)
        if over is not None and fails(replace(finding, waived=None), fail_on):
            yield over


def _move_tags(
    registry: Registry, report: Report, staged: Sequence[TagMove], progress: Progress
) -> MoveProgress:
    """Set the tags, if the images still have the verdicts named in their reports."""
    try:
        for target in report.targets:
            if target.staged is not None and target.attestation is not None:
                image = Reference.parse(target.staged.repository).at(target.staged.digest)
                _check_attestation(registry, image, target.attestation)
    except UndecidedError as error:
        return MoveProgress(list(staged), [f"no tag was set: {error.message}"], error.exit_code)
    return move_tags(registry, staged, progress)


def _check_attestation(registry: Registry, image: Reference, digest: str) -> None:
    """Raise `UndecidedError` if an image has lost its verdict."""
    where = image.at(digest)
    subject = manifest_of(registry.manifest(where).data, str(where)).subject
    if subject is None or subject.digest != image.digest:
        about = subject.digest if subject is not None else "no image"
        raise UndecidedError(
            f"the verdict {where} is about {about}, and not about {image.digest}: its report was "
            "changed; build it again"
        )


def _is_green(target: TargetResult) -> bool:
    """True if all gates passed and the image is in its registry; smoke may not have run."""
    held = all(target.gates[gate] == "passed" for gate in ("lock", "build", "scan"))
    return held and target.gates["smoke"] in {"passed", "not-run"} and target.push == "passed"


def _list_staged(report: Report) -> list[TagMove]:
    """Return the tags of all targets. Raises `UsageError`."""
    without = [target.id for target in report.targets if target.staged is None]
    if without or not report.targets:
        raise UsageError(
            f"{listing(without) or 'what is in these reports'} was not staged, so there is nothing "
            "to promote; build it with `build --stage --format json=REPORT`"
        )
    for target in report.targets:
        # A build writes the same digest in both places.
        if target.staged and target.digest not in (None, target.staged.digest):
            raise UsageError(
                f"{target.id} was judged as {target.digest}, and staged as {target.staged.digest}: "
                "its report was changed; build it again"
            )
    moves = _list_moves(report)
    if not moves:
        raise UsageError("no target of these reports has a tag; give it `[tags]`, and build again")
    digests: dict[str, set[str]] = {}
    for item in moves:
        # In normal form: `demo:1` is `docker.io/library/demo:1`.
        digests.setdefault(str(_parse_tag(item)), set()).add(item.digest)
    for reference, several in digests.items():
        if len(several) > 1:
            raise UsageError(
                f"{reference} is the tag of {count(len(several), 'image')} in these reports; "
                "promote only reports of one run, and give each target tags of its own"
            )
    return moves


def _parse_tag(move: TagMove) -> Reference:
    """Parse the tag to be moved. Raises `UsageError` if it is not a tag."""
    try:
        name = Reference.parse(move.reference)
    except UndecidedError as error:
        raise UsageError(error.message) from error
    if name.digest or not name.tag:
        raise UsageError(f"{name} is no tag of an image")
    return name


def _list_moves(report: Report) -> list[TagMove]:
    return [
        TagMove(f"{target.staged.repository}:{tag}", target.id, target.staged.digest)
        for target in report.targets
        if target.staged is not None
        for tag in target.staged.tags
    ]
