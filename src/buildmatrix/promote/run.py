"""`promote`: from the reports of one run to the tags of its images."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.errors import UndecidedError, UsageError
from buildmatrix.phrases import count, listing
from buildmatrix.progress import Progress
from buildmatrix.promote.tags import Moved, move
from buildmatrix.registry.client import Registry
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.promote.model import Promotion, TagMove
from buildmatrix.reports.run.model import FailOn, Report, exit_code
from buildmatrix.reports.run.saved import merge
from buildmatrix.rules.model import TargetResult


def promote(
    registry: Registry,
    reports: Sequence[Report],
    fail_on: FailOn,
    strict: bool,
    progress: Progress,
) -> tuple[Promotion, int]:
    """Set the tags of all images in the reports, and the exit code; nothing where one is not green.

    Raises `UsageError` for reports that contradict each other, or are of no staged images.
    """
    report = merge(reports)
    code = exit_code(report, fail_on, strict)
    red = [target.id for target in report.targets if not _is_green(target)]
    staged = _moves(report) if code else _staged(report)
    if code or red:
        why = f"not green are {listing(red)}" if red else f"the reports give exit code {code}"
        moved = Moved(staged, [f"no tag was set: {why}"], code or UndecidedError.exit_code)
    else:
        moved = move(registry, staged, progress)
    promotion = Promotion(
        subject=report.subject,
        promoted=not moved.code,
        moves=tuple(moved.moves),
        problems=tuple(moved.problems),
    )
    return promotion, moved.code


def _is_green(target: TargetResult) -> bool:
    """Whether all gates held, and the image is in its registry; smoke may not have run."""
    held = all(target.gates[gate] == "passed" for gate in ("lock", "build", "scan"))
    return held and target.gates["smoke"] in {"passed", "not-run"} and target.push == "passed"


def _staged(report: Report) -> list[TagMove]:
    """The tags of all targets. Raises `UsageError`."""
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
    moves = _moves(report)
    if not moves:
        raise UsageError("no target of these reports has a tag; give it `[tags]`, and build again")
    digests: dict[str, set[str]] = {}
    for item in moves:
        # However it is spelled: `demo:1` is `docker.io/library/demo:1`.
        digests.setdefault(str(_tag(item)), set()).add(item.digest)
    for reference, several in digests.items():
        if len(several) > 1:
            raise UsageError(
                f"{reference} is the tag of {count(len(several), 'image')} in these reports; "
                "promote only reports of one run, and give each target tags of its own"
            )
    return moves


def _tag(move: TagMove) -> Reference:
    """The tag that is moved. Raises `UsageError` for what is none."""
    try:
        name = Reference.parse(move.reference)
    except UndecidedError as error:
        raise UsageError(error.message) from error
    if name.digest or not name.tag:
        raise UsageError(f"{name} is no tag of an image")
    return name


def _moves(report: Report) -> list[TagMove]:
    return [
        TagMove(f"{target.staged.repository}:{tag}", target.id, target.staged.digest)
        for target in report.targets
        if target.staged is not None
        for tag in target.staged.tags
    ]
