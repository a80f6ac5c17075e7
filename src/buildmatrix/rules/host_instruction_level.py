"""BM709: a file needs processor instructions that a node class of the target does not have."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.elf.isa import level_number
from buildmatrix.inventory.model import Binary
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import chain_to_file, finding, split_owner
from buildmatrix.rules.model import SEVERITY_RANK, Finding, FitReason, Fix, NodeState, Severity
from buildmatrix.rules.node_reasons import GridState
from buildmatrix.rules.shipped import holder
from buildmatrix.rules.subject import ImageSubject, once
from buildmatrix.spec.model import NodeClass

#: Below such a folder, ld.so looks for what its processor can run, and nowhere else.
_DISPATCHED = "glibc-hwcaps/"
#: State of a grid cell by the severity of a file that the processor refuses: a file that nothing
#: certainly loads may never be loaded.
_STATES: dict[Severity, NodeState] = {"error": "refused", "warning": "undecided", "note": "ok"}


def check(image: ImageSubject) -> Iterator[Finding]:
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
        for owner, binaries in _refused(image, level):
            refused.setdefault(owner, {}).update((binary.path, binary) for binary in binaries)
    for owner, by_path in sorted(refused.items(), key=lambda item: item[0] or ""):
        binaries = [binary for _, binary in sorted(by_path.items())]
        nodes = [
            node
            for node, level in classes
            if any(_is_refused(binary, level) for binary in binaries)
        ]
        yield _finding(image, owner, binaries, nodes)


def find_states(image: ImageSubject, node: NodeClass) -> Iterator[GridState]:
    """Yield the states of the files on the processors of a node class, for the grid."""
    level = level_number(node.cpu)
    for owner, binaries in _refused(image, level) if level is not None else ():
        first, severity = _worst(image, binaries)
        text = f"{_about(owner, binaries)}, and {node.name} has {node.cpu}{_use(image, first)}"
        yield _STATES[severity], FitReason("BM709", text, distribution=split_owner(owner)[0])


@once
def _refused(image: ImageSubject, level: int) -> tuple[tuple[str | None, list[Binary]], ...]:
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


def _finding(
    image: ImageSubject, owner: str | None, refused: list[Binary], classes: list[NodeClass]
) -> Finding:
    first, severity = _worst(image, refused)
    nodes = {node.name: node.cpu for node in classes}
    name, _ = split_owner(owner)
    machines = listing(f"{node} has {cpu}" for node, cpu in nodes.items())
    return finding(
        "BM709",
        image,
        f"{_about(owner, refused)}, and {machines}: ld.so of glibc 2.33 and "
        f"newer refuses to load it there{_use(image, first)}",
        severity=severity,
        owner=owner,
        path=first.path,
        chain=chain_to_file(image, owner, first.path, f"needs {first.elf.isa_needed}"),
        fix=Fix(
            "rebuild",
            f"take a build of {name or _base(first)} for "
            f"{min(nodes.values(), key=_number)}, or take {image.target.id} out of the `runs` of "
            f"{listing(nodes)}",
        ),
    )


def _about(owner: str | None, refused: list[Binary]) -> str:
    files = listing(sorted(_base(binary) for binary in refused))
    need = max((binary.elf.isa_needed or "" for binary in refused), key=_number)
    return f"{holder(owner)} has {files}, which needs {need}"


def _worst(image: ImageSubject, refused: list[Binary]) -> tuple[Binary, Severity]:
    """The file that matters most, and how bad it is."""
    judged = ((binary, _severity(image, binary)) for binary in refused)
    return max(judged, key=lambda item: SEVERITY_RANK[item[1]])


def _severity(image: ImageSubject, binary: Binary) -> Severity:
    """Return an error if it is certainly loaded; a call may choose among files that it loads."""
    if binary.owner is None:
        return "error"
    match image.reach.get(binary.path):
        case "import":
            return "error"
        case "guarded" | "lazy":
            return "note"
    return "warning"


def _use(image: ImageSubject, binary: Binary) -> str:
    if binary.owner is None:
        return ""
    match image.reach.get(binary.path):
        case "import":
            return ", and an import loads it"
        case "guarded":
            return "; the import goes on without it"
        case "lazy":
            return "; only a call loads it"
    return ""


def _base(binary: Binary) -> str:
    return binary.path.rpartition("/")[2]


def _number(level: str) -> int:
    return level_number(level) or 0
