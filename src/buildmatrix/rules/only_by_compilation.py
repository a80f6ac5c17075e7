"""BM403: the driver has to compile a holder's device code for a GPU before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.architectures import is_portable
from buildmatrix.phrases import listing
from buildmatrix.rules.coverage import coverage, finding_of_holder, required_devices
from buildmatrix.rules.missing_architecture import better_build
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """Yield one finding per holder; a note if portable code is usual, or no class has it."""
    devices = required_devices(image)
    covered = [(device, coverage(image, device.arch)) for device in devices]
    for index, item in enumerate(covered[0][1].holders if covered else ()):
        holder = item.holder
        late = [
            device
            for device, result in covered
            if (served := result.holders[index].served).grade == "jit" and served.is_certain
        ]
        if not late:
            continue
        of_most = [
            device.arch
            for device, result in covered
            if device in late and result.holders[index].served.is_of_most
        ]
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
