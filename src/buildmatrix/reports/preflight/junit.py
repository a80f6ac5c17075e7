"""A preflight as JUnit XML: an image on a node class is a suite, and each rung a test case.

Where several nodes of a class ran a rung, each is a test case. A rung that failed is a failure, one
that is undecided an error, and one that nobody ran is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from buildmatrix.reports.junit import Suite, document, fail, skip
from buildmatrix.reports.preflight.model import Check, Preflight, PreflightTarget, RungOutcome
from buildmatrix.reports.preflight.summary import name, why


def render(preflight: Preflight, *, time: datetime | None = None) -> str:
    """The preflight as one `testsuites` document; `time` is when it ran, as Ant asks for it."""
    return document([_suite(preflight, target) for target in preflight.targets], time)


def _suite(preflight: Preflight, target: PreflightTarget) -> Suite:
    properties = {
        "version": preflight.tool.version,
        "catalogue": preflight.tool.catalogue,
        "backend": target.backend,
        "image": target.image,
        "digest": target.digest,
        "node-class": target.node_class,
    }
    suite = Suite(name(target), properties, sum(rung.seconds or 0 for rung in target.rungs))
    for rung in target.rungs:
        _rung(suite, name(target), rung)
    return suite


def _rung(suite: Suite, target: str, rung: RungOutcome) -> None:
    title = f"rung {rung.rung}" + (f" on {rung.where}" if rung.where != "here" else "")
    case = suite.case(target, title, rung.seconds or 0.0)
    others = [check for check in rung.checks if check.state != "passed"]
    if rung.state == "not-run":
        skip(case, why(rung) or "it did not run")
    elif rung.state != "passed":
        details = (*_said(others), *filter(None, [why(rung)]))
        first = details[0] if details else f"the rung {rung.state}"
        fail(
            case,
            "failure" if rung.state == "failed" else "error",
            f"rung-{rung.rung}",
            first,
            *details[1:],
        )
    for line in _said(rung.checks if rung.state == "passed" else ()):
        suite.say(title, line)


def _said(checks: tuple[Check, ...] | list[Check]) -> Iterator[str]:
    for check in checks:
        state = "" if check.state == "passed" else f"{check.state}: "
        yield f"{state}{check.subject}" + (f": {check.message}" if check.message else "")
