"""`buildmatrix diff`."""

from __future__ import annotations

import click

from buildmatrix.api.judging import WhyOptions, why
from buildmatrix.base.errors import UsageError
from buildmatrix.cli import completing
from buildmatrix.cli.options import (
    cache_option,
    engine_option,
    option,
    stack_options,
    take,
    wheels_offline_option,
)
from buildmatrix.cli.output import Output, writes, writes_one
from buildmatrix.commands.options import ComparisonOptions, DiffOptions, DriftOptions
from buildmatrix.reports.formats import DIFF, WHY, names


@click.command("diff")
@click.argument("sources", nargs=-1, metavar="[BEFORE AFTER]", shell_complete=completing.sources)
@take(
    ComparisonOptions,
    select=option(
        "--targets",
        "across",
        is_flag=True,
        help="Compare the targets of the specification with each other, instead of two SOURCEs.",
    ),
    platform=stack_options(
        option("--all", "every", is_flag=True, help="List everything."),
        option("--offline", is_flag=True, help="Use caches only."),
    ),
    fail_on=stack_options(cache_option, writes(DIFF)),
    last=engine_option,
)
def diff_command(
    options: ComparisonOptions, /, sources: tuple[str, ...], across: bool, every: bool, to: Output
) -> int:
    """Show the differences between BEFORE and AFTER, and fail if a finding is new.

    Each is an image, a saved image, a folder, a wheel, a lock, requirements, a target that was
    built, or a saved report: what `scan` and `audit` read, `target:ID` and `report:FILE`. Nothing
    of it is executed.

    With --targets: which distributions differ in version between the targets of the specification,
    or of one SOURCE between backends, without a reason.
    """
    from buildmatrix.api import judging

    if across:
        if len(sources) > 1:
            raise UsageError(
                "diff --targets compares targets with each other: name one SOURCE or none, not "
                f"{len(sources)}"
            )
        drifts = judging.drift(
            DriftOptions(
                *sources,
                backend=options.backend,
                select=options.select,
                subset=options.subset,
                python=options.python,
                fail_on=options.fail_on or "error",
                workspace=options.workspace,
            )
        )
        return to.write(drifts, every=every)
    if len(sources) != 2:
        raise UsageError(
            f"diff compares two things, and {len(sources) or 'none'} "
            f"{'is' if len(sources) == 1 else 'are'} named: write `buildmatrix diff BEFORE AFTER`, "
            "or `buildmatrix diff --targets` for the targets of the specification"
        )
    return to.write(judging.diff(DiffOptions(*sources, **vars(options))), every=every)


@click.command("why")
@take(
    WhyOptions,
    symbols=writes_one(names(WHY), "dot and mermaid draw the chains."),
    platform=wheels_offline_option,
    last=stack_options(cache_option, engine_option),
)
def why_command(options: WhyOptions, /, to: Output) -> int:
    """Show why LIBRARY is in SOURCE: who asked for it, who links it, where the loader finds it.

    LIBRARY is a soname, a pattern, a path, a distribution, a vendor or a backend: `libcudart`,
    `libcudart.so.12`, `'nvidia-*'`, `cuda`. SOURCE is what `scan` reads, a target of the
    specification, `lock:FILE` or `report:FILE`. Nothing of it is executed.

    The exit code is 0 also where nothing matches: that is an answer. It is 3 where nothing matches
    and something was not read.
    """
    return to.write(why(options))
