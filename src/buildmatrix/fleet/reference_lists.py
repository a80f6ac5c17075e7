"""Subjects of a fleet as listed by a source, with notes, and files of references."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError, UndecidedError, UsageError
from buildmatrix.base.text import count, listing, printable
from buildmatrix.catalogue.model import matches_any
from buildmatrix.facts.files import read_at_most
from buildmatrix.fleet.model import Subject
from buildmatrix.matrix.model import NodeClass
from buildmatrix.net.registry_mirrors import DEFAULT_TAG, Reference

# Lists of subjects, with notes


#: Places listed per image; the rest is counted.
_PLACES = 10
#: Labels of a pod that name its owner, if `--owner-label` names none of them.
OWNER_LABELS = ("app.kubernetes.io/part-of", "team")


class SubjectSettings(Struct, frozen=True, kw_only=True):
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


class SubjectList(Struct, frozen=True, kw_only=True):
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


def is_excluded(reference: str, globs: Sequence[str]) -> bool:
    """True if one of `globs` matches the name of an image; see `SubjectSettings.exclude`."""
    if not globs:
        return False
    full, _, _ = reference.partition("@")
    name = full.partition("/")[2]
    texts = {reference, full, name, name.partition(":")[0]}
    return any(matches_any(globs, text) for text in texts)


def merge_subjects(subjects: Iterable[Subject]) -> tuple[Subject, ...]:
    """Return each reference once, with the data of all its places, sorted by reference."""
    same: dict[str, list[Subject]] = {}
    for subject in subjects:
        same.setdefault(subject.reference, []).append(subject)
    return tuple(
        items[0]
        if len(items) == 1
        else replace(
            items[0],
            places=limit_places(place for item in items for place in item.places),
            node_classes=tuple(sorted({name for item in items for name in item.node_classes})),
            containers=sum(item.containers for item in items),
            owner=listing(sorted({item.owner for item in items} - {""})),
        )
        for _, items in sorted(same.items())
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


# Files of references: `HOST/NAME:TAG [node-class=NAME] [owner=NAME]` per line.
#
# `#` begins a comment, at the beginning of a line or behind a space. A reference may occur in
# several lines, and so run on several node classes.


#: File size limit: half a million long references.
LARGEST = 100_000_000
#: Mistakes shown.
_SHOWN = 20
_COMMENT = re.compile(r"(?:^|\s)#.*")


def read_references(name: str, settings: SubjectSettings) -> SubjectList:
    """Read the references in a file; `-` is standard input.

    Raises `UsageError`, and for mistakes in its lines `SpecError`.
    """
    title = "standard input" if name == "-" else name
    problems: list[Problem] = []
    subjects = tuple(_parse_subjects(read_text(name, title), title, settings, problems))
    if problems:
        raise SpecError(problems[:_SHOWN])
    return SubjectList(subjects=subjects)


def read_text(name: str, title: str) -> str:
    """Read a list as text; `-` is standard input. Raises `UsageError`, with `title` as its name."""
    try:
        data = read_at_most(name, LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{title} cannot be read: {reason}") from error
    if len(data) > LARGEST:
        raise UsageError(f"{title} has more than {LARGEST:,} bytes, the limit for a list")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{title} is not UTF-8, so it cannot be a list") from None


def _parse_subjects(
    text: str, title: str, settings: SubjectSettings, problems: list[Problem]
) -> Iterator[Subject]:
    for number, line in enumerate(text.split("\n"), 1):
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        try:
            values = _parse_values(words[1:], settings)
            reference = normalize_reference(words[0])
        except (ValueError, UndecidedError) as error:
            problems.append(Problem(str(error), title, number))
            continue
        yield Subject(
            reference=reference,
            places=(f"{title}:{number}",),
            node_classes=tuple(values["node-class"].split(",")) if "node-class" in values else (),
            owner=values.get("owner", ""),
        )


def _parse_values(words: list[str], settings: SubjectSettings) -> dict[str, str]:
    """Parse `node-class=NAME[,NAME]` and `owner=NAME`. Raises `ValueError`."""
    values: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not value or key not in ("node-class", "owner"):
            raise ValueError(
                f"{printable(word)[:100]!r} is not `node-class=NAME` or `owner=NAME`, which are "
                "what can follow a reference"
            )
        if key in values:
            raise ValueError(f"`{key}` is there twice; write `node-class=NAME,NAME` for several")
        values[key] = value
    names = {item.name for item in settings.node_classes}
    for name in values.get("node-class", "").split(","):
        if name and name not in names:
            choice = "; describe it in a specification (-f)"
            if names:
                choice = f" in the specification, which has {listing(sorted(names), 8)}"
            raise ValueError(f"there is no node class `{printable(name)[:100]}`{choice}")
    return values
