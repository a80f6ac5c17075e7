"""The answer of `fleet`: one result per image and backend, and the report of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from buildmatrix import __version__
from buildmatrix.judge.composition import VendorBytes
from buildmatrix.judge.model import IF_KNOWN, SEVERITY_RANK, NodeState, Severity
from buildmatrix.reports.run.model import ReportTool

#: `undecided`: it could not be judged, or not all of it could be read.
FleetState = Literal["passed", "failed", "undecided"]
#: Sources of an image's backend, from the strongest to the weakest.
BackendBy = Literal["node-class", "specification", "label", "name", "option", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFinding:
    """A finding without what differs from image to image: the same cause is the same value."""

    rule: str
    severity: Severity
    vendor: str | None = None
    distribution: str | None = None
    version: str | None = None
    path: str | None = None
    message: str
    fix: str | None = None
    #: Unused bytes that it is about, as they are installed; 0 for none. What two findings are
    #: about may be the same.
    size: int = 0
    #: Why it does not count.
    waived: str | None = field(default=None, metadata=IF_KNOWN)


def finding_order(finding: FleetFinding) -> tuple[object, ...]:
    """The order of findings: open ones before those that are accepted, the worst first."""
    return (
        finding.waived is not None,
        -SEVERITY_RANK[finding.severity],
        -finding.size,
        finding.rule,
        finding.distribution or "",
        finding.version or "",
        finding.path or "",
        finding.vendor or "",
        finding.message,
        finding.fix or "",
        finding.waived or "",
    )


class FleetLayer(Struct, frozen=True, kw_only=True):
    """One layer, as an image of one backend has it."""

    #: `sha256:...` of its blob.
    digest: str
    #: Bytes that a pull transfers, and bytes of its files.
    size: int
    installed: int
    #: Bytes of its files that are not usable on the backend.
    unusable: int = 0

    @property
    def unusable_size(self) -> int:
        """Unused bytes of a pull: the share that the files have, rounded down."""
        return self.size * min(self.unusable, self.installed) // max(self.installed, 1)


class FleetFit(Struct, frozen=True, kw_only=True):
    """Verdict on an image for one node class."""

    node: str
    state: NodeState
    #: The worst first, one sentence each.
    reasons: tuple[str, ...] = ()


class ResultFacts(Struct, frozen=True, kw_only=True):
    """Result of one image (or one lock of a repository) for one backend, without the parts that
    many images share.
    """

    #: `image`: of a registry; `lock`: of a repository, before anything is installed.
    kind: Literal["image", "lock"] = "image"
    #: `HOST/NAME`, or the repository as the fleet names it.
    repository: str
    #: Tags that lead to it, or the file in the repository.
    names: tuple[str, ...] = ()
    #: `sha256:...` of the manifest, or the commit; empty where it could not be resolved.
    digest: str = ""
    platform: str = ""
    #: Empty where nothing says it.
    backend: str = ""
    backend_by: BackendBy = "nothing"
    #: Where the fleet names it; see `Subject.places`.
    places: tuple[str, ...] = ()
    #: Node classes that it really runs on, and in how many containers.
    node_classes: tuple[str, ...] = ()
    containers: int = 0
    owner: str = ""
    #: When it was made, as it says itself: RFC 3339; empty where it says nothing.
    created: str = ""
    state: FleetState
    #: Why it is undecided, in one sentence.
    error: str | None = None
    #: Extras and groups of a file of a repository that were not asked for, so that they were not
    #: judged, in one sentence; empty for none.
    left_out: str = ""
    #: Bytes of its files, and those not usable on the backend; of a lock: what it would install.
    installed: int = 0
    unusable: int = 0
    #: Bytes of a pull, and the unused ones.
    download: int = 0
    unusable_download: int = 0
    vendors: tuple[VendorBytes, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Unique key of the result within a report."""
        what = self.digest if self.kind == "image" and self.digest else " ".join(self.names)
        return (self.repository, what, self.platform, self.backend)

    @property
    def title(self) -> str:
        """Display name: `HOST/NAME:TAG`, `HOST/NAME@sha256:0123456789ab`, `FOLDER FILE`."""
        if self.kind == "lock":
            return " ".join((self.repository, *self.names[:1]))
        if self.names:
            return f"{self.repository}:{self.names[0]}"
        algorithm, _, digest = self.digest.partition(":")
        return f"{self.repository}@{algorithm}:{digest[:12]}" if digest else self.repository


class FleetResult(ResultFacts, frozen=True, kw_only=True):
    """Result of one image (or one lock of a repository) for one backend.

    It is a line of the JSON Lines, complete in itself. `key` tells results apart.
    """

    schema: Literal["buildmatrix/fleet-result/1"] = "buildmatrix/fleet-result/1"
    findings: tuple[FleetFinding, ...] = ()
    #: States on its node classes, and on the requested ones.
    fits: tuple[FleetFit, ...] = ()
    #: The lowest first; none for a lock.
    layers: tuple[FleetLayer, ...] = ()


class FleetWork(Struct, frozen=True, kw_only=True):
    """Cost of a run."""

    #: References and repositories that were named, and results that came out of the store.
    subjects: int = 0
    stored: int = 0
    #: Distinct layers of all images, and those that were read in this run.
    layers: int = 0
    layers_read: int = 0
    #: Bytes that came over the network, and tasks that were tried again.
    bytes_read: int = 0
    retries: int = 0
    workers: int = 0
    #: Of the whole run, and those of the work itself, of all workers together: the rest of
    #: `workers * seconds` is waiting, and what it costs to hand the work out.
    seconds: float = 0.0
    busy: float = 0.0


#: `worse`: it failed or became undecided; `better`: it did before. `changed`: the state is the
#: same, and its unused bytes or the node classes that it breaks on are others.
Change = Literal["new", "gone", "worse", "better", "changed"]


class ChangeEnd(Struct, frozen=True, kw_only=True):
    """An image in one of two reports."""

    digest: str
    state: FleetState
    #: Bytes of a pull, and the unused ones.
    download: int
    unusable_download: int
    #: Node classes that it is refused on.
    refused: tuple[str, ...] = ()


class FleetChange(Struct, frozen=True, kw_only=True):
    """Change of one image since an earlier report."""

    change: Change
    title: str
    backend: str
    owner: str
    #: None where it is new; None where it is gone.
    before: ChangeEnd | None
    after: ChangeEnd | None


class FleetDrift(Struct, frozen=True, kw_only=True):
    """Changes since an earlier report."""

    #: Subject of that report, and the tool that wrote it.
    subject: str
    tool: ReportTool
    #: Images that are as they were; those that have another digest, and nothing else that counts.
    same: int = 0
    rebuilt: int = 0
    changes: tuple[FleetChange, ...] = ()
    #: Differences that limit the comparison; a sentence each.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Everything that a run says about a fleet, without its results."""

    schema: Literal["buildmatrix/fleet/1"] = "buildmatrix/fleet/1"
    tool: ReportTool = field(default=ReportTool(version=__version__, catalogue=""))
    #: Arguments: `registry:HOST/PREFIX/*`, a file, a cluster.
    subject: str
    #: Node classes that were asked about.
    would_run_on: tuple[str, ...] = ()
    #: Unread parts of the fleet, with reasons; a sentence each. Such a run is undecided.
    missing: tuple[str, ...] = ()
    #: What was left out by request (filters), and what else is to be known; a sentence each.
    notes: tuple[str, ...] = ()
    work: FleetWork = field(default_factory=FleetWork)
    #: Only where an earlier report was named.
    drift: FleetDrift | None = field(default=None, metadata=IF_KNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport(RunFacts):
    """Everything that a run says about a fleet. Build it with `assemble`, which sorts."""

    results: tuple[FleetResult, ...] = ()
