"""BM606: code compiled for one machine fits no machine of the target, or another library.

Code of another backend is BM401's, code installed with a distribution BM402's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import listing
from buildmatrix.catalogue.drivers import READY, architectures, grade, vendors
from buildmatrix.catalogue.entries import ArtifactEntry
from buildmatrix.catalogue.model import matches_any
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.judge.coverage import Artifact, artifacts
from buildmatrix.judge.findings import finding, split_owner
from buildmatrix.judge.model import SEVERITY_RANK, Finding, FitReason, Fix, NodeState, Severity
from buildmatrix.judge.node_classes import GridState
from buildmatrix.judge.subject import ImageSubject, once
from buildmatrix.matrix.kinds import Numbers, numbers
from buildmatrix.matrix.model import NodeClass

#: Architectures that a message lists.
_MOST_NAMED = 8
_FILE_VERSION = re.compile(r"\.so\.([0-9]+\.[0-9.]*[0-9])$")


class _Machines(Struct, frozen=True):
    """One kind of machine that the target has to run on."""

    name: str
    architectures: tuple[str, ...]
    #: Level of x86-64.
    level: int | None = None
    #: Vendors of their devices.
    vendors: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.name} ({listing(self.architectures, _MOST_NAMED)})"


class _Reason(Struct, frozen=True):
    text: str
    severity: Severity
    #: True if it only names the node classes that leave it undecided.
    is_open: bool = False
    #: State of a node class by a reason that applies to all of them.
    state: NodeState = "ok"


def check_artifact_for_other_node_class(image: ImageSubject) -> Iterator[Finding]:
    """One finding per artifact, with all reasons that speak against it."""
    for artifact, reasons in _find_unfit(image):
        yield _finding(image, artifact, reasons)


def unfit_caches(image: ImageSubject) -> frozenset[str]:
    """Return the caches with a finding of this rule, so that their size is reported once."""
    return frozenset(
        artifact.path
        for artifact, reasons in _find_unfit(image)
        if artifact.is_cache and not all(reason.is_open for reason in reasons)
    )


@once
def _find_unfit(image: ImageSubject) -> tuple[tuple[Artifact, list[_Reason]], ...]:
    machines = [_machines(image, node) for node in image.target.node_classes]
    judged = []
    for artifact in artifacts(image):
        reasons = [*_versions(image, artifact)]
        if artifact.owner is None:
            reasons += _devices(image, artifact, machines)
        if reasons:
            judged.append((artifact, reasons))
    return tuple(judged)


def _machines(image: ImageSubject, node: NodeClass) -> _Machines:
    return _Machines(
        node.name,
        architectures(node, image.catalogue),
        level_number(node.cpu),
        vendors(node, image.catalogue),
    )


def find_artifact_states(image: ImageSubject, node: NodeClass) -> Iterator[GridState]:
    """Yield the states of an image's artifacts on one node class, for the grid."""
    # The same for all classes of such machines.
    yield from _find_states_on(image, replace(_machines(image, node), name=""))


@once
def _find_states_on(image: ImageSubject, machines: _Machines) -> tuple[GridState, ...]:
    """Those of one kind for which the same is to be said make one reason.

    Of several that do the same the one that fits counts: an image may bring an engine for each
    class.
    """
    has_finding = {artifact.path for artifact, _ in _find_unfit(image)}
    states = [(artifact, _state(artifact, machines)) for artifact in artifacts(image)]
    served = {artifact.title for artifact, state in states if state == "ok"}
    same: dict[tuple[NodeState, str, str | None, str, str], list[str]] = {}
    for artifact, state in states:
        rule = "BM606" if artifact.path in has_finding else ""
        name = split_owner(artifact.owner)[0]
        said = [(reason.state, reason.text) for reason in _versions(image, artifact)]
        if artifact.owner is None and state != "ok":
            is_spare = state == "refused" and artifact.title in served
            said.append(("ok" if is_spare else state, _worth(artifact, machines, state)))
        for of_image, text in said:
            key = (of_image, rule, name, artifact.title, text)
            same.setdefault(key, []).append(artifact.path)
    return tuple(
        (state, FitReason(rule, f"{listing(paths, 1)} ({title}) {text}", distribution=name))
        for (state, rule, name, title, text), paths in same.items()
    )


def _worth(artifact: Artifact, machines: _Machines, state: NodeState) -> str:
    archs = listing(artifact.architectures, _MOST_NAMED)
    by = f", as its {artifact.said_by} says" if artifact.said_by else ""
    if _is_foreign(artifact, machines):
        return f"is for devices of {artifact.vendor}, and is compiled again"
    if not archs:
        return f"may not run: {artifact.note or 'its format does not say on what it does'}"
    does = {"jit": "is compiled again", "undecided": "may not run"}.get(state, "does not run")
    if not machines.architectures and (artifact.level is None or machines.level is None):
        does = "the class does not say what it has"
    return f"is for {archs}{by}, and {does}"


def _state(artifact: Artifact, machines: _Machines) -> NodeState:
    """Return the state of one artifact on one kind of machine, regardless of its alternatives."""
    if artifact.level is not None:
        if machines.level is None or artifact.level <= machines.level:
            return "undecided" if machines.level is None else "ok"
        is_compiled_again = artifact.library is not None and not artifact.library.refused
        return "jit" if is_compiled_again else "refused"
    if _is_foreign(artifact, machines):
        return "jit"
    if not artifact.architectures or not machines.architectures:
        return "undecided"
    if _fits(artifact, machines):
        return "ok"
    if artifact.is_cache:
        return "jit"
    return "undecided" if artifact.said_by else "refused"


def _finding(image: ImageSubject, artifact: Artifact, reasons: Sequence[_Reason]) -> Finding:
    worst = max((reason.severity for reason in reasons), key=lambda item: SEVERITY_RANK[item])
    version = (
        f" of {artifact.library.library} {artifact.version}"
        if (artifact.library is not None and artifact.version)
        else ""
    )
    vendor = artifact.evidence[0].vendor if artifact.evidence else None
    return finding(
        "BM606",
        image,
        f"{artifact.path} ({artifact.title}{version}) {'; it '.join(r.text for r in reasons)}",
        severity=worst,
        vendor=vendor,
        owner=artifact.owner,
        path=artifact.path,
        evidence=artifact.evidence,
        fix=Fix(
            "rebuild",
            "compile it on the machines that run it, into a volume that is named after "
            "`buildmatrix cache-key --node-class NAME`, or bring one file for each node class"
            if not artifact.is_cache
            else "delete the cache in the step that filled it, and mount a volume that is named "
            "after `buildmatrix cache-key --node-class NAME`",
        ),
        by_path=True,
    )


# Devices


def _devices(
    image: ImageSubject, artifact: Artifact, machines: Sequence[_Machines]
) -> Iterator[_Reason]:
    if artifact.level is not None:
        yield from _processors(artifact, artifact.level, machines)
        return
    foreign = [item for item in machines if _is_foreign(artifact, item)]
    if foreign:
        yield _Reason(
            f"is for devices of {artifact.vendor}, and is compiled again on "
            f"{listing(map(str, foreign))}",
            "warning" if len(foreign) == len(machines) else "note",
        )
        machines = [item for item in machines if item not in foreign]
        if not machines:
            return
    judged = [item for item in machines if item.architectures]
    is_declared = bool(judged)
    if not judged and not machines and image.target.archs:
        judged = [_Machines("`archs`", image.target.archs)]
    code = artifact.architectures
    if not code:
        if judged and artifact.evidence:
            why = artifact.note or "its format does not say"
            yield _Reason(f"may not run on {listing(map(str, judged))}: {why}", "note")
        return
    open_classes = [item.name for item in machines if not item.architectures]
    if open_classes or not judged:
        yield _undecided(code, open_classes, "`archs` and no `products`")
    unfit = [item for item in judged if not _fits(artifact, item)]
    if unfit:
        severity: Severity = "error" if len(unfit) == len(judged) else "warning"
        if artifact.is_cache or artifact.said_by or not is_declared:
            severity = "warning" if severity == "error" else "note"
        by = f", as its {artifact.said_by} says" if artifact.said_by else ""
        noun = "node class" if len(unfit) == 1 else "node classes"
        where = f"{noun} {listing(map(str, unfit))}" if is_declared else listing(map(str, unfit))
        use = "is compiled again" if artifact.is_cache else "does not run"
        archs = listing(code, _MOST_NAMED)
        yield _Reason(f"is for {archs}{by}, and {use} on {where}", severity)


def _is_foreign(artifact: Artifact, machines: _Machines) -> bool:
    """Return True if the vendor that it names has none of the machines' devices.

    This applies to pipeline caches on `vulkan`, which runs on devices of every vendor: a driver
    treats one of another vendor as empty (Vulkan specification, "Pipeline Cache Header").
    """
    return bool(machines.vendors) and artifact.vendor not in (None, *machines.vendors)


def _fits(artifact: Artifact, machines: _Machines) -> bool:
    """Return True if each device of the machines can or may run it."""
    if artifact.said_by:
        # TensorRT takes an engine for exactly the compute capability that it was built on.
        return set(machines.architectures) <= set(artifact.architectures)
    grades = (grade(device, artifact.architectures) for device in machines.architectures)
    # A network may hold code that the driver compiles; objects and caches have none that counts.
    return all(item in (*READY, "jit", "unknown") for item in grades)


def _processors(artifact: Artifact, level: int, machines: Sequence[_Machines]) -> Iterator[_Reason]:
    judged = [item for item in machines if item.level is not None]
    unfit = [item for item in judged if item.level is not None and item.level < level]
    if unfit:
        names = listing(item.name for item in unfit)
        yield _Reason(
            f"is for {listing(artifact.architectures)}, which node class {names} does not have: "
            "it is compiled again there, or refused",
            "error" if len(unfit) == len(judged) else "warning",
        )
    open_classes = [item.name for item in machines if item.level is None]
    if open_classes and judged:
        yield _undecided(artifact.architectures, open_classes, "`cpu`")


def _undecided(code: Sequence[str], classes: Sequence[str], missing: str) -> _Reason:
    """Return the reason for machines with unknown properties; for all, if there are no classes."""
    says = "no node class says"
    if classes:
        says = f"node class {listing(classes)} has no {missing}, which would say"
    text = f"is for {listing(code, _MOST_NAMED)}, and {says} whether the target meets them"
    return _Reason(text, "note", is_open=bool(classes))


# Versions


def _versions(image: ImageSubject, artifact: Artifact) -> Iterator[_Reason]:
    """Yield a reason if the image's library does not load files of the version that wrote it."""
    entry, wrote = artifact.library, _numbers(artifact.version or "")
    if entry is None or not wrote:
        return
    # The name of a file may have fewer numbers than the header.
    present = sorted(set(_present(image, entry)))
    shared = [min(len(wrote), len(version), entry.parts) for version in present]
    if not present or any(wrote[:n] == item[:n] for n, item in zip(shared, present, strict=True)):
        return
    newest, same = present[-1], shared[-1]
    may_load = wrote[:same] < newest[:same] and _takes_older(entry, wrote[0], newest[0])
    version = ".".join(map(str, newest))
    yield _Reason(
        f"was written by another version than the {entry.library} {version} of the image, which "
        + (
            "loads it only if it was built version-compatible"
            if may_load
            else "does not load it"
            if entry.refused
            else "compiles it again, or refuses it"
        ),
        "warning" if may_load or not entry.refused else "error",
        state="undecided" if may_load else "refused" if entry.refused else "jit",
    )


def _takes_older(entry: ArtifactEntry, wrote: int, present: int) -> bool:
    """Return True if a library of one major version loads files that an older one built for it.

    Versions newer than the table may.
    """
    majors = {int(major) for row in entry.newer_loads.values() for major in row}
    return bool(majors) and (
        str(present) in entry.newer_loads.get(str(wrote), ()) or present > max(majors)
    )


def _present(image: ImageSubject, entry: ArtifactEntry) -> Iterator[Numbers]:
    """The versions of the library in the image."""
    for item in image.present:
        if matches_any(entry.distributions, item.name):
            yield _numbers(item.version)
    for package in image.inventory.system_packages:
        if matches_any(entry.system_packages, package.name):
            yield _numbers(package.version)
    for path in (
        *(binary.path for binary in image.inventory.loadable),
        *(link.path for link in image.inventory.links),
    ):
        name = path.rpartition("/")[2]
        if matches_any(entry.files, name) and (match := _FILE_VERSION.search(name)):
            yield _numbers(match.group(1))


def _numbers(version: str) -> Numbers:
    """Return up to four numbers of a version, without its epoch."""
    return (numbers(version.rpartition(":")[2]) or ())[:4]
