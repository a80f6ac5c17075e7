"""`build` and `smoke`."""

from __future__ import annotations

import os
from functools import cache

import click

from buildmatrix.api.building import build, describe_images
from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_FINDINGS, EXIT_OK, UndecidedError, UsageError, most_severe
from buildmatrix.cli import completing
from buildmatrix.cli.console import complain, say
from buildmatrix.cli.options import (
    CommandSettings,
    engine_option,
    load_targets,
    option,
    stack_options,
    store_option,
    take,
    workspace,
)
from buildmatrix.cli.output import Output, report_output
from buildmatrix.cli.progress import progress
from buildmatrix.cli.shards import Part, Sharding, load_shard, shard_options
from buildmatrix.commands.options import BuildOptions


@click.command("build")
@take(
    BuildOptions,
    push=shard_options,
    audit=option("--offline", is_flag=True, help="Resolve from caches only."),
    jobs=stack_options(
        option(
            "--no-cache", is_flag=True, help="Rebuild everything, and read wheels and bases again."
        ),
        store_option,
    ),
    builders=engine_option,
    fail_on=report_output,
)
@click.pass_obj
def build_command(
    settings: CommandSettings, options: BuildOptions, /, sharding: Sharding | None, to: Output
) -> int:
    """Lock, judge, build, scan and smoke-test every selected target; push when all are green.

    A target that fails costs no other. What is done and unchanged is not built again.
    """
    from buildmatrix.sources.state_folder import images_folder

    promoted = dict(to.pairs).get("json") if options.stage else None
    if options.stage and not options.push and "json" not in dict(to.pairs):
        raise UsageError(
            "`promote` sets the tags of what is staged, and reads the report for it: add "
            "--format json=REPORT"
        )
    part = Part(())
    if sharding is None:
        result = build(options)
    else:
        part = load_shard(options, sharding)[1]
        result = build(options, [target.id for target in part.targets])
    report = part.marked(result.document)
    to.write(replace(result, document=report))
    if result.error:
        complain(f"buildmatrix: {result.error}")
    elif not settings.quiet:
        folder = os.path.relpath(images_folder(settings.file))
        if lines := describe_images(report, result.engine, folder, options.save, promoted):
            complain("\n".join(lines))
    return result.exit_code


#: State of the smoke gate → exit code; what is neither is undecided.
_CODES: dict[str, int] = {"passed": EXIT_OK, "failed": EXIT_FINDINGS}


@click.command("smoke")
@click.argument("pattern", metavar="TARGET", shell_complete=completing.targets)
@engine_option
@click.pass_obj
def smoke_command(settings: CommandSettings, pattern: str, engine: str) -> int:
    """Run the smoke commands of TARGET's image that can run on this machine.

    That is the image of the last `buildmatrix build` here, also where a gate failed, else the
    image that has the target's first tag.

    TARGET may be a pattern; then all that it matches are run, and the worst exit code counts.

    Levels that need a device are named and not run; they never count as passed.
    """
    from buildmatrix.catalogue.load import load as load_catalogue
    from buildmatrix.commands.build_checks import not_run_here, run
    from buildmatrix.preflight.subject import find_last_image
    from buildmatrix.sources.state_folder import State

    spec, targets = load_targets(settings, pattern)
    backends = load_catalogue(spec.catalogue_files).backends
    engines = cache(workspace(settings).image_engine)
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
