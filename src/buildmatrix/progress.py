"""What the core tells while it works. The core prints nothing: it calls a `Progress`."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receiver of what happens to each target; methods may be called from several threads."""

    def step(self, target: str, text: str) -> None:
        """`target` now does `text`: one line, for example `build 3/7 RUN uv pip install`.

        A step lasts until the next one of `target`, `end` or `done`; displays show its time.
        """

    def output(self, target: str, line: str) -> None:
        """One line that a step of `target` printed."""

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """So much of what `target` does is done: `bytes`, or a plural noun such as `wheels`.

        `total` is None, or less than `done`, where nobody knows it. It may be called for each
        chunk: a display shows as much of it as people read.
        """

    def end(self, target: str) -> None:
        """The step of `target` is over, and no other follows for now."""

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """`target` is through with what was asked for; `outcome` is one short line."""

    def note(self, text: str) -> None:
        """One line that belongs to no target."""


class Silent:
    """A `Progress` that drops everything."""

    def step(self, target: str, text: str) -> None:
        """Drop it."""

    def output(self, target: str, line: str) -> None:
        """Drop it."""

    def part(self, target: str, done: int, total: int | None, unit: str) -> None:
        """Drop it."""

    def end(self, target: str) -> None:
        """Drop it."""

    def done(self, target: str, outcome: str, ok: bool) -> None:
        """Drop it."""

    def note(self, text: str) -> None:
        """Drop it."""
