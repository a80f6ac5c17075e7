"""Blocks of docs/fleet.md are what the commands read and write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from document_blocks import ROOT, blocks_of
from test_fleet_lists import found

from buildmatrix.base.progress import Silent
from buildmatrix.fleet import subjects
from buildmatrix.fleet.reference_lists import SubjectSettings
from buildmatrix.fleet.subjects import ListedNames
from buildmatrix.net.registry_mirrors import Reference
from buildmatrix.reports.formats import document_schema

BLOCKS = blocks_of(ROOT / "docs/fleet.md")


def block(text: str) -> str:
    (held,) = (block.text for block in BLOCKS if text in block.text)
    return held


def test_the_list_of_references_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = block("owner=search").replace("sha256:0f3c…", "sha256:" + "0f3c" * 16)
    Path("images.txt").write_text(text)
    held = found("images.txt")
    assert len(held.subjects) == 2 and held.missing == held.notes == ()
    (owned,) = (subject for subject in held.subjects if subject.owner)
    assert (owned.node_classes, owned.owner) == (("h100",), "search")


class Lists:
    """What every registry has."""

    def repositories(self, host: str) -> ListedNames:
        return ListedNames(("other/x", "team-a/serve", "team/x"))

    def tags(self, reference: Reference) -> ListedNames:
        return ListedNames(("1.0", "cuda-1"))


def test_each_name_of_a_registry_means_what_the_page_says() -> None:
    names = [line.split()[0] for line in block("registry:docker.io/example/serve").splitlines()]
    meant = {
        name: [
            subject.reference
            for subject in subjects.read_registry(
                name.removeprefix("registry:"), SubjectSettings(), Lists(), Silent()
            ).subjects
        ]
        for name in names
    }
    one, below, every, repository = meant.values()
    assert one == ["registry.example.com/team-a/serve:cuda-1"]
    assert {name.rpartition(":")[0] for name in below} == {"registry.example.com/team/x"}
    assert len(every) == 6
    assert {name.rpartition(":")[0] for name in repository} == {"docker.io/example/serve"}


def names_of(schema: Any) -> Iterator[str]:
    """Names of all properties of a schema."""
    if isinstance(schema, dict):
        properties = schema.get("properties", {})
        yield from properties
        for part in (*properties.values(), *(schema[key] for key in schema if key != "properties")):
            yield from names_of(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from names_of(part)


def test_the_keys_of_the_report_are_there() -> None:
    text = block('"schema": "buildmatrix/fleet/1"')
    json.loads(text)
    assert set(re.findall(r'"(\w+)":', text)) <= set(names_of(document_schema("fleet")))
