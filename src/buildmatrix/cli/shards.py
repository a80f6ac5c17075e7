"""`--shard` and `--timings`: the part of the targets that a machine of a CI matrix takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.cli.options import option, stack_options

if TYPE_CHECKING:
    from buildmatrix.commands.options import SelectionOptions
    from buildmatrix.commands.workspace import Log
    from buildmatrix.matrix.matrix import Shard
    from buildmatrix.matrix.model import Spec, Target
    from buildmatrix.reports.run import Report

_options = stack_options(
    option("--shard", metavar="I/N", help="Part I of N of the targets, for a CI matrix."),
    option(
        "--timings",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="REPORT",
        help="Balance shards by the seconds of a JSON report, or of a machine's state folder.",
    ),
)


class Sharding(Struct, frozen=True):
    """Shard of the targets, and the sources of their times.

    This machine's journal counts only if it is named: other machines have other journals, and
    shards divided by different times would miss targets.
    """

    shard: Shard
    #: Reports of earlier runs as JSON, and state folders (`.buildmatrix/state`).
    timings: tuple[Path, ...]

    def of(self, targets: Sequence[Target], log: Log) -> Part:
        """The targets of the shard, in their order. Raises `UsageError` for what has no times."""
        from buildmatrix.matrix.matrix import divide_targets, plan_digest

        seconds: dict[str, float] = {}
        for path in self.timings:
            for id, taken in (_journal if path.is_dir() else _report)(path, targets).items():
                if taken > 0:
                    seconds[id] = max(taken, seconds.get(id, 0.0))
        count = self.shard.count
        numbers = divide_targets(targets, seconds, count)
        part = tuple(target for target in targets if numbers[target.id] == self.shard.number)
        log("info", f"shard {self.shard}: {len(part)} of {len(targets)} targets")
        return Part(part, self.shard, plan_digest(numbers, count))


class Part(Struct, frozen=True):
    """The targets of a command."""

    targets: tuple[Target, ...]
    #: Their shard and division; None if they are all targets.
    shard: Shard | None = None
    plan: str = ""

    def marked(self, report: Report) -> Report:
        """Return the report with its shard."""
        if self.shard is None:
            return report
        from buildmatrix.reports.run import ReportShard

        mark = ReportShard(self.shard.number, self.shard.count, self.plan)
        return replace(report, shards=(mark,))


def shard_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, as one parameter `sharding` of the command: a `Sharding` or None."""

    @wraps(command)
    def run(*arguments: Any, shard: str | None, timings: tuple[Path, ...], **others: Any) -> Any:
        sharding = None
        if shard:
            from buildmatrix.matrix.matrix import Shard

            sharding = Sharding(Shard.parse(shard), timings)
        elif timings:
            raise UsageError("--timings balances shards; give --shard as well")
        return command(*arguments, sharding=sharding, **others)

    return _options(run)


def load_shard(options: SelectionOptions, sharding: Sharding | None) -> tuple[Spec, Part]:
    """The specification, and the targets of the shard among those that were selected."""
    from buildmatrix.matrix.matrix import select

    spec = options.workspace.load()
    targets = select(spec, options.select, options.subset)
    if sharding is None:
        return spec, Part(targets)
    return spec, sharding.of(targets, options.workspace.log)


def _report(path: Path, _: Sequence[Target]) -> dict[str, float]:
    from buildmatrix.reports.saved import read

    # Targets from the journal took little time, which says nothing.
    return {target.id: target.seconds for target in read(path).targets if not target.cached}


def _journal(path: Path, targets: Sequence[Target]) -> dict[str, float]:
    from buildmatrix.sources import state_folder
    from buildmatrix.sources.state_folder import State

    return {
        target.id: state_folder.load_seconds(State(path).target_files(target.id))
        for target in targets
    }
