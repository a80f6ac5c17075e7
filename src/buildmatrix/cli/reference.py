"""`rules`, `schema` and `completion`: pages, schemas and scripts to print."""

from __future__ import annotations

import json

import click

from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import JSON, JSON_LINE
from buildmatrix.cli import completing
from buildmatrix.cli.completing import VARIABLE
from buildmatrix.cli.console import align, say
from buildmatrix.cli.options import CommandSettings, format_option, option


@click.command("rules")
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
def rules_command(
    settings: CommandSettings, code: str | None, backend: str | None, style: str
) -> None:
    """List every rule, or print the page of one: what it says, why, and how to fix it.

    With --catalogue, list what belongs to which backend. The data files of a buildmatrix.toml that
    lies here count, too.
    """
    if backend is not None:
        if code is not None:
            raise UsageError("give the code of a rule or --catalogue, not both")
        _catalogue(settings, backend or None, style)
        return
    from buildmatrix.judge.registry import RULES, rule_page

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
    for line in align([(rule.code, rule.name, rule.severity, rule.summary) for rule in RULES]):
        say(line)


def _catalogue(settings: CommandSettings, name: str | None, style: str) -> None:
    from buildmatrix.catalogue import listing
    from buildmatrix.catalogue.load import load
    from buildmatrix.matrix.settings import read_data_files

    catalogue = load(read_data_files(settings.file))
    backend = None if name is None else listing.find_backend(name, catalogue)
    if style == "json":
        say(json.dumps(listing.document(catalogue, backend), indent=2, ensure_ascii=False), JSON)
    elif backend is not None:
        for line in listing.lines(catalogue, backend):
            say(line)
    else:
        head = ("BACKEND", "VENDOR", "WHAT IT IS", "ENTRIES")
        for line in align([head, *listing.overview(catalogue)]):
            say(line)


_DOCUMENTS = ("spec", "report", "diff", "drift", "verdict", "promotion", "verification", "doctor",
              "preflight", "node-classes", "fleet", "fleet-result")  # fmt: skip


@click.command("schema")
@click.argument("document", type=click.Choice(_DOCUMENTS))
def schema_command(document: str) -> None:
    """Print the JSON schema of the specification (for editors), or of what commands write.

    `report` is the format of `audit`, `build` and `scan`, `diff` that of `diff`, and `drift` that
    of `diff --targets`. `verdict` is what `build --attest` signs, and `promotion`,
    `verification` are the formats of `promote` and `verify`, and `doctor` and `node-classes`
    those of `doctor` and `node-classes check`. `fleet` is the format of `fleet`, and `fleet-result`
    that of one line of its JSON Lines.
    """
    # Not looked through for secrets: patterns look like addresses, and all of it is our own.
    say(json.dumps(_load_schema(document), indent=2), JSON_LINE)


def _load_schema(document: str) -> object:
    if document == "spec":
        from buildmatrix.matrix import keys

        return keys.schema()
    if document == "verdict":
        from buildmatrix.signing import verdict

        return verdict.schema()
    from buildmatrix.reports.formats import document_schema

    return document_schema(document)


SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, /, shell: str) -> None:
    """Print the script by which SHELL completes commands, options, targets and files.

    For bash: `eval "$(buildmatrix completion bash)"` in ~/.bashrc; for zsh the same with zsh in
    ~/.zshrc, behind compinit; for fish: `buildmatrix completion fish | source` in
    ~/.config/fish/config.fish.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    completer = kind(ctx.find_root().command, {}, "buildmatrix", VARIABLE)
    # That of the base class: bash's own starts a bash to ask for its version.
    say(ShellComplete.source(completer))
