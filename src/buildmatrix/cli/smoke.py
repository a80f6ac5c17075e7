"""`buildmatrix smoke`."""

from __future__ import annotations

import click

from buildmatrix.cli.options import Settings, load_targets, progress_options, say
from buildmatrix.cli.progress import progress
from buildmatrix.cli.surroundings import engine
from buildmatrix.errors import EXIT_FINDINGS, EXIT_OK, UndecidedError, UsageError, most_severe

#: State of the smoke gate → exit code; what is neither is undecided.
_CODES: dict[str, int] = {"passed": EXIT_OK, "failed": EXIT_FINDINGS}


@click.command("smoke", short_help="Run the smoke commands of targets that were built.")
@click.argument("target")
@progress_options
@click.pass_obj
def command(settings: Settings, target: str) -> int:
    """Run the smoke commands of TARGET's image that can run on this machine.

    TARGET may be a pattern; then all that it matches are run, and the worst exit code counts.

    Levels that need a device are named and not run; they never count as passed.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.pipeline.smoke import not_run_here, run

    spec, targets = load_targets(settings, (target,), None)
    docker, backends = engine(), load_catalogue(spec.catalogue_files).backends
    codes = []
    for found in targets:
        if not found.references:
            raise UsageError(f"{found.id} has no tags, so no image of it can be found; give it one")
        has_device = backends[found.backend].vendor is not None
        reference = found.references[0]
        facts = docker.image(reference)
        if facts is None:
            missing = f"{reference} is not on this machine; run `buildmatrix build` first"
            click.echo(f"{found.id}: {missing}", err=True)
            codes.append(UndecidedError.exit_code)
            continue
        with progress(settings) as display:
            outcome = run(found, has_device, reference, facts.digest, (), docker, display)
        for smoke in not_run_here(found, has_device):
            say(f"{found.id}: {smoke.name} ({smoke.level}) not run: it needs a device")
        say(f"{found.id}: {outcome.state}" + (f"\n{outcome.error}" if outcome.error else ""))
        codes.append(_CODES.get(outcome.state, UndecidedError.exit_code))
    return most_severe(codes)
