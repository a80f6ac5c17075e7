"""`buildmatrix preflight`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from buildmatrix.api import machines
from buildmatrix.api.machines import CollectOptions, PreflightOptions
from buildmatrix.cli.console import say
from buildmatrix.cli.options import add_global_options, engine_option, option, stack_options, take
from buildmatrix.cli.output import Output, writes
from buildmatrix.commands.workspace import CommandResult
from buildmatrix.engines.choice import OCI
from buildmatrix.reports.formats import PREFLIGHT

if TYPE_CHECKING:
    from buildmatrix.reports.preflight import Preflight

_accept_option = option(
    "--accept",
    type=click.Path(path_type=Path),
    help="Write this preflight as a baseline, if nothing failed.",
)


class _Preflight(click.Command):
    """`preflight TARGET`, and `preflight collect FILE...`: no target is called `collect`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments of the command that they are for."""
        if args[:1] == ["collect"]:
            other = add_global_options(collect)
            return other.make_context(f"{info_name} collect", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("preflight", cls=_Preflight)
@take(
    PreflightOptions,
    reference=_accept_option,
    last=stack_options(
        option(
            "--kubernetes",
            is_flag=True,
            help="Only write a Job for each image and node class into the folder -o.",
        ),
        option(
            "--image",
            metavar="NAME@DIGEST",
            help="The target's image in a registry (--kubernetes).",
        ),
        option(
            "--report",
            type=click.Path(path_type=Path),
            help="Report of `build --stage` with the images (--kubernetes).",
        ),
        option(
            "--nodes",
            type=click.IntRange(1, 1000),
            default=1,
            show_default=True,
            help="Machines per node class (--kubernetes).",
        ),
        writes(PREFLIGHT, "File; - is stdout. With --kubernetes a folder."),
        engine_option,
    ),
)
def preflight_command(
    options: PreflightOptions,
    /,
    accept: Path | None,
    kubernetes: bool,
    image: str | None,
    report: Path | None,
    nodes: int,
    to: Output,
) -> int:
    """Climb a ladder with the image of TARGET, or with any IMAGE on this machine.

    static < import < device < compute < collective < batch < memory < cold-start. Each rung runs in
    containers without network, with a read-only root, as the image's user, bounded in time and
    memory. What this machine cannot run is said, with the node classes that have to; it never
    counts as passed. TARGET may be a pattern.

    `preflight collect FILE...` reads the logs of the pods that --kubernetes describes.
    """
    from datetime import date

    from buildmatrix.base.errors import EXIT_OK, UsageError
    from buildmatrix.preflight.cluster import select_subjects, write_manifests
    from buildmatrix.preflight.subject import make_reference_subject

    name, backend, output = options.name, options.backend, to.file
    if kubernetes:
        if click.get_current_context().params["formats"] or output is None or str(output) == "-":
            raise UsageError("--kubernetes writes files: give -o FOLDER, and no --format")
        if options.baseline or accept or options.reference:
            raise UsageError("--kubernetes measures nothing: no --baseline, --accept, --reference")
        spec, engine = options.workspace.declared()(), options.workspace.image_engine(OCI)
        if spec is not None and machines.is_target(name):
            images = select_subjects(name, spec, engine, image, report)
        elif backend is None or image or report:
            raise UsageError("an image that is not a target needs --backend, and is named once")
        else:
            images = (make_reference_subject(name, backend, spec, engine),)
        today, node = date.today(), options.node_class
        for path in write_manifests(
            images, options.level, node, nodes, output, today, options.repeat
        ):
            say(f"kubectl create -f {path}")
        return EXIT_OK
    if image or report or nodes > 1:
        raise UsageError("--image, --report and --nodes are for --kubernetes")
    # On the command line or around it.
    source = click.get_current_context().get_parameter_source("level")
    is_asked_for = source is not ParameterSource.DEFAULT
    return _write(machines.preflight(options, is_asked_for), to, accept)


def _write(result: CommandResult[Preflight], to: Output, accept: Path | None) -> int:
    from buildmatrix.preflight import baseline

    code = to.write(result)
    if accept is not None:
        baseline.accept(result.document, accept)
    return code


@click.command("collect", short_help="Collect the results of pods into one report.")
@take(CollectOptions, reference=_accept_option, last=writes(PREFLIGHT))
def collect(options: CollectOptions, /, accept: Path | None, to: Output) -> int:
    """Read the logs of pods of `preflight --kubernetes`: what `kubectl logs` prints.

    FILE may hold the logs of many pods, with or without prefixes and timestamps; - is standard
    input, as is nothing. Nodes of one class are joined, and where they contradict each other, that
    is said. What a pod announced and did not get to is undecided.
    """
    return _write(machines.collect(options), to, accept)
