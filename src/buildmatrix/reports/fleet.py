"""The answer of `fleet`: one result per image and backend, the report of all, and its totals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from buildmatrix import __version__
from buildmatrix.judge.composition import VendorBytes
from buildmatrix.judge.model import IF_KNOWN, SEVERITY_RANK, NodeState, Severity
from buildmatrix.reports.run import ReportTool

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


def bytes_more(change: FleetChange) -> int:
    """Unused bytes that a pull has more than before; negative for less."""
    before = change.before.unusable_download if change.before is not None else 0
    return (change.after.unusable_download if change.after is not None else 0) - before


# Totals by image, layer, vendor and owner


# Images: one that is judged for two backends is pulled once


class Image(Struct, frozen=True):
    """An image, or a lock, with what is said of it for each backend."""

    results: tuple[FleetResult, ...]

    @property
    def owner(self) -> str:
        """Its owner; empty without one."""
        return max(result.owner for result in self.results)

    @property
    def download(self) -> int:
        """Bytes of a pull."""
        return max(result.download for result in self.results)

    @property
    def unusable(self) -> int:
        """Bytes of a pull that none of its backends can use."""
        return min(result.unusable_download for result in self.results)

    @property
    def containers(self) -> int:
        """Containers that run it."""
        return max(result.containers for result in self.results)

    @property
    def is_failed(self) -> bool:
        """True if it failed for one of its backends."""
        return any(result.state == "failed" for result in self.results)

    @property
    def is_undecided(self) -> bool:
        """True if it is undecided for one of its backends, and failed for none."""
        return not self.is_failed and any(result.state == "undecided" for result in self.results)


# Unusable bytes, as stored by a registry and as transferred by pulls.
#
# A layer of many images may be unused in one and needed by another. So each distinct layer counts
# with the *least* unusable bytes in any judged image: what all of them carry for nothing. Bytes
# that only some images cannot use are counted separately.


class LayerTotals(Struct, frozen=True, kw_only=True):
    """All distinct layers, as a registry keeps each once: bytes are those of a pull."""

    layers: int = 0
    size: int = 0
    #: Unused in every image that has them.
    unusable: int = 0
    #: Part of these in layers of an undecided image, which might use them.
    unusable_open: int = 0
    #: Unused in some images and used in others: wasted by how images are put together.
    unusable_in_some: int = 0


class PullTotals(Struct, frozen=True, kw_only=True):
    """All images, each pulled once; and once for each container that is known to run it."""

    images: int = 0
    size: int = 0
    #: At least: of undecided images only what was read counts.
    unusable: int = 0
    containers: int = 0
    running: int = 0
    unusable_running: int = 0


# Vendors


class VendorTotals(Struct, frozen=True):
    """Installed bytes of one vendor, over all images."""

    #: Empty for what belongs to none.
    vendor: str
    #: Images that have some of it, and those that cannot use some of it.
    images: int
    unusable_images: int
    size: int
    unusable: int


# Images with the most unusable bytes


def running(result: FleetResult) -> int:
    """Unused bytes that its containers have pulled: as if each had pulled it once."""
    return result.containers * result.unusable_download


# Owners


class OwnerTotals(Struct, frozen=True):
    """The images of one owner."""

    #: As a label of the images, or the place that names them, says it; empty without an owner.
    owner: str
    pulls: PullTotals
    failed: int
    undecided: int


class OwnerDrift(Struct, frozen=True):
    """Changes for one owner since an earlier report."""

    owner: str
    new: int
    gone: int
    worse: int
    better: int
    #: Unused bytes in pulls of all images; negative for less.
    more: int
