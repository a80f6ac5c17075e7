"""The facts of one image → its results, one for each backend that it is judged for.

Nothing in a result is of the name under which the image was found: equal images have equal results,
and the same cause in two images is the same finding.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from buildmatrix.oci.documents import Descriptor
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

    def key(self, digest: str) -> str:
        """Names everything that the results for the image with a digest depend on."""
        settings = self.settings
        asked = (
            digest,
            settings.platform,
            settings.tables,
            # Where the image has no label. The label is the image's.
            self.backends({}),
            self.node_classes(self.subject.node_classes),
            self.node_classes(settings.would_run_on),
            settings.owner_labels,
            sorted(settings.data_files.items()),
        )
        return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()

    def node_classes(self, names: Collection[str]) -> tuple[NodeClass, ...]:
        """The node classes of these names, in the order of the settings."""
        return tuple(node for node in self.settings.node_classes if node.name in names)


def judge(
    image: ImageDocuments, inventory: Inventory, question: Question
) -> tuple[FleetResult, ...]:
    """The results, at least one, without what only the fleet says of the image."""
    seen = evidence(inventory, question.catalogue)
    resolution = resolve(inventory)
    return tuple(
        _judged(image, inventory, backend, by, question, seen, resolution)
        for backend, by in question.backends(image.configuration.labels)
    )


def unjudged(image: ImageDocuments, why: str, question: Question) -> tuple[FleetResult, ...]:
    """The results of an image of which only the documents are known."""
    return tuple(
        _unjudged(image, None, why, question.settings, backend, by)
        for backend, by in question.backends(image.configuration.labels)
    )


def unresolved(pinned: Reference | None, why: str, question: Question) -> tuple[FleetResult, ...]:
    """The results of an image of which nothing is known but maybe its digest."""
    return tuple(
        FleetResult(
            repository="",
            digest=pinned.digest if pinned is not None else "",
            platform=question.settings.platform,
            backend=backend,
            backend_by=by,
            state="undecided",
            error=why,
        )
        # What is no name says no backend.
        for backend, by in (question.backends({}) if pinned is not None else (("", "nothing"),))
    )


def _judged(
    image: ImageDocuments,
    inventory: Inventory,
    backend: str,
    by: BackendBy,
    question: Question,
    seen: Sequence[Evidence],
    resolution: Resolution,
) -> FleetResult:
    settings, catalogue = question.settings, question.catalogue
    if by == "nothing":
        return _unjudged(image, inventory, NO_BACKEND, settings)
    if backend not in catalogue.backends:
        names = ", ".join(sorted(catalogue.backends))
        why = f"there is no backend {backend!r}; the catalogue knows {names}"
        return _unjudged(image, inventory, why, settings, backend, by)
    if not (
        inventory.distributions or inventory.binaries or inventory.artefacts or inventory.unread
    ):
        why = "it holds no distribution and no binary: nothing to judge"
        return _unjudged(image, inventory, why, settings, backend, by)
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
    layers = _layers(image.manifest.layers, composition)
    return FleetResult(
        repository="",
        digest=image.reference.digest,
        platform=settings.platform,
        backend=backend,
        backend_by=by,
        owner=_owner(image, settings),
        created=image.created,
        state=_state(judge, judgement, inventory),
        installed=inventory.stats.bytes_total,
        unusable=sum(item.wasted for item in composition.distributions),
        download=_download(layers),
        unusable_download=sum(layer.unusable_size for layer in dict.fromkeys(layers)),
        vendors=vendor_bytes(composition),
        findings=tuple(dict.fromkeys(map(shortened, judgement.findings))),
        fits=(*map(_fit, fits), *(_other(node, backend) for node in others)),
        layers=layers,
    )


def _unjudged(
    image: ImageDocuments,
    inventory: Inventory | None,
    why: str,
    settings: WorkerSettings,
    backend: str = "",
    by: BackendBy = "nothing",
) -> FleetResult:
    """What is known of an image without a verdict."""
    descriptors = image.manifest.layers
    sizes = (0,) * len(descriptors)
    if inventory is not None:
        sizes = tuple(layer.size for layer in inventory.layers)
    layers = tuple(
        FleetLayer(digest=layer.digest, size=layer.size, installed=installed)
        for layer, installed in zip(descriptors, sizes, strict=True)
    )
    return FleetResult(
        repository="",
        digest=image.reference.digest,
        platform=settings.platform,
        backend=backend,
        backend_by=by,
        owner=_owner(image, settings),
        created=image.created,
        state="undecided",
        error=why,
        installed=inventory.stats.bytes_total if inventory is not None else 0,
        download=_download(layers),
        layers=layers,
    )


def _owner(image: ImageDocuments, settings: WorkerSettings) -> str:
    """Its owner as the image names it; empty where only the fleet does."""
    nobody = Subject(reference=str(image.reference), places=())
    return owner_of(nobody, image.configuration.labels, settings)


def _state(judge: Judge, judgement: Judgement, inventory: Inventory) -> FleetState:
    """The worst of what findings say, and of what was not read and has no finding."""
    gate = judge.gate(judgement.findings)
    if gate == "failed":
        return "failed"
    covered = {finding.path for finding in judgement.findings if is_unread(finding)}
    is_open = gate != "passed" or any(item.path not in covered for item in inventory.unread)
    return "undecided" if is_open else "passed"


def _layers(descriptors: Sequence[Descriptor], composition: Composition) -> tuple[FleetLayer, ...]:
    return tuple(
        FleetLayer(
            digest=descriptor.digest,
            size=descriptor.size,
            installed=layer.size,
            unusable=layer.wasted,
        )
        for descriptor, layer in zip(descriptors, composition.layers, strict=True)
    )


def _download(layers: Iterable[FleetLayer]) -> int:
    """Bytes of a pull: a layer that is in an image twice is fetched once."""
    return sum({layer.digest: layer.size for layer in layers}.values())


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


def shortened(finding: Finding) -> FleetFinding:
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
        waived=finding.waived,
    )


def _fit(fit: NodeFit) -> FleetFit:
    return FleetFit(
        node=fit.node, state=fit.state, reasons=tuple(reason.text for reason in fit.reasons)
    )


def _other(node: NodeClass, backend: str) -> FleetFit:
    why = f"the image is for {backend}, and {node.name} has devices of {node.backend}"
    return FleetFit(node=node.name, state="refused", reasons=(why,))
