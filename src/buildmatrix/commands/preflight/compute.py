"""Rung `compute`: correctness and speed of matrix products on each device."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.preflight.device import read_texts
from buildmatrix.commands.preflight.protocol import (
    make_call,
    make_missing_checks,
    make_silent_check,
    read_checks,
)
from buildmatrix.commands.preflight.questions import list_frameworks
from buildmatrix.engines.model import Run
from buildmatrix.reports.preflight.model import Check

#: Seconds to time one product or copy, for one framework, and for all of them.
TIMED_S, EACH_S, ALL_S = 2, 300, 1_800
#: Bytes of the largest copy on a device with host memory.
HOST_COPY = 256 << 20


def run_compute(
    run: Run,
    backend: str,
    catalogue: Catalogue,
    devices: Sequence[str] = (),
    python: str = "python",
) -> tuple[tuple[Check, ...], str]:
    """Compute with each framework on the devices of a backend; also return why there is none.

    `devices` were seen before (`torch cuda:0`); a missing one has failed.

    Values of a product: `tflops`, `median_seconds`, `cold_seconds` (the first call, including
    compilation), `size`, `max_error`; of a copy: `gbps`, `bytes`.
    """
    options: dict[str, object] = {
        "frameworks": list_frameworks(backend, catalogue),
        "seconds": EACH_S,
        "each": TIMED_S,
        "copy": HOST_COPY,
    }
    probe = make_call("compute", options, python)
    result = run(probe.command, ALL_S)
    seen = read_checks(result.output, probe.mark)
    listing = next((check for check in seen if check.subject == "frameworks"), None)
    if listing is None:
        return (make_silent_check("frameworks", result, ALL_S),), ""
    measured = [check for check in seen if check is not listing]
    # A framework reports each of its products; with one, it is not lost.
    begun = {check.subject.partition(" ")[0] for check in measured}
    names = [name for name in read_texts(listing, "names") if name not in begun]
    measured += make_missing_checks(names, measured, "the probe ended before it got there")
    measured += _find_gone(devices, measured)
    if all(check.state == "not-run" for check in measured):
        return tuple(measured), f"no framework here computes on a device of {backend}"
    return tuple(measured), ""


def _find_gone(devices: Sequence[str], measured: Sequence[Check]) -> list[Check]:
    """Return failed checks for devices that were seen and then gone from their framework."""
    gone = []
    for device in devices:
        framework, _, id = device.partition(" ")
        whole = next((check for check in measured if check.subject == framework), None)
        if any(check.subject.startswith(f"{device} ") for check in measured):
            continue
        # A broken framework has failed by itself; some have devices and no products.
        if whole is None or (whole.state == "not-run" and id not in read_texts(whole, "devices")):
            message = "it was there in the rung `device`, and is gone"
            gone.append(Check(device, "failed", message))
    return gone
