"""What must hold for every run of `fleet scan`, whatever happened to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from fleet_bed import Bed, Run
from loopback import Misdeed, Request

from buildmatrix.base.data import replace
from buildmatrix.reports.fleet import FleetReport, FleetResult
from buildmatrix.reports.fleet_assembly import assemble

Ending = Literal["equal", "undecided"]
#: One round: what stands in the folder is its own.
Fault = Callable[[Bed, random.Random, Path], Ending]


def check(run: Run, truth: FleetReport, stopped: int = 0) -> Ending:
    """What must hold for every run, whatever happened: nothing lost, twice, or falsely clean."""
    results = run.report.results
    keys = [item.key for item in results]
    assert len(keys) == len(set(keys)), "counted twice"
    assert assemble("", run.lines, "").results == results, "lines and report differ"
    wrong = [item for item in results if not _is_true(item, truth)]
    for item in wrong:
        assert item.state == "undecided", f"{item} is none of the truth"
        error = item.error or ""
        assert 20 < len(error) <= 1000 and "\n" not in error and "Traceback" not in error, error
        assert "internal error" not in error, error
    names = {(item.repository, name) for item in results for name in item.names}
    lost = {(item.repository, name) for item in truth.results for name in item.names} - names
    if stopped:
        assert run.code == stopped, run.code
        assert any("the run ended before" in text for text in run.report.missing)
        return "undecided"
    assert not lost, f"lost: {lost}; {run.log}"
    assert run.report.missing == (), run.report.missing
    assert run.code == (3 if wrong else 0), run.code
    return "undecided" if wrong else "equal"


def _is_true(result: FleetResult, truth: FleetReport) -> bool:
    """Whether it is in the truth; some of the tags of an image may be undecided by themselves."""
    return any(
        {*result.names} <= {*item.names}
        and {*result.places} <= {*item.places}
        and replace(result, names=item.names, places=item.places) == item
        for item in truth.results
    )


def check_equal(run: Run, truth: FleetReport) -> None:
    """A run that says what an undisturbed one says."""
    assert check(run, truth) == "equal", run.undecided
    assert run.report.results == truth.results


def chosen(seed: random.Random, share: float, misdeed: Callable[[random.Random], Misdeed]) -> Any:
    """A plan that does something to the first requests for some paths; they stay the same ones."""
    about = seed.random()

    def plan(request: Request, number: int) -> Misdeed | None:
        path = request.path.partition("?")[0]
        own = random.Random(f"{about} {request.method} {path}")
        if "/v2/" not in path or own.random() > share:
            return None
        return misdeed(own) if number < own.randint(1, 3) else None

    return plan
