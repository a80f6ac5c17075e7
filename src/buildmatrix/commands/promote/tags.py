"""Tags that are set one after the other, once everything that can be known before is known.

No registry sets several tags at once. So nothing is written before every image was seen to be
there, and every tag could be read; and whoever is stopped in between runs again, and goes on.
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
from buildmatrix.reports.promote.model import TagMove


@dataclass(slots=True)
class Moved:
    """How far a run got; `code` is its exit code."""

    moves: list[TagMove]
    problems: list[str] = field(default_factory=list)
    code: int = 0


def move(registry: Registry, moves: Sequence[TagMove], progress: Progress) -> Moved:
    """Set all tags, or none where one of the images is not in its registry."""
    moved = Moved(list(moves))
    manifests: dict[str, ManifestBytes] = {}
    at = 0
    try:
        for item in moves:
            name = f"{_repository(item).name}@{item.digest}"
            if name not in manifests:
                progress.step(item.target, f"looking for {name}")
                manifests[name] = _whole(registry, _repository(item).at(item.digest))
                progress.end(item.target)
        for at, item in enumerate(moves):
            before = _named(registry, Reference.parse(item.reference))
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
            # Said before it is done: whoever is killed on the way has the old digest in the log.
            progress.note(f"{item.reference}: {item.before or 'no such tag'} -> {item.digest}")
            manifest = manifests[f"{_repository(item).name}@{item.digest}"]
            _set(registry, Reference.parse(item.reference), manifest)
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


def _repository(item: TagMove) -> Reference:
    name = Reference.parse(item.reference)
    return Reference(name.host, name.repository)


def _whole(registry: Registry, image: Reference) -> ManifestBytes:
    """The manifest of an image that is there with all of its blobs. Raises `UndecidedError`."""
    top = registry.manifest(image)
    for manifest in _manifests(registry, image, top):
        held = manifest_of(manifest.data, str(image))
        for blob in (held.config, *held.layers):
            if not registry.has_blob(image, blob.digest):
                raise UndecidedError(f"{image} is not whole: its registry lost {blob.digest}")
    return top


def _manifests(registry: Registry, image: Reference, top: ManifestBytes) -> Iterator[ManifestBytes]:
    if top.media_type not in INDEXES:
        yield top
        return
    for item in index_of(top.data, str(image)).manifests:
        yield registry.manifest(image.at(item.digest))


def _named(registry: Registry, tag: Reference) -> str | None:
    """The digest that a tag names; None where there is no such tag."""
    try:
        return registry.resolve(tag).digest
    except RequestError as error:
        if error.status in (404, 410):
            return None
        raise


def _set(registry: Registry, tag: Reference, manifest: ManifestBytes) -> None:
    registry.push_manifest(tag, manifest.data, manifest.media_type)
    named = _named(registry, tag)
    if named != manifest.digest:
        raise UndecidedError(f"its registry took it, and then named {named or 'nothing'}")
