"""What a list of images says: the subjects of a fleet, and what is to be known of the list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from buildmatrix.catalogue.names import matches_any
from buildmatrix.commands.fleet.model import Subject
from buildmatrix.errors import UndecidedError
from buildmatrix.phrases import count, listing
from buildmatrix.registry.reference import DEFAULT_TAG, Reference
from buildmatrix.spec.model import NodeClass

#: Places of one image that are named; the rest is counted.
_PLACES = 10
#: Labels of a pod that say whose it is, where `--owner-label` names none of them.
OWNER_LABELS = ("app.kubernetes.io/part-of", "team")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSettings:
    """What is asked of the lists, whatever they are."""

    #: Globs on `NAME`, `NAME:TAG` and `HOST/NAME:TAG`; what one of them fits is left out.
    exclude: tuple[str, ...] = ()
    #: Images of each repository of a registry, the newest first; 0 for all.
    newest: int = 0
    #: Which image of several is dated.
    platform: str = "linux/amd64"
    #: Labels of pods that name an owner, before `OWNER_LABELS`.
    owner_labels: tuple[str, ...] = ()
    #: Files of `kubectl get nodes -o json`.
    nodes: tuple[str, ...] = ()
    #: Those of the specification.
    node_classes: tuple[NodeClass, ...] = ()
    #: Requests to a registry at once.
    jobs: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one place names, or all of them."""

    subjects: tuple[Subject, ...] = ()
    #: What may be in the fleet and was not seen, and why; a sentence each.
    missing: tuple[str, ...] = ()
    #: What was left out by request, and what else is to be known; a sentence each.
    notes: tuple[str, ...] = ()
    #: Those of the settings, and those of the cluster that no specification names.
    node_classes: tuple[NodeClass, ...] = ()


def reference_in_fleet(text: str) -> str:
    """A reference as subjects have it, with its tag or digest. Raises `UndecidedError`."""
    reference = Reference.parse(text)
    if not reference.tag and not reference.digest:
        reference = reference.with_tag(DEFAULT_TAG)
    return str(reference)


def is_excluded(subject: Subject, globs: Sequence[str]) -> bool:
    """Whether one of `globs` fits the name of an image; see `SubjectSettings.exclude`."""
    if not globs:
        return False
    full, _, _ = subject.reference.partition("@")
    name = full.partition("/")[2]
    texts = {subject.reference, full, name, name.partition(":")[0]}
    return any(matches_any(globs, text) for text in texts)


def merge(subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    """Each reference once, with all that its places say; by the references."""
    same: dict[str, list[Subject]] = {}
    for subject in subjects:
        same.setdefault(subject.reference, []).append(subject)
    return tuple(_united(same[reference]) for reference in sorted(same))


def _united(subjects: Sequence[Subject]) -> Subject:
    if len(subjects) == 1:
        return subjects[0]
    return replace(
        subjects[0],
        places=some_places(place for subject in subjects for place in subject.places),
        node_classes=tuple(sorted({name for item in subjects for name in item.node_classes})),
        containers=sum(subject.containers for subject in subjects),
        owner=listing(sorted({subject.owner for subject in subjects} - {""})),
    )


def some_places(places: Iterable[str]) -> tuple[str, ...]:
    """The first places, and how many more there are: an image may run in ten thousand pods."""
    unique = list(dict.fromkeys(places))
    if len(unique) <= _PLACES:
        return tuple(unique)
    return (*unique[:_PLACES], f"{count(len(unique) - _PLACES, 'more place')}")


def sentence(error: UndecidedError) -> str:
    """The message of an error as a sentence of a report."""
    return error.message.rstrip(".")
