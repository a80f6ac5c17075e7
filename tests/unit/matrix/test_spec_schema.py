"""The JSON schema of the specification, as editors have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from click.testing import CliRunner

from buildmatrix.base.data import field_names
from buildmatrix.cli.reference import schema_command
from buildmatrix.matrix import kinds, model
from buildmatrix.matrix.keys import (
    CheckWaiverTable,
    IgnoreTable,
    NodeClassTable,
    PolicyTable,
    SmokeTable,
    VulnerabilitiesTable,
    WaiverTable,
    schema,
)
from buildmatrix.matrix.keys_settings import TargetSettings, UserTable
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.shapes import Table

PUBLISHED = Path(__file__).parents[3] / "schemas"
MINIMAL = """\
[project]
name = "inferno"
version = "1.4.0"
[defaults]
python = "3.12"
user = {}
[backend.cpu]
runtime = "any"
base = "debian:12"
requirements = ["a.in"]
[[smoke]]
name = "warmup"
level = "import"
command = "true"
"""


def keys(node: Any, place: str = "") -> Iterator[tuple[str, str, dict[str, Any], bool]]:
    """Each key of each table: where, its name, its schema and whether it must be there."""
    if isinstance(node, dict):
        for name, described in node.get("properties", {}).items():
            yield place, name, described, name in node.get("required", ())
        for name, inner in node.items():
            yield from keys(inner, f"{place}/{name}")
    elif isinstance(node, list):
        for inner in node:
            yield from keys(inner, place)


def test_each_key_says_what_it_means_and_what_holds_without_it() -> None:
    for place, name, described, required in keys(schema()):
        where = f"{place} {name}"
        assert described["description"], where
        is_table = "properties" in described
        assert required or is_table or "Default: " in described["description"], where
        if "default" in described:
            jsonschema.Draft7Validator(described).validate(described["default"])


def test_defaults_are_those_of_the_loader(tmp_path: Path) -> None:
    (tmp_path / "buildmatrix.toml").write_text(MINIMAL)
    (tmp_path / "a.in").write_text("")
    spec = load_spec(tmp_path / "buildmatrix.toml")
    target = spec.targets[0]

    def default(*path: str) -> Any:
        node: Any = schema()
        for part in path:
            node = node["items"] if part == "[]" else node["properties"][part]
        return node["default"]

    assert default("generate", "output") == spec.output
    image, (tag,) = default("project", "image"), default("tags", "templates")
    filled = f"{image}:{tag}".format(project="inferno", version="1.4.0", id=target.id)
    assert target.references == (filled,)
    assert default("defaults", "lock").format(id=target.id) == target.lock
    assert default("defaults", "variant") == [target.variant]
    assert default("defaults", "platforms") == [target.platform]
    assert default("defaults", "user", "name") == target.user.name
    assert default("defaults", "user", "uid") == target.user.uid
    assert default("smoke", "[]", "timeout") == f"{target.smoke[0].timeout_s:.0f}s"
    assert default("policy", "bloat-threshold") == f"{spec.policy.bloat_threshold // 10**6}MB"
    assert default("policy", "vulnerabilities", "service") == spec.policy.vulnerabilities.service
    assert default("policy", "vulnerabilities", "severity") == spec.policy.vulnerabilities.severity
    assert {name: default("tools", name) for name in spec.tools} == spec.tools


def test_the_published_schema_is_that_of_the_code() -> None:
    printed = CliRunner().invoke(schema_command, ["spec"]).output
    file = PUBLISHED / "buildmatrix.json"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(printed)
    assert json.loads(printed) == schema() == json.loads(file.read_text())


def test_the_published_schema_is_one_with_patterns_that_editors_know() -> None:
    """Editors have the regular expressions of JavaScript."""
    checker = [sys.executable, "-m", "check_jsonschema", "--check-metaschema"]
    run = subprocess.run([*checker, PUBLISHED / "buildmatrix.json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[:2000]


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("test/*.toml")), ids=lambda file: file.name)
def test_the_examples_are_taken(file: Path) -> None:
    jsonschema.Draft7Validator(schema()).validate(tomllib.loads(file.read_text()))


@pytest.mark.parametrize(
    "file", sorted(PUBLISHED.glob("negative_test/*.toml")), ids=lambda file: file.name
)
def test_the_mistakes_are_refused(file: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema()).validate(tomllib.loads(file.read_text()))


@pytest.mark.parametrize(
    ("table", "made", "elsewhere"),
    [
        (TargetSettings, model.Target, set()),
        (UserTable, model.User, set()),
        (NodeClassTable, model.NodeClass, set()),
        (WaiverTable, model.Waiver, set()),
        (CheckWaiverTable, model.CheckWaiver, {"select"}),
        (SmokeTable, model.Smoke, {"select", "timeout"}),
        (IgnoreTable, model.AcceptedAdvisory, set()),
        (VulnerabilitiesTable, model.VulnerabilityPolicy, set()),
        (
            PolicyTable,
            model.Policy,
            {"severity"} | {f"{way}_{kind}" for way in ("allow", "forbid")
                            for kind in field_names(model.Lists)},
        ),
    ],
)  # fmt: skip
def test_every_key_reaches_the_model_by_its_name(
    table: type[Table], made: type, elsewhere: set[str]
) -> None:
    keys = {key.field for key in table.keys}
    assert keys - set(field_names(made)) == elsewhere


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (kinds.LEVEL, model.SmokeLevel),
        (kinds.SEVERITY, model.Severity),
        (kinds.POLICY_SEVERITY, model.PolicySeverity),
        (kinds.PINNED, model.PinnedBases),
    ],
)
def test_the_choices_of_a_key_are_those_of_its_type(kind: kinds.Kind, values: object) -> None:
    assert kind.choices == get_args(values)
