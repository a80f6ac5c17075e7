"""Rules about the GPU architectures of device code: BM402 to BM405."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.drivers import READY, grade, is_bound, is_portable
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.facts.binaries.groups import demangle
from buildmatrix.facts.elf.model import CodeGroup
from buildmatrix.judge.coverage import (
    WORTH,
    CodeFile,
    CodeHolder,
    RequiredDevice,
    Served,
    code_holders,
    coverage,
    finding_of_holder,
    portable,
    required_devices,
)
from buildmatrix.judge.findings import split_owner
from buildmatrix.judge.library_versions import device_codes
from buildmatrix.judge.model import Finding, Fix
from buildmatrix.judge.subject import ImageSubject

# BM402: a holder's device code does not run on a GPU of the target


#: Architectures that a message lists.
_MOST_ARCHITECTURES = 8


def _served_devices(
    image: ImageSubject,
) -> Iterator[tuple[CodeHolder, Sequence[tuple[RequiredDevice, Served]]]]:
    """Yield each holder of device code, and how it serves the GPUs of the target."""
    covered = [(device, coverage(image, device.arch)) for device in required_devices(image)]
    for index, holder in enumerate(code_holders(image) if covered else ()):
        yield holder, [(device, holders[index].served) for device, holders in covered]


def check_missing_architecture(image: ImageSubject) -> Iterator[Finding]:
    """One finding per holder of device code; see the rule's page for how bad it is."""
    for holder, served in _served_devices(image):
        missing = [device for device, code in served if code.grade == "none"]
        of_most = [
            device.arch for device, code in served if code.grade == "none" and code.is_of_most
        ]
        if missing:
            lives = any(device.node_classes for device in missing) and _is_loaded(image, holder)
            has = listing(holder.architectures, _MOST_ARCHITECTURES)
            yield finding_of_holder(
                "BM402",
                image,
                holder,
                f"{holder.name} has no device code for {listing(map(str, missing))}: kernels fail "
                f"there with `no kernel image`; it has {has}"
                + (
                    f", that for {listing(of_most)} in next to none of its objects"
                    if of_most
                    else ""
                ),
                severity="error" if lives else None,
                fix=better_build(holder, [device.arch for device in missing]),
            )
        unknown = [device for device, code in served if code.grade == "unknown"]
        # The depth of the reading tells unread parts.
        if unknown and not holder.is_partial:
            yield finding_of_holder(
                "BM402",
                image,
                holder,
                f"whether the device code of {holder.name} runs on {listing(map(str, unknown))} is "
                "not known: its bytes do not name the GPUs of all of it",
                severity="note",
            )


def better_build(holder: CodeHolder, missing: Sequence[str]) -> Fix:
    """Suggest how to get code for missing architectures."""
    name = split_owner(holder.owner)[0]
    archs = listing(missing)
    if name is None:
        return Fix("base", f"take a base image, or a build, whose code covers {archs}")
    return Fix(
        "upgrade",
        f"take a build of {name} that covers {archs}, build it from source "
        f'(`no-binary = ["{name}"]`), or take the architecture out of `archs` or the target from '
        "the node class",
    )


def _is_loaded(image: ImageSubject, holder: CodeHolder) -> bool:
    """Return True if it is requested, made for the backend, and its import loads the code."""
    name, version = split_owner(holder.owner)
    if name is None:
        return False
    match = distribution(name, version or "", image.catalogue)
    return (
        match is not None
        and match.backend == image.backend
        and match.kind in ("native", "default-build")
        and image.is_requested(name)
        and any(image.tree.reach.get(file.path) == "import" for file in holder.files)
    )


# BM403: the driver has to compile a holder's device code for a GPU of the target


def check_only_by_compilation(image: ImageSubject) -> Iterator[Finding]:
    """Yield one finding per holder; a note if portable code is usual, or no class has it."""
    for holder, served in _served_devices(image):
        compiled = [pair for pair in served if pair[1].grade == "jit" and pair[1].is_certain]
        late = [device for device, _ in compiled]
        if not late:
            continue
        of_most = [device.arch for device, code in compiled if code.is_of_most]
        usual = all(is_portable(arch) for arch in holder.architectures)
        lives = any(device.node_classes for device in late) and not usual
        yield finding_of_holder(
            "BM403",
            image,
            holder,
            f"{holder.name} has no binary code for {listing(map(str, late))}: the driver compiles "
            "its portable code at the first start, which can take minutes"
            + (f"; few of its objects have some for {listing(of_most)}" if of_most else ""),
            severity=None if lives else "note",
            fix=better_build(holder, [device.arch for device in late]),
        )


# BM404: some objects of a library lack device code for a GPU that others have code for


#: Kernels that a message names, and letters of each.
_MOST_KERNELS = 3
_LONGEST_NAME = 80


class _Gap(Struct, frozen=True):
    """Objects of one file that lack code for some GPUs which its other objects have."""

    file: CodeFile
    devices: tuple[RequiredDevice, ...]
    lacking: tuple[CodeGroup, ...]
    #: Objects of the file that were compared.
    total: int
    #: True if they lack only binary code.
    is_late: bool

    @property
    def objects(self) -> int:
        """Number of objects without code for the GPU."""
        return sum(group.count for group in self.lacking)


def check_partial_architecture(image: ImageSubject) -> Iterator[Finding]:
    """One finding per holder, about the file with the most such objects."""
    groups = {binary.path: binary.elf.code_groups for binary in image.inventory.binaries}
    for holder, served in _served_devices(image) if any(groups.values()) else ():
        # Where most objects lack it, that is said of the holder (BM402, BM403).
        devices = [device for device, code in served if not code.is_of_most]
        gaps = [gap for file in holder.files for gap in _gaps(file, groups, devices)]
        gaps.sort(key=lambda gap: (gap.is_late, -gap.objects, gap.file.path))
        if gaps:
            yield _partial_code(image, holder, gaps)


def _gaps(
    file: CodeFile, groups_of: Mapping[str, Sequence[CodeGroup]], devices: Sequence[RequiredDevice]
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


def _partial_code(image: ImageSubject, holder: CodeHolder, gaps: Sequence[_Gap]) -> Finding:
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
        + _kernels(worst)
        + (f"; {count(len(more), 'other file')} of it likewise" if more else ""),
        files=[file for file in holder.files if file.path == worst.file.path or file.path in more],
        severity=None if lives else "note",
        fix=better_build(holder, [device.arch for device in worst.devices]),
    )


def _kernels(gap: _Gap) -> str:
    names = dict.fromkeys(
        demangle(kernel)[:_LONGEST_NAME] for group in gap.lacking for kernel in group.kernels
    )
    shown = f" such as {', '.join(list(names)[:_MOST_KERNELS])}" if names else ""
    if gap.is_late:
        return f"the driver compiles kernels{shown} when they are first used"
    return f"kernels{shown} fail there with `no kernel image`"


# BM405: a holder ships device code that no GPU of the target can run


#: Bytes of unused code below which a rebuild does not pay.
_WORTH_SAVING = 10_000_000
_MOST_UNUSED = 8


def check_unused_architecture(image: ImageSubject) -> Iterator[Finding]:
    """One note per holder, with the bytes that would be saved, and those that would be left."""
    devices = [device.arch for device in required_devices(image)]
    holders = code_holders(image) if devices else ()
    codes = device_codes(image) if holders else {}
    # Code in containers is packed and partly unread.
    inside = {item.path for item in image.inventory.binaries if item.container is not None}
    inside |= {item.path for item in image.inventory.artefacts if item.container is not None}
    for holder in holders:
        unused: dict[str, int] = {}
        used = 0
        for file in holder.files:
            for code in () if file.path in inside else codes.get(file.path, ()):
                if code.arch not in file.architectures:
                    used += code.size if code.arch is None else 0
                elif any(grade(device, [code.arch]) != "none" for device in devices):
                    used += code.size
                else:
                    unused[code.arch] = unused.get(code.arch, 0) + code.size
        wasted = sum(unused.values())
        if wasted < _WORTH_SAVING or not used:
            continue
        bound = "at least " if holder.is_partial else ""
        ordered = sorted(unused, key=lambda arch: (-unused[arch], arch))
        name = split_owner(holder.owner)[0]
        yield finding_of_holder(
            "BM405",
            image,
            holder,
            f"{bound}{size(wasted)} of the device code of {holder.name} are for "
            f"{listing(ordered, _MOST_UNUSED)}, which no GPU of this target runs; "
            f"{bound}{size(used)} would be left",
            fix=Fix(
                "rebuild",
                f"take files that are made for {listing(devices)} alone"
                if name is None
                else f"build {name} from source for {listing(devices)} alone "
                f'(`no-binary = ["{name}"]`, with the variable of its build for architectures)',
            ),
        )
