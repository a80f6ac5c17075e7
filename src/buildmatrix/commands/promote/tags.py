"""Setting of several tags in a row, after all checks.

No registry sets several tags at once. So nothing is written before every image is confirmed and
every tag is read; an interrupted run can be repeated, and continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from buildmatrix.errors import EXIT_INTERRUPTED, Interrupted, UndecidedError
from buildmatrix.http.failures import RequestError
from buildmatrix.oci.documents import INDEXES, index_of, manifest_of
from buildmatrix.progress import Progress
from buildmatrix.registry.client import Registry
from buildmatrix.registry.manifests import ManifestBytes
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.promote import TagMove


@dataclass(slots=True)
class MoveProgress:
    """Progress of a run; `code` is its exit code."""

    moves: list[TagMove]
    problems: list[str] = field(default_factory=list)
    code: int = 0


def move_tags(registry: Registry, moves: Sequence[TagMove], progress: Progress) -> MoveProgress:
    """Set all tags, or none if one of the images is missing from its registry."""
    moved = MoveProgress(list(moves))
    manifests: dict[str, ManifestBytes] = {}
    at = 0
    try:
        for item in moves:
            name = f"{_parse_repository(item).name}@{item.digest}"
            if name not in manifests:
                progress.step(item.target, f"looking for {name}")
                manifests[name] = _read_complete(registry, _parse_repository(item).at(item.digest))
                progress.end(item.target)
        for at, item in enumerate(moves):
            before = _resolve_tag(registry, Reference.parse(item.reference))
            moved.moves[at] = replace(item, before=before)
    except UndecidedError as error:
        moved.problems.append(f"no tag was set: {error.message}")
        moved.code = error.exit_code
        return moved
    except (KeyboardInterrupt, Interrupted):
        moved.problems.append("interrupted before any tag was set")
        moved.code = EXIT_INTERRUPTED
        return moved
    try:
        for at, item in enumerate(moved.moves):
            if item.before == item.digest:
                moved.moves[at] = replace(item, state="already")
                continue
            # Logged first, so that the log has the old digest even if the process is killed.
            progress.note(f"{item.reference}: {item.before or 'no such tag'} -> {item.digest}")
            manifest = manifests[f"{_parse_repository(item).name}@{item.digest}"]
            _set_tag(registry, Reference.parse(item.reference), manifest)
            moved.moves[at] = replace(item, state="moved")
    except UndecidedError as error:
        moved.moves[at] = replace(moved.moves[at], state="failed")
        moved.problems.append(f"{moved.moves[at].reference} was not set: {error.message}")
        moved.code = error.exit_code
    except (KeyboardInterrupt, Interrupted):
        moved.problems.append(f"interrupted while {moved.moves[at].reference} was set")
        moved.moves[at] = replace(moved.moves[at], state="failed")
        moved.code = EXIT_INTERRUPTED
    if moved.code:
        moved.problems.append("run it again to go on")
    return moved


def _parse_repository(item: TagMove) -> Reference:
    name = Reference.parse(item.reference)
    return Reference(name.host, name.repository)


def _read_complete(registry: Registry, image: Reference) -> ManifestBytes:
    """Return the manifest of an image, complete with blobs. Raises `UndecidedError`."""
    top = registry.manifest(image)
    for manifest in _read_manifests(registry, image, top):
        held = manifest_of(manifest.data, str(image))
        for blob in (held.config, *held.layers):
            if not registry.has_blob(image, blob.digest):
                raise UndecidedError(f"{image} is not whole: its registry lost {blob.digest}")
    return top


def _read_manifests(
    registry: Registry, image: Reference, top: ManifestBytes
) -> Iterator[ManifestBytes]:
    if top.media_type not in INDEXES:
        yield top
        return
    for item in index_of(top.data, str(image)).manifests:
        yield registry.manifest(image.at(item.digest))


def _resolve_tag(registry: Registry, tag: Reference) -> str | None:
    """Return the digest of a tag; None if there is no such tag."""
    try:
        return registry.resolve(tag).digest
    except RequestError as error:
        if error.status in (404, 410):
            return None
        raise


def _set_tag(registry: Registry, tag: Reference, manifest: ManifestBytes) -> None:
    registry.push_manifest(tag, manifest.data, manifest.media_type)
    named = _resolve_tag(registry, tag)
    if named != manifest.digest:
        raise UndecidedError(f"its registry took it, and then named {named or 'nothing'}")
