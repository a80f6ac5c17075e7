"""Reasons about an image on one node class, and requirements of the image: BM705 and BM709."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import listing, shown
from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.drivers import InvalidConditionError, NodeFacts, architectures, is_met
from buildmatrix.catalogue.model import Evidence, is_product, matches_any
from buildmatrix.catalogue.releases import toolkit_line
from buildmatrix.catalogue.tables import Condition
from buildmatrix.facts.elf.notes import level_number
from buildmatrix.facts.inventory.model import Binary
from buildmatrix.facts.python_imports import Reach
from buildmatrix.judge.findings import USES, chain_to_file, finding, holder, split_owner
from buildmatrix.judge.library_versions import runtimes
from buildmatrix.judge.model import SEVERITY_RANK, Finding, FitReason, Fix, NodeState, Severity
from buildmatrix.judge.subject import ImageSubject, once
from buildmatrix.matrix.kinds import Numbers, numbers, version_range
from buildmatrix.matrix.model import NodeClass

# Findings and the grid use the same reasons, so they cannot disagree.


#: State of a grid cell, with its reason.
GridState = tuple[NodeState, FitReason]
#: Maximum of node classes that a message describes in full.
_MOST_NAMED = 4


class Reason(Struct, frozen=True, kw_only=True):
    """Reason for an image's state on one node class."""

    state: NodeState
    severity: Severity
    #: Part of the image that it is about, the same for all node classes.
    about: str
    #: Effect on this node class.
    there: str
    owner: str | None = None
    path: str | None = None
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None

    def shown_by(self, evidence: Evidence) -> Reason:
        """Return the reason with its evidence, which has the owner and the path."""
        return replace(self, owner=evidence.distribution, path=evidence.path, evidence=(evidence,))

    @property
    def text(self) -> str:
        """One sentence."""
        return f"{self.about}: {self.there}"


def findings_of(
    code: str, image: ImageSubject, reasons: Callable[[ImageSubject, NodeClass], Iterable[Reason]]
) -> Iterator[Finding]:
    """Yield findings from reasons; reasons that differ only in the node class are one finding."""
    every = [reason for node in image.target.node_classes for reason in reasons(image, node)]

    def key(reason: Reason) -> tuple[str, str, str, int]:
        return (
            reason.owner or "",
            reason.path or "",
            reason.about,
            -SEVERITY_RANK[reason.severity],
        )

    for _, group in groupby(sorted(every, key=key), key):
        same = list(group)
        first = same[0]
        shown = [reason.there for reason in same[:_MOST_NAMED]]
        more = len(same) - len(shown)
        yield finding(
            code,
            image,
            f"{first.about}: {'; '.join(dict.fromkeys(shown))}"
            + (f"; and so on {more} more node classes" if more else ""),
            severity=first.severity,
            vendor=image.own_vendor,
            owner=first.owner,
            path=first.path,
            evidence=first.evidence,
            fix=first.fix,
            by_path=first.owner is None,
        )


# Image labels about the runtime, compared by BM705.
#
# Today's container runtimes read none of these labels, so they refuse nothing: the labels state the
# intent of the base's maker.


def labels(image: ImageSubject) -> Iterator[tuple[str, str, Numbers]]:
    """Labels with a version of the backend's runtime: name, text, and at least two numbers."""
    for row in drivers.select_entries(image.catalogue.image_labels, image.backend):
        for name, text in sorted(image.inventory.labels.items()):
            version = numbers(text)
            if matches_any(row.names, name) and version is not None and len(version) > 1:
                yield name, text, version


def against_target(image: ImageSubject) -> Iterator[Finding]:
    """Labels of another toolkit line than the target's."""
    line = toolkit_line(image.target.runtime)
    for name, text, version in labels(image):
        if line is not None and str(version[0]) != line:
            ours = image.catalogue.title(image.backend)
            yield finding(
                "BM705",
                image,
                f"the image has the label {name}={shown(text)}, and the target is for {ours} "
                f"{image.target.runtime}: its base was made for another line",
                severity="warning",
                vendor=image.own_vendor,
                fix=Fix("base", f"take a base image for {ours} {image.target.runtime}"),
                identity=name,
            )


def against_node(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Labels that ask for a newer driver than a node class has.

    Where the runtime itself is in the image, its version is what counts (BM701).
    """
    is_known = any(runtime.version is not None for runtime in runtimes(image))
    for name, text, version in labels(image):
        toolkit = ".".join(map(str, version[:2]))
        driver = version_range(node.driver)
        if drivers.runs(toolkit, driver, image.backend, image.catalogue) != "refused":
            continue
        yield Reason(
            state="ok" if is_known else "undecided",
            severity="note" if is_known else "warning",
            about=f"the image has the label {name}={shown(text)}",
            there=f"{node.name} has driver {node.driver}, which does not run that: "
            + (
                "the runtime that is in the image decides"
                if is_known
                else "no runtime in the image says otherwise"
            ),
            fix=Fix("base", "take a base image of an older toolkit, or upgrade the driver"),
        )


# BM705: the environment or the labels of an image demand more than a node class has.
#
# The container runtime checks the environment and does not start the container.


#: Texts that Go's strconv.ParseBool accepts as true.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_ARCH = re.compile(r"sm_(\d{1,4}?)(\d)[af]?")
#: Characters of a condition that a message shows: the first alternative is the one that counts.
_SHOWN = 80


def check_unmet_requirement(image: ImageSubject) -> Iterator[Finding]:
    """One finding per variable and label."""
    yield from findings_of("BM705", image, unmet_reasons)
    yield from against_target(image)


def unmet_reasons(image: ImageSubject, node: NodeClass) -> Iterator[Reason]:
    """Yield the conditions that a node class does not meet, or may not meet."""
    for row in drivers.select_entries(image.catalogue.conditions, image.backend):
        for name, condition in _conditions(image, row):
            reason = _unmet_condition(image, node, row, name, condition)
            if reason is not None:
                yield reason
    yield from against_node(image, node)


def _conditions(image: ImageSubject, row: Condition) -> Iterator[tuple[str, str]]:
    """The variables that set a condition, and it."""
    environment = image.inventory.environment
    if environment.get(row.unless) in _TRUE:
        return
    named = [
        name
        for name in sorted(environment)
        if matches_any(row.variables, name) and not matches_any(row.not_variables, name)
    ]
    for name in named:
        if environment[name].strip():
            yield name, environment[name]
    version = numbers(environment.get(row.legacy, ""))
    if not any(environment[name] for name in named) and version is not None and len(version) > 1:
        yield row.legacy, f"cuda>={version[0]}.{version[1]}"


def _unmet_condition(
    image: ImageSubject, node: NodeClass, row: Condition, name: str, condition: str
) -> Reason | None:
    facts = _node_facts(image, node)
    first = condition.split(" ")[0] if name == row.legacy else condition
    about = f"the image sets {name}={shown(first[:_SHOWN])}{'...' if len(first) > _SHOWN else ''}"
    try:
        # Each of the brands that it may be may have an alternative of its own.
        outcomes = {is_met(condition, replace(facts, brands=frozenset({brand})))
                    for brand in facts.brands} or {is_met(condition, facts)}  # fmt: skip
        outcome = outcomes.pop() if len(outcomes) == 1 else None
    except InvalidConditionError as error:
        return Reason(
            state="refused",
            severity="error",
            about=about,
            there=f"{shown(str(error))}, so no container starts",
            fix=Fix("base", f"take {name} out of the image, or set it as its base does"),
        )
    if outcome is True:
        return None
    has = f"driver {node.driver}" if node.driver else "a driver that is not named"
    toolkit = facts.versions.get("cuda")
    is_cuda = f", which is CUDA {toolkit[0]}.{toolkit[1]}" if toolkit is not None else ""
    return Reason(
        state="undecided" if outcome is None else "refused",
        severity="note" if outcome is None else "error",
        about=about,
        there=f"{node.name} has {has}{is_cuda}"
        + (
            ": whether that is enough, `driver` and `products` of the node class do not say"
            if outcome is None
            else ": the container does not start (`unsatisfied condition`)"
        ),
        fix=Fix(
            "base",
            "take a base image of an older toolkit, upgrade the driver, or take the target from "
            f"the node class; {row.unless}=1 skips the check, and cures nothing",
        ),
    )


def _node_facts(image: ImageSubject, node: NodeClass) -> NodeFacts:
    driver = version_range(node.driver).lowest
    toolkit = (
        drivers.toolkit_of(driver, image.backend, image.catalogue) if driver is not None else None
    )
    capabilities = {
        (int(match[1] or "0"), int(match[2]))
        for arch in architectures(node, image.catalogue)
        if (match := _ARCH.fullmatch(arch)) is not None
    }
    versions: dict[str, Numbers | None] = {
        "cuda": numbers(toolkit or ""),
        "driver": driver,
        "arch": capabilities.pop() if len(capabilities) == 1 else None,
    }
    brands: set[str] = set()
    rows = drivers.select_entries(image.catalogue.brands, image.backend)
    for product in node.products:
        row = next((row for row in rows if is_product(row.names, product)), None)
        if row is None:
            return NodeFacts(versions)
        brands.update(row.brands)
    return NodeFacts(versions, frozenset(brands))


# BM709: a file needs processor instructions that a node class lacks


#: Below such a folder, ld.so looks for what its processor can run, and nowhere else.
_DISPATCHED = "glibc-hwcaps/"
#: State of a grid cell by the severity of a file that the processor refuses: a file that nothing
#: certainly loads may never be loaded.
_STATES: dict[Severity, NodeState] = {"error": "refused", "warning": "undecided", "note": "ok"}
_SEVERITIES: Mapping[Reach | None, Severity] = {
    "import": "error",
    "guarded": "note",
    "lazy": "note",
}


def check_host_instruction_level(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution, and one for all files that belong to none.

    Only what a file says that it needs counts: what it uses may stand behind a test of its own, and
    what says nothing proves nothing.
    """
    classes = [
        (node, level)
        for node in image.target.node_classes
        if (level := level_number(node.cpu)) is not None
    ]
    refused: dict[str | None, dict[str, Binary]] = {}
    for level in {level for _, level in classes}:
        for owner, binaries in _find_refused(image, level):
            refused.setdefault(owner, {}).update((binary.path, binary) for binary in binaries)
    for owner, by_path in sorted(refused.items(), key=lambda item: item[0] or ""):
        binaries = [binary for _, binary in sorted(by_path.items())]
        nodes = {
            node.name: node.cpu
            for node, level in classes
            if any(_is_refused(binary, level) for binary in binaries)
        }
        first, severity, use = _worst(image, binaries)
        machines = listing(f"{node} has {cpu}" for node, cpu in nodes.items())
        yield finding(
            "BM709",
            image,
            f"{_about(owner, binaries)}, and {machines}: ld.so of glibc 2.33 and newer refuses to "
            f"load it there{use}",
            severity=severity,
            owner=owner,
            path=first.path,
            chain=chain_to_file(image, owner, first.path, f"needs {first.elf.isa_needed}"),
            fix=Fix(
                "rebuild",
                f"take a build of {split_owner(owner)[0] or _base(first)} for "
                f"{min(nodes.values(), key=_number)}, or take {image.target.id} out of the `runs` "
                f"of {listing(nodes)}",
            ),
        )


def find_instruction_states(image: ImageSubject, node: NodeClass) -> Iterator[GridState]:
    """Yield the states of the files on the processors of a node class, for the grid."""
    level = level_number(node.cpu)
    for owner, binaries in _find_refused(image, level) if level is not None else ():
        _, severity, use = _worst(image, binaries)
        text = f"{_about(owner, binaries)}, and {node.name} has {node.cpu}{use}"
        yield _STATES[severity], FitReason("BM709", text, distribution=split_owner(owner)[0])


@once
def _find_refused(image: ImageSubject, level: int) -> tuple[tuple[str | None, list[Binary]], ...]:
    """The files that processors of a level would load, and cannot, by their owners."""
    refused: dict[str | None, list[Binary]] = {}
    for binary in image.inventory.loadable:
        if _is_refused(binary, level):
            refused.setdefault(binary.owner, []).append(binary)
    return tuple(sorted(refused.items(), key=lambda item: item[0] or ""))


def _is_refused(binary: Binary, level: int) -> bool:
    """Return True if a processor of this level would load the file, but cannot run it."""
    needed = level_number(binary.elf.isa_needed or "")
    if binary.elf.machine != "x86_64" or needed is None or needed <= level:
        return False
    _, separator, below = binary.path.partition(_DISPATCHED)
    folder = level_number(below.partition("/")[0]) if separator else None
    return folder is None or folder <= level


def _about(owner: str | None, refused: list[Binary]) -> str:
    files = listing(sorted(_base(binary) for binary in refused))
    need = max((binary.elf.isa_needed or "" for binary in refused), key=_number)
    return f"{holder(owner)} has {files}, which needs {need}"


def _worst(image: ImageSubject, refused: list[Binary]) -> tuple[Binary, Severity, str]:
    """The file that matters most, how bad it is, and what loads it.

    It is an error if it is certainly loaded; a call may choose among files that it loads.
    """
    judged: list[tuple[Binary, Severity, str]] = []
    for binary in refused:
        reach = image.tree.reach.get(binary.path) if binary.owner is not None else "import"
        severity = _SEVERITIES.get(reach, "warning")
        judged.append((binary, severity, USES.get(reach, "") if binary.owner is not None else ""))
    return max(judged, key=lambda item: SEVERITY_RANK[item[1]])


def _base(binary: Binary) -> str:
    return binary.path.rpartition("/")[2]


def _number(level: str) -> int:
    return level_number(level) or 0
