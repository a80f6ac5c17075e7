"""Machines of a target, for `inspect`."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.catalogue.architectures import architectures
from buildmatrix.catalogue.load import load
from buildmatrix.errors import UsageError
from buildmatrix.reports.inspect import Machines
from buildmatrix.spec.model import Spec, Target


def find_machines(spec: Spec, targets: Sequence[Target], select: str) -> Machines:
    """Return the GPU architectures of a target's node classes, else those of the target.

    Raises `UsageError` if `select` matches several targets, or no GPUs are declared.
    """
    if len(targets) > 1:
        names = ", ".join(target.id for target in targets)
        raise UsageError(f"--select {select} means several targets ({names}); name one")
    target = targets[0]
    machines = find_target_machines(target, spec)
    if machines is None:
        raise UsageError(
            f"nothing says which GPUs {target.id} runs on; give it `archs`, or a node class with "
            "`archs` or `products` in the specification"
        )
    return machines


def find_target_machines(target: Target, spec: Spec) -> Machines | None:
    """Return the machines of a known target; None if no GPUs are declared."""
    nodes = target.node_classes
    catalogue = load(spec.catalogue_files)
    machines = (arch for node in nodes for arch in architectures(node, catalogue))
    archs = tuple(dict.fromkeys(machines)) or target.archs
    has_device = catalogue.backends[target.backend].vendor is not None
    if not archs and has_device:
        return None
    names = ", ".join(node.name for node in nodes)
    where = f"{target.id} ({names or 'its archs'}: {' '.join(archs)})" if archs else target.id
    return Machines(where, target.backend, archs)
