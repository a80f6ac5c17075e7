"""BM402: a holder's device code does not run on a GPU that the target has to run on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildmatrix.catalogue.match import distribution
from buildmatrix.phrases import listing
from buildmatrix.rules.coverage import (
    CodeHolder,
    Coverage,
    RequiredDevice,
    coverage,
    finding_of_holder,
    required_devices,
)
from buildmatrix.rules.findings import split_owner
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import ImageSubject

#: Architectures that a message lists.
_MOST_NAMED = 8


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per holder of device code; see the rule's page for how bad it is."""
    devices = required_devices(image)
    covered = [(device, coverage(image, device.arch)) for device in devices]
    for index, item in enumerate(covered[0][1].holders if covered else ()):
        holder = item.holder
        missing = _served(covered, index, "none")
        if missing:
            of_most = [
                device.arch
                for device, result in covered
                if device in missing and result.holders[index].served.is_of_most
            ]
            yield _missing(image, holder, missing, of_most)
        unknown = _served(covered, index, "unknown")
        # What was not read yet is said by the depth of the look.
        if unknown and not holder.is_partial:
            yield finding_of_holder(
                "BM402",
                image,
                holder,
                f"whether the device code of {holder.name} runs on {listing(map(str, unknown))} is "
                "not known: its bytes do not name the GPUs of all of it",
                severity="note",
            )


def _served(
    covered: Sequence[tuple[RequiredDevice, Coverage]], index: int, grade: str
) -> list[RequiredDevice]:
    """The devices that a holder serves just like that."""
    return [device for device, result in covered if result.holders[index].served.grade == grade]


def _missing(
    image: ImageSubject,
    holder: CodeHolder,
    missing: Sequence[RequiredDevice],
    of_most: Sequence[str],
) -> Finding:
    lives = any(device.node_classes for device in missing) and _is_loaded(image, holder)
    return finding_of_holder(
        "BM402",
        image,
        holder,
        f"{holder.name} has no device code for {listing(map(str, missing))}: kernels fail there "
        f"with `no kernel image`; it has {listing(holder.architectures, _MOST_NAMED)}"
        + (f", that for {listing(of_most)} in next to none of its objects" if of_most else ""),
        severity="error" if lives else None,
        fix=better_build(holder, [device.arch for device in missing]),
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
        and any(image.reach.get(file.path) == "import" for file in holder.files)
    )
