"""Findings, verdicts, gates and known vulnerabilities: the results of a run about its targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from buildmatrix.catalogue.drivers import SUPPORTS, Support
from buildmatrix.catalogue.model import Evidence
from buildmatrix.judge.composition import Composition
from buildmatrix.matrix.model import Rung

_Key = TypeVar("_Key")
Severity = Literal["error", "warning", "note"]
Depth = Literal["listing", "heads", "whole"]
VerdictName = Literal["ok", "optional", "bloat", "broken"]
Gate = Literal["lock", "build", "scan", "smoke"]
GateState = Literal["passed", "failed", "undecided", "not-run"]

#: `field(default=..., metadata=IN_MEMORY)`: no report has the field in its JSON form.
IN_MEMORY: Mapping[str, str] = {"json": "never"}
#: `field(default=None, metadata=IF_KNOWN)`: the JSON form has the field where it is not None.
IF_KNOWN: Mapping[str, str] = {"json": "if known"}
#: Bytes that are not downloaded or installed any more; negative for more.
Spared = Annotated[int, Meta(ge=-(2**62))]
Fingerprint = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9a-f]{32}$"})]

#: How much a finding matters, and how bad a verdict is: the greater, the worse.
SEVERITY_RANK: Mapping[Severity, int] = {"note": 0, "warning": 1, "error": 2}
VERDICT_RANK: Mapping[VerdictName, int] = {"ok": 0, "optional": 1, "bloat": 2, "broken": 3}
#: Verdicts of what does not belong on its backend.
UNFIT: tuple[VerdictName, ...] = ("bloat", "broken")
FIX_KINDS = ("replace", "remove", "index", "pin", "waive", "base", "rebuild", "upgrade")
#: Gates in the order in which a target meets them.
GATES: tuple[Gate, ...] = ("lock", "build", "scan", "smoke")


class SpecChange(Struct, frozen=True):
    """One entry of a specification that a fix requires, under the backend of its target."""

    #: `torch` routes the torch family; the others are about the distribution `name`.
    key: Literal["replace", "drop", "torch", "no-binary"]
    #: Normalized name; `torch` for the family.
    name: str
    #: The twin for `replace`, the route for `torch`; empty for the others.
    value: str = ""


class Trial(Struct, frozen=True):
    """Result of resolving and auditing a fix; see `commands.fixing`."""

    #: True if the finding is gone, and no new one came; None if it could not be tried.
    works: bool | None
    #: One sentence: why it does not or could not be tried, or why it is not written.
    outcome: str = ""
    #: Bytes that the target does not download and does not install any more.
    saved_download: Spared = 0
    saved_installed: Spared = 0


class Fix(Struct, frozen=True):
    """Fix of a finding."""

    #: One of `FIX_KINDS`.
    kind: str
    text: str
    #: Text to write; for a fix that was tried the difference of a file, if there is one.
    patch: str | None = None
    #: Ways to do it that can be tried, the best one first; empty where only a person can do it.
    changes: tuple[SpecChange, ...] = ()
    #: None if it was not tried.
    tried: Trial | None = None

    @property
    def is_offered(self) -> bool:
        """Return True unless it was tried without success."""
        return self.tried is None or self.tried.works is not False


class Acceptance(Struct, frozen=True, kw_only=True):
    """Acceptance of a finding: its source, reason, owner and last day."""

    #: A `[[waive]]` table, the ignored advisories of the policy, a report of before, or a rule that
    #: the policy turned off.
    by: Literal["waiver", "advisory", "baseline", "policy"]
    reason: str
    owner: str | None = None
    #: The last day that it holds, `YYYY-MM-DD`; a baseline has none.
    expires: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule's statement about a target."""

    rule: str
    name: str
    severity: Severity
    target: str
    backend: str
    vendor: str | None
    distribution: str | None = None
    version: str | None = None
    path: str | None = None
    message: str
    evidence: tuple[Evidence, ...] = ()
    #: From the requirement line to the file: `requirements.in:3`, `xgboost 3.4.1`, a path.
    chain: tuple[str, ...] = ()
    #: True if the bytes that it names are a lower bound: not all of the distribution was read.
    at_least: bool = False
    fix: Fix | None = None
    #: Stable across runs and machines; see `judge.judging`.
    fingerprint: Fingerprint = ""
    #: Reason of the waiver that covers it, if any.
    waived: str | None = None
    #: The same in parts, with the day until which it holds.
    acceptance: Acceptance | None = field(default=None, metadata=IF_KNOWN)
    #: Further targets that it is about: their one cause makes it one finding.
    also: tuple[str, ...] = ()
    #: The rule's own severity, if the policy changed it.
    judged: Severity | None = field(default=None, metadata=IF_KNOWN)
    #: Known vulnerabilities that it is about, without those that the specification ignores.
    advisories: tuple[Advisory, ...] = ()

    def is_about(self, target: str) -> bool:
        """Return True if it is about a target, given by its identifier."""
        return target == self.target or target in self.also

    @property
    def offered_fix(self) -> Fix | None:
        """Its fix, if nothing speaks against it."""
        return self.fix if self.fix is not None and self.fix.is_offered else None

    @property
    def by_policy(self) -> str:
        """The rule's own severity, if the policy changed it; else empty."""
        if self.judged is None:
            return ""
        return f"by the policy; its rule says {self.judged}"

    @property
    def label(self) -> str:
        """The distribution that it is about, with its version; empty for none."""
        return " ".join(part for part in (self.distribution, self.version) if part)

    @property
    def distributions(self) -> tuple[str, ...]:
        """Names of all distributions that it is about: those that own one path are several."""
        return tuple(self.distribution.split(", ")) if self.distribution else ()


class Failure(Struct, frozen=True):
    """Failure that makes a distribution `broken`."""

    #: Cause of a failing import: a file that it loads and that links a library that is missing
    #: (`link`), code that opens one by its name (`load`), or that calls a distribution which needs
    #: one (`call`), or a Python module that is missing (`module`). Or, where imports work, a
    #: `plugin` that links one.
    kind: Literal["link", "load", "call", "module", "plugin"]
    path: str
    #: The path, with the line where it is Python code.
    place: str
    #: The library, or the module that is called.
    name: str
    vendor: str
    #: One sentence.
    reason: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict about one distribution on one backend, for one or several of its targets."""

    name: str
    version: str
    backend: str
    verdict: VerdictName
    reason: str
    foreign_bytes: int = 0
    vendors: tuple[str, ...] = ()
    architectures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Basis of an audit's verdict: names and sizes of the wheel's files (`listing`), the
    #: beginnings of its binaries too (`heads`), or everything (`whole`). None in a scan.
    depth: Depth | None = None
    #: Bytes of the wheel, and those of them that carry what is foreign; None where none was read.
    download: int | None = None
    foreign_download: int | None = None
    #: True if those bytes are a lower bound, as unread files may have more.
    foreign_at_least: bool = False
    #: Unread part of its wheel, in one sentence, and the worst verdict that reading it could give
    #: instead. A distribution that is `bloat` by its name may prove to be `broken` as well, and
    #: counts as certain.
    open: str | None = None
    certain: bool = True
    may_be: VerdictName | None = None
    #: sha256 of the wheel in hex, where that is known.
    sha256: str | None = None
    #: The targets that it holds for, by their ids; empty in reports of earlier versions, which say
    #: the worst of all targets of the backend.
    targets: tuple[str, ...] = ()
    #: True if requirements or imports cause the verdict, and its own files do not.
    by_others: bool = field(default=False, metadata=IN_MEMORY)
    #: Failure, if this distribution itself is broken.
    failure: Failure | None = field(default=None, metadata=IN_MEMORY)

    @property
    def owner(self) -> str:
        """`name==version`, as files name it as their owner."""
        return f"{self.name}=={self.version}"

    def is_about(self, target: str, backend: str) -> bool:
        """Return True if it applies to this target of this backend."""
        return self.backend == backend and (not self.targets or target in self.targets)

    @property
    def is_open(self) -> bool:
        """Return True if unread bytes decide whether the distribution itself fits the backend."""
        if self.certain or self.may_be is None or self.by_others:
            return not self.certain
        return (self.may_be in UNFIT) != (self.verdict in UNFIT)


def keep_worst(worst: dict[_Key, Verdict], key: _Key, verdict: Verdict) -> None:
    """Take `verdict` for `key` into `worst`, where it holds no worse one; of equals the first."""
    present = worst.setdefault(key, verdict)
    if VERDICT_RANK[verdict.verdict] > VERDICT_RANK[present.verdict]:
        worst[key] = verdict


class AuditTotals(Struct, frozen=True):
    """Bytes of a lock, before anything of it is installed."""

    #: All wheels together, and their files once they are installed.
    download: int = 0
    installed: int = 0
    #: Number of those that are not usable on the backend.
    foreign_download: int = 0
    foreign_installed: int = 0
    #: True if the last two are lower bounds.
    foreign_at_least: bool = False


class BuilderAttempt(Struct, frozen=True):
    """A builder that was named and had a target, and how that ended."""

    builder: str
    #: Why it built no image; None where it did.
    error: str | None = None


class StagedImage(Struct, frozen=True):
    """An image in a registry without a tag."""

    #: With its host: `ghcr.io/acme/inferno`.
    repository: str
    digest: str
    #: The tags that `promote` sets.
    tags: tuple[str, ...]


#: State of an image on a node class, from the best to the worst: all of it runs; by minor-version
#: compatibility; by the forward-compatibility package in the image; after the driver has compiled
#: device code; not known; not at all.
NodeState = Literal["ok", "minor-version", "compat-package", "jit", "undecided", "refused"]
NODE_STATES: tuple[NodeState, ...] = get_args(NodeState)


@dataclass(frozen=True, slots=True)
class FitReason:
    """Reason for an image's state on a node class, in one sentence."""

    #: Code of the rule that has a finding about it; empty for what is no finding.
    rule: str
    text: str
    #: True if that finding is accepted.
    waived: bool = False
    distribution: str | None = field(default=None, metadata=IN_MEMORY)


class DeviceFit(Struct, frozen=True):
    """Support of one GPU of a node class by an image's device code."""

    #: `sm_90`, `gfx942`.
    arch: str
    #: Architectures of the image's code (`sm_80`, `compute_90`) → support of this GPU.
    code: Mapping[str, Support]
    #: Holders of device code → support of this GPU.
    holders: Mapping[str, Support]

    @property
    def support(self) -> Support:
        """Support by the image as a whole: its worst holder's."""
        return max(self.holders.values(), key=SUPPORTS.index, default="unknown")


@dataclass(frozen=True, slots=True)
class NodeFit:
    """One cell of the grid of targets and node classes."""

    #: Name of the node class.
    node: str
    state: NodeState
    #: Reasons, the worst first; empty if there are none.
    reasons: tuple[FitReason, ...] = ()
    #: Its GPUs; empty where the class names none or the image has no device code, None in reports
    #: of earlier versions.
    devices: tuple[DeviceFit, ...] | None = field(default=None, metadata=IF_KNOWN)

    @property
    def is_open(self) -> bool:
        """Return True if it is undecided, and that is not accepted."""
        return self.state == "undecided" and not self.reasons[0].waived


class ClimbedRung(Struct, frozen=True):
    """Result of one rung with an image, on the machine of its build."""

    rung: Rung
    state: GateState
    #: Why it was not run; empty where builds leave it to `preflight`.
    why: str = ""
    #: Node classes whose machines have to run it, where it was not run.
    run_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetResult:
    """The gates of one target, and what was built for it."""

    id: str
    backend: str
    image: str | None = field(default=None, kw_only=True)
    digest: str | None = field(default=None, kw_only=True)
    #: State of every gate, in their order; gates that did not run are absent.
    gates: Mapping[Gate, GateState]
    #: Bytes of the root file system, where it was scanned.
    size: int | None = None
    #: Seconds of its gates in this run: lock, build, scan, smoke and preflight. In an audit,
    #: seconds of all targets together.
    seconds: float = 0.0
    #: True where the journal has its image: it was not built again.
    cached: bool = False
    #: Log file of the build, relative to the specification.
    log: str | None = None
    #: One sentence where a gate failed for a reason other than a finding.
    error: str | None = None
    #: Requested smoke commands that need a device that this machine does not have:
    #: `warmup (batch)`. What did not run for another reason leaves the gate undecided.
    smoke_not_run: tuple[str, ...] = ()
    #: Audited parts that were not requested, in one sentence; empty for none.
    left_out: str = ""
    #: Sums of an audit.
    audit: AuditTotals | None = None
    #: State of publishing its tags, if that was requested.
    push: GateState | None = None
    #: Base images that it was built from, as the builder took them: reference → digest; sorted.
    bases: Mapping[str, str] = field(default_factory=dict)
    #: Image of `build --stage`.
    staged: StagedImage | None = field(default=None, metadata=IF_KNOWN)
    #: Digest of its signed verdict in the registry, of `build --attest`.
    attestation: str | None = field(default=None, metadata=IF_KNOWN)
    #: State of its image on each node class that it runs on, if it was scanned.
    nodes: tuple[NodeFit, ...] | None = field(default=None, metadata=IF_KNOWN)
    #: Bytes by owner and vendor, if they were audited or scanned.
    composition: Composition | None = field(default=None, metadata=IF_KNOWN)
    #: Builders that had it in this run, the last one at the end, where builders were named.
    builders: tuple[BuilderAttempt, ...] | None = field(default=None, metadata=IF_KNOWN)
    #: The ladder above `static`, where its image was to climb it.
    rungs: tuple[ClimbedRung, ...] | None = field(default=None, metadata=IF_KNOWN)

    def __post_init__(self) -> None:
        """Sort mappings in the order of reports."""
        gates = {gate: self.gates.get(gate, "not-run") for gate in GATES}
        object.__setattr__(self, "gates", gates)
        object.__setattr__(self, "bases", dict(sorted(self.bases.items())))


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted by target, rule, distribution, path and vendor."""

    def key(finding: Finding) -> tuple[str, ...]:
        parts = finding.distribution, finding.path, finding.vendor, finding.version
        return finding.target, finding.rule, *(part or "" for part in parts)

    return tuple(sorted(findings, key=key))


# Answers of an advisory service about the distributions of a run


#: Name (PEP 503, normalized) and version as a lock or an image has them.
Key: TypeAlias = "tuple[str, str]"

#: Why there is no answer: because of the `package` (unknown there, no version that can be asked),
#: or because of the `service` (not reached, broken, not asked).
Cause = Literal["package", "service"]


class Advisory(Struct, frozen=True):
    """One known vulnerability."""

    #: The service's own name for it: `PYSEC-2024-60`, `GHSA-h5c8-rqwp-cp95`.
    id: str
    #: Its other names, sorted.
    aliases: tuple[str, ...] = ()
    #: Versions that no longer have it, oldest first; empty where there is none.
    fixed: tuple[str, ...] = ()
    #: One line, cut at `pip_audit.LONGEST` characters.
    description: str = ""

    @property
    def names(self) -> frozenset[str]:
        """All names of it."""
        return frozenset((self.id, *self.aliases))

    @property
    def identity(self) -> str:
        """The name that changes least: its CVE number, else the first of its names."""
        return min(self.names, key=lambda name: (not name.startswith("CVE-"), name))


class PinAnswer(Struct, frozen=True):
    """Advisories against one version; an empty answer means none is known."""

    advisories: tuple[Advisory, ...]
    #: The version that was asked about. Not the installed one where that is a local version.
    version: str
    #: When the service said so, UTC.
    at: datetime


class Unchecked(Struct, frozen=True):
    """Reason why a version was not checked."""

    reason: str
    cause: Cause


class Advisories(Struct, frozen=True):
    """Everything that was asked in a run: each key is in `answers` or in `unchecked`."""

    #: How messages name the service: `PyPI`, `OSV`, `OSV at http://127.0.0.1:8000/v1/query`.
    service: str
    answers: Mapping[Key, PinAnswer] = msgspec.field(default_factory=dict)
    unchecked: Mapping[Key, Unchecked] = msgspec.field(default_factory=dict)
