"""Fixes of a SARIF run, applied to files as its specification says (3.55 to 3.57, 3.30)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

BOM = "\ufeff"


def apply_fixes(run: dict[str, Any], folder: Path) -> None:
    """Apply each different fix of a run to the files below `folder`, which are read as UTF-8."""
    changes: dict[str, list[dict[str, Any]]] = {}
    for result in run["results"]:
        for fix in result.get("fixes", ()):
            for change in fix["artifactChanges"]:
                of_file = changes.setdefault(unquote(change["artifactLocation"]["uri"]), [])
                of_file += [item for item in change["replacements"] if item not in of_file]
    for name, replacements in changes.items():
        path = folder / name
        text = path.read_bytes().decode() if path.exists() else ""
        mark = BOM if text.startswith(BOM) else ""
        text = text.removeprefix(BOM)
        spans = []
        for replacement in replacements:
            region = replacement["deletedRegion"]
            begin = _offset(text, region["startLine"], region["startColumn"])
            end = _offset(text, region["endLine"], region["endColumn"])
            spans.append((begin, end, replacement["insertedContent"]["text"]))
        for begin, end, new in sorted(spans, reverse=True):
            text = text[:begin] + new + text[end:]
        path.write_bytes((mark + text).encode())


def _offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    assert line <= len(lines), json.dumps([text, line])
    before = sum(len(item) + 1 for item in lines[: line - 1])
    units = lines[line - 1].encode("utf-16-le")[: 2 * (column - 1)]
    assert len(units) == 2 * (column - 1), json.dumps([text, line, column])
    return before + len(units.decode("utf-16-le"))
