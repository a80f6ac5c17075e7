"""BM709: a file needs processor instructions that a node class of the target does not have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from buildmatrix.elf.isa import level_number
from buildmatrix.inventory.model import Binary
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import chain_to_file, finding, split_owner
from buildmatrix.rules.model import SEVERITY_RANK, Finding, Fix, Severity
from buildmatrix.rules.shipped import holder
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import NodeClass

#: Below such a folder, ld.so looks for what its processor can run, and nowhere else.
_DISPATCHED = "glibc-hwcaps/"


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
    refused = [
        (binary, nodes)
        for binary in image.inventory.loadable
        if (nodes := [node for node, level in classes if _is_refused(binary, level)])
    ]
    refused.sort(key=lambda item: (item[0].owner or "", item[0].path))
    for owner, group in groupby(refused, key=lambda item: item[0].owner):
        yield _finding(image, owner, list(group))


def _is_refused(binary: Binary, level: int) -> bool:
    """Whether a processor of this level would load the file, and cannot."""
    needed = level_number(binary.elf.isa_needed or "")
    if binary.elf.machine != "x86_64" or needed is None or needed <= level:
        return False
    _, found, below = binary.path.partition(_DISPATCHED)
    folder = level_number(below.partition("/")[0]) if found else None
    return folder is None or folder <= level


def _finding(
    image: ImageSubject, owner: str | None, refused: list[tuple[Binary, list[NodeClass]]]
) -> Finding:
    judged = [(binary, _severity(image, binary)) for binary, _ in refused]
    first, severity = max(judged, key=lambda item: SEVERITY_RANK[item[1]])
    nodes = {node.name: node.cpu for _, nodes in refused for node in nodes}
    need = max((binary.elf.isa_needed or "" for binary, _ in refused), key=_number)
    name, _ = split_owner(owner)
    files = listing(sorted(_base(binary) for binary, _ in refused))
    machines = listing(f"{node} has {cpu}" for node, cpu in nodes.items())
    return finding(
        "BM709",
        image,
        f"{holder(owner)} has {files}, which needs {need}, and {machines}: ld.so of glibc 2.33 and "
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


def _severity(image: ImageSubject, binary: Binary) -> Severity:
    """An error where it is loaded for sure; what only a call loads, that call may choose."""
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
