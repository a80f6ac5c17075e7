"""Options of a command line, as a `Workspace`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from buildmatrix.api.workspace import Level, Workspace
from buildmatrix.cli.console import complain
from buildmatrix.cli.options import CommandSettings
from buildmatrix.engines.choice import AUTO


@dataclass(frozen=True, slots=True)
class ConsoleLog:
    """Prints what is said beside results on standard error, as far as it is wanted."""

    quiet: bool
    verbose: bool

    def __call__(self, level: Level, text: str) -> None:
        """Print it, or not."""
        if {"warning": True, "info": not self.quiet, "debug": self.verbose}[level]:
            complain(text)


def workspace(
    settings: CommandSettings,
    *,
    engine: str = AUTO,
    no_cache: bool = False,
    offline: bool = False,
) -> Workspace:
    """The project and this machine, as the options say."""
    from buildmatrix.cli.progress import progress

    return Workspace(
        settings.file,
        engine=engine,
        cache=not no_cache,
        offline=offline,
        progress=partial(progress, settings),
        log=ConsoleLog(settings.quiet, settings.verbose),
    )
