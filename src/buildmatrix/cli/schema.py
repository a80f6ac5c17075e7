"""`buildmatrix schema`."""

from __future__ import annotations

import importlib
import json

import click

from buildmatrix.cli.options import say


@click.command("schema", short_help="Print a JSON schema.")
@click.argument("what", type=click.Choice(["spec", "report"]))
def command(what: str) -> None:
    """Print the JSON schema of the specification (for editors) or of a report."""
    package = {"spec": "spec", "report": "reports"}[what]
    schema = importlib.import_module(f"buildmatrix.{package}.schema").schema
    say(json.dumps(schema(), indent=2))
