"""The rung `compute`: each framework multiplies matrices on each device, rightly, and how fast."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.preflight.device import texts
from buildmatrix.commands.preflight.protocol import call, checks, no_word, unfinished
from buildmatrix.commands.preflight.questions import frameworks
from buildmatrix.engines.model import Run
from buildmatrix.reports.preflight.model import Check

#: Seconds for one product or copy to be timed, for one framework, and for all of them.
TIMED_S, EACH_S, ALL_S = 2, 300, 1_800
#: Bytes of the largest copy on a device whose memory is the host's.
HOST_COPY = 256 << 20


def run_compute(
    run: Run,
    backend: str,
    catalogue: Catalogue,
    devices: Sequence[str] = (),
    python: str = "python",
) -> tuple[tuple[Check, ...], str]:
    """Compute with each framework on the devices of a backend; the checks, and why there is none.

    `devices`: those that were seen before (`torch cuda:0`); one that is gone has failed.

    Values of a product: `tflops`, `median_seconds`, `cold_seconds` (the first call, with all that
    it compiles), `size`, `max_error`; of a copy: `gbps`, `bytes`.
    """
    options: dict[str, object] = {
        "frameworks": frameworks(backend, catalogue),
        "seconds": EACH_S,
        "each": TIMED_S,
        "copy": HOST_COPY,
    }
    probe = call("compute", options, python)
    result = run(probe.command, ALL_S)
    seen = checks(result.output, probe.mark)
    listing = next((check for check in seen if check.subject == "frameworks"), None)
    if listing is None:
        return (no_word("frameworks", result, ALL_S),), ""
    measured = [check for check in seen if check is not listing]
    # A framework reports each of its products; it is not lost where it reported one.
    begun = {check.subject.partition(" ")[0] for check in measured}
    names = [name for name in texts(listing, "names") if name not in begun]
    measured += unfinished(names, measured, "the probe ended before it got there")
    measured += _gone(devices, measured)
    if all(check.state == "not-run" for check in measured):
        return tuple(measured), f"no framework here computes on a device of {backend}"
    return tuple(measured), ""


def _gone(devices: Sequence[str], measured: Sequence[Check]) -> list[Check]:
    """Devices that were seen, and that their framework did not have any more."""
    gone = []
    for device in devices:
        framework, _, id = device.partition(" ")
        whole = next((check for check in measured if check.subject == framework), None)
        if any(check.subject.startswith(f"{device} ") for check in measured):
            continue
        # A framework that broke has failed by itself; some have devices and no products.
        if whole is None or (whole.state == "not-run" and id not in texts(whole, "devices")):
            message = "it was there in the rung `device`, and is gone"
            gone.append(Check(device, "failed", message))
    return gone
