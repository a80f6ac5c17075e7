"""`buildmatrix rules`."""

from __future__ import annotations

import click

from buildmatrix.cli.options import say


@click.command("rules", short_help="List every rule, or print the page of one.")
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """List every rule, or print the page of one: what it says, why, and how to fix it."""
    from buildmatrix.rules.pages import rule_page
    from buildmatrix.rules.registry import RULES

    if code is not None:
        codes = {rule.name: rule.code for rule in RULES}
        say(rule_page(codes.get(code.lower(), code)))
        return
    width = max(len(rule.name) for rule in RULES)
    for rule in RULES:
        say(f"{rule.code}  {rule.name.ljust(width)}  {rule.severity:7}  {rule.summary}")
