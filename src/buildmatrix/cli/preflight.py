"""`buildmatrix preflight`."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from buildmatrix.cli import completing
from buildmatrix.cli.console import say
from buildmatrix.cli.options import (
    CommandSettings,
    add_global_options,
    formats_option,
    option,
    output_option,
    stack_options,
    workspace,
)
from buildmatrix.cli.output import check_formats, write_document
from buildmatrix.cli.workspace import engine_option
from buildmatrix.engines.choice import OCI
from buildmatrix.judge.rungs import RUNGS, Rung
from buildmatrix.reports.formats import PREFLIGHT, names

FORMATS = names(PREFLIGHT)


#: Options of a comparison with an earlier preflight.
_EARLIER = stack_options(
    option(
        "--baseline",
        variable="BUILDMATRIX_PREFLIGHT_BASELINE",
        type=click.Path(path_type=Path),
        help="Accepted preflight (--accept) to compare with; values 20 % worse fail.",
    ),
    option(
        "--accept",
        type=click.Path(path_type=Path),
        help="Write this preflight as a baseline, if nothing failed.",
    ),
    option(
        "--reference",
        type=click.Path(path_type=Path),
        help="Preflight on a CPU (--format json) with the expected results of commands.",
    ),
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
@click.argument("name", metavar="TARGET|IMAGE", shell_complete=completing.targets)
@option(
    "--level",
    type=click.Choice(RUNGS),
    default=RUNGS[-1],
    show_default=True,
    help="Run rungs up to and including this one.",
)
@option("--node-class", metavar="NAME", help="Node class of this machine.")
@option("--backend", metavar="NAME", help="Backend, if the image has no backend label.")
@option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Runs of each timed command; p95 needs 20, p99 100.",
)
@_EARLIER
@option("--strict", is_flag=True, help="Treat rungs that did not run as undecided.")
@option(
    "--kubernetes",
    is_flag=True,
    help="Only write a Job for each image and node class into the folder -o.",
)
@option("--image", metavar="NAME@DIGEST", help="The target's image in a registry (--kubernetes).")
@option(
    "--report",
    type=click.Path(path_type=Path),
    help="Report of `build --stage` with the images (--kubernetes).",
)
@option(
    "--nodes",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Machines per node class (--kubernetes).",
)
@formats_option(FORMATS)
@option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File; - is stdout. With --kubernetes a folder.",
)
@engine_option
@click.pass_obj
def preflight_command(
    settings: CommandSettings,
    /,
    name: str,
    level: Rung,
    node_class: str | None,
    backend: str | None,
    repeat: int,
    baseline: Path | None,
    accept: Path | None,
    reference: Path | None,
    strict: bool,
    kubernetes: bool,
    image: str | None,
    report: Path | None,
    nodes: int,
    formats: tuple[str, ...],
    output: Path | None,
    engine: str,
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
    from buildmatrix.preflight import baseline as baselines
    from buildmatrix.preflight.cluster import select_subjects, write_manifests
    from buildmatrix.preflight.run import exit_code, preflight
    from buildmatrix.preflight.subject import find_image, make_reference_subject, select_targets

    pairs = check_formats(formats, None if kubernetes else output, FORMATS)
    here = workspace(settings, engine=engine)
    spec = here.declared()()
    is_target = spec is not None and not (":" in name or "/" in name)
    engines = cache(here.image_engine)
    if kubernetes:
        if formats or output is None or str(output) == "-":
            raise UsageError("--kubernetes writes files: give -o FOLDER, and no --format")
        if baseline or accept or reference:
            raise UsageError("--kubernetes measures nothing: no --baseline, --accept, --reference")
        if spec is not None and is_target:
            images = select_subjects(name, spec, engines(OCI), image, report)
        elif backend is None or image or report:
            raise UsageError("an image that is not a target needs --backend, and is named once")
        else:
            images = (make_reference_subject(name, backend, spec, engines(OCI)),)
        for path in write_manifests(images, level, node_class, nodes, output, date.today(), repeat):
            say(f"kubectl create -f {path}")
        return EXIT_OK
    if image or report or nodes > 1:
        raise UsageError("--image, --report and --nodes are for --kubernetes")
    if spec is not None and is_target:
        subjects = select_targets(name, spec, engines, engine)
    else:
        subjects = (find_image(name, backend, spec, engines(engine)),)
    names = {node.name for subject in subjects for node in subject.node_classes}
    if node_class is not None and node_class not in names:
        listed = ", ".join(sorted(names)) or "none"
        raise UsageError(f"--node-class {node_class}: the node classes of {name} are {listed}")
    with here.progress() as display:
        result = preflight(
            subjects,
            level,
            node_class,
            display,
            date.today(),
            is_asked_for=_is_given("level"),
            repeat=repeat,
            baseline=baseline,
            reference=reference,
        )
    write_document(PREFLIGHT, result, pairs, output)
    if accept is not None:
        baselines.accept(result, accept)
    return exit_code(result, strict)


def _is_given(option: str) -> bool:
    """Return whether somebody chose the value of an option, on the command line or around it."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


@click.command("collect", short_help="Collect the results of pods into one report.")
@click.argument("files", nargs=-1, metavar="FILE|FOLDER|-...", shell_complete=completing.files)
@option("--image", metavar="NAME@DIGEST", help="Refuse results of any other image.")
@_EARLIER
@option("--strict", is_flag=True, help="Treat rungs that did not run as undecided.")
@formats_option(FORMATS)
@output_option()
@click.pass_obj
def collect(
    settings: CommandSettings,
    /,
    files: tuple[str, ...],
    image: str | None,
    baseline: Path | None,
    accept: Path | None,
    reference: Path | None,
    strict: bool,
    formats: tuple[str, ...],
    output: Path | None,
) -> int:
    """Read the logs of pods of `preflight --kubernetes`: what `kubectl logs` prints.

    FILE may hold the logs of many pods, with or without prefixes and timestamps; - is standard
    input, as is nothing. Nodes of one class are joined, and where they contradict each other, that
    is said. What a pod announced and did not get to is undecided.
    """
    from datetime import date

    from buildmatrix.net.registry.reference import Reference
    from buildmatrix.preflight import baseline as baselines
    from buildmatrix.preflight.cluster import collect as joined
    from buildmatrix.preflight.cluster import find_subject
    from buildmatrix.preflight.logs import read_logs
    from buildmatrix.preflight.run import exit_code

    pairs = check_formats(formats, output, FORMATS)
    here = workspace(settings)
    spec = here.declared()()
    digest = Reference.parse(image).digest if image else None
    logs = read_logs(files or ("-",))
    result = joined(
        logs,
        partial(find_subject, spec, here.image_engine(OCI)),
        digest,
        date.today(),
        baseline=baseline,
        reference=reference,
    )
    write_document(PREFLIGHT, result, pairs, output)
    if accept is not None:
        baselines.accept(result, accept)
    return exit_code(result, strict)
