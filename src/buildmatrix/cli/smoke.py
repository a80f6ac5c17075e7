"""`buildmatrix smoke`."""

from __future__ import annotations

import click

from buildmatrix.cli.options import Settings, load_targets
from buildmatrix.cli.progress import progress
from buildmatrix.cli.surroundings import engine
from buildmatrix.errors import EXIT_FINDINGS, UndecidedError


@click.command("smoke", short_help="Run the smoke commands of a target that was built.")
@click.argument("target")
@click.pass_obj
def command(settings: Settings, target: str) -> int:
    """Run the smoke commands of TARGET's image that can run on this machine.

    Levels that need a device are named and not run; they never count as passed.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.pipeline.smoke import not_run_here, run

    _, (found, *_) = load_targets(settings, (target,), None)
    docker = engine()
    reference = found.references[0]
    facts = docker.image(reference)
    if facts is None:
        raise UndecidedError(f"{reference} is not on this machine; run `buildmatrix build` first")
    has_device = load_catalogue().backends[found.backend].vendor is not None
    with progress(settings) as display:
        outcome = run(found, has_device, reference, facts.digest, (), docker, display)
    for smoke in not_run_here(found, has_device):
        click.echo(f"{found.id}: {smoke.name} ({smoke.level}) not run: it needs a device")
    click.echo(f"{found.id}: {outcome.state}" + (f"\n{outcome.error}" if outcome.error else ""))
    return {"passed": 0, "failed": EXIT_FINDINGS}.get(outcome.state, UndecidedError.exit_code)
