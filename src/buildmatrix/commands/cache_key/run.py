"""Cache keys of the targets that run on a node class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buildmatrix.catalogue.load import load
from buildmatrix.commands.cache_key.key import SCHEMA, CacheKey, find_node_class, make_cache_key
from buildmatrix.errors import UsageError
from buildmatrix.locks.pylock import read_lock
from buildmatrix.phrases import listing
from buildmatrix.spec.model import Spec, Target


def make_keys(spec: Spec, targets: Sequence[Target], name: str) -> tuple[CacheKey, ...]:
    """Return the key of each of `targets` that runs on the node class `name`.

    Raises `UsageError` for an unknown class, or one without any of the targets, and `SpecError` for
    data missing from the file or a lock.
    """
    node = find_node_class(name, spec.node_classes)
    catalogue = load(spec.catalogue_files)
    running = [target for target in targets if node.runs_target(target.id, target.backend)]
    if not running:
        raise UsageError(f"no target that was selected runs on node class {name}")
    keys = []
    for target in running:
        path = spec.root / target.lock
        keys.append(
            make_cache_key(node, target, read_lock(path) if path.exists() else None, catalogue)
        )
    return tuple(keys)


def require_single_key(name: str, keys: Sequence[CacheKey]) -> str:
    """Return the common key of all targets. Raises `UsageError` if they differ."""
    by_text = {key.text: key.target for key in keys}
    if len(by_text) > 1:
        pairs = listing(f"{target} ({text})" for text, target in by_text.items())
        raise UsageError(
            f"the targets on node class {name} have different keys: {pairs}; choose with --select, "
            "or take --format json"
        )
    return next(iter(by_text))


def make_document(name: str, keys: Sequence[CacheKey]) -> dict[str, Any]:
    """Return all keys for JSON."""
    return {"schema": SCHEMA, "node_class": name, "keys": [key.document() for key in keys]}
