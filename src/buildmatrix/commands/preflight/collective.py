"""The rung `collective`: do all devices of this machine add up together?"""

from __future__ import annotations

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.commands.preflight.device import texts
from buildmatrix.commands.preflight.protocol import call, checks, no_word, unfinished
from buildmatrix.commands.preflight.questions import frameworks
from buildmatrix.engines.model import Run
from buildmatrix.reports.preflight.model import Check

#: Seconds for one reduction, and for all frameworks with what they import.
EACH_S, ALL_S = 60, 300


def run_collective(
    run: Run, backend: str, catalogue: Catalogue, python: str = "python"
) -> tuple[tuple[Check, ...], str]:
    """Reduce over all devices of a backend; over two processes where that is the CPU.

    The second value is why nothing was reduced, where that is so.
    """
    options = {"frameworks": frameworks(backend, catalogue), "seconds": EACH_S}
    probe = call("collective", options, python)
    ended = run(probe.command, ALL_S)
    seen = checks(ended.output, probe.mark)
    if not seen:
        return (no_word("frameworks", ended, ALL_S),), ""
    listed, *reductions = seen
    expected = texts(listed, "names")
    if not expected:
        return (), "no framework that reduces over devices is installed (torch, jax)"
    begun = {check.subject.partition(" ")[0] for check in reductions}
    names = [name for name in expected if name not in begun]
    measured = (*reductions, *unfinished(names, (), "the probe ended before it got there"))
    if all(check.state == "not-run" for check in measured):
        return measured, "; ".join(check.message for check in measured)
    return measured, ""
