"""`buildmatrix schema`."""

from __future__ import annotations

import json

import click


@click.command("schema", short_help="Print a JSON schema.")
@click.argument("what", type=click.Choice(["spec", "report"]))
def command(what: str) -> None:
    """Print the JSON schema of the specification (for editors) or of a report."""
    if what == "spec":
        from buildmatrix.spec.schema import schema
    else:
        from buildmatrix.reports.schema import schema
    click.echo(json.dumps(schema(), indent=2))
