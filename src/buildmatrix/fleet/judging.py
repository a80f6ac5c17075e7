"""Facts of one image to its results, one per backend.

Results do not depend on the image's name: equal images have equal results, and the same cause in
two images is the same finding.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.match import evidence
from buildmatrix.catalogue.model import Evidence, matches
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import Resolution, resolve
from buildmatrix.fleet.model import BackendPattern, Subject, WorkerSettings
from buildmatrix.judge.composition import Composition, VendorBytes
from buildmatrix.judge.judging import Judge, Judgement
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import NodeClass, bare_spec, bare_target
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.fleet import (
    BackendBy,
    FleetFinding,
    FleetFit,
    FleetLayer,
    FleetResult,
    FleetState,
)
from buildmatrix.reports.run import is_unread
from buildmatrix.sources.images import BACKEND_LABEL, ImageDocuments

# Backend and owner of an image, by its node classes, labels and name


#: Reason for an undecided image without a backend.
NO_BACKEND = (
    "nothing says which backend it is for: no node class, no label, no name; name one with "
    "--backend, or by patterns with --backend-of 'GLOB=BACKEND'"
)


def find_backends(
    subject: Subject, labels: Mapping[str, str], settings: WorkerSettings, backends: Collection[str]
) -> tuple[tuple[str, BackendBy], ...]:
    """Return the backends that an image is judged for, with their sources; none if unknown.

    Args:
        subject: the image.
        labels: those of its configuration.
        settings: node classes, patterns and the default backend.
        backends: names in the catalogue.
    """
    classes = {item.name: item.backend for item in settings.node_classes}
    by_class = dict.fromkeys(classes[name] for name in subject.node_classes if name in classes)
    if by_class:
        return tuple((backend, "node-class") for backend in by_class)
    if label := labels.get(BACKEND_LABEL):
        return ((label, "label"),)
    parsed = Reference.parse(subject.reference)
    tagged = f"{parsed.repository}:{parsed.tag}" if parsed.tag else parsed.repository
    # Patterns are for the whole reference, or for the part behind the host.
    names = (subject.reference, f"{parsed.host}/{tagged}", tagged, parsed.repository)
    words = (parsed.tag, parsed.repository.rpartition("/")[2])
    if backend := find_named_backend(names, words, settings.patterns, backends):
        return ((backend, "name"),)
    if settings.backend:
        return ((settings.backend, "option"),)
    return ()


def find_owner(subject: Subject, labels: Mapping[str, str], settings: WorkerSettings) -> str:
    """Return the owner of an image: from its own labels, else from its source."""
    return next((labels[key] for key in settings.owner_labels if labels.get(key)), subject.owner)


def parse_pattern(text: str) -> BackendPattern:
    """Parse `GLOB=BACKEND` of the command line. Raises `UsageError`."""
    pattern, separator, backend = text.rpartition("=")
    if not separator or not pattern or not backend:
        raise UsageError(f"--backend-of {text!r} is not GLOB=BACKEND, such as '*/rocm-*=rocm'")
    return BackendPattern(pattern=pattern, backend=backend)


def find_named_backend(
    names: Sequence[str],
    texts: Iterable[str],
    patterns: Collection[BackendPattern],
    backends: Collection[str],
) -> str:
    """Return the backend of the first pattern that matches one of `names`; empty for none.

    Without such a pattern, it is that of the first of `texts` with a backend as a word; empty for
    several.
    """
    for item in patterns:
        if any(matches(item.pattern, name) for name in names):
            return item.backend
    for text in texts:
        if named := find_backend_words(text, backends):
            return named[0] if len(named) == 1 else ""
    return ""


def find_backend_words(text: str, backends: Collection[str]) -> tuple[str, ...]:
    """Return the backends that are words of a name, with or without a version.

    `cuda12.8-py311-server` has `cuda`, `requirements-rocm.txt` has `rocm`; `accuda` has none.
    """
    return tuple(dict.fromkeys(_word_pattern(frozenset(backends)).findall(text.lower())))


@cache
def _word_pattern(backends: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(backends)))
    return re.compile(rf"(?<![a-z0-9])({names})[0-9.]*(?![a-z0-9])")


#: Name of every image in messages.
IMAGE = "image"


class ImageQuestion(Struct, frozen=True):
    """Question about one image."""

    subject: Subject
    settings: WorkerSettings
    catalogue: Catalogue

    def backends(self, labels: Mapping[str, str]) -> tuple[tuple[str, BackendBy], ...]:
        """Return the backends that it is judged for; an empty one if unknown."""
        known = self.catalogue.backends
        return find_backends(self.subject, labels, self.settings, known) or (("", "nothing"),)

    def make_key(self, about: str, labels: Mapping[str, str]) -> str:
        """Return the key of all inputs of the results for something.

        `labels` are those of the image, or none if its digest stands for them.
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
        """Return the node classes of these names, in the order of the settings."""
        return tuple(node for node in self.settings.node_classes if node.name in names)


class JudgedImage(Struct, frozen=True):
    """Result about the files of an image for one backend."""

    #: Without data from the image's documents, see `add_image`.
    result: FleetResult
    #: True if more bytes without a vendor would only change sizes.
    is_growing: bool = False


def judge(
    inventory: Inventory, labels: Mapping[str, str], question: ImageQuestion
) -> tuple[JudgedImage, ...]:
    """Judge an image with this inventory and these labels, for each backend."""
    seen = evidence(inventory, question.catalogue)
    resolution = resolve(inventory)
    return tuple(
        _judge(inventory, backend, by, question, seen, resolution)
        for backend, by in question.backends(labels)
    )


def add_image(result: FleetResult, image: ImageDocuments, question: ImageQuestion) -> FleetResult:
    """Return `result` with data from the documents of its image."""
    layers = tuple(
        replace(layer, digest=descriptor.digest, size=descriptor.size)
        for descriptor, layer in zip(image.manifest.layers, result.layers, strict=True)
    )
    unplaced = Subject(reference=str(image.reference), places=())
    return replace(
        result,
        digest=image.reference.digest,
        owner=find_owner(unplaced, image.configuration.labels, question.settings),
        created=image.created,
        # A layer that occurs twice in an image is fetched once.
        download=sum({layer.digest: layer.size for layer in layers}.values()),
        unusable_download=sum(layer.unusable_size for layer in dict.fromkeys(layers)),
        layers=layers,
    )


def add_layers(result: FleetResult, sizes: Sequence[int]) -> FleetResult:
    """Return `result` with further layers on top, with these bytes without a vendor."""
    more = sum(sizes)
    vendors = (
        replace(share, size=share.size + more) if not share.vendor else share
        for share in result.vendors
    )
    return replace(
        result,
        installed=result.installed + more,
        vendors=tuple(sorted(vendors, key=lambda share: (-share.size, share.vendor))),
        layers=(*result.layers, *(_make_layer(size) for size in sizes)),
    )


def make_unjudged(
    image: ImageDocuments, why: str, question: ImageQuestion
) -> tuple[FleetResult, ...]:
    """Return the results of an image with known documents only."""
    layers = tuple(_make_layer(0) for _ in image.manifest.layers)
    return tuple(
        add_image(_make_undecided(why, question, backend, by, layers), image, question)
        for backend, by in question.backends(image.configuration.labels)
    )


def make_unresolved(
    pinned: Reference | None, why: str, question: ImageQuestion
) -> tuple[FleetResult, ...]:
    """Return the results of an image with at most a known digest."""
    # An invalid name has no backend.
    backends = question.backends({}) if pinned is not None else (("", "nothing"),)
    digest = pinned.digest if pinned is not None else ""
    return tuple(
        replace(_make_undecided(why, question, backend, by), digest=digest)
        for backend, by in backends
    )


def _judge(
    inventory: Inventory,
    backend: str,
    by: BackendBy,
    question: ImageQuestion,
    seen: Sequence[Evidence],
    resolution: Resolution,
) -> JudgedImage:
    settings, catalogue = question.settings, question.catalogue
    installed = inventory.stats.bytes_total

    def undecided(why: str) -> JudgedImage:
        layers = tuple(_make_layer(layer.size) for layer in inventory.layers)
        return JudgedImage(_make_undecided(why, question, backend, by, layers, installed))

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
    # An image without a vendor runs on machines of any.
    is_anywhere = catalogue.vendor_of(backend) is None
    judged_on = tuple(node for node in asked if is_anywhere or node.backend == backend)

    def judgement_on(nodes: tuple[NodeClass, ...]) -> tuple[Judge, Judgement]:
        target = bare_target(IMAGE, backend, platform=settings.platform, node_classes=nodes)
        judge = Judge(bare_spec(target), "error", settings.today, catalogue=catalogue)
        return judge, judge.settle(judge.by_rules(target, inventory, None, seen, resolution))

    judge, judgement = judgement_on(runs_on)
    fits = judgement.fits
    if more := tuple(node for node in judged_on if node not in runs_on):
        # Its behavior elsewhere is not a finding of the image.
        elsewhere = {fit.node: fit for fit in judgement_on((*runs_on, *more))[1].fits}
        fits = (*fits, *(elsewhere[node.name] for node in more))
    described = [
        FleetFit(node=fit.node, state=fit.state, reasons=tuple(why.text for why in fit.reasons))
        for fit in fits
    ]
    for node in asked:
        if node not in (*judged_on, *runs_on):
            why = f"the image is for {backend}, and {node.name} has devices of {node.backend}"
            described.append(FleetFit(node=node.name, state="refused", reasons=(why,)))
    composition = judgement.composition
    assert composition is not None
    result = FleetResult(
        repository="",
        platform=settings.platform,
        backend=backend,
        backend_by=by,
        state=_find_state(judge, judgement, inventory),
        installed=installed,
        unusable=sum(item.wasted for item in composition.distributions),
        vendors=sum_vendor_bytes(composition),
        findings=tuple(
            dict.fromkeys(shorten_finding(item, composition) for item in judgement.findings)
        ),
        fits=tuple(described),
        layers=tuple(_make_layer(layer.size, layer.wasted) for layer in composition.layers),
    )
    return JudgedImage(result, _is_growing(composition, installed))


def _is_growing(composition: Composition, installed: int) -> bool:
    """True if there are bytes without a vendor and distribution.

    Then no share was limited to the available bytes (`judge.composing`).
    """
    unowned = next((item for item in composition.distributions if not item.name), None)
    shares = unowned.vendors if unowned is not None else ()
    is_left = any(not share.vendor and share.size > share.wasted for share in shares)
    return is_left and sum(item.size for item in composition.distributions) == installed


def _make_undecided(
    why: str,
    question: ImageQuestion,
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


def _make_layer(installed: int, unusable: int = 0) -> FleetLayer:
    """Return a layer with sizes from its files; `add_image` adds its identity."""
    return FleetLayer(digest="", size=0, installed=installed, unusable=unusable)


def _find_state(judge: Judge, judgement: Judgement, inventory: Inventory) -> FleetState:
    """Return the worst state of the findings, and of unread files without a finding."""
    gate = judge.gate(judgement.findings)
    if gate == "failed":
        return "failed"
    covered = {finding.path for finding in judgement.findings if is_unread(finding)}
    is_open = gate != "passed" or any(item.path not in covered for item in inventory.unread)
    return "undecided" if is_open else "passed"


def sum_vendor_bytes(composition: Composition) -> tuple[VendorBytes, ...]:
    """Return the bytes of each vendor, the largest first."""
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


def shorten_finding(finding: Finding, composition: Composition | None) -> FleetFinding:
    """Return a finding without data specific to an image."""
    parts = composition.distributions if composition is not None else ()
    return FleetFinding(
        rule=finding.rule,
        severity=finding.severity,
        vendor=finding.vendor,
        distribution=finding.distribution,
        version=finding.version,
        path=finding.path,
        message=finding.message,
        fix=finding.fix.text if finding.fix is not None else None,
        # Unusable bytes of its distributions.
        size=sum(max(0, part.wasted) for part in parts if part.name in finding.distributions),
        waived=finding.waived,
    )
