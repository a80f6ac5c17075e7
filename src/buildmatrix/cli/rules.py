"""`buildmatrix rules`."""

from __future__ import annotations

import json

import click

from buildmatrix.cli import completing
from buildmatrix.cli.console import say
from buildmatrix.cli.options import CommandSettings, format_option, option
from buildmatrix.errors import UsageError
from buildmatrix.text import JSON


@click.command("rules", short_help="List every rule, or print the page of one.")
@click.argument("code", required=False, shell_complete=completing.rules)
@option(
    "--catalogue",
    "backend",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[BACKEND]",
    help="What the catalogue knows instead: one line per backend, or everything about BACKEND.",
)
@format_option("style", ["table", "json"], "`json` has the page of a rule and the sources, too.")
@click.pass_obj
def command(settings: CommandSettings, code: str | None, backend: str | None, style: str) -> None:
    """List every rule, or print the page of one: what it says, why, and how to fix it.

    With --catalogue, list what belongs to which backend. The data files of a buildmatrix.toml that
    lies here count, too.
    """
    if backend is not None:
        if code is not None:
            raise UsageError("give the code of a rule or --catalogue, not both")
        _catalogue(settings, backend or None, style)
        return
    _rules(code, style)


def _rules(code: str | None, style: str) -> None:
    from buildmatrix.rules.registry import RULES, rule_page

    if code is not None:
        codes = {rule.name: rule.code for rule in RULES}
        code = codes.get(code.lower(), code.upper())
        page = rule_page(code)
        if style != "json":
            say(page)
            return
    if style == "json":
        rules = [
            {
                "code": rule.code,
                "name": rule.name,
                "severity": rule.severity,
                "summary": rule.summary,
                **({"page": page} if code is not None else {}),
            }
            for rule in RULES
            if code in (None, rule.code)
        ]
        say(json.dumps(rules, indent=2, ensure_ascii=False))
        return
    width = max(len(rule.name) for rule in RULES)
    for rule in RULES:
        say(f"{rule.code}  {rule.name.ljust(width)}  {rule.severity:7}  {rule.summary}")


def _catalogue(settings: CommandSettings, name: str | None, style: str) -> None:
    from buildmatrix.catalogue import listing
    from buildmatrix.catalogue.load import load
    from buildmatrix.spec.checks import read_data_files

    catalogue = load(read_data_files(settings.file))
    backend = None if name is None else listing.backend_named(name, catalogue)
    if style == "json":
        say(json.dumps(listing.document(catalogue, backend), indent=2, ensure_ascii=False), JSON)
    elif backend is not None:
        for line in listing.lines(catalogue, backend):
            say(line)
    else:
        rows = (("BACKEND", "VENDOR", "WHAT IT IS", "ENTRIES"), *listing.overview(catalogue))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            say("  ".join(cells).rstrip())
