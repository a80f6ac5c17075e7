"""`rules`, `schema` and `completion`: pages, schemas and scripts to print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from buildmatrix.base.errors import UsageError
from buildmatrix.base.text import JSON, JSON_LINE
from buildmatrix.cli import completing
from buildmatrix.cli.completing import VARIABLE
from buildmatrix.cli.console import align, say
from buildmatrix.cli.options import CommandSettings, format_option, option

if TYPE_CHECKING:
    from buildmatrix.catalogue.entries import CatalogueEntry
    from buildmatrix.catalogue.load import Catalogue
    from buildmatrix.catalogue.tables import DataFile


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
        _print_catalogue(settings, backend or None, style)
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


def _print_catalogue(settings: CommandSettings, name: str | None, style: str) -> None:
    from buildmatrix.catalogue.load import load
    from buildmatrix.catalogue.lookup import find_backend
    from buildmatrix.matrix.settings import read_data_files

    catalogue = load(read_data_files(settings.file))
    backend = None if name is None else find_backend(name, catalogue)
    if style == "json":
        say(json.dumps(_describe_catalogue(catalogue, backend), indent=2, ensure_ascii=False), JSON)
    elif backend is not None:
        for line in list_entries(catalogue, backend):
            say(line)
    else:
        head = ("BACKEND", "VENDOR", "WHAT IT IS", "ENTRIES")
        for line in align([head, *_list_backends(catalogue)]):
            say(line)


# Entries of the catalogue, as text and as JSON


#: Schema of the catalogue as JSON.
_CATALOGUE_SCHEMA = "buildmatrix/catalogue/1"
#: Keys that identify an entry of a table; in any other table, the first key.
_KEYS = (
    *("names", "pattern", "paths", "formats", "kinds", "architectures", "family", "marks"),
    *("shared", "files", "nodes", "folders"),
    *("variables", "groups", "packages", "rpm-packages", "library-folders", "features"),
)
#: Keys with the meaning of an entry.
_MEANINGS = ("role", "kind", "weight", "where", "toolkit", "basis")
#: Characters per line for the names of an entry.
_WIDEST = 100


def _describe_catalogue(catalogue: Catalogue, backend: str | None = None) -> dict[str, Any]:
    """Return everything about `backend`, or about all, ready for JSON; sources in words."""
    return {
        "schema": _CATALOGUE_SCHEMA,
        "date": catalogue.date,
        "backends": [
            {
                "name": entry.name,
                "vendor": entry.vendor,
                "title": entry.title,
                "aliases": list(entry.aliases),
                "entries": [
                    {"file": file, "table": table, **_plain(item, data)}
                    for file, data, table, item in _entries(catalogue, entry.name)
                ],
            }
            for entry in catalogue.backends.values()
            if backend in (None, entry.name)
        ],
    }


def _list_backends(catalogue: Catalogue) -> tuple[tuple[str, str, str, str], ...]:
    """Return name, vendor, title and number of entries per backend."""
    return tuple(
        (
            entry.name,
            entry.vendor or "",
            entry.title,
            str(sum(1 for _ in _entries(catalogue, entry.name))),
        )
        for entry in sorted(catalogue.backends.values(), key=lambda entry: entry.name)
    )


def list_entries(catalogue: Catalogue, backend: str) -> Iterator[str]:
    """Yield the entries of one backend, a line each, table by table."""
    entry = catalogue.backends[backend]
    also = f"; also called {', '.join(entry.aliases)}" if entry.aliases else ""
    vendor = f" ({entry.vendor})" if entry.vendor else ""
    yield f"{entry.name}: {entry.title}{vendor}{also}"
    previous = None
    for _, _, table, item in sorted(_entries(catalogue, backend), key=lambda item: item[2]):
        if table != previous:
            yield f"\n{table}"
            previous = table
        values = msgspec.to_builtins(item)
        meanings = [str(values[key]) for key in _MEANINGS if values.get(key)]
        yield f"  {_identify(table, values)}  [{' '.join(meanings)}]"


def _identify(table: str, values: dict[str, Any]) -> str:
    first = next(key for key, value in values.items() if value)
    key = "name" if table == "static" else next((key for key in _KEYS if values.get(key)), first)
    names = values[key]
    text = " ".join(map(str, names)) if isinstance(names, tuple | list | dict) else str(names)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _entries(
    catalogue: Catalogue, backend: str
) -> Iterator[tuple[str, DataFile, str, CatalogueEntry]]:
    """Yield file, its data, table and entry, in the order of the files."""
    from buildmatrix.catalogue.tables import iter_entries

    for name, data in catalogue.files.items():
        if data.backend == backend:
            for table, _, entry in iter_entries(data):
                yield name, data, table, entry


def _plain(entry: CatalogueEntry, data: DataFile) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    plain["source"] = [data.sources[key] for key in entry.source]
    plain["checked"] = (entry.checked or data.checked).isoformat()
    return plain


# Schemas


DOCUMENTS = ("spec", "report", "diff", "drift", "verdict", "promotion", "verification", "doctor",
              "preflight", "node-classes", "fleet", "fleet-result")  # fmt: skip


@click.command("schema")
@click.argument("document", type=click.Choice(DOCUMENTS))
def schema_command(document: str) -> None:
    """Print the JSON schema of the specification (for editors), or of what commands write.

    `report` is the format of `audit`, `build` and `scan`, `diff` that of `diff`, and `drift` that
    of `diff --targets`. `verdict` is what `build --attest` signs, and `promotion`,
    `verification` are the formats of `promote` and `verify`, and `doctor` and `node-classes`
    those of `doctor` and `node-classes check`. `fleet` is the format of `fleet`, and `fleet-result`
    that of one line of its JSON Lines.
    """
    # Not looked through for secrets: patterns look like addresses, and all of it is our own.
    say(json.dumps(load_schema(document), indent=2), JSON_LINE)


def load_schema(document: str) -> object:
    """Return the JSON schema of one of `DOCUMENTS`."""
    if document == "spec":
        from buildmatrix.matrix import keys

        return keys.schema()
    if document == "verdict":
        from buildmatrix.signing import verdict

        return verdict.schema()
    from buildmatrix.reports.formats import document_schema

    return document_schema(document)


# Completion


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
