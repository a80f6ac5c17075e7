"""Which backend an image is for, and whose it is: by where it runs, its labels, and its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache

from buildmatrix.catalogue.names import matches
from buildmatrix.commands.fleet.model import BackendPattern, Subject, WorkerSettings
from buildmatrix.errors import UsageError
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import BackendBy
from buildmatrix.sources.image import BACKEND_LABEL

#: Why an image without a backend is undecided.
NO_BACKEND = (
    "nothing says which backend it is for: no node class, no label, no name; name one with "
    "--backend, or by patterns with --backend-of 'GLOB=BACKEND'"
)


def backends_of(
    subject: Subject,
    labels: Mapping[str, str],
    settings: WorkerSettings,
    backends: Collection[str],
) -> tuple[tuple[str, BackendBy], ...]:
    """The backends that an image is judged for, and what says each; none where nothing does.

    Args:
        subject: the image.
        labels: those of its configuration.
        settings: node classes, patterns and the backend for all else.
        backends: names that the catalogue knows.
    """
    classes = {item.name: item.backend for item in settings.node_classes}
    by_class = dict.fromkeys(classes[name] for name in subject.node_classes if name in classes)
    if by_class:
        return tuple((backend, "node-class") for backend in by_class)
    if label := labels.get(BACKEND_LABEL):
        return ((label, "label"),)
    if backend := backend_by_name(subject.reference, settings.patterns, backends):
        return ((backend, "name"),)
    if settings.backend:
        return ((settings.backend, "option"),)
    return ()


def owner_of(subject: Subject, labels: Mapping[str, str], settings: WorkerSettings) -> str:
    """Whose an image is: by its own labels, else by what the place says where it was found."""
    return next((labels[key] for key in settings.owner_labels if labels.get(key)), subject.owner)


def pattern_of(text: str) -> BackendPattern:
    """`GLOB=BACKEND` of the command line. Raises `UsageError`."""
    pattern, separator, backend = text.rpartition("=")
    if not separator or not pattern or not backend:
        raise UsageError(f"--backend-of {text!r} is not GLOB=BACKEND, such as '*/rocm-*=rocm'")
    return BackendPattern(pattern=pattern, backend=backend)


def backend_by_name(
    reference: str, patterns: Collection[BackendPattern], backends: Collection[str]
) -> str:
    """The backend that the name of an image says; empty for none, and for several.

    The first pattern that fits counts, on the whole reference or on what is behind the host. Then
    the tag, then the last part of the name: their words are compared with `backends`.
    """
    parsed = Reference.parse(reference)
    tagged = f"{parsed.repository}:{parsed.tag}" if parsed.tag else parsed.repository
    for item in patterns:
        if any(
            matches(item.pattern, text)
            for text in (reference, f"{parsed.host}/{tagged}", tagged, parsed.repository)
        ):
            return item.backend
    for text in (parsed.tag, parsed.repository.rpartition("/")[2]):
        if named := backends_in(text, backends):
            return named[0] if len(named) == 1 else ""
    return ""


def backends_in(text: str, backends: Collection[str]) -> tuple[str, ...]:
    """The backends that are words of a name, with a version behind them or without.

    `cuda12.8-py311-server` has `cuda`, `requirements-rocm.txt` has `rocm`; `accuda` has none.
    """
    return tuple(dict.fromkeys(_words(frozenset(backends)).findall(text.lower())))


@cache
def _words(backends: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(backends)))
    return re.compile(rf"(?<![a-z0-9])({names})[0-9.]*(?![a-z0-9])")
