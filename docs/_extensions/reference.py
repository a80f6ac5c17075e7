"""Pages of the reference that are made from the code, before Sphinx reads anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx

from buildmatrix.cli import group
from buildmatrix.cli.reference import DOCUMENTS, load_schema
from buildmatrix.matrix.keys import schema as spec_schema

NOTE = "<!-- Made from the code by docs/_extensions/reference.py. -->\n\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages when the build begins."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}


def write(app: Sphinx) -> None:
    """Write what changed, so that Sphinx reads only that again."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    for name, text in (("commands", commands()), ("spec", spec()), ("json", documents())):
        page = folder / f"{name}.md"
        if not page.is_file() or page.read_text(encoding="utf-8") != NOTE + text:
            page.write_text(NOTE + text, encoding="utf-8")


def commands() -> str:
    """Every command with its help, as `--help` prints it; the manual page is this page."""
    parts = ["# Commands\n", "What `buildmatrix COMMAND --help` prints.\n"]
    for path, command in _walk(group, ("buildmatrix",)):
        context = click.Context(
            command, info_name=" ".join(path), max_content_width=96, **command.context_settings
        )
        context.terminal_width = 96
        parts.append(f"## `{' '.join(path)}`\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _walk(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if command.hidden:
        return
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _walk(inner, (*path, name))


def spec() -> str:
    """Every key of `buildmatrix.toml`, with its meaning and its default."""
    parts = [
        "# Keys of `buildmatrix.toml`\n",
        "Of the schema that `buildmatrix schema spec` prints; [the specification](../spec.md) "
        "explains them.\n",
    ]
    for place, table in _tables(spec_schema(), ""):
        required = table.get("required", ())
        rows = [
            f"| `{name}` | {_type(key)} | {_cell(key['description'])}"
            f"{' Required.' if name in required else ''} |"
            for name, key in table["properties"].items()
        ]
        title = f"`{place}`" if place else "The file"
        parts.append(f"## {title}\n\n| key | type | meaning |\n|---|---|---|\n" + "\n".join(rows))
        parts.append("")
    return "\n".join(parts)


def _tables(node: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each table with fixed keys: `[policy]`, `[backend.NAME]`, `[[waive]]`."""
    if "properties" in node:
        yield place, node
        for name, inner in node["properties"].items():
            path = f"{place.strip('[]')}.{name}".lstrip(".")
            if inner.get("type") == "array" and "properties" in inner["items"]:
                yield from _tables(inner["items"], f"[[{path}]]")
            elif "properties" in inner:
                yield from _tables(inner, f"[{path}]")
            elif "properties" in (named := inner.get("additionalProperties") or {}):
                yield from _tables(named, f"[{path}.NAME]")


def _type(key: dict[str, Any]) -> str:
    if alternatives := key.get("anyOf"):
        return " or ".join(dict.fromkeys(map(_type, alternatives)))
    if values := key.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    nouns = {"string": "string", "integer": "number", "array": "list", "object": "table"}
    return nouns.get(key.get("type", ""), key.get("format", "value"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def documents() -> str:
    """The JSON schema of each document that a command reads or writes."""
    parts = [
        "# JSON documents\n",
        "What `buildmatrix schema NAME` prints. [The contract](../contract.md) lists the keys that "
        "keep their meaning.\n",
    ]
    for name in DOCUMENTS:
        schema: Any = load_schema(name)
        keys = schema.get("properties") or next(iter(schema.get("$defs", {}).values()), {}).get(
            "properties", {}
        )
        meanings = {k: v.get("description", "") for k, v in keys.items() if isinstance(v, dict)}
        listed = "\n".join(f"| `{key}` | {_cell(text)} |" for key, text in meanings.items())
        text = json.dumps(schema, indent=1)
        parts.append(
            f"## `{name}`\n\n| key | meaning |\n|---|---|\n{listed}\n\n"
            f"<details><summary>schema, {len(text) // 1000} kB</summary>\n\n"
            f"```json\n{text}\n```\n\n</details>\n"
        )
    return "\n".join(parts)
