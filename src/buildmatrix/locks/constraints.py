"""Poetry's version constraints: PEP 440 with `^1.2`, `~1.2`, `1.*`, `*` and `||`.

Source: https://python-poetry.org/docs/dependency-specification/, "Version constraints".
"""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from buildmatrix.parsing import parse_specifiers, parse_version


@lru_cache(maxsize=1 << 15)
def allows(constraint: str, version: str) -> bool:
    """Whether `version` is within `constraint`; True where either cannot be understood.

    A wrong yes takes the entry that the lock holds.
    """
    try:
        parsed = parse_version(version)
        return any(
            _specifier(part).contains(parsed, prereleases=True)
            for part in re.split(r"\s*\|\|?\s*", constraint.strip() or "*")
        )
    except (InvalidVersion, InvalidSpecifier):
        return True


def marker(constraint: str) -> str:
    """A constraint on Python as an environment marker; empty where it cannot be understood."""
    try:
        parts = [_specifier(part) for part in re.split(r"\s*\|\|?\s*", constraint)]
    except (InvalidVersion, InvalidSpecifier):
        return ""
    texts = [
        " and ".join(
            f"python_full_version {specifier.operator} '{specifier.version}'" for specifier in part
        )
        for part in parts
    ]
    return "" if "" in texts else " or ".join(f"({text})" for text in texts)


def _specifier(text: str) -> SpecifierSet:
    parts = [part for part in re.split(r"\s*,\s*|\s+(?=[<>=!~^])", text.strip(" ()")) if part]
    return parse_specifiers(
        ",".join(clause for part in parts for clause in _clauses(part.replace(" ", "")))
    )


def _clauses(part: str) -> list[str]:
    if part == "*":
        return []
    if part.startswith("^"):
        release = parse_version(part[1:]).release
        keep = next((n for n, number in enumerate(release) if number), len(release) - 1)
        return [f">={part[1:]}", f"<{_next(release, keep)}.dev0"]
    if part.startswith("~") and not part.startswith("~="):
        release = parse_version(part[1:]).release
        return [f">={part[1:]}", f"<{_next(release, min(1, len(release) - 1))}.dev0"]
    return [part if part[0] in "<>=!~" else f"=={part}"]


def _next(release: tuple[int, ...], position: int) -> str:
    return ".".join(map(str, (*release[:position], release[position] + 1)))
