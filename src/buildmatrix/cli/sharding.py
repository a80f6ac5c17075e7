"""The options that choose one part of the targets: `--shard` and `--timings`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from buildmatrix.cli.console import complain
from buildmatrix.cli.options import CommandSettings, load_targets, option, stacked
from buildmatrix.errors import UsageError

if TYPE_CHECKING:
    from buildmatrix.reports.run.model import Report
    from buildmatrix.spec.matrix import Shard
    from buildmatrix.spec.model import Spec, Target

_options = stacked(
    option("--shard", metavar="I/N", help="Part I of N of the targets, for a CI matrix."),
    option(
        "--timings",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="REPORT",
        help="Balance shards by the seconds of a JSON report, or of a machine's state folder.",
    ),
)


@dataclass(frozen=True, slots=True)
class Sharding:
    """Which part of the targets, and where their times come from.

    The journal of this machine is only asked when it is named: another machine has another one, and
    shards that were divided by different times would leave targets out.
    """

    shard: Shard
    #: Reports of earlier runs as JSON, and state folders (`.buildmatrix/state`).
    timings: tuple[Path, ...]

    def of(self, targets: Sequence[Target], settings: CommandSettings) -> Part:
        """The targets of the shard, in their order. Raises `UsageError` for what has no times."""
        from buildmatrix.spec.matrix import divided, plan_digest

        seconds: dict[str, float] = {}
        for path in self.timings:
            for id, taken in (_journal if path.is_dir() else _report)(path, targets).items():
                if taken > 0:
                    seconds[id] = max(taken, seconds.get(id, 0.0))
        count = self.shard.count
        numbers = divided(targets, seconds, count)
        part = tuple(target for target in targets if numbers[target.id] == self.shard.number)
        if not settings.quiet:
            complain(f"shard {self.shard}: {len(part)} of {len(targets)} targets")
        return Part(part, self.shard, plan_digest(numbers, count))


@dataclass(frozen=True, slots=True)
class Part:
    """The targets of a command."""

    targets: tuple[Target, ...]
    #: Of which shard they are, and of which division; None where they are all.
    shard: Shard | None = None
    plan: str = ""

    def marked(self, report: Report) -> Report:
        """The report, which says of which shard it is."""
        if self.shard is None:
            return report
        from buildmatrix.reports.run.model import ReportShard

        mark = ReportShard(self.shard.number, self.shard.count, self.plan)
        return replace(report, shards=(mark,))


def shard_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, as one parameter `sharding` of the command: a `Sharding` or None."""

    @wraps(command)
    def run(*arguments: Any, shard: str | None, timings: tuple[Path, ...], **others: Any) -> Any:
        return command(*arguments, sharding=_sharding(shard, timings), **others)

    return _options(run)


def load_shard(
    settings: CommandSettings,
    globs: Sequence[str],
    subset: str | None,
    sharding: Sharding | None,
) -> tuple[Spec, Part]:
    """The specification, and the targets of the shard among those that were selected."""
    spec, targets = load_targets(settings, globs, subset)
    return spec, Part(targets) if sharding is None else sharding.of(targets, settings)


def _sharding(shard: str | None, timings: tuple[Path, ...]) -> Sharding | None:
    from buildmatrix.spec.matrix import Shard

    if shard:
        return Sharding(Shard.parse(shard), timings)
    if timings:
        raise UsageError("--timings balances shards; give --shard as well")
    return None


def _report(path: Path, _: Sequence[Target]) -> dict[str, float]:
    from buildmatrix.reports.run.saved import read

    # What the journal had took little time, and says nothing.
    return {target.id: target.seconds for target in read(path).targets if not target.cached}


def _journal(path: Path, targets: Sequence[Target]) -> dict[str, float]:
    from buildmatrix.state import journal
    from buildmatrix.state.folder import State

    return {
        target.id: journal.load_seconds(State(path).target_files(target.id)) for target in targets
    }
