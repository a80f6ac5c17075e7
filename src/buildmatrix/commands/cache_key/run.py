"""The keys of the targets that run on a node class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buildmatrix.catalogue.load import load
from buildmatrix.commands.cache_key.key import SCHEMA, CacheKey, cache_key, node_class
from buildmatrix.errors import UsageError
from buildmatrix.locks.pylock_reader import read_lock
from buildmatrix.phrases import listing
from buildmatrix.spec.model import Spec, Target


def keys_of(spec: Spec, targets: Sequence[Target], name: str) -> tuple[CacheKey, ...]:
    """The key of each of `targets` that runs on the node class `name`.

    Raises `UsageError` for a class that there is not, or that none of them runs on, and `SpecError`
    for what the file or a lock does not say.
    """
    node = node_class(name, spec.node_classes)
    catalogue = load(spec.catalogue_files)
    running = [target for target in targets if node.runs_target(target.id, target.backend)]
    if not running:
        raise UsageError(f"no target that was selected runs on node class {name}")
    keys = []
    for target in running:
        path = spec.root / target.lock
        keys.append(cache_key(node, target, read_lock(path) if path.exists() else None, catalogue))
    return tuple(keys)


def single(name: str, keys: Sequence[CacheKey]) -> str:
    """The one key of all targets. Raises `UsageError` where they differ."""
    by_text = {key.text: key.target for key in keys}
    if len(by_text) > 1:
        pairs = listing(f"{target} ({text})" for text, target in by_text.items())
        raise UsageError(
            f"the targets on node class {name} have different keys: {pairs}; choose with --select, "
            "or take --format json"
        )
    return next(iter(by_text))


def document(name: str, keys: Sequence[CacheKey]) -> dict[str, Any]:
    """All keys, ready for JSON."""
    return {"schema": SCHEMA, "node_class": name, "keys": [key.document() for key in keys]}
