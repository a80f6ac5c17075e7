"""`build` and `smoke`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from buildmatrix.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    BuildmatrixError,
    UndecidedError,
    UsageError,
    most_severe,
)
from buildmatrix.base.text import count
from buildmatrix.cli import completing
from buildmatrix.cli.console import complain, say
from buildmatrix.cli.options import (
    CommandSettings,
    Sharding,
    load_shard,
    load_targets,
    option,
    selection_options,
    shard_options,
    vulnerabilities_option,
    workspace,
)
from buildmatrix.cli.output import check_formats, policy_option, report_options, write_report
from buildmatrix.cli.progress import progress
from buildmatrix.cli.workspace import engine_option, engine_options
from buildmatrix.engines.choice import OCI
from buildmatrix.judge.rungs import RUNGS, Rung

if TYPE_CHECKING:
    from buildmatrix.commands.build.run import Result
    from buildmatrix.engines.model import Engine, Surroundings
    from buildmatrix.judge.acceptance import FailOn
    from buildmatrix.judge.model import TargetResult
    from buildmatrix.matrix.model import Target
    from buildmatrix.reports.run.model import Report
    from buildmatrix.signing.attach import Signer


@click.command("build")
@selection_options
@shard_options
@option("--push", is_flag=True, help="Publish all tags when every selected target is green.")
@option(
    "--save",
    metavar="FILE",
    help="Write the image of a green target as an archive for `docker load`; {id} is the target's.",
)
@option("--stage", is_flag=True, help="Publish images without tags, for `promote`.")
@option("--attest", is_flag=True, help="Sign the verdict of each image, and publish it with it.")
@option(
    "--sign-key",
    type=click.Path(path_type=Path),
    help="Private key for --attest (cosign.key), its password in COSIGN_PASSWORD; without one, the "
    "identity of the CI job signs.",
)
@option(
    "--trust-root",
    type=click.Path(path_type=Path),
    help="Trust configuration of the Sigstore services for keyless signing; defaults to the "
    "public services.",
)
@option("--fail-fast", is_flag=True, help="Stop everything at the first target that fails.")
@option(
    "--level",
    "preflight",
    former="--preflight",
    variable="BUILDMATRIX_PREFLIGHT",
    type=click.Choice(("auto", "none", *RUNGS[1:])),
    default="auto",
    show_default=True,
    help="Last rung of `preflight` to run with each image, in the gate smoke; auto runs import, "
    "and device if the devices are here.",
)
@option("--no-smoke", is_flag=True, help="Skip smoke commands, and unnamed rungs.")
@option("--locked", is_flag=True, help="Fail if a lock is missing or stale; never resolve.")
@option("--offline", is_flag=True, help="Resolve from caches only.")
@option("--no-audit", is_flag=True, help="Judge locked wheels by their names alone.")
@vulnerabilities_option
@option("--rebuild", is_flag=True, help="Ignore the journal and rebuild everything.")
@option("--no-cache", is_flag=True, help="Rebuild everything, and read wheels and bases again.")
@option(
    "--jobs",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Targets to build in parallel, on each builder.",
)
@engine_options
@report_options
@policy_option
@click.pass_obj
def build_command(
    settings: CommandSettings,
    /,
    globs: tuple[str, ...],
    subset: str | None,
    sharding: Sharding | None,
    push: bool,
    save: str | None,
    stage: bool,
    attest: bool,
    sign_key: Path | None,
    trust_root: Path | None,
    fail_fast: bool,
    preflight: Rung | Literal["auto", "none"],
    no_smoke: bool,
    locked: bool,
    offline: bool,
    no_audit: bool,
    no_vulnerabilities: bool,
    rebuild: bool,
    no_cache: bool,
    jobs: int,
    around: Surroundings,
    builders: tuple[str, ...],
    formats: tuple[str, ...],
    output: Path | None,
    fail_on: FailOn,
    strict: bool,
    waivers: Path | None,
    baseline: Path | None,
    policy: str | None,
) -> int:
    """Lock, judge, build, scan and smoke-test every selected target; push when all are green.

    A target that fails costs no other. What is done and unchanged is not built again.
    """
    from buildmatrix.api.judging import (
        add_gone,
        known_findings,
        more_waivers,
        policy_of,
        replace_policy,
    )
    from buildmatrix.commands.build.run import build
    from buildmatrix.commands.build.work import Options
    from buildmatrix.sources.state.folder import images_folder

    pairs = check_formats(formats, output)
    if push and stage:
        raise UsageError("--push sets tags, and --stage leaves them to `promote`; give one of them")
    if stage and "json" not in dict(pairs):
        raise UsageError(
            "`promote` sets the tags of what is staged, and reads the report for it: add "
            "--format json=REPORT"
        )
    signer = _signer(sign_key, trust_root, published=push or stage) if attest else None
    spec, part = load_shard(settings, globs, subset, sharding)
    here = workspace(settings, engine=around.engine, offline=offline, no_cache=no_cache)
    spec = replace_policy(spec, policy_of(policy, here))
    chosen = {target.id for target in part.targets}
    targets = tuple(target for target in spec.targets if target.id in chosen)
    if save is not None:
        check_save(save, targets)
    more = more_waivers(waivers, [target.id for target in spec.targets])
    spec = replace(spec, waivers=(*spec.waivers, *more))
    builder = here.builder(buildx=builders[0] if builders else None)
    options = Options(
        surroundings=around,
        jobs=jobs,
        builders=builders or (None,),
        fail_fast=fail_fast,
        fail_on=fail_on,
        strict=strict,
        locked=locked,
        offline=offline,
        rebuild=rebuild or no_cache,
        smoke=not no_smoke,
        preflight=None if preflight == "none" or (preflight == "auto" and no_smoke) else preflight,
        push=push,
        stage=stage,
        signer=signer,
        asking=here.advisories(not no_vulnerabilities),
        known_findings=known_findings(baseline),
    )
    with (
        closing(builder),
        here.progress() as display,
        here.wheels() as reader,
    ):
        result = build(
            spec,
            targets,
            replace(options, reader=None if no_audit else reader),
            builder,
            display,
        )
    if save is not None:
        save_images(save, result, builder, settings)
    report = part.marked(add_gone(result.report, baseline))
    write_report(report, pairs, output, spec.root, exit_code=result.exit_code)
    if result.error:
        complain(f"buildmatrix: {result.error}")
    elif not settings.quiet:
        folder = os.path.relpath(images_folder(settings.file))
        promoted = dict(pairs).get("json") if stage else None
        if lines := describe_images(report, builder, folder, save, promoted):
            complain("\n".join(lines))
    return result.exit_code


# Where the images of a build are, and what to do with them


def describe_images(
    report: Report, engine: Engine, folder: str, save: str | None, promoted: Path | None
) -> list[str]:
    """Say where the green images are, and how to run or publish them; nothing without any.

    `folder` has the images of the engine `oci`, `save` the archives, if any, and `promoted` is the
    report of images that were staged.
    """
    green = [target for target in report.targets if _is_green(target) and target.image]
    if not green:
        return []
    first = green[0]
    which = first.image if len(green) == 1 else count(len(green), "image")
    if promoted is not None:
        staged = count(len(green), "image")
        return [f"{staged} staged, without tags", f"publish: buildmatrix promote {promoted}"]
    if first.push == "passed":
        return [f"{which} published", f"run: docker run --rm {first.image}"]
    load = f"docker load -i {(save or '').replace(_ID, first.id)}"
    if save is not None:
        lines = [f"{which} saved", f"run: {load}, then docker run --rm {first.image}"]
    elif engine.name == OCI:
        name = "image.tar" if len(report.targets) == 1 else f"'{_ID}.tar'"
        lines = [
            f"{which} in {folder} (an OCI layout)",
            f"run: the same command with --save {name}, then docker load -i FILE",
        ]
    elif _has_image(engine, first.image):
        lines = [f"{which} in Docker", f"run: docker run --rm {first.image}"]
    else:
        lines = [f"{which} in the cache of the builder"]
    if len(green) == len(report.targets):
        lines.append("publish: the same command with --push")
    return lines


def _has_image(engine: Engine, name: str | None) -> bool:
    try:
        return name is not None and engine.image(name) is not None
    except BuildmatrixError:
        return False


def _is_green(target: TargetResult) -> bool:
    states = {*target.gates.values(), target.push}
    is_built = target.gates.get("build") == "passed"
    return is_built and target.error is None and not states & {"failed", "undecided"}


def _signer(key: Path | None, trust_root: Path | None, *, published: bool) -> Signer:
    """Return the signer of verdicts. Raises `UsageError`, `ComponentError`, `UndecidedError`."""
    from buildmatrix.signing.keyless import make_keyless_signer
    from buildmatrix.signing.keys import PASSWORD, read_private

    if not published:
        raise UsageError("--attest signs what is published; add --push or --stage")
    if key is None:
        return make_keyless_signer(trust_root)
    if trust_root is not None:
        raise UsageError("--sign-key signs with a key, and --trust-root without one; give one")
    return read_private(key, os.environ.get(PASSWORD))


# `build --save`: archives for `docker load`


#: Placeholder of the target's identifier in a file name.
_ID = "{id}"


def check_save(file: str, targets: Sequence[Target]) -> None:
    """Raises `UsageError` where several images would go into one file."""
    if len(targets) > 1 and _ID not in file:
        raise UsageError(
            f"--save {file}: {len(targets)} targets are selected, and an archive holds one image; "
            f"write {_ID} into the name, or select one target"
        )
    if not Path(file).absolute().parent.is_dir():
        raise UsageError(f"--save {file}: there is no folder {Path(file).parent}")


def save_images(file: str, result: Result, engine: Engine, settings: CommandSettings) -> None:
    """Write the archives of the targets that are green. Raises `BuildError` when a disk is full."""
    from buildmatrix.engines.process import writing
    from buildmatrix.facts.inventory.writing import open_atomically

    for target in result.report.targets:
        if not _is_green(target):
            complain(f"{target.id}: not saved, as it is not green")
            continue
        path = Path(file.replace(_ID, target.id))
        assert target.image is not None
        with (
            writing(path.parent),
            open_atomically(path) as archive,
            engine.export(target.image) as chunks,
        ):
            for chunk in chunks:
                archive.write(chunk)
        if not settings.quiet:
            complain(f"{target.id}: saved as {path}")


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
    from buildmatrix.commands.build.checks import not_run_here, run
    from buildmatrix.preflight.subject import find_last_image
    from buildmatrix.sources.state.folder import State

    spec, targets = load_targets(settings, (pattern,), None)
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
