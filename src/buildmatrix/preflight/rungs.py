"""Rungs that run one probe each: `import`, `compute`, `memory` and `collective`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import library
from buildmatrix.engines.model import Run
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader.resolver import resolve
from buildmatrix.preflight.protocol import (
    list_frameworks,
    make_missing_checks,
    read_texts,
    run_probe,
)
from buildmatrix.reports.preflight.model import Check

# Rung `import`: failed imports, their causes, and agreement with static verdicts


#: Seconds for one import, and for all of them.
IMPORT_EACH_S, IMPORT_ALL_S = 120, 1_800


def run_imports(run: Run, catalogue: Catalogue, backend: str) -> tuple[Check, ...]:
    """Import everything in the image of a backend, each name in its own process.

    Imports that need a missing optional module, or the driver of a node, are `not-run`.
    """
    options = {"seconds": IMPORT_EACH_S}
    seen, names = run_probe(run, "imports", options, IMPORT_ALL_S, "modules")
    explained = tuple(_explain(check, catalogue, backend) for check in seen)
    return (*explained, *make_missing_checks(names or (), seen))


def waits_for_driver(check: Check) -> bool:
    """True if an import was not completed, since the host's driver is missing here."""
    return check.state == "not-run" and "missing_library" in check.values


def _explain(check: Check, catalogue: Catalogue, backend: str) -> Check:
    """Describe a failed import by its cause: the missing library, or the package that broke it."""
    if check.state != "failed":
        return check
    name = check.values.get("missing_library")
    if isinstance(name, str) and name:
        vendor = catalogue.vendor_of(backend)
        if any(
            match.owned.entry.where == "host" and match.owned.vendor == vendor
            for match in library(name, None, catalogue)
        ):
            message = f"it needs {name}, which the driver of a node brings"
            return replace(check, state="not-run", message=message)
        return replace(check, message=f"{name} is missing, which importing it needs")
    raised, own = check.values.get("raised_in"), check.values.get("distribution")
    if isinstance(raised, str) and isinstance(own, str) and "site-packages/" in raised:
        package = PurePosixPath(raised.rpartition("site-packages/")[2]).parts[0]
        if package not in (check.subject.partition(".")[0], own.replace("-", "_")):
            return replace(check, message=f"{check.message} (raised in {package})")
    return check


def find_disagreements(failed: Collection[Check], inventory: Inventory) -> tuple[Check, ...]:
    """Return differences between the loader and our model of it: defects of buildmatrix."""
    libraries = {
        name
        for check in failed
        if isinstance(name := check.values.get("missing_library"), str) and name
    }
    if not libraries:
        return ()
    missing = {needed.name for needed in resolve(inventory).missing}
    return tuple(
        Check(
            f"buildmatrix: {name}",
            "undecided",
            f"the loader in the image did not find {name}, and buildmatrix's model of it did "
            "not expect that; please report it with this image",
        )
        for name in sorted(libraries - missing)
    )


# Rung `compute`: correctness and speed of matrix products on each device


#: Seconds to time one product or copy, for one framework, and for all of them.
TIMED_S, COMPUTE_EACH_S, COMPUTE_ALL_S = 2, 300, 1_800
#: Bytes of the largest copy on a device with host memory.
HOST_COPY = 256 << 20


def run_compute(
    run: Run, backend: str, catalogue: Catalogue, devices: Sequence[str] = ()
) -> tuple[tuple[Check, ...], str]:
    """Compute with each framework on the devices of a backend; also return why there is none.

    `devices` were seen before (`torch cuda:0`); a missing one has failed.

    Values of a product: `tflops`, `median_seconds`, `cold_seconds` (the first call, including
    compilation), `size`, `max_error`; of a copy: `gbps`, `bytes`.
    """
    options = {
        "frameworks": list_frameworks(backend, catalogue),
        "seconds": COMPUTE_EACH_S,
        "each": TIMED_S,
        "copy": HOST_COPY,
    }
    measured, names = run_probe(run, "compute", options, COMPUTE_ALL_S, "frameworks")
    if names is None:
        return measured, ""
    measured += make_missing_checks(names, measured)
    measured += tuple(_find_gone(devices, measured))
    if all(check.state == "not-run" for check in measured):
        return measured, f"no framework here computes on a device of {backend}"
    return measured, ""


def _find_gone(devices: Sequence[str], measured: Sequence[Check]) -> Iterator[Check]:
    """Yield failed checks for devices that were seen and then gone from their framework."""
    for device in devices:
        framework, _, id = device.partition(" ")
        whole = next((check for check in measured if check.subject == framework), None)
        if any(check.subject.startswith(f"{device} ") for check in measured):
            continue
        # A broken framework has failed by itself; some have devices and no products.
        if whole is None or (whole.state == "not-run" and id not in read_texts(whole, "devices")):
            yield Check(device, "failed", "it was there in the rung `device`, and is gone")


# Rung `memory`: allocation, write and release of a share of the memory


#: Seconds for one framework, and for all of them.
MEMORY_EACH_S, MEMORY_ALL_S = 180, 900
#: Share of the free memory to allocate, and limit for host memory in bytes.
SHARE, MOST = 0.5, 2 << 30


def run_memory(run: Run, backend: str, catalogue: Catalogue) -> tuple[tuple[Check, ...], str]:
    """Allocate memory of the container and a backend's devices; also return why not.

    Values: `taken_bytes`, `total_bytes`, `lost_bytes` (not returned), `touch_gbps`.
    """
    has_vendor = catalogue.vendor_of(backend) is not None
    options = {
        # The memory of a CPU is the container's.
        "frameworks": list_frameworks(backend, catalogue) if has_vendor else {},
        "seconds": MEMORY_EACH_S,
        "share": SHARE,
        "most": MOST,
    }
    measured, names = run_probe(run, "memory", options, MEMORY_ALL_S, "memory")
    if has_vendor and names is not None and all(item.subject == "container" for item in measured):
        return measured, f"no framework here takes memory of a device of {backend}"
    return measured, ""


# Rung `collective`: a reduction over all devices of this machine


#: Seconds for one reduction, and for all frameworks including imports.
COLLECTIVE_EACH_S, COLLECTIVE_ALL_S = 60, 300


def run_collective(run: Run, backend: str, catalogue: Catalogue) -> tuple[tuple[Check, ...], str]:
    """Reduce over all devices of a backend; over two processes for the CPU.

    The second value is the reason if nothing was reduced.
    """
    options = {"frameworks": list_frameworks(backend, catalogue), "seconds": COLLECTIVE_EACH_S}
    measured, names = run_probe(run, "collective", options, COLLECTIVE_ALL_S, "frameworks")
    if names is None:
        return measured, ""
    if not names:
        return (), "no framework that reduces over devices is installed (torch, jax)"
    measured += make_missing_checks(names, measured)
    if all(check.state == "not-run" for check in measured):
        return measured, "; ".join(check.message for check in measured)
    return measured, ""
