"""`buildmatrix explore`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path

import click

from buildmatrix.cli import completing
from buildmatrix.cli.image_options import image_options, wheel_options
from buildmatrix.cli.options import CommandSettings, load_targets, option
from buildmatrix.cli.progress import set_aside
from buildmatrix.cli.surroundings import engine_option
from buildmatrix.cli.workspace import workspace
from buildmatrix.errors import EXIT_OK, UsageError

#: Libraries that it takes some seconds to judge.
_MANY = 5000


@click.command("explore", short_help="Look through an image, a tree, a lock or a wheel.")
@click.argument("source", shell_complete=completing.sources)
@option("--backend", metavar="NAME", help="The backend to judge for; by default what SOURCE says.")
@option("--runtime", metavar="VERSION", default="any", help="The backend's version, 12.8 for CUDA.")
@option("--select", metavar="TARGET", help="A target of the specification: judge it as that.")
@option("--lock", type=click.Path(path_type=Path), help="The lock that SOURCE was installed from.")
@wheel_options
@image_options
@engine_option
@click.pass_obj
def command(
    settings: CommandSettings,
    /,
    source: str,
    backend: str | None,
    runtime: str,
    select: str | None,
    lock: Path | None,
    deep: bool,
    offline: bool,
    platform: str | None,
    no_cache: bool,
    engine: str,
) -> int:
    """Show SOURCE on the screen: by layer, distribution, library and vendor, the largest first.

    SOURCE is what `scan` and `audit` read, or a target of the specification. It is read and judged
    first; nothing of it is executed. `?` shows the keys.
    """
    _check_terminal()
    from buildmatrix.commands.explore.reading import make_exploration
    from buildmatrix.sources.model import Declared

    declared = None
    if select is not None:
        if backend is not None or runtime != "any":
            raise click.UsageError("--select says the backend and its version; leave those out")
        spec_of_target, targets = load_targets(settings, [select], None)
        if len(targets) > 1:
            raise UsageError(f"--select {select} fits {len(targets)} targets; name one of them")
        declared = spec_of_target, targets[0]
    here = workspace(settings, engine=engine, no_cache=no_cache, offline=offline)
    spec = here.declared()
    parsed = here.parse(source, "explore", spec)
    with here.reading(platform=platform, deep=deep) as usual:
        facts = parsed.facts(replace(usual, spec=spec, lock=lock, select=select, backend=backend))
    with ExitStack() as stack:
        libraries = len(facts.inventory.binaries)
        if libraries >= _MANY:
            display = stack.enter_context(here.progress())
            display.step(facts.label, f"judging {libraries} libraries")
        exploration = make_exploration(
            facts,
            backend=backend,
            runtime=runtime,
            today=date.today(),
            declared=declared,
            of_wheels=isinstance(parsed, Declared),
            data_files=here.data_files(),
        )
    from buildmatrix.commands.explore.app import ExploreApp

    app = ExploreApp(exploration)
    # What was read stays until the end. A collection that walks through all of it, which takes half
    # a second for 100,000 libraries, would come between a key and the screen.
    gc.freeze()
    with set_aside():
        app.run(mouse=False)
    return EXIT_OK


def _check_terminal() -> None:
    """Raises `UsageError` where there is no screen, or nothing to draw on it with."""
    from importlib.util import find_spec

    is_screen = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not is_screen or os.environ.get("TERM", "") in ("", "dumb"):
        raise UsageError(
            "explore needs a terminal; `buildmatrix inspect` prints what a SOURCE holds, and "
            "`buildmatrix scan` judges it"
        )
    if find_spec("textual") is None:
        raise UsageError(
            "explore needs Textual, which is not installed: pip install 'buildmatrix[explore]'"
        )
