"""`buildmatrix cache-key`."""

from __future__ import annotations

import json

import click

from buildmatrix.cli.console import say
from buildmatrix.cli.options import CommandSettings, format_option, load_targets, option
from buildmatrix.text import JSON, STYLED


@click.command("cache-key", short_help="Print the key for what a node class compiles.")
@option("--node-class", "name", required=True, metavar="NAME", help="A class of the file.")
@option(
    "--select",
    "globs",
    multiple=True,
    metavar="GLOB",
    help="Targets by identifier; !GLOB excludes.",
)
@format_option("style", ["text", "json"], "`text` is the key alone.")
@click.pass_obj
def command(settings: CommandSettings, name: str, globs: tuple[str, ...], style: str) -> None:
    """Print the key under which engines and kernels are kept that a node class compiles.

    It has what they depend on: device architectures, driver, runtime and frameworks, and is fit for
    a path and for a label of Kubernetes. What the file does not say is an error.
    """
    from buildmatrix.commands.cache_key.run import make_document, make_keys, require_single_key

    spec, targets = load_targets(settings, globs, None)
    keys = make_keys(spec, targets, name)
    if style == "json":
        say(json.dumps(make_document(name, keys), indent=2), JSON)
    else:
        say(require_single_key(name, keys), STYLED)
