"""`buildmatrix smoke`."""

from __future__ import annotations

from functools import cache

import click

from buildmatrix.cli import completing
from buildmatrix.cli.console import complain, say
from buildmatrix.cli.options import CommandSettings, load_targets
from buildmatrix.cli.progress import progress
from buildmatrix.cli.surroundings import engine_option
from buildmatrix.cli.workspace import workspace
from buildmatrix.errors import EXIT_FINDINGS, EXIT_OK, UndecidedError, most_severe

#: State of the smoke gate → exit code; what is neither is undecided.
_CODES: dict[str, int] = {"passed": EXIT_OK, "failed": EXIT_FINDINGS}


@click.command("smoke", short_help="Run the smoke commands of targets that were built.")
@click.argument("pattern", metavar="TARGET", shell_complete=completing.targets)
@engine_option
@click.pass_obj
def command(settings: CommandSettings, pattern: str, engine: str) -> int:
    """Run the smoke commands of TARGET's image that can run on this machine.

    That is the image of the last `buildmatrix build` here, also where a gate failed, else the
    image that has the target's first tag.

    TARGET may be a pattern; then all that it matches are run, and the worst exit code counts.

    Levels that need a device are named and not run; they never count as passed.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.build.smoke import not_run_here, run
    from buildmatrix.commands.preflight.subject import find_last_image
    from buildmatrix.state.folder import State

    spec, targets = load_targets(settings, (pattern,), None)
    backends = load_catalogue(spec.catalogue_files).backends
    engines = cache(workspace(settings).keeper)
    codes = []
    state = State.beside(spec.root)
    for target in targets:
        try:
            builder, reference, facts = find_last_image(
                target, state.target_files(target.id), engines, engine
            )
        except UndecidedError as error:
            complain(error.message)
            codes.append(error.exit_code)
            continue
        has_device = backends[target.backend].vendor is not None
        with progress(settings) as display:
            outcome = run(target, has_device, reference, facts.digest, (), builder, display)
        for smoke in not_run_here(target, has_device):
            say(f"{target.id}: {smoke.name} ({smoke.level}) not run: it needs a device")
        if outcome.state == "not-run" and not target.smoke:
            say(f"{target.id}: it has no [[smoke]] command")
        if outcome.why_not is not None:
            say(f"{target.id}: {outcome.why_not.message}")
        say(f"{target.id}: {outcome.state}" + (f"\n{outcome.error}" if outcome.error else ""))
        cause = outcome.why_not or UndecidedError("")
        codes.append(_CODES.get(outcome.state, cause.exit_code))
    return most_severe(codes)
