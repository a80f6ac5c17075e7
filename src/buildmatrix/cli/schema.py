"""`buildmatrix schema`."""

from __future__ import annotations

import importlib
import json

import click

from buildmatrix.cli.console import say
from buildmatrix.text import JSON_LINE

#: Document → where its schema is made.
_SCHEMAS = {
    "spec": ("spec.keys", "schema"),
    "report": ("reports.schemas", "report"),
    "diff": ("reports.schemas", "diff"),
    "drift": ("reports.schemas", "drift"),
    "verdict": ("attestation.verdict", "schema"),
    "promotion": ("reports.schemas", "promotion"),
    "verification": ("reports.schemas", "verification"),
    "doctor": ("reports.schemas", "diagnosis"),
    "preflight": ("reports.schemas", "preflight"),
    "node-classes": ("reports.schemas", "node_classes"),
    "fleet": ("reports.schemas", "fleet"),
    "fleet-result": ("reports.schemas", "fleet_result"),
}


@click.command("schema", short_help="Print a JSON schema.")
@click.argument("document", type=click.Choice(list(_SCHEMAS)))
def command(document: str) -> None:
    """Print the JSON schema of the specification (for editors), or of what commands write.

    `report` is the format of `audit`, `build` and `scan`, `diff` that of `diff`, and `drift` that
    of `diff --targets`. `verdict` is what `build --attest` signs, and `promotion`,
    `verification` are the formats of `promote` and `verify`, and `doctor` and `node-classes`
    those of `doctor` and `node-classes check`. `fleet` is the format of `fleet`, and `fleet-result`
    that of one line of its JSON Lines.
    """
    module, name = _SCHEMAS[document]
    schema = getattr(importlib.import_module(f"buildmatrix.{module}"), name)
    # Not looked through for secrets: patterns look like addresses, and all of it is our own.
    say(json.dumps(schema(), indent=2), JSON_LINE)
