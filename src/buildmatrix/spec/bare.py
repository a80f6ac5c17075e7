"""A target and a specification for what no specification describes."""

from __future__ import annotations

from pathlib import Path

from buildmatrix.spec.model import Base, NodeClass, Policy, Spec, Target, User

#: Where a target without a specification runs.
PLATFORM = "linux/amd64"
#: The runtime of which nothing is known.
ANY = "any"


def bare_target(
    id: str,
    backend: str,
    runtime: str = ANY,
    *,
    base: str = "",
    python: str = "",
    platform: str = PLATFORM,
    lock: str = "",
    node_classes: tuple[NodeClass, ...] = (),
) -> Target:
    """A target that asks for nothing but its backend."""
    return Target(
        id=id,
        project="",
        backend=backend,
        runtime=runtime,
        runtime_values={},
        python=python,
        variant="",
        platform=platform,
        base=Base(base, base),
        requirements=(),
        extras=(),
        pyproject=None,
        replace={},
        drop=(),
        no_binary=(),
        index={},
        torch=None,
        archs=(),
        system_packages=(),
        env={},
        labels={},
        template="",
        copy=(),
        command=(),
        user=User(),
        image="",
        tags=(),
        lock=lock,
        smoke=(),
        node_classes=node_classes,
    )


def bare_spec(*targets: Target) -> Spec:
    """A specification that allows nothing and accepts nothing."""
    return Spec(
        path=Path("buildmatrix.toml"),
        project="",
        version="",
        source=None,
        targets=targets,
        excluded=(),
        subsets={},
        node_classes=(),
        policy=Policy(),
        waivers=(),
    )
