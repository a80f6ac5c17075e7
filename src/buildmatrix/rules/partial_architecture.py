"""BM404: a library has device code for a GPU, and some of its objects have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.catalogue.architectures import READY, grade, is_bound
from buildmatrix.device_code.kernels import demangle
from buildmatrix.device_code.model import CodeGroup
from buildmatrix.phrases import count, listing
from buildmatrix.rules.code_objects import WORTH, portable
from buildmatrix.rules.coverage import (
    CodeFile,
    CodeHolder,
    RequiredDevice,
    code_holders,
    coverage,
    finding_of_holder,
    required_devices,
)
from buildmatrix.rules.missing_architecture import better_build
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import ImageSubject

#: Kernels that a message names, and letters of each.
_MOST_NAMED = 3
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class _Gap:
    """Objects of one file that lack what others of it have for some GPUs."""

    file: CodeFile
    devices: tuple[RequiredDevice, ...]
    lacking: tuple[CodeGroup, ...]
    #: Objects of the file that were compared.
    total: int
    #: True if they lack only binary code.
    is_late: bool

    @property
    def objects(self) -> int:
        """How many lack it."""
        return sum(group.count for group in self.lacking)


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per holder, about the file with the most such objects."""
    devices = required_devices(image)
    groups = {
        binary.path: binary.elf.code_groups
        for binary in image.inventory.binaries
        if devices and binary.elf.code_groups
    }
    for index, holder in enumerate(code_holders(image) if groups else ()):
        # Where most objects lack it, that is said of the holder (BM402, BM403).
        of_most = [
            device
            for device in devices
            if not coverage(image, device.arch).holders[index].served.is_of_most
        ]
        gaps = [gap for file in holder.files for gap in _gaps(file, groups, of_most)]
        gaps.sort(key=lambda gap: (gap.is_late, -gap.objects, gap.file.path))
        if gaps:
            yield _finding(image, holder, gaps)


def _gaps(
    file: CodeFile,
    groups_of: Mapping[str, Sequence[CodeGroup]],
    devices: Sequence[RequiredDevice],
) -> Iterator[_Gap]:
    """The gaps of one file; GPUs that the same objects lack make one."""
    groups = [
        group
        for group in groups_of.get(file.path, ())
        if set(group.architectures) <= set(file.architectures)
    ]
    compared = [
        group
        for group in groups
        if group.architectures and not group.is_relocatable and not is_bound(group.architectures)
    ]
    by_gap: dict[tuple[tuple[CodeGroup, ...], bool], list[RequiredDevice]] = {}
    for device in devices:
        grades = {
            group: grade(device.arch, (*group.architectures, *portable(group, groups)))
            for group in compared
        }
        for lacks, is_late in (("none", False), ("jit", True)):
            lacking = tuple(group for group, served in grades.items() if served == lacks)
            better = READY if is_late else (*READY, "jit")
            if lacking and any(served in better for served in grades.values()):
                by_gap.setdefault((lacking, is_late), []).append(device)
    total = sum(group.count for group in compared)
    for (lacking, is_late), lacked in by_gap.items():
        if not is_late or sum(group.size for group in lacking) >= WORTH:
            yield _Gap(file, tuple(lacked), lacking, total, is_late)


def _finding(image: ImageSubject, holder: CodeHolder, gaps: Sequence[_Gap]) -> Finding:
    worst, *others = gaps
    more = {gap.file.path for gap in others} - {worst.file.path}
    lives = any(device.node_classes for gap in gaps if not gap.is_late for device in gap.devices)
    name = worst.file.path.rpartition("/")[2]
    what = "binary code" if worst.is_late else "device code"
    verb = "has" if worst.objects == 1 else "have"
    served = worst.total - worst.objects
    rest = "the others have" if served > 1 else "the other has"
    return finding_of_holder(
        "BM404",
        image,
        holder,
        f"{worst.objects} of {count(worst.total, 'object')} in {name} of {holder.name} {verb} no "
        f"{what} for {listing(map(str, worst.devices))}, which {rest}: "
        f"{_kernels(worst)}{_others(len(more))}",
        files=[file for file in holder.files if file.path == worst.file.path or file.path in more],
        severity=None if lives else "note",
        fix=better_build(holder, [device.arch for device in worst.devices]),
    )


def _kernels(gap: _Gap) -> str:
    names = dict.fromkeys(
        demangle(kernel)[:_LONGEST_NAME] for group in gap.lacking for kernel in group.kernels
    )
    shown = f" such as {', '.join(list(names)[:_MOST_NAMED])}" if names else ""
    if gap.is_late:
        return f"the driver compiles kernels{shown} when they are first used"
    return f"kernels{shown} fail there with `no kernel image`"


def _others(number: int) -> str:
    return f"; {count(number, 'other file')} of it likewise" if number else ""
