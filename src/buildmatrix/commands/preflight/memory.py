"""The rung `memory`: a share of what there is can be taken, written, and given back."""

from __future__ import annotations

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.preflight.protocol import call, checks, no_word, unfinished
from buildmatrix.commands.preflight.questions import frameworks
from buildmatrix.engines.model import Run
from buildmatrix.reports.preflight.model import Check

#: Seconds for one framework, and for all of them.
EACH_S, ALL_S = 180, 900
#: Share of what is free that is taken, and bytes of the host's memory at most.
SHARE, MOST = 0.5, 2 << 30


def run_memory(
    run: Run, backend: str, catalogue: Catalogue, python: str = "python"
) -> tuple[tuple[Check, ...], str]:
    """Take memory of the container and of the devices of a backend; and why nothing is known.

    Values: `taken_bytes`, `total_bytes`, `lost_bytes` (did not come back), `touch_gbps`.
    """
    has_vendor = catalogue.vendor_of(backend) is not None
    options: dict[str, object] = {
        # The memory of a CPU is the container's.
        "frameworks": frameworks(backend, catalogue) if has_vendor else {},
        "seconds": EACH_S,
        "share": SHARE,
        "most": MOST,
    }
    probe = call("memory", options, python)
    result = run(probe.command, ALL_S)
    seen = checks(result.output, probe.mark)
    listing = next((check for check in seen if check.subject == "frameworks"), None)
    if listing is None and not seen:
        return (no_word("memory", result, ALL_S),), ""
    measured = tuple(check for check in seen if check is not listing)
    if listing is None:
        return (*measured, *unfinished(["frameworks"], measured, "the probe ended before them")), ""
    devices = [check for check in measured if check.subject != "container"]
    if has_vendor and not devices:
        return measured, f"no framework here takes memory of a device of {backend}"
    return measured, ""
