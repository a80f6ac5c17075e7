"""The report of `preflight` for a terminal, as Markdown and as JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import get_args

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import count, printable
from buildmatrix.reports import page
from buildmatrix.reports.ci import Suite, fail, render_suites, skip
from buildmatrix.reports.markdown import draw, end, fold, plain, rich, state_cell
from buildmatrix.reports.preflight import (
    Check,
    Preflight,
    PreflightTarget,
    RungOutcome,
    RungState,
    Value,
    counts,
    ladder,
    name,
    place,
    totals,
    why,
    worst,
)
from buildmatrix.reports.sections import Row, Section, state_word
from buildmatrix.reports.terminal import Painter, wrapped

# Text


#: Checks of a rung that are listed where all have passed.
_MAX_SLOWEST = 3
_BARS = "▁▂▃▄▅▆▇█"


def render_table(preflight: Preflight, *, width: int, color: bool) -> str:
    """Each image with its rungs; what did not pass is listed whole."""
    paint, width = Painter(color), max(width, 40)
    lines: list[str] = []
    for target in preflight.targets:
        lines.append(paint(printable(name(target)), "bold"))
        for rung in target.rungs:
            lines += _rung_lines(rung, width, paint)
        lines.append("")
    lines.append(totals(preflight))
    return "\n".join(lines) + "\n"


def _rung_lines(rung: RungOutcome, width: int, paint: Painter) -> Iterator[str]:
    word = paint.state(rung.state, state_word(rung.state).ljust(9))
    passed = [check for check in rung.checks if check.state == "passed"]
    others = [check for check in rung.checks if check.state != "passed"]
    said = f"{len(passed)} of {count(len(rung.checks), 'check')}" if rung.checks else ""
    took = f"{rung.seconds:.1f} s" if rung.seconds is not None else ""
    details = ", ".join(filter(None, (said, took, place(rung).removeprefix(" at "))))
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


def _bars(samples: Value) -> str:
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


def render_markdown(preflight: Preflight) -> str:
    """The preflight as GitHub-flavored Markdown."""
    table = draw([replace(ladder(preflight), title="", lead="")])
    lines = ["## buildmatrix preflight", "", f"**{totals(preflight)}**", "", *table]
    open_items = [item for target in preflight.targets for item in _open(target)]
    lines += open_items[:_MAX_OPEN]
    if len(open_items) > _MAX_OPEN:
        lines += [*fold(f"{len(open_items) - _MAX_OPEN} more"), *open_items[_MAX_OPEN:], *end()]
    passed = [line for target in preflight.targets for line in _passed(target)]
    if passed:
        lines += [*fold("what passed"), *passed, *end()]
    return "\n".join(lines).rstrip("\n") + "\n"


def _open(target: PreflightTarget) -> Iterator[str]:
    for rung in target.rungs:
        checks = [check for check in rung.checks if check.state != "passed"]
        if rung.state == "passed" and not checks:
            continue
        reason = why(rung)
        head = f"- {plain(_title(target, rung))}: {state_cell(rung.state)}"
        yield head + (f", {rich(reason)}" if reason else "")
        yield from (f"  - {_check_item(check)}" for check in checks)


def _passed(target: PreflightTarget) -> Iterator[str]:
    for rung in target.rungs:
        if rung.state == "passed":
            took = f", {rung.seconds:.1f} s" if rung.seconds is not None else ""
            yield f"- {plain(_title(target, rung))}{took}"
            yield from (
                f"  - {_check_item(check)}" for check in rung.checks if check.state == "passed"
            )


def _title(target: PreflightTarget, rung: RungOutcome) -> str:
    return f"{name(target)}{place(rung)}, {rung.rung}"


def _check_item(check: Check) -> str:
    state = "" if check.state == "passed" else f" {state_cell(check.state)}"
    return plain(check.subject) + state + (f": {rich(check.message)}" if check.message else "")


# JUnit XML: an image on a node class is a suite, and each rung a test case.
#
# If several nodes of a class ran a rung, each is a test case. A failed rung is a failure, an
# undecided one an error, and one that did not run is skipped.


def render_junit(preflight: Preflight, *, time: datetime | None = None) -> str:
    """The preflight as one `testsuites` document; `time` is when it ran, as Ant asks for it."""
    return render_suites([_suite(preflight, target) for target in preflight.targets], time)


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
        _add_case(suite, name(target), rung)
    return suite


def _add_case(suite: Suite, target: str, rung: RungOutcome) -> None:
    title = f"rung {rung.rung}" + (f" on {rung.where}" if rung.where != "here" else "")
    case = suite.case(target, title, rung.seconds or 0.0)
    if rung.state == "not-run":
        skip(case, why(rung) or "it did not run")
    elif rung.state == "passed":
        for check in rung.checks:
            suite.say(title, _check_line(check))
    else:
        others = [_check_line(check) for check in rung.checks if check.state != "passed"]
        first, *rest = [*others, *filter(None, [why(rung)])] or [f"the rung {rung.state}"]
        kind = f"rung-{rung.rung}"
        fail(case, "failure" if rung.state == "failed" else "error", kind, first, *rest)


def _check_line(check: Check) -> str:
    state = "" if check.state == "passed" else f"{check.state}: "
    return f"{state}{check.subject}" + (f": {check.message}" if check.message else "")


# Wall times as pictures: their distribution and percentiles


#: Columns of a picture, from nothing to the slowest run.
_COLUMNS = 60
#: Percentiles that a check has as values, if it has samples enough.
_PERCENTILES = ("p50", "p95", "p99")
#: Behind the name of a check: what compares it with an earlier preflight.
_COMPARED = " against the baseline"


class Column(Struct, frozen=True):
    """Runs that took about the same time; place and lengths in percent of the picture."""

    x: float
    width: float
    height: float
    text: str


class Mark(Struct, frozen=True):
    """A percentile, now or in the baseline."""

    name: str
    x: float
    text: str
    is_baseline: bool = False

    @property
    def is_right(self) -> bool:
        """True if the name stands before the bar: behind it there is no room."""
        return self.x > 60


class Strip(Struct, frozen=True):
    """The runs of one check."""

    subject: str
    columns: tuple[Column, ...]
    #: The percentiles, those of the baseline behind those of today.
    marks: tuple[Mark, ...]
    #: The end of the axis, in seconds.
    end: float
    #: Percentile → how many times as long as in the baseline it takes, and both in words.
    changes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The picture in one sentence."""
        runs = [*(column.text for column in self.columns), *(mark.text for mark in self.marks)]
        return f"{self.subject}: {'; '.join((*runs, *self.changes))}"


def strips(rung: RungOutcome) -> tuple[Strip, ...]:
    """A picture of each check that was timed several times."""
    earlier = {
        check.subject.removesuffix(_COMPARED): check
        for check in rung.checks
        if check.subject.endswith(_COMPARED)
    }
    drawn = (_strip(check, earlier.get(check.subject)) for check in rung.checks)
    return tuple(filter(None, drawn))


def _strip(check: Check, compared: Check | None) -> Strip | None:
    times = _numbers(check.values.get("samples_s"))
    if len(times) < 2:
        return None
    values = compared.values if compared is not None else {}
    before, ratios = _read_numbers(values.get("baseline")), _read_numbers(values.get("ratios"))
    now = {name: value for name, value in _read_numbers(check.values).items() if value > 0}
    own = [name for name in _PERCENTILES if f"{name}_s" in now]
    old = [name for name in own if before.get(f"{name}_s", 0.0) > 0]
    end = max(*times, *(before[f"{name}_s"] for name in old)) * 1.02
    if end <= 0:
        return None
    marks = [_mark(name, now[f"{name}_s"], end) for name in own]
    marks += [_mark(name, before[f"{name}_s"], end, is_baseline=True) for name in old]
    return Strip(
        check.subject,
        tuple(_columns(times, end)),
        tuple(marks),
        end,
        tuple(
            f"{name} {now[f'{name}_s']:.2f} s is {ratio:.2f} times the "
            f"{before[f'{name}_s']:.2f} s of the baseline"
            for name in old
            if (ratio := ratios.get(f"{name}_s")) is not None
        ),
    )


def _mark(name: str, seconds: float, end: float, *, is_baseline: bool = False) -> Mark:
    of = f"{name} of the baseline" if is_baseline else name
    return Mark(of, 100 * seconds / end, f"{of} {seconds:.2f} s", is_baseline)


def _columns(times: Sequence[float], end: float) -> Iterator[Column]:
    bins: dict[int, list[float]] = {}
    for time in times:
        bins.setdefault(min(int(time / end * _COLUMNS), _COLUMNS - 1), []).append(time)
    most = max(map(len, bins.values()))
    for number, inside in sorted(bins.items()):
        first, last = f"{min(inside):.2f}", f"{max(inside):.2f}"
        span = f"{first} s" if first == last else f"{first} to {last} s"
        yield Column(
            100 * number / _COLUMNS,
            100 / _COLUMNS,
            100 * len(inside) / most,
            f"{count(len(inside), 'run')} of {span}",
        )


def _numbers(value: Value) -> list[float]:
    """The times of a list of samples; a report may be anybody's."""
    values = value if isinstance(value, list) else []
    return [item for item in values if isinstance(item, float) and 0 <= item < float("inf")]


def _read_numbers(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {}
    return {
        name: float(item)
        for name, item in value.items()
        if isinstance(item, int | float) and 0 <= item < float("inf")
    }


# The page: rungs of each image, times as pictures, then every check


def render(preflight: Preflight) -> str:
    """The preflight as one document; the same preflight gives the same bytes."""
    states = counts(preflight)
    return page.render(
        "page/preflight.html.j2",
        styles=["page/preflight.css"],
        preflight=preflight,
        state=worst(states),
        headline=_headline(states),
        totals=totals(preflight),
        counts=[(state_word(state), states[state]) for state in get_args(RungState)],
        ladder=ladder(preflight),
        checks=_checks,
        timed=_list_timed(preflight),
        name=name,
        why=why,
    )


def _headline(states: Counter[RungState]) -> str:
    if states["failed"]:
        return f"{count(states['failed'], 'rung')} failed"
    if states["undecided"]:
        return f"{count(states['undecided'], 'rung')} undecided"
    if not states["passed"]:
        return "Nothing ran"
    if states["not-run"]:
        return f"All that ran passed; {count(states['not-run'], 'rung')} did not run"
    return "All rungs passed"


def _checks(rung: RungOutcome) -> Section:
    rows = (
        Row(
            (
                check.subject,
                check.state,
                check.message,
                f"{check.seconds:.2f} s" if check.seconds is not None else "",
            )
        )
        for check in rung.checks
    )
    header = ("check", "state", "what was seen", "time")
    title = f"Checks of {rung.rung}"
    return Section("checks", title, header, tuple(rows), frozenset({3}), frozenset({1}), subject=0)


def _list_timed(preflight: Preflight) -> Sequence[tuple[str, Sequence[Strip]]]:
    """The rungs that have pictures: how long a start takes first, which is what users feel."""
    every = [
        (f"{rung.rung} of {name(target)}{place(rung)}", drawn)
        for target in preflight.targets
        for rung in target.rungs
        if (drawn := strips(rung))
    ]
    return sorted(every, key=lambda timed: "cold-start" not in timed[0])
