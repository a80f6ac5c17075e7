"""The report of `preflight` as one HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from buildmatrix.base.text import count
from buildmatrix.reports.page import document
from buildmatrix.reports.preflight import model
from buildmatrix.reports.sections import Row, Section, state_word

# Wall times as pictures: their distribution and percentiles


#: Columns of a picture, from nothing to the slowest run.
_COLUMNS = 60
#: Percentiles that a check has as values, if it has samples enough.
_PERCENTILES = ("p50", "p95", "p99")
#: Behind the name of a check: what compares it with an earlier preflight.
_COMPARED = " against the baseline"


@dataclass(frozen=True, slots=True)
class Column:
    """Runs that took about the same time; place and lengths in percent of the picture."""

    x: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A percentile, now or in the baseline."""

    name: str
    x: float
    text: str
    is_baseline: bool = False

    @property
    def is_right(self) -> bool:
        """True if the name stands before the bar: behind it there is no room."""
        return self.x > 60


@dataclass(frozen=True, slots=True)
class Strip:
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


def strips(rung: model.RungOutcome) -> tuple[Strip, ...]:
    """A picture of each check that was timed several times."""
    earlier = {
        check.subject.removesuffix(_COMPARED): check
        for check in rung.checks
        if check.subject.endswith(_COMPARED)
    }
    drawn = (_strip(check, earlier.get(check.subject)) for check in rung.checks)
    return tuple(filter(None, drawn))


def _strip(check: model.Check, compared: model.Check | None) -> Strip | None:
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


def _numbers(value: model.Value) -> list[float]:
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


def render(preflight: model.Preflight) -> str:
    """The preflight as one document; the same preflight gives the same bytes."""
    states = model.counts(preflight)
    return document.render(
        "preflight/page/preflight.html.j2",
        styles=["preflight/page/preflight.css"],
        preflight=preflight,
        state=model.worst(states),
        headline=_headline(states),
        totals=model.totals(preflight),
        counts=[(state_word(state), states[state]) for state in get_args(model.RungState)],
        ladder=model.ladder(preflight),
        checks=_checks,
        timed=_list_timed(preflight),
        name=model.name,
        why=model.why,
    )


def _headline(states: Counter[model.RungState]) -> str:
    if states["failed"]:
        return f"{count(states['failed'], 'rung')} failed"
    if states["undecided"]:
        return f"{count(states['undecided'], 'rung')} undecided"
    if not states["passed"]:
        return "Nothing ran"
    if states["not-run"]:
        return f"All that ran passed; {count(states['not-run'], 'rung')} did not run"
    return "All rungs passed"


def _checks(rung: model.RungOutcome) -> Section:
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


def _list_timed(preflight: model.Preflight) -> Sequence[tuple[str, Sequence[Strip]]]:
    """The rungs that have pictures: how long a start takes first, which is what users feel."""
    every = [
        (f"{rung.rung} of {model.name(target)}{model.place(rung)}", drawn)
        for target in preflight.targets
        for rung in target.rungs
        if (drawn := strips(rung))
    ]
    return sorted(every, key=lambda timed: "cold-start" not in timed[0])
