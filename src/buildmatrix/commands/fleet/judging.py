"""The facts of one image → its results, one for each backend that it is judged for.

Nothing in a result is of the name under which the image was found: equal images have equal results,
and the same cause in two images is the same finding.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.match import evidence
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.fleet.expectation import NO_BACKEND, backends_of, owner_of
from buildmatrix.commands.fleet.model import Subject, WorkerSettings
from buildmatrix.inventory.model import Inventory
from buildmatrix.judge import Judge
from buildmatrix.loader.resolution import Resolution
from buildmatrix.loader.resolver import resolve
from buildmatrix.registry.reference import Reference
from buildmatrix.reports.fleet.model import (
    BackendBy,
    FleetFinding,
    FleetFit,
    FleetLayer,
    FleetResult,
    FleetState,
)
from buildmatrix.reports.run.model import is_unread
from buildmatrix.rules.composition import Composition, VendorBytes
from buildmatrix.rules.engine import Judgement
from buildmatrix.rules.model import Finding, NodeFit
from buildmatrix.sources.registry import ImageDocuments
from buildmatrix.spec.bare import bare_spec, bare_target
from buildmatrix.spec.model import NodeClass

#: What messages call every image.
IMAGE = "image"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one image."""

    subject: Subject
    settings: WorkerSettings
    catalogue: Catalogue

    def backends(self, labels: Mapping[str, str]) -> tuple[tuple[str, BackendBy], ...]:
        """The backends that it is judged for; an empty one where nothing says it."""
        known = self.catalogue.backends
        return backends_of(self.subject, labels, self.settings, known) or (("", "nothing"),)

    def key(self, about: str, labels: Mapping[str, str]) -> str:
        """Names everything that the results for something depend on.

        `labels` are those that the image has, or none where its digest stands for them.
        """
        settings = self.settings
        asked = (
            about,
            settings.platform,
            self.backends(labels),
            self.node_classes(self.subject.node_classes),
            self.node_classes(settings.would_run_on),
            settings.owner_labels,
            sorted(settings.data_files.items()),
        )
        return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()

    def node_classes(self, names: Collection[str]) -> tuple[NodeClass, ...]:
        """The node classes of these names, in the order of the settings."""
        return tuple(node for node in self.settings.node_classes if node.name in names)


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of the files of an image for one backend."""

    #: Without what the documents of the image say, see `of_image`.
    result: FleetResult
    #: Whether more bytes of nobody's would change nothing but sizes.
    is_growing: bool = False


def judge(
    inventory: Inventory, labels: Mapping[str, str], question: Question
) -> tuple[Judged, ...]:
    """What is said of an image with this inventory and these labels, for each backend."""
    seen = evidence(inventory, question.catalogue)
    resolution = resolve(inventory)
    return tuple(
        _judged(inventory, backend, by, question, seen, resolution)
        for backend, by in question.backends(labels)
    )


def of_image(result: FleetResult, image: ImageDocuments, question: Question) -> FleetResult:
    """`result` with what the documents of its image say."""
    layers = tuple(
        replace(layer, digest=descriptor.digest, size=descriptor.size)
        for descriptor, layer in zip(image.manifest.layers, result.layers, strict=True)
    )
    nobody = Subject(reference=str(image.reference), places=())
    return replace(
        result,
        digest=image.reference.digest,
        owner=owner_of(nobody, image.configuration.labels, question.settings),
        created=image.created,
        # A layer that is in an image twice is fetched once.
        download=sum({layer.digest: layer.size for layer in layers}.values()),
        unusable_download=sum(layer.unusable_size for layer in dict.fromkeys(layers)),
        layers=layers,
    )


def grown(result: FleetResult, sizes: Sequence[int]) -> FleetResult:
    """`result` with further layers on top, of so many bytes of nobody's."""
    more = sum(sizes)
    vendors = (
        replace(share, size=share.size + more) if not share.vendor else share
        for share in result.vendors
    )
    return replace(
        result,
        installed=result.installed + more,
        vendors=tuple(sorted(vendors, key=lambda share: (-share.size, share.vendor))),
        layers=(*result.layers, *(_layer(size) for size in sizes)),
    )


def unjudged(image: ImageDocuments, why: str, question: Question) -> tuple[FleetResult, ...]:
    """The results of an image of which only the documents are known."""
    layers = tuple(_layer(0) for _ in image.manifest.layers)
    return tuple(
        of_image(_undecided(why, question, backend, by, layers), image, question)
        for backend, by in question.backends(image.configuration.labels)
    )


def unresolved(pinned: Reference | None, why: str, question: Question) -> tuple[FleetResult, ...]:
    """The results of an image of which nothing is known but maybe its digest."""
    # What is no name says no backend.
    backends = question.backends({}) if pinned is not None else (("", "nothing"),)
    digest = pinned.digest if pinned is not None else ""
    return tuple(
        replace(_undecided(why, question, backend, by), digest=digest) for backend, by in backends
    )


def _judged(
    inventory: Inventory,
    backend: str,
    by: BackendBy,
    question: Question,
    seen: Sequence[Evidence],
    resolution: Resolution,
) -> Judged:
    settings, catalogue = question.settings, question.catalogue
    installed = inventory.stats.bytes_total

    def undecided(why: str) -> Judged:
        layers = tuple(_layer(layer.size) for layer in inventory.layers)
        return Judged(_undecided(why, question, backend, by, layers, installed))

    if by == "nothing":
        return undecided(NO_BACKEND)
    if backend not in catalogue.backends:
        names = ", ".join(sorted(catalogue.backends))
        return undecided(f"there is no backend {backend!r}; the catalogue knows {names}")
    if not (
        inventory.distributions or inventory.binaries or inventory.artefacts or inventory.unread
    ):
        return undecided("it holds no distribution and no binary: nothing to judge")
    runs_on = tuple(
        node
        for node in question.node_classes(question.subject.node_classes)
        if node.backend == backend
    )
    asked = question.node_classes(settings.would_run_on)
    # What has no vendor runs on machines of any.
    is_anywhere = catalogue.vendor_of(backend) is None
    judged_on = tuple(node for node in asked if is_anywhere or node.backend == backend)

    def judgement_on(nodes: tuple[NodeClass, ...]) -> tuple[Judge, Judgement]:
        target = bare_target(IMAGE, backend, platform=settings.platform, node_classes=nodes)
        judge = Judge(bare_spec(target), "error", settings.today, catalogue=catalogue)
        return judge, judge.settle(judge.by_rules(target, inventory, None, seen, resolution))

    judge, judgement = judgement_on(runs_on)
    fits = judgement.fits
    if more := tuple(node for node in judged_on if node not in runs_on):
        # What it does elsewhere is no finding of the image.
        elsewhere = {fit.node: fit for fit in judgement_on((*runs_on, *more))[1].fits}
        fits = (*fits, *(elsewhere[node.name] for node in more))
    others = tuple(node for node in asked if node not in (*judged_on, *runs_on))
    composition = judgement.composition
    assert composition is not None
    result = FleetResult(
        repository="",
        platform=settings.platform,
        backend=backend,
        backend_by=by,
        state=_state(judge, judgement, inventory),
        installed=installed,
        unusable=sum(item.wasted for item in composition.distributions),
        vendors=vendor_bytes(composition),
        findings=tuple(dict.fromkeys(shortened(item, composition) for item in judgement.findings)),
        fits=(*map(_fit, fits), *(_other(node, backend) for node in others)),
        layers=tuple(_layer(layer.size, layer.wasted) for layer in composition.layers),
    )
    return Judged(result, _is_growing(composition, installed))


def _is_growing(composition: Composition, installed: int) -> bool:
    """Whether bytes are left that belong to no vendor and no distribution.

    Then nothing was cut to what there is (`rules.composing`).
    """
    nobodys = next((item for item in composition.distributions if not item.name), None)
    shares = nobodys.vendors if nobodys is not None else ()
    is_left = any(not share.vendor and share.size > share.wasted for share in shares)
    return is_left and sum(item.size for item in composition.distributions) == installed


def _undecided(
    why: str,
    question: Question,
    backend: str,
    by: BackendBy,
    layers: tuple[FleetLayer, ...] = (),
    installed: int = 0,
) -> FleetResult:
    return FleetResult(
        repository="",
        platform=question.settings.platform,
        backend=backend,
        backend_by=by,
        state="undecided",
        error=why,
        installed=installed,
        layers=layers,
    )


def _layer(installed: int, unusable: int = 0) -> FleetLayer:
    """A layer as its files are; `of_image` says which."""
    return FleetLayer(digest="", size=0, installed=installed, unusable=unusable)


def _state(judge: Judge, judgement: Judgement, inventory: Inventory) -> FleetState:
    """The worst of what findings say, and of what was not read and has no finding."""
    gate = judge.gate(judgement.findings)
    if gate == "failed":
        return "failed"
    covered = {finding.path for finding in judgement.findings if is_unread(finding)}
    is_open = gate != "passed" or any(item.path not in covered for item in inventory.unread)
    return "undecided" if is_open else "passed"


def vendor_bytes(composition: Composition) -> tuple[VendorBytes, ...]:
    """The bytes of each vendor, the largest first."""
    sizes, wasted = Counter[str](), Counter[str]()
    for item in composition.distributions:
        for share in item.vendors:
            sizes[share.vendor] += share.size
            wasted[share.vendor] += share.wasted
    return tuple(
        VendorBytes(vendor, size, wasted[vendor])
        for vendor, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
        if size
    )


def shortened(finding: Finding, composition: Composition | None) -> FleetFinding:
    """A finding without what differs from image to image."""
    return FleetFinding(
        rule=finding.rule,
        severity=finding.severity,
        vendor=finding.vendor,
        distribution=finding.distribution,
        version=finding.version,
        path=finding.path,
        message=finding.message,
        fix=finding.fix.text if finding.fix is not None else None,
        size=_unusable(finding, composition),
        waived=finding.waived,
    )


def _unusable(finding: Finding, composition: Composition | None) -> int:
    """Bytes of no use of the distributions that a finding is about."""
    parts = composition.distributions if composition is not None else ()
    return sum(max(0, part.wasted) for part in parts if part.name in finding.distributions)


def _fit(fit: NodeFit) -> FleetFit:
    return FleetFit(
        node=fit.node, state=fit.state, reasons=tuple(reason.text for reason in fit.reasons)
    )


def _other(node: NodeClass, backend: str) -> FleetFit:
    why = f"the image is for {backend}, and {node.name} has devices of {node.backend}"
    return FleetFit(node=node.name, state="refused", reasons=(why,))
