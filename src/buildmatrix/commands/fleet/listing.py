"""Subjects of a fleet as listed by a source, with notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from buildmatrix.catalogue.names import matches_any
from buildmatrix.commands.fleet.model import Subject
from buildmatrix.errors import UndecidedError
from buildmatrix.phrases import count, listing
from buildmatrix.registry.reference import DEFAULT_TAG, Reference
from buildmatrix.spec.model import NodeClass

#: Places listed per image; the rest is counted.
_PLACES = 10
#: Labels of a pod that name its owner, if `--owner-label` names none of them.
OWNER_LABELS = ("app.kubernetes.io/part-of", "team")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSettings:
    """Settings for lists of any kind."""

    #: Globs on `NAME`, `NAME:TAG` and `HOST/NAME:TAG` of images to exclude.
    exclude: tuple[str, ...] = ()
    #: Number of newest images of each repository of a registry; 0 for all.
    newest: int = 0
    #: Platform of the image that is dated, if there are several.
    platform: str = "linux/amd64"
    #: Labels of pods that name an owner, before `OWNER_LABELS`.
    owner_labels: tuple[str, ...] = ()
    #: Files of `kubectl get nodes -o json`.
    nodes: tuple[str, ...] = ()
    #: Those of the specification.
    node_classes: tuple[NodeClass, ...] = ()
    #: Parallel requests to a registry.
    jobs: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectList:
    """Result of one source, or of all."""

    subjects: tuple[Subject, ...] = ()
    #: Parts of the fleet that may be missing, with reasons; a sentence each.
    missing: tuple[str, ...] = ()
    #: Exclusions and other notes; a sentence each.
    notes: tuple[str, ...] = ()
    #: Those of the settings, and others of the cluster.
    node_classes: tuple[NodeClass, ...] = ()


def normalize_reference(text: str) -> str:
    """Normalize a reference for subjects, with its tag or digest. Raises `UndecidedError`."""
    reference = Reference.parse(text)
    if not reference.tag and not reference.digest:
        reference = reference.with_tag(DEFAULT_TAG)
    return str(reference)


def is_excluded(subject: Subject, globs: Sequence[str]) -> bool:
    """True if one of `globs` matches the name of an image; see `SubjectSettings.exclude`."""
    if not globs:
        return False
    full, _, _ = subject.reference.partition("@")
    name = full.partition("/")[2]
    texts = {subject.reference, full, name, name.partition(":")[0]}
    return any(matches_any(globs, text) for text in texts)


def merge_subjects(subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    """Return each reference once, with the data of all its places, sorted by reference."""
    same: dict[str, list[Subject]] = {}
    for subject in subjects:
        same.setdefault(subject.reference, []).append(subject)
    return tuple(_merge_equal(same[reference]) for reference in sorted(same))


def _merge_equal(subjects: Sequence[Subject]) -> Subject:
    if len(subjects) == 1:
        return subjects[0]
    return replace(
        subjects[0],
        places=limit_places(place for subject in subjects for place in subject.places),
        node_classes=tuple(sorted({name for item in subjects for name in item.node_classes})),
        containers=sum(subject.containers for subject in subjects),
        owner=listing(sorted({subject.owner for subject in subjects} - {""})),
    )


def limit_places(places: Iterable[str]) -> tuple[str, ...]:
    """Return the first places, and the number of others: an image may run in ten thousand pods."""
    unique = list(dict.fromkeys(places))
    if len(unique) <= _PLACES:
        return tuple(unique)
    return (*unique[:_PLACES], f"{count(len(unique) - _PLACES, 'more place')}")


def make_sentence(error: UndecidedError) -> str:
    """Return the message of an error as a sentence of a report."""
    return error.message.rstrip(".")
