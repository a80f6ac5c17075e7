"""Backend and owner of an image, by its node classes, labels and name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache

from buildmatrix.catalogue.names import matches
from buildmatrix.commands.fleet.model import BackendPattern, Subject, WorkerSettings
from buildmatrix.errors import UsageError
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import BackendBy
from buildmatrix.sources.images import BACKEND_LABEL

#: Reason for an undecided image without a backend.
NO_BACKEND = (
    "nothing says which backend it is for: no node class, no label, no name; name one with "
    "--backend, or by patterns with --backend-of 'GLOB=BACKEND'"
)


def find_backends(
    subject: Subject,
    labels: Mapping[str, str],
    settings: WorkerSettings,
    backends: Collection[str],
) -> tuple[tuple[str, BackendBy], ...]:
    """Return the backends that an image is judged for, with their sources; none if unknown.

    Args:
        subject: the image.
        labels: those of its configuration.
        settings: node classes, patterns and the default backend.
        backends: names in the catalogue.
    """
    classes = {item.name: item.backend for item in settings.node_classes}
    by_class = dict.fromkeys(classes[name] for name in subject.node_classes if name in classes)
    if by_class:
        return tuple((backend, "node-class") for backend in by_class)
    if label := labels.get(BACKEND_LABEL):
        return ((label, "label"),)
    if backend := find_backend_in_name(subject.reference, settings.patterns, backends):
        return ((backend, "name"),)
    if settings.backend:
        return ((settings.backend, "option"),)
    return ()


def find_owner(subject: Subject, labels: Mapping[str, str], settings: WorkerSettings) -> str:
    """Return the owner of an image: from its own labels, else from its source."""
    return next((labels[key] for key in settings.owner_labels if labels.get(key)), subject.owner)


def parse_pattern(text: str) -> BackendPattern:
    """Parse `GLOB=BACKEND` of the command line. Raises `UsageError`."""
    pattern, separator, backend = text.rpartition("=")
    if not separator or not pattern or not backend:
        raise UsageError(f"--backend-of {text!r} is not GLOB=BACKEND, such as '*/rocm-*=rocm'")
    return BackendPattern(pattern=pattern, backend=backend)


def find_backend_in_name(
    reference: str, patterns: Collection[BackendPattern], backends: Collection[str]
) -> str:
    """Return the backend in the name of an image; empty for none or several.

    The first matching pattern wins, on the whole reference or on the part behind the host. Then the
    words of the tag, and of the last part of the name, are compared with `backends`.
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
        if named := find_backend_words(text, backends):
            return named[0] if len(named) == 1 else ""
    return ""


def find_backend_words(text: str, backends: Collection[str]) -> tuple[str, ...]:
    """Return the backends that are words of a name, with or without a version.

    `cuda12.8-py311-server` has `cuda`, `requirements-rocm.txt` has `rocm`; `accuda` has none.
    """
    return tuple(dict.fromkeys(_word_pattern(frozenset(backends)).findall(text.lower())))


@cache
def _word_pattern(backends: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(backends)))
    return re.compile(rf"(?<![a-z0-9])({names})[0-9.]*(?![a-z0-9])")
