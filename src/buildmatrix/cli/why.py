"""`buildmatrix why`."""

from __future__ import annotations

import click

from buildmatrix.api.questions import WhyOptions, why
from buildmatrix.cli.options import (
    cache_option,
    engine_option,
    stack_options,
    take,
    wheels_offline_option,
)
from buildmatrix.cli.output import Output, writes_one
from buildmatrix.reports.formats import WHY, names


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
    and something could not be read.
    """
    return to.write(why(options))
