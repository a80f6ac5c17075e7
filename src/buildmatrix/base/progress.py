"""Progress of the core. The core prints nothing; it calls a `Progress`."""

from __future__ import annotations

from typing import Literal, Protocol

#: How the work for a target ended.
Ending = Literal["passed", "failed", "undecided"]


class Progress(Protocol):
    """Receiver of each target's progress; methods may be called from several threads."""

    def step(self, target: str, text: str) -> None:
        """Begin a step of `target`; `text` is one line, such as `build 3/7 RUN uv pip install`.

        A step lasts until the next one of `target`, `end` or `done`; displays show its time.
        """

    def output(self, target: str, line: str) -> None:
        """Add one line that a step of `target` printed."""

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Update the amount of work done; `unit` is `bytes` or a plural noun such as `wheels`.

        `total` is None, or less than `done`, if it is unknown. This may be called for each chunk; a
        display throttles it.
        """

    def end(self, target: str) -> None:
        """End the step of `target`; no other follows for now."""

    def done(self, target: str, outcome: str, ending: Ending) -> None:
        """End the work for `target`; `outcome` is one short line."""

    def note(self, text: str) -> None:
        """Add one line that belongs to no target."""


class Silent:
    """A `Progress` that drops everything."""

    def step(self, target: str, text: str) -> None:
        """Do nothing."""

    def output(self, target: str, line: str) -> None:
        """Do nothing."""

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Do nothing."""

    def end(self, target: str) -> None:
        """Do nothing."""

    def done(self, target: str, outcome: str, ending: Ending) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""
