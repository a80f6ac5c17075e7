"""From a requirement line down to a distribution: the shortest way through a lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.locks.model import Package


class LockWays:
    """The shortest ways of all packages of a lock, found once and in linear time."""

    def __init__(self, packages: Mapping[str, Package]) -> None:
        self._packages = packages
        children: dict[str, list[str]] = {}
        for name, package in packages.items():
            for asker in package.via:
                children.setdefault(asker, []).append(name)
        lines = {name: line for name, package in packages.items() if (line := self._line(package))}
        steps = _steps(lines, children, {})
        # Locks of other tools may not say who asked: ways begin at what nothing is seen to ask for.
        silent = [name for name, package in packages.items() if not package.via]
        steps = _steps((name for name in silent if name not in steps), children, steps)
        self._steps = steps

    def way(self, name: str) -> tuple[str | None, list[Package]]:
        """The line that the way of a package begins with, and the packages from there to it.

        Where no line leads to it, the place of the entry at the top.
        """
        packages = [self._packages[name]]
        while True:
            top = packages[-1]
            if line := self._line(top):
                break
            step = self._steps.get(top.name, 0)
            above = (asker for asker in top.via if self._steps.get(asker, step) == step - 1)
            asker = next(above, None)
            if asker is None:
                line = top.place
                break
            packages.append(self._packages[asker])
        return line or None, packages[::-1]

    def _line(self, package: Package) -> str | None:
        return next((asker for asker in package.via if asker not in self._packages), None)


def _steps(
    starts: Iterable[str], children: Mapping[str, list[str]], settled: Mapping[str, int]
) -> dict[str, int]:
    """Name → steps from the nearest start; names that are `settled` keep theirs."""
    steps = dict(settled)
    queue = list(starts)
    steps |= dict.fromkeys(queue, 0)
    for name in queue:  # grows while it is walked: breadth first
        for child in children.get(name, ()):
            if child not in steps:
                steps[child] = steps[name] + 1
                queue.append(child)
    return steps
