"""What docs/contract.md says of a report is what its schema says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from document_blocks import ROOT, blocks_of

from buildmatrix.reports.formats import document_schema


def keys(schema: Any) -> Iterator[str]:
    """Names of all properties."""
    if isinstance(schema, dict):
        properties = schema.get("properties", {})
        yield from properties
        for part in (*properties.values(), *(schema[key] for key in schema if key != "properties")):
            yield from keys(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from keys(part)


def test_every_key_of_the_block_is_one_of_a_report() -> None:
    (block,) = (
        block
        for block in blocks_of(ROOT / "docs/contract.md")
        if '"schema": "buildmatrix/report/1"' in block.text
    )
    shown = set(re.findall(r'"([a-z_]+)":', block.text))
    # Tables whose keys are gates, vendors, code, bases and holders.
    free = {"lock", "build", "scan", "smoke", "nvidia"}
    assert len(shown) > 100
    assert shown - free <= set(keys(document_schema("report")))
