"""The report of `preflight` for a terminal, as Markdown and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from buildmatrix.base.text import count, printable
from buildmatrix.reports.junit import Suite, fail, render_suites, skip
from buildmatrix.reports.markdown import draw, end, fold, plain, rich, state_cell
from buildmatrix.reports.preflight import model
from buildmatrix.reports.sections import state_word
from buildmatrix.reports.terminal import Painter, wrapped

# Text


#: Checks of a rung that are listed where all have passed.
_MAX_SLOWEST = 3
_BARS = "▁▂▃▄▅▆▇█"


def render_table(preflight: model.Preflight, *, width: int, color: bool) -> str:
    """Each image with its rungs; what did not pass is listed whole."""
    paint, width = Painter(color), max(width, 40)
    lines: list[str] = []
    for target in preflight.targets:
        lines.append(paint(printable(model.name(target)), "bold"))
        for rung in target.rungs:
            lines += _rung_lines(rung, width, paint)
        lines.append("")
    lines.append(model.totals(preflight))
    return "\n".join(lines) + "\n"


def _rung_lines(rung: model.RungOutcome, width: int, paint: Painter) -> Iterator[str]:
    word = paint.state(rung.state, state_word(rung.state).ljust(9))
    passed = [check for check in rung.checks if check.state == "passed"]
    others = [check for check in rung.checks if check.state != "passed"]
    said = f"{len(passed)} of {count(len(rung.checks), 'check')}" if rung.checks else ""
    took = f"{rung.seconds:.1f} s" if rung.seconds is not None else ""
    details = ", ".join(filter(None, (said, took, model.place(rung).removeprefix(" at "))))
    yield f"  {rung.rung.ljust(10)}  {word}  {printable(details)}".rstrip()
    if rung.why:
        yield from wrapped(printable(rung.why), width, indent="    ")
    if rung.run_on:
        classes = ", ".join(rung.run_on)
        yield from wrapped(f"to be run on {printable(classes)}", width, indent="    ")
    slow = sorted(passed, key=lambda check: -(check.seconds or 0))[:_MAX_SLOWEST]
    for check in (*others, *(slow if not others else ())):
        state = state_word(check.state)
        seconds = f" ({check.seconds:.2f} s)" if check.seconds is not None else ""
        message = f": {check.message}" if check.message else ""
        text = printable(f"{check.subject}{seconds}{message}")
        first, *rest = wrapped(f"{state} {text}", width, indent="    ")
        yield first.replace(state, paint.state(check.state), 1)
        yield from rest
        if picture := _bars(check.values.get("samples_s")):
            yield f"    {picture}"


def _bars(samples: model.Value) -> str:
    """The runs of a check as bars, in their order, from nothing up to the slowest."""
    values = samples if isinstance(samples, list) else []
    times = [time for time in values if isinstance(time, float)]
    slowest = max(times, default=0.0)
    if len(times) < 2 or slowest <= 0:
        return ""
    return "".join(_BARS[min(int(time / slowest * len(_BARS)), len(_BARS) - 1)] for time in times)


# Markdown, for a CI job's summary: the rungs, then the checks that did not pass; the rest folded


#: Checks of one rung that are listed before the rest is folded, and reasons of one image.
_MAX_OPEN = 20


def render_markdown(preflight: model.Preflight) -> str:
    """The preflight as GitHub-flavored Markdown."""
    table = draw([replace(model.ladder(preflight), title="", lead="")])
    lines = ["## buildmatrix preflight", "", f"**{model.totals(preflight)}**", "", *table]
    open_items = [item for target in preflight.targets for item in _open(target)]
    lines += open_items[:_MAX_OPEN]
    if len(open_items) > _MAX_OPEN:
        lines += [*fold(f"{len(open_items) - _MAX_OPEN} more"), *open_items[_MAX_OPEN:], *end()]
    passed = [line for target in preflight.targets for line in _passed(target)]
    if passed:
        lines += [*fold("what passed"), *passed, *end()]
    return "\n".join(lines).rstrip("\n") + "\n"


def _open(target: model.PreflightTarget) -> Iterator[str]:
    for rung in target.rungs:
        checks = [check for check in rung.checks if check.state != "passed"]
        if rung.state == "passed" and not checks:
            continue
        reason = model.why(rung)
        head = f"- {plain(_title(target, rung))}: {state_cell(rung.state)}"
        yield head + (f", {rich(reason)}" if reason else "")
        yield from (f"  - {_check_item(check)}" for check in checks)


def _passed(target: model.PreflightTarget) -> Iterator[str]:
    for rung in target.rungs:
        if rung.state == "passed":
            took = f", {rung.seconds:.1f} s" if rung.seconds is not None else ""
            yield f"- {plain(_title(target, rung))}{took}"
            yield from (
                f"  - {_check_item(check)}" for check in rung.checks if check.state == "passed"
            )


def _title(target: model.PreflightTarget, rung: model.RungOutcome) -> str:
    return f"{model.name(target)}{model.place(rung)}, {rung.rung}"


def _check_item(check: model.Check) -> str:
    state = "" if check.state == "passed" else f" {state_cell(check.state)}"
    return plain(check.subject) + state + (f": {rich(check.message)}" if check.message else "")


# JUnit XML: an image on a node class is a suite, and each rung a test case.
#
# If several nodes of a class ran a rung, each is a test case. A failed rung is a failure, an
# undecided one an error, and one that did not run is skipped.


def render_junit(preflight: model.Preflight, *, time: datetime | None = None) -> str:
    """The preflight as one `testsuites` document; `time` is when it ran, as Ant asks for it."""
    return render_suites([_suite(preflight, target) for target in preflight.targets], time)


def _suite(preflight: model.Preflight, target: model.PreflightTarget) -> Suite:
    properties = {
        "version": preflight.tool.version,
        "catalogue": preflight.tool.catalogue,
        "backend": target.backend,
        "image": target.image,
        "digest": target.digest,
        "node-class": target.node_class,
    }
    suite = Suite(model.name(target), properties, sum(rung.seconds or 0 for rung in target.rungs))
    for rung in target.rungs:
        _add_case(suite, model.name(target), rung)
    return suite


def _add_case(suite: Suite, target: str, rung: model.RungOutcome) -> None:
    title = f"rung {rung.rung}" + (f" on {rung.where}" if rung.where != "here" else "")
    case = suite.case(target, title, rung.seconds or 0.0)
    if rung.state == "not-run":
        skip(case, model.why(rung) or "it did not run")
    elif rung.state == "passed":
        for check in rung.checks:
            suite.say(title, _check_line(check))
    else:
        others = [_check_line(check) for check in rung.checks if check.state != "passed"]
        first, *rest = [*others, *filter(None, [model.why(rung)])] or [f"the rung {rung.state}"]
        kind = f"rung-{rung.rung}"
        fail(case, "failure" if rung.state == "failed" else "error", kind, first, *rest)


def _check_line(check: model.Check) -> str:
    state = "" if check.state == "passed" else f"{check.state}: "
    return f"{state}{check.subject}" + (f": {check.message}" if check.message else "")
