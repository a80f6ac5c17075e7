"""What a target has to run on, for `inspect`."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.products import architectures
from buildmatrix.errors import UsageError
from buildmatrix.reports.inspect.model import Machines
from buildmatrix.spec.model import Spec, Target


def machines_of(spec: Spec, targets: Sequence[Target], select: str) -> Machines:
    """The GPU architectures of the node classes that a target runs on, else those of the target.

    Raises `UsageError` when `select` means several targets, or nothing says which GPUs there are.
    """
    if len(targets) > 1:
        names = ", ".join(target.id for target in targets)
        raise UsageError(f"--select {select} means several targets ({names}); name one")
    target = targets[0]
    machines = machines_of_target(target, spec)
    if machines is None:
        raise UsageError(
            f"nothing says which GPUs {target.id} runs on; give it `archs`, or a node class with "
            "`archs` or `products` in the specification"
        )
    return machines


def machines_of_target(target: Target, spec: Spec) -> Machines | None:
    """The same for a target that is known; None where nothing says which GPUs there are."""
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
