"""Amounts of finished work, with rates and remaining times."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter

from buildmatrix.phrases import size

#: Least seconds that a rate is computed from.
_SETTLED = 1.0
#: Share of what is counted that has to be done before the rest of it is guessed, and how much
#: faster or slower the second half of the time may have been than the first: where large pieces
#: came first, what was left was said to take five times as long as it did.
_LEAST_DONE = 0.1
_STEADY = 1.5
#: Times at which something was done that say nothing of how it went on.
_FEW = 3
#: Times of the past that are kept, as parts of it: some hundreds for any run.
_SPACING = 1 / 64


@dataclass(slots=True)
class Part:
    """Progress of one amount: how much is done, since when, and how fast."""

    started: float
    #: What was done when the clock started: it was no work of now.
    first: int
    unit: str
    done: int = 0
    total: int | None = None
    #: When how much was done, now and then.
    _past: list[tuple[float, int]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """True if all of it is done."""
        return self.total is not None and self.done >= self.total

    def move(self, done: int, total: int | None, now: float) -> None:
        """So much is done now."""
        self.done, self.total = done, total
        last = self._past[-1][0] if self._past else self.started
        if now > last + (now - self.started) * _SPACING:
            self._past.append((now, done))

    def words(self, now: float) -> str:
        """`120.3 MB of 806.0 MB, 48.1 MB/s, 14 s left`, as far as it is known."""
        seconds = now - self.started
        is_total = bool(self.total) and self.done <= (self.total or 0)
        of = f" of {self._amount(self.total or 0)}" if is_total else ""
        parts = [f"{self._amount(self.done)}{of}"]
        if self.unit != "bytes":
            parts = [f"{self.done}{f' of {self.total}' if is_total else ''} {self.unit}"]
        rate = (self.done - self.first) / seconds if seconds >= _SETTLED else 0.0
        if rate > 0:
            if self.unit == "bytes":
                parts.append(f"{size(round(rate))}/s")
            left = self._left(now) if is_total else None
            if left is not None and left >= 1:
                parts.append(f"{_duration(left)} left")
        return ", ".join(parts)

    def _left(self, now: float) -> float | None:
        """Seconds until all is done; None where the past does not say it yet."""
        total = self.total or 0
        if self.unit != "bytes" and self.done - self.first < _LEAST_DONE * (total - self.first):
            return None
        middle = (now + self.started) / 2
        number = bisect_right(self._past, middle, key=itemgetter(0))
        if not number:
            if len(self._past) > _FEW:
                return None  # All of it came lately.
            return (total - self.done) * (now - self.started) / (self.done - self.first)
        then, done = self._past[number - 1]
        before = (done - self.first) / (then - self.started)
        lately = (self.done - done) / (now - then)
        if not before / _STEADY <= lately <= before * _STEADY or not lately:
            return None
        return (total - self.done) / lately

    def _amount(self, number: int) -> str:
        return size(number) if self.unit == "bytes" else str(number)


def _duration(seconds: float) -> str:
    """`14 s`, `3 min`, `2 h`, of what is only guessed."""
    for limit, length, unit in ((100, 1, "s"), (6000, 60, "min")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 3600:.0f} h"


class Parts:
    """Amounts in progress, by target and unit."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Part]] = {}

    def part(self, target: str, done: int, total: int | None, unit: str, now: float) -> Part:
        """Update and return an amount. It restarts if less is done than before."""
        parts = self._parts.setdefault(target, {})
        part = parts.get(unit)
        if part is None or done < part.done:
            part = parts[unit] = Part(now, done, unit)
        part.move(done, total, now)
        return part

    def words(self, target: str, now: float) -> str:
        """Everything about one thing: `12 of 57 wheels, 40 s left, 34.1 MB, 5.2 MB/s`."""
        return ", ".join(part.words(now) for part in self._parts.get(target, {}).values())

    def forget(self, target: str) -> None:
        """It does something else now."""
        self._parts.pop(target, None)
