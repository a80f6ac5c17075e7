"""Blocks of docs/ci are what their systems take, and name inputs that are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


def blocks(page: str) -> list[Any]:
    text = (ROOT / "docs" / "ci" / page).read_text()
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def whole(page: str) -> list[dict[str, Any]]:
    """The blocks that are a file, not a part of one."""
    return [block for block in blocks(page) if isinstance(block, dict)]


@pytest.mark.parametrize(("page", "schema"), [("github.md", "vendor.github-workflows")])
def test_files_to_copy_are_valid(page: str, schema: str, tmp_path: Path) -> None:
    paths = []
    for number, block in enumerate(whole(page)):
        path = tmp_path / f"{number}.yml"
        # PyYAML reads `on` as YAML 1.1 does.
        path.write_text(yaml.safe_dump({{True: "on"}.get(key, key): block[key] for key in block}))
        paths.append(path)
    command = ["check-jsonschema", "--builtin-schema", schema, *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert paths and done.returncode == 0, done.stdout


def test_the_caller_of_the_reusable_workflow_gives_inputs_that_it_has() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "matrix.yml").read_text())
    # PyYAML reads `on` as YAML 1.1 does.
    inputs = workflow[True]["workflow_call"]["inputs"]
    (caller,) = (
        block
        for block in blocks("github.md")
        if isinstance(block, dict) and block["name"] == "images"
    )
    (job,) = caller["jobs"].values()
    assert job["uses"].startswith("buildmatrix/buildmatrix/.github/workflows/matrix.yml@v")
    assert set(job["with"]) <= set(inputs)
    assert {name for name, value in inputs.items() if value.get("required")} <= set(job["with"])
    assert job["permissions"] == {"contents": "read", "packages": "write", "id-token": "write"}
