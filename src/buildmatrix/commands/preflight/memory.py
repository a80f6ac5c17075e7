"""Rung `memory`: allocation, write and release of a share of the memory."""

from __future__ import annotations

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.preflight.protocol import (
    make_call,
    make_missing_checks,
    make_silent_check,
    read_checks,
)
from buildmatrix.commands.preflight.questions import list_frameworks
from buildmatrix.engines.model import Run
from buildmatrix.reports.preflight.model import Check

#: Seconds for one framework, and for all of them.
EACH_S, ALL_S = 180, 900
#: Share of the free memory to allocate, and limit for host memory in bytes.
SHARE, MOST = 0.5, 2 << 30


def run_memory(
    run: Run, backend: str, catalogue: Catalogue, python: str = "python"
) -> tuple[tuple[Check, ...], str]:
    """Allocate memory of the container and a backend's devices; also return why not.

    Values: `taken_bytes`, `total_bytes`, `lost_bytes` (not returned), `touch_gbps`.
    """
    has_vendor = catalogue.vendor_of(backend) is not None
    options: dict[str, object] = {
        # The memory of a CPU is the container's.
        "frameworks": list_frameworks(backend, catalogue) if has_vendor else {},
        "seconds": EACH_S,
        "share": SHARE,
        "most": MOST,
    }
    probe = make_call("memory", options, python)
    result = run(probe.command, ALL_S)
    seen = read_checks(result.output, probe.mark)
    listing = next((check for check in seen if check.subject == "frameworks"), None)
    if listing is None and not seen:
        return (make_silent_check("memory", result, ALL_S),), ""
    measured = tuple(check for check in seen if check is not listing)
    if listing is None:
        return (
            *measured,
            *make_missing_checks(["frameworks"], measured, "the probe ended before them"),
        ), ""
    devices = [check for check in measured if check.subject != "container"]
    if has_vendor and not devices:
        return measured, f"no framework here takes memory of a device of {backend}"
    return measured, ""
