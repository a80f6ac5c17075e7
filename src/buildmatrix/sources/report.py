"""`report:FILE`: what a run of `scan`, `audit` or `build` saved with `--format json`."""

from __future__ import annotations

from pathlib import Path

from buildmatrix.sources.model import Argument, Source


class SavedReport(Source):
    """A report: it has findings, and not the facts that no rule objected to."""

    prefix = "report"
    commands = frozenset({"why", "diff"})
    judged_by = "report"

    @classmethod
    def recognized(cls, argument: Argument) -> Source | None:
        """See `Source.recognized`."""
        is_report = argument.path.suffix == ".json" and argument.path.is_file()
        return cls(argument.text) if is_report else None

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.name)

    @property
    def is_wheel(self) -> None:
        """See `Source.is_wheel`."""
        return None
