"""`buildmatrix schema`."""

from __future__ import annotations

import importlib
import json

import click

from buildmatrix.cli.console import say


@click.command("schema", short_help="Print a JSON schema.")
@click.argument("what", type=click.Choice(["spec", "report", "diff", "drift"]))
def command(what: str) -> None:
    """Print the JSON schema of the specification (for editors), or of what commands write.

    `report` is the format of `audit`, `build` and `scan`, `diff` that of `diff`, and `drift` that
    of `diff --targets`.
    """
    module, name = {
        "spec": ("spec.keys", "schema"),
        "report": ("reports.schemas", "report"),
        "diff": ("reports.schemas", "diff"),
        "drift": ("reports.schemas", "drift"),
    }[what]
    schema = getattr(importlib.import_module(f"buildmatrix.{module}"), name)
    say(json.dumps(schema(), indent=2), "json")
