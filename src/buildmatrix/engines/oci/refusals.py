"""Targets that the engine `oci` cannot build, detected before any download."""

from __future__ import annotations

from typing import Final

from buildmatrix.engines.oci.apt import missing_programs
from buildmatrix.engines.oci.recipe import Recipe, SystemPackages, recipe
from buildmatrix.errors import Problem
from buildmatrix.locks.model import Lock
from buildmatrix.locks.selection import refusal
from buildmatrix.spec.model import Spec, Target

#: Hint that always applies.
WITH_DOCKER: Final = "build with `--engine docker`"


def refusals(spec: Spec, target: Target, lock: Lock) -> list[Problem]:
    """Return why this engine cannot build `target`, with places and hints; none if it can.

    Cheap: nothing is fetched, and the base is not read. Problems of the base, such as a missing
    Python, are raised by `assemble`, before any wheel is fetched. Raises `SpecError` if the
    template cannot be rendered.
    """
    return refusals_of(spec, target, lock, recipe(spec, target, lock))


def refusals_of(spec: Spec, target: Target, lock: Lock, steps: Recipe) -> list[Problem]:
    """Do the same for an existing recipe of the three."""
    problems = list(steps.problems)
    for step in steps.steps:
        if isinstance(step, SystemPackages) and step.names and (missing := missing_programs()):
            problems.append(
                Problem(
                    f"{target.id}: Debian packages ({', '.join(step.names)}) are resolved by apt, "
                    f"and this machine has no {missing[0]}",
                    spec.dockerfile(target.id),
                    step.at.line,
                    hint=f"take a base that has them, install apt and dpkg, or {WITH_DOCKER}",
                )
            )
    for package in lock.packages:
        why = refusal(package, target)
        if why is not None:
            file, _, line = package.place.rpartition(":")
            problems.append(
                Problem(
                    f"{target.id}: {package.name} {package.version} cannot be installed without "
                    f"building it: {why}",
                    file or target.lock,
                    int(line) if line.isdecimal() else None,
                    hint=f"put a wheel of it on an index, or {WITH_DOCKER}",
                )
            )
    return problems
