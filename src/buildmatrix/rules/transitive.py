"""Verdicts through requirements: a clean package that requires a foreign one is not clean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from buildmatrix.locks.model import Lock
from buildmatrix.rules.model import UNFIT, Verdict


def through(lock: Lock, verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The same verdicts; those of what requires a broken or bloated distribution are that too.

    `Package.via` says who requires whom: markers and extras are decided there already. What is
    worst counts, and of equals the nearest.
    """
    by_name = {verdict.name: verdict for verdict in verdicts}
    requires = _requires(lock)
    return tuple(
        verdict if verdict.verdict in UNFIT else _through(verdict, by_name, requires)
        for verdict in by_name.values()
    )


def _requires(lock: Lock) -> Mapping[str, Sequence[str]]:
    names = {package.name for package in lock.packages}
    by_asker: dict[str, list[str]] = {}
    for package in sorted(lock.packages, key=lambda package: package.name):
        for asker in package.via:
            if asker in names:
                by_asker.setdefault(asker, []).append(package.name)
    return by_asker


def _through(
    item: Verdict, by_name: Mapping[str, Verdict], requires: Mapping[str, Sequence[str]]
) -> Verdict:
    # Who is reached, and the requirement of `item` that leads there.
    reached: dict[str, str] = {name: name for name in requires.get(item.name, ())}
    bad: dict[str, tuple[Verdict, str]] = {}
    for name, first in (queue := list(reached.items())):  # grows while it is walked
        verdict = by_name.get(name)
        if verdict is not None and verdict.verdict in UNFIT:
            bad.setdefault(verdict.verdict, (verdict, first))
            continue
        for further in requires.get(name, ()):
            if further not in reached and further != item.name:
                reached[further] = first
                queue.append((further, first))
    for kind in reversed(UNFIT):
        if kind in bad:
            worst, first = bad[kind]
            by = "" if first == worst.name else f" by way of {first}"
            return replace(
                item,
                verdict=worst.verdict,
                reason=f"it requires {worst.name} {worst.version}{by}, and that is "
                f"{worst.verdict} here: {worst.reason}",
                vendors=tuple(sorted({*item.vendors, *worst.vendors})),
                by_others=True,
            )
    return item
