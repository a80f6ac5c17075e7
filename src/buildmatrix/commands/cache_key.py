"""`cache-key`: the key of a node class's compile cache.

A key is a component of a path and a value of a Kubernetes label: at most 63 characters, letters,
digits, `-`, `_` and `.`, a letter or digit at both ends (Kubernetes, "Labels and Selectors"). The
parts of a key are part of the public contract (docs/artifacts.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier

from buildmatrix.base.errors import Problem, SpecError, UsageError
from buildmatrix.base.parsing import parse_specifiers
from buildmatrix.base.text import listing
from buildmatrix.catalogue.drivers import architectures, select_entries
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.model import matches_any
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.locks.model import Lock
from buildmatrix.locks.pylock import read_lock
from buildmatrix.matrix.document import did_you_mean
from buildmatrix.matrix.kinds import numbers
from buildmatrix.matrix.model import ANY, NodeClass, Spec, Target

SCHEMA = "buildmatrix/cache-key/1"
#: Characters of a label's value.
LONGEST = 63
_DIGEST = 8
_ALLOWED = re.compile(r"[A-Za-z0-9._-]*")
#: The same without the separators and the replacement character.
_PLAIN = re.compile(r"[A-Za-z0-9.]*")
#: A version far behind all others, to test if a range ends.
_FARTHEST = "999999999"


class CacheKey(Struct, frozen=True):
    """The key of one target on one node class, with its parts."""

    target: str
    backend: str
    #: `12.8`; None for a backend without version lines.
    runtime: str | None
    #: `sm_90`, sorted; the level of x86-64 for a backend without devices.
    architectures: tuple[str, ...]
    #: Major version of the driver; None if none is needed.
    driver: int | None
    partition: str | None
    #: `arm64`; None on linux/amd64.
    machine: str | None
    #: Name and version, sorted, from the target's lock; None without a lock.
    frameworks: tuple[tuple[str, str], ...] | None

    @property
    def text(self) -> str:
        """The key: its joined parts, and a digest of all if the joined text is ambiguous.

        Versions are not ambiguous: in those of locks, only `+` becomes `_`.
        """
        parts = [
            f"{self.backend}{self.runtime or ''}",
            ".".join(self.architectures),
            *((f"driver{self.driver}",) if self.driver is not None else ()),
            *((self.partition,) if self.partition else ()),
            *((self.machine,) if self.machine else ()),
            *(f"{name}_{version}" for name, version in self.frameworks or ()),
        ]
        whole = "\0".join(parts)
        safe = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in parts]
        joined = "-".join(safe)
        is_exact = (
            all(map(_ALLOWED.fullmatch, self.architectures))
            and _PLAIN.fullmatch(self.partition or "") is not None
            and joined[-1].isalnum()
        )
        if is_exact and len(joined) <= LONGEST:
            return joined
        digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGEST]
        return f"{joined[: LONGEST - _DIGEST - 1].rstrip('-_.')}-{digest}"

    def document(self) -> dict[str, Any]:
        """Return the key and its parts for JSON."""
        return {
            "target": self.target,
            "key": self.text,
            "backend": self.backend,
            "runtime": self.runtime,
            "architectures": list(self.architectures),
            "driver": self.driver,
            "partition": self.partition,
            "machine": self.machine,
            "frameworks": None
            if self.frameworks is None
            else [{"name": name, "version": version} for name, version in self.frameworks],
        }


def find_node_class(name: str, classes: Sequence[NodeClass]) -> NodeClass:
    """Return the class of that name. Raises `UsageError`."""
    for node in classes:
        if node.name == name:
            return node
    hint = did_you_mean(name, [node.name for node in classes], "node classes")
    raise UsageError(f"there is no node class {name!r}; {hint}")


def make_cache_key(
    node: NodeClass, target: Target, lock: Lock | None, catalogue: Catalogue
) -> CacheKey:
    """Return the key of `target` on machines of `node`. Raises `SpecError` for missing data."""
    has_devices = catalogue.vendor_of(node.backend) is not None
    problems: list[Problem] = []
    devices = tuple(sorted(architectures(node, catalogue)))
    if not devices and not has_devices and node.cpu:
        devices = (node.cpu,)
    if not devices:
        key = "`archs` or `products`" if has_devices else "`cpu`"
        problems.append(_make_problem(node, f"has no {key}", f"write {key}"))
    driver = _find_driver_major(node)
    if driver is None and (has_devices or node.driver):
        problems.append(
            _make_problem(node, "has no `driver`", "write its version")
            if not node.driver
            else _make_problem(
                node,
                f"has drivers of more than one major version, {node.driver}",
                "write one, or a class for each",
            )
        )
    runtime = None if target.runtime == ANY else _find_version_line(target)
    if runtime is None and (
        target.runtime != ANY or select_entries(catalogue.toolkit_drivers, target.backend)
    ):
        problems.append(
            Problem(
                f"target {target.id} has the runtime {target.runtime!r}, and what is compiled "
                "depends on its minor version",
                node.position.file,
                hint='write `runtime = "12.8"`, or `full` of it',
            )
        )
    if problems:
        raise SpecError(problems)
    machine = target.platform.removeprefix("linux/").replace("/", "-")
    globs = [glob for owned in catalogue.frameworks for glob in owned.entry.names]
    packages = {package.name: package.version for package in lock.packages} if lock else {}
    for package in lock.conda if lock is not None else ():
        plain = package.name.removeprefix(CONDA_PREFIX)
        packages[catalogue.conda.get(plain, plain)] = package.version
    frameworks = tuple(item for item in sorted(packages.items()) if matches_any(globs, item[0]))
    return CacheKey(
        target=target.id,
        backend=target.backend,
        runtime=runtime,
        architectures=devices,
        driver=driver,
        partition=node.partition or None,
        machine=None if machine == "amd64" else machine,
        frameworks=frameworks if lock is not None else None,
    )


def _make_problem(node: NodeClass, what: str, hint: str) -> Problem:
    return Problem(
        f"node class {node.name} {what}, and what is compiled depends on it",
        node.position.file,
        node.position.line,
        hint=hint,
    )


def _find_driver_major(node: NodeClass) -> int | None:
    """Return the major version common to all drivers of a class."""
    single = numbers(node.driver)
    if single is not None:
        return single[0]
    try:
        drivers = parse_specifiers(node.driver)
    except InvalidSpecifier:
        return None
    starts = [numbers(part.version) for part in drivers if part.operator in (">=", ">", "==", "~=")]
    lowest = max((start for start in starts if start), default=None)
    if lowest is None:
        return None
    major = lowest[0]
    later = (f"{major + 1}", f"{major + 1}.{_FARTHEST}", _FARTHEST)
    return None if any(drivers.contains(version) for version in later) else major


def _find_version_line(target: Target) -> str | None:
    """Return major and minor version of the runtime, `12.8` also for 12.8.1."""
    for text in (target.runtime, target.runtime_values.get("full", "")):
        version = numbers(text)
        if version is not None and len(version) >= 2:
            return f"{version[0]}.{version[1]}"
    return None


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
