"""`promote`: set the tags of all staged images, or of none.

No registry sets several tags at once. So every image is confirmed and every tag is read before
anything is written; an interrupted run can be repeated, and continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    EXIT_INTERRUPTED,
    Interrupted,
    UndecidedError,
    UsageError,
)
from buildmatrix.base.progress import Progress
from buildmatrix.base.text import count, listing
from buildmatrix.commands.options import PromoteOptions
from buildmatrix.images.documents import INDEXES, index_of, manifest_of
from buildmatrix.judge.acceptance import fails, ran_out
from buildmatrix.judge.model import TargetResult
from buildmatrix.net.addresses import RequestError
from buildmatrix.net.registry_client import Registry
from buildmatrix.net.registry_manifests import ManifestBytes
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.run import Report, exit_code
from buildmatrix.reports.saved import merge
from buildmatrix.reports.verify import Promotion, TagMove


class MoveProgress(Struct):
    """Progress of a run; `code` is its exit code."""

    moves: list[TagMove]
    problems: list[str] = field(default_factory=list)
    code: int = 0


def move_tags(registry: Registry, moves: Sequence[TagMove], progress: Progress) -> MoveProgress:
    """Set all tags, or none if one of the images is missing from its registry."""
    moved = MoveProgress(list(moves))
    manifests: dict[str, ManifestBytes] = {}
    at: int | None = None
    try:
        for item in moves:
            name = f"{_parse_repository(item).name}@{item.digest}"
            if name not in manifests:
                progress.step(item.target, f"looking for {name}")
                manifests[name] = _read_complete(registry, _parse_repository(item).at(item.digest))
                progress.end(item.target)
        for number, item in enumerate(moves):
            before = _resolve_tag(registry, Reference.parse(item.reference))
            moved.moves[number] = replace(item, before=before)
        for at, item in enumerate(moved.moves):
            if item.before == item.digest:
                moved.moves[at] = replace(item, state="already")
                continue
            # Logged first, so that the log has the old digest even if the process is killed.
            progress.note(f"{item.reference}: {item.before or 'no such tag'} -> {item.digest}")
            manifest = manifests[f"{_parse_repository(item).name}@{item.digest}"]
            tag = Reference.parse(item.reference)
            registry.push_manifest(tag, manifest.data, manifest.media_type)
            named = _resolve_tag(registry, tag)
            if named != manifest.digest:
                raise UndecidedError(
                    f"its registry accepted the tag, and then resolved it to {named or 'nothing'}"
                )
            moved.moves[at] = replace(item, state="moved")
    except (UndecidedError, KeyboardInterrupt, Interrupted) as error:
        why = error.message if isinstance(error, UndecidedError) else None
        moved.code = error.exit_code if isinstance(error, UndecidedError) else EXIT_INTERRUPTED
        if at is None:
            trouble = f"no tag was set: {why}" if why else "interrupted before any tag was set"
            moved.problems.append(trouble)
        else:
            reference = moved.moves[at].reference
            moved.moves[at] = replace(moved.moves[at], state="failed")
            moved.problems += [
                f"{reference} was not set: {why}"
                if why
                else f"interrupted while {reference} was set",
                "run it again to go on",
            ]
    return moved


def _parse_repository(item: TagMove) -> Reference:
    name = Reference.parse(item.reference)
    return Reference(name.host, name.repository)


def _read_complete(registry: Registry, image: Reference) -> ManifestBytes:
    """Return the manifest of an image, complete with blobs. Raises `UndecidedError`."""
    top = registry.manifest(image)
    manifests = [top]
    if top.media_type in INDEXES:
        entries = index_of(top.data, str(image)).manifests
        manifests = [registry.manifest(image.at(entry.digest)) for entry in entries]
    for manifest in manifests:
        held = manifest_of(manifest.data, str(image))
        for blob in (held.config, *held.layers):
            if not registry.has_blob(image, blob.digest):
                raise UndecidedError(f"{image} is incomplete: its registry lost {blob.digest}")
    return top


def _resolve_tag(registry: Registry, tag: Reference) -> str | None:
    """Return the digest of a tag; None if there is no such tag."""
    try:
        return registry.resolve(tag).digest
    except RequestError as error:
        if error.status in (404, 410):
            return None
        raise


# From the reports of a run to the tags of its images


def promote(
    registry: Registry,
    reports: Sequence[Report],
    options: PromoteOptions,
    today: date,
    progress: Progress,
) -> tuple[Promotion, int]:
    """Set the tags of all images in the reports, or none unless all are green.

    Returns the exit code, too. Raises `UsageError` for reports that contradict each other, or are
    not of staged images.
    """
    report = merge(reports)
    code = exit_code(report, options.fail_on, options.strict)
    red = [target.id for target in report.targets if not _is_green(target)]
    staged = _list_moves(report) if code else _list_staged(report)
    # Acceptances that have expired and would fail their run today.
    over = [
        expired
        for finding in report.findings
        if (expired := ran_out(finding.rule, finding.distribution, finding.acceptance, today))
        and fails(replace(finding, waived=None), options.fail_on)
    ]
    if code or red:
        why = (
            f"these targets are not green: {listing(red)}"
            if red
            else f"the reports give exit code {code}"
        )
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


def _move_tags(
    registry: Registry, report: Report, staged: Sequence[TagMove], progress: Progress
) -> MoveProgress:
    """Set the tags, if the images still have the verdicts named in their reports."""
    try:
        for target in report.targets:
            if target.staged is None or target.attestation is None:
                continue
            digest = target.staged.digest
            where = Reference.parse(target.staged.repository).at(target.attestation)
            subject = manifest_of(registry.manifest(where).data, str(where)).subject
            if subject is None or subject.digest != digest:
                about = subject.digest if subject is not None else "no image"
                raise UndecidedError(
                    f"the verdict {where} is about {about}, and not about {digest}: its report "
                    "was changed; build it again"
                )
    except UndecidedError as error:
        return MoveProgress(list(staged), [f"no tag was set: {error.message}"], error.exit_code)
    return move_tags(registry, staged, progress)


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
