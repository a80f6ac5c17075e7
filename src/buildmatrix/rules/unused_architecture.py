"""BM405: a holder ships device code that no GPU of the target can run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from buildmatrix.catalogue.architectures import grade
from buildmatrix.device_code.model import DeviceCode
from buildmatrix.phrases import listing, size
from buildmatrix.rules.coverage import (
    CodeHolder,
    code_holders,
    finding_of_holder,
    required_devices,
)
from buildmatrix.rules.findings import split_owner
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject

#: Bytes of unused code below which a rebuild does not pay.
WORTH = 10_000_000
_MOST_NAMED = 8


def check(image: ImageSubject) -> Iterator[Finding]:
    """One note per holder, with the bytes that would be saved, and those that would be left."""
    devices = [device.arch for device in required_devices(image)]
    holders = code_holders(image) if devices else ()
    codes = _codes(image) if holders else {}
    for holder in holders:
        unused: dict[str, int] = {}
        used = 0
        for file in holder.files:
            for code in codes.get(file.path, ()):
                if code.arch not in file.architectures:
                    used += code.size if code.arch is None else 0
                elif any(grade(device, [code.arch]) != "none" for device in devices):
                    used += code.size
                else:
                    unused[code.arch] = unused.get(code.arch, 0) + code.size
        wasted = sum(unused.values())
        if wasted < WORTH or not used:
            continue
        bound = "at least " if holder.is_partial else ""
        ordered = sorted(unused, key=lambda arch: (-unused[arch], arch))
        yield finding_of_holder(
            "BM405",
            image,
            holder,
            f"{bound}{size(wasted)} of the device code of {holder.name} are for "
            f"{listing(ordered, _MOST_NAMED)}, which no GPU of this target runs; "
            f"{bound}{size(used)} would be left",
            fix=_fix(holder, devices),
        )


def _fix(holder: CodeHolder, devices: list[str]) -> Fix:
    name = split_owner(holder.owner)[0]
    if name is None:
        return Fix("rebuild", f"take files that are made for {listing(devices)} alone")
    return Fix(
        "rebuild",
        f"build {name} from source for {listing(devices)} alone "
        f'(`no-binary = ["{name}"]`, with the variable of its build for architectures)',
    )


def _codes(image: ImageSubject) -> Mapping[str, tuple[DeviceCode, ...]]:
    """Device code by path, of what lies open: in a container it is packed, in part unread."""
    return {
        **{
            binary.path: binary.elf.device_code
            for binary in image.inventory.binaries
            if binary.container is None
        },
        **{
            artefact.path: artefact.device_code
            for artefact in image.inventory.artefacts
            if artefact.container is None
        },
    }
