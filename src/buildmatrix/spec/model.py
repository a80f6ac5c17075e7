"""The validated specification, and the targets that it expands to.

Everything in here is already checked: loaders (`spec.load`) raise `SpecError` with all problems of
a file before one of these exists. Paths are relative to the folder of the specification file,
with `/` separators. Placeholders (`{runtime.full}`) are already expanded in a `Target` and
still present in a `Spec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

SmokeLevel = Literal["import", "device", "batch"]
Severity = Literal["error", "warning", "note"]
#: What a policy makes of the findings of a rule; `off` accepts them all.
PolicySeverity = Literal["error", "warning", "note", "off"]
PinnedBases = Literal["digest", "tag", "none"]

#: Folder of what belongs to one machine (`state.folder`), and that of generated files where
#: `[generate]` says nothing; relative to the specification.
STATE = ".buildmatrix/state"
DEFAULT_OUTPUT = ".buildmatrix/generated"
#: Where `[tools]` says nothing.
DEFAULT_TOOLS = {
    "uv": "ghcr.io/astral-sh/uv:0.13.8",
    "scanner": "python:3.11-slim-bookworm",
}


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file that a user wrote; lines and columns count from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class User:
    """Who runs inside the image."""

    name: str = "app"
    uid: int = 10001
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Base:
    """Image references of the two stages; equal where a backend needs no separate build image."""

    build: str
    final: str
    #: Where the specification has them; None for what no specification names.
    build_at: Position | None = None
    final_at: Position | None = None


@dataclass(frozen=True, slots=True)
class Smoke:
    """A command that must succeed inside the image, at one of the smoke levels."""

    name: str
    level: SmokeLevel
    command: tuple[str, ...]
    timeout_s: float
    position: Position


@dataclass(frozen=True, slots=True)
class NodeClass:
    """A kind of machine that targets run on. What the file does not say is empty, or 0."""

    name: str
    backend: str
    #: One version, or a range of which any may be there (PEP 440); empty for any.
    driver: str
    #: As written; `catalogue.products` adds those of `products`.
    archs: tuple[str, ...]
    labels: Mapping[str, str]
    #: Globs on target identifiers; none for all targets of the backend.
    runs: tuple[str, ...]
    position: Position
    #: Names of the devices, as the vendor's tools and Kubernetes labels spell them.
    products: tuple[str, ...] = ()
    #: Bytes of one device.
    memory: int = 0
    #: Devices of one machine.
    count: int = 0
    #: How devices are joined: `nvlink`, `xgmi`, `pcie`.
    interconnect: str = ""
    #: What a device is divided into: a MIG profile (`1g.10gb`), an AMD partition mode (`CPX/NPS4`).
    partition: str = ""
    #: Version or range of the Linux kernel.
    kernel: str = ""
    #: Name, with a version where it is known: `containerd 1.7.27`.
    container_runtime: str = ""
    #: Instruction level of the host: `x86-64-v3`.
    cpu: str = ""
    #: What a pod asks for: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`.
    resources: tuple[str, ...] = ()
    #: Taints that its pods tolerate, as `kubectl taint` spells them.
    tolerations: tuple[str, ...] = ()
    #: Devices of the Container Device Interface: `nvidia.com/gpu=all`.
    cdi: tuple[str, ...] = ()
    #: The golden base image of these machines, with its digest.
    image: str | None = None
    #: The last image that is known to be good here, and where to go back to; with digests.
    known_good: str | None = None
    fall_back: str | None = None

    def runs_target(self, id: str, backend: str) -> bool:
        """Whether a target runs on these machines."""
        return backend == self.backend and (
            not self.runs or any(fnmatchcase(id, glob) for glob in self.runs)
        )


@dataclass(frozen=True, slots=True)
class Waiver:
    """A finding that somebody accepted. Globs; an empty selector matches everything."""

    rule: str
    select: tuple[str, ...]
    distribution: str | None
    path: str | None
    reason: str
    owner: str
    expires: date
    position: Position


@dataclass(frozen=True, slots=True)
class CheckWaiver:
    """Checks of one rung of `preflight` that may fail: somebody accepted it."""

    rung: str
    #: A glob for what the check is about: a module, `torch cuda:0 float16`.
    check: str
    reason: str
    owner: str
    expires: date
    position: Position


@dataclass(frozen=True, slots=True)
class AcceptedAdvisory:
    """An advisory that somebody accepted, under any of its names."""

    id: str
    reason: str
    expires: date
    position: Position


@dataclass(frozen=True, slots=True)
class VulnerabilityPolicy:
    """Who is asked for advisories, and what they count."""

    service: Literal["pypi", "osv"] = "pypi"
    #: The OSV service to ask, where it is not the public one.
    url: str | None = None
    severity: Severity = "error"
    ignore: tuple[AcceptedAdvisory, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleSeverity:
    """What findings of one rule count, on one backend."""

    #: Code of the rule.
    rule: str
    #: Name of the backend, or `*`.
    backend: str
    severity: PolicySeverity
    position: Position


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a list of what is allowed or forbidden, as written."""

    text: str
    position: Position


@dataclass(frozen=True, slots=True)
class Lists:
    """What is allowed, or what is forbidden; keys are names of backends, or `*`."""

    #: A pattern for names, with a range of versions (PEP 440) where there is one: `xgboost<3`.
    distributions: Mapping[str, tuple[Listed, ...]] = field(default_factory=dict)
    #: Patterns for sonames and file names.
    libraries: Mapping[str, tuple[Listed, ...]] = field(default_factory=dict)
    #: SPDX license identifiers, with an exception or not, or patterns for them.
    licenses: Mapping[str, tuple[Listed, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds and allowances; keys of the mappings are backend names or `*`."""

    allow_unresolved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forbid_env: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Budgets. Keys are identifiers of targets and patterns for them as well. Bytes of the root
    #: file system, of the wheels of a lock, and of what is foreign and of no use; and layers.
    max_size: Mapping[str, int] = field(default_factory=dict)
    max_download: Mapping[str, int] = field(default_factory=dict)
    max_foreign: Mapping[str, int] = field(default_factory=dict)
    max_layers: Mapping[str, int] = field(default_factory=dict)
    #: Foreign bytes up to which a distribution is not called `bloat`.
    bloat_threshold: int = 5_000_000
    vulnerabilities: VulnerabilityPolicy = field(default_factory=VulnerabilityPolicy)
    severities: tuple[RuleSeverity, ...] = ()
    #: Gates that a build must have passed, `lock` to `smoke`.
    gates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allow: Lists = field(default_factory=Lists)
    forbid: Lists = field(default_factory=Lists)
    #: What references of base images must have; None where the file does not say.
    pinned_bases: PinnedBases | None = None

    def severity(self, rule: str, backend: str) -> RuleSeverity | None:
        """What is said of a rule for a backend: by its name, else by `*`; None for nothing."""
        entries = {entry.backend: entry for entry in self.severities if entry.rule == rule}
        return entries.get(backend, entries.get("*"))

    def budget(self, budgets: Mapping[str, int], target: Target) -> int | None:
        """What a budget is for a target: by its identifier, else by the pattern that it matches,
        else by its backend, else by `*`; None for no limit.
        """
        patterns = (key for key in budgets if key != "*" and fnmatchcase(target.id, key))
        keys = (target.id, *patterns, target.backend, "*")
        return next((budgets[key] for key in keys if key in budgets), None)

    def required_gates(self, backend: str) -> tuple[str, ...]:
        """Gates that must have run and held: those of the backend, else those of `*`."""
        return self.gates.get(backend, self.gates.get("*", ()))


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A matrix point that was taken out, with the reason that the user gave."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Target:
    """One point of the matrix, with every value that its build needs, fully expanded."""

    id: str
    project: str
    backend: str
    #: Runtime key as written in the specification, `12.8`; `any` where the backend has none.
    runtime: str
    #: The runtime's derived values (`full`, `torch`, ...), all strings.
    runtime_values: Mapping[str, str]
    python: str
    variant: str
    #: One platform, `linux/amd64`: several in a specification are an axis of the matrix.
    platform: str
    base: Base
    #: Requirement files in the order of reading.
    requirements: tuple[str, ...]
    #: Extras of `pyproject` that are installed too.
    extras: tuple[str, ...]
    #: `pyproject.toml` whose dependencies (and `extras`) are inputs, if any.
    pyproject: str | None
    #: Distribution → its twin for this backend, swapped before resolving.
    replace: Mapping[str, str]
    #: Distributions taken out of the resolution: the base image has them, or they are not needed.
    drop: tuple[str, ...]
    #: Distributions that are built from source.
    no_binary: tuple[str, ...]
    #: Package family → URL of its explicit index; `torch` covers the torch family.
    index: Mapping[str, str]
    #: uv's name of the torch build (`cu128`, `rocm6.4`, `xpu`, `cpu`), or None for no routing.
    torch: str | None
    archs: tuple[str, ...]
    system_packages: tuple[str, ...]
    env: Mapping[str, str]
    labels: Mapping[str, str]
    #: Template name (`cuda.Dockerfile.j2`) or a path of the user's own.
    template: str
    #: What is copied into the image: source folder → destination, in order.
    copy: tuple[tuple[str, str], ...]
    command: tuple[str, ...]
    user: User
    #: Image reference without tag, `ghcr.io/acme/inferno`.
    image: str
    tags: tuple[str, ...]
    lock: str
    smoke: tuple[Smoke, ...]
    #: Label of the CI runner that builds it, where the specification names one.
    runner: str | None = None
    #: The machines that it runs on, in the order of the file.
    node_classes: tuple[NodeClass, ...] = ()
    #: Checks of `preflight` that may fail.
    check_waivers: tuple[CheckWaiver, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        """Full image references, `ghcr.io/acme/inferno:1.4.0-cpu-py311-server`, one per tag."""
        return tuple(f"{self.image}:{tag}" for tag in self.tags)


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole specification file."""

    path: Path
    project: str
    version: str
    source: str | None
    targets: tuple[Target, ...]
    excluded: tuple[Exclusion, ...]
    #: Subset name → identifiers, in matrix order.
    subsets: Mapping[str, tuple[str, ...]]
    node_classes: tuple[NodeClass, ...]
    policy: Policy
    waivers: tuple[Waiver, ...]
    #: Folder for generated files, relative to the specification.
    output: str = DEFAULT_OUTPUT
    #: Images that helper stages use: `uv` and `scanner`.
    tools: Mapping[str, str] = field(default_factory=dict)
    #: The user's own data files for the catalogue, relative to the specification.
    catalogue: tuple[str, ...] = ()
    #: Each path of `copy` as written, with its position.
    copied: tuple[tuple[str, Position], ...] = ()

    @property
    def catalogue_files(self) -> tuple[Path, ...]:
        """The same where they can be opened from here."""
        return tuple(self.root / name for name in self.catalogue)

    def dockerfile(self, target: str) -> str:
        """Path of the Dockerfile of a target, given by its identifier; relative to `root`."""
        return f"{self.output}/{target}/Dockerfile"

    @property
    def root(self) -> Path:
        """The folder that all paths of the specification are relative to."""
        return self.path.parent
