"""Rung `collective`: a reduction over all devices of this machine."""

from __future__ import annotations

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

#: Seconds for one reduction, and for all frameworks including imports.
EACH_S, ALL_S = 60, 300


def run_collective(
    run: Run, backend: str, catalogue: Catalogue, python: str = "python"
) -> tuple[tuple[Check, ...], str]:
    """Reduce over all devices of a backend; over two processes for the CPU.

    The second value is the reason if nothing was reduced.
    """
    options = {"frameworks": list_frameworks(backend, catalogue), "seconds": EACH_S}
    probe = make_call("collective", options, python)
    ended = run(probe.command, ALL_S)
    seen = read_checks(ended.output, probe.mark)
    if not seen:
        return (make_silent_check("frameworks", ended, ALL_S),), ""
    listed, *reductions = seen
    expected = read_texts(listed, "names")
    if not expected:
        return (), "no framework that reduces over devices is installed (torch, jax)"
    begun = {check.subject.partition(" ")[0] for check in reductions}
    names = [name for name in expected if name not in begun]
    measured = (*reductions, *make_missing_checks(names, (), "the probe ended before it got there"))
    if all(check.state == "not-run" for check in measured):
        return measured, "; ".join(check.message for check in measured)
    return measured, ""
