"""Pins to ask about: public versions, in batches that `pip-audit` takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from buildmatrix.parsing import version_or_none
from buildmatrix.vulnerabilities.model import Key

# PEP 508. Names come from images: nothing else may get into a requirements file.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """One line of a requirements file, `name==version`."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def pin(name: str, version: str) -> Pin | None:
    """Return the pin of an installed version; None for an invalid name or version (PEP 440).

    Advisories are about public versions: `2.6.0+cu124` is asked as `2.6.0`.
    """
    normal = canonicalize_name(name)
    valid = version_or_none(version)
    return Pin(normal, valid.public) if valid is not None and _NAME.fullmatch(normal) else None


def pins_of(packages: Iterable[Key]) -> tuple[dict[Key, Pin], tuple[Key, ...]]:
    """The pin of each package, and the packages that cannot be asked about."""
    pins: dict[Key, Pin] = {}
    strange: list[Key] = []
    for key in dict.fromkeys(packages):
        line = pin(*key)
        if line is None:
            strange.append(key)
        else:
            pins[key] = line
    return pins, tuple(strange)


def batches(pins: Iterable[Pin], parts: int, few: int, most: int) -> Iterator[Sequence[Pin]]:
    """Pins in `parts` batches, or more and fewer ones that have `few` to `most` pins.

    A requirements file cannot pin one name twice, so two versions of it are in two batches.
    """
    rounds: list[list[Pin]] = []
    turns: dict[str, int] = {}
    for item in sorted(set(pins)):
        turn = turns.get(item.name, 0)
        turns[item.name] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(item)
    for distinct in rounds:
        size = min(most, max(few, -(-len(distinct) // parts)))
        yield from (distinct[start : start + size] for start in range(0, len(distinct), size))
