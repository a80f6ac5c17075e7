"""The wheels that an installer takes for a target, out of all that its lock names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from buildmatrix.locks.choose import choose, is_of, refusal
from buildmatrix.locks.model import Wheel
from buildmatrix.sources.resolution.resolved import Resolved


@dataclass(frozen=True, slots=True)
class Chosen:
    """The wheels of one target."""

    #: By distribution.
    wheels: Mapping[str, Wheel]
    #: Why no wheel is taken, for the other distributions.
    without_wheel: Mapping[str, str]


def chosen_wheels(resolved: Resolved) -> Chosen:
    """Choose the wheels of a lock for its target."""
    chosen: dict[str, Wheel] = {}
    without: dict[str, str] = {}
    for package in resolved.lock.packages:
        wheel = choose(package, resolved.target)
        if wheel is None or not wheel.url:
            reason = refusal(package, resolved.target) if wheel is None else None
            without[package.name] = reason or "its lock does not say where its wheel is"
        elif not is_of(wheel, package):
            without[package.name] = (
                f"its lock names {wheel.filename}, which is not a file of this version"
            )
        else:
            chosen[package.name] = wheel
    return Chosen(chosen, without)
