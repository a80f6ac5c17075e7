"""Wall times of the same thing as a picture: how often it took how long, and its percentiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.phrases import count
from buildmatrix.reports.preflight.model import Check, RungOutcome, Value

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


def strips(rung: RungOutcome) -> tuple[Strip, ...]:
    """A picture of each check that was timed several times."""
    earlier = {
        check.subject.removesuffix(_COMPARED): check
        for check in rung.checks
        if check.subject.endswith(_COMPARED)
    }
    return tuple(
        strip
        for check in rung.checks
        for strip in _strip(check, earlier.get(check.subject))
    )  # fmt: skip


def _strip(check: Check, compared: Check | None) -> Iterator[Strip]:
    times = _numbers(check.values.get("samples_s"))
    if len(times) < 2:
        return
    values = compared.values if compared is not None else {}
    before, ratios = _named(values.get("baseline")), _named(values.get("ratios"))
    now = {name: value for name, value in _named(check.values).items() if value > 0}
    own = [name for name in _PERCENTILES if f"{name}_s" in now]
    old = [name for name in own if before.get(f"{name}_s", 0.0) > 0]
    end = max(*times, *(before[f"{name}_s"] for name in old)) * 1.02
    if end <= 0:
        return
    marks = [_mark(name, now[f"{name}_s"], end) for name in own]
    marks += [_mark(name, before[f"{name}_s"], end, is_baseline=True) for name in old]
    yield Strip(
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
    for place, inside in sorted(bins.items()):
        first, last = f"{min(inside):.2f}", f"{max(inside):.2f}"
        span = f"{first} s" if first == last else f"{first} to {last} s"
        yield Column(
            100 * place / _COLUMNS,
            100 / _COLUMNS,
            100 * len(inside) / most,
            f"{count(len(inside), 'run')} of {span}",
        )


def _numbers(value: Value) -> list[float]:
    """The times of a list of samples; a report may be anybody's."""
    values = value if isinstance(value, list) else []
    return [item for item in values if isinstance(item, float) and 0 <= item < float("inf")]


def _named(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {}
    return {
        name: float(item)
        for name, item in value.items()
        if isinstance(item, int | float) and 0 <= item < float("inf")
    }
