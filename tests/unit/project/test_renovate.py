"""The managers for Renovate find every image of the example on their page."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from recipes import blocks


def find(managers: list[dict], path: str, text: str) -> set[tuple[str | None, ...]]:
    """What Renovate's regex manager finds; Python names groups otherwise than JavaScript."""
    groups = ("datasource", "depName", "currentValue", "currentDigest", "extractVersion")
    found = set()
    for manager in managers:
        names = (name.strip("/") for name in manager["managerFilePatterns"])
        if any(re.search(name, path) for name in names):
            for pattern in manager["matchStrings"]:
                for match in re.finditer(re.sub(r"\(\?<(?=[a-zA-Z])", "(?P<", pattern), text):
                    values = {"datasource": manager.get("datasourceTemplate"), **match.groupdict()}
                    found.add(tuple(values.get(name) for name in groups))
    return found


def test_every_image_of_the_example_is_found(tmp_path: Path) -> None:
    (configuration,) = blocks("renovate.md", "json")
    (example,) = blocks("renovate.md", "toml")
    managers = json.loads(configuration)["customManagers"]
    extract = r"^(?<version>\d+\.\d+\.\d+)-base-ubuntu22\.04$"
    expected = {
        ("docker", "nvidia/cuda", "12.8.1", None, extract),
        ("docker", "rocm/dev-ubuntu-22.04", "7.2.4", f"sha256:{'1' * 64}", None),
        (
            "docker",
            "registry.example.com:5000/hub/python",
            "3.11-slim-bookworm",
            f"sha256:{'2' * 64}",
            None,
        ),
        ("docker", "python", "3.11-slim-bookworm", f"sha256:{'3' * 64}", None),
    }
    assert find(managers, "buildmatrix.toml", example) == expected
    assert find(managers, "sub/buildmatrix.toml", example) == expected
    assert find(managers, "other.toml", example) == set()


def test_the_example_is_a_specification_and_the_configuration_fits_its_schema(
    tmp_path: Path,
) -> None:
    (configuration,), (example,) = blocks("renovate.md", "json"), blocks("renovate.md", "toml")
    (tmp_path / "buildmatrix.toml").write_text(example)
    (tmp_path / "base.in").write_text("")
    (tmp_path / "renovate.json").write_text(configuration)
    for command in (
        ["buildmatrix", "targets"],
        ["check-jsonschema", "--builtin-schema", "vendor.renovate", "renovate.json"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
