"""`inspect` of wheel variants: what they were built for, and which one a target takes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.facts.inventory.variants import LARGEST_OF_INDEX

SPEC = """
schema = 1
[project]
name = "demo"
version = "1"
image = "registry.example.com/demo"
[defaults]
python = ["3.11"]
requirements = ["req.in"]
[backend.cpu]
runtime = "any"
base = "python:3.11-slim-bookworm"
[node-class.edge]
backend = "cpu"
cpu = "x86-64-v2"
[node-class.new]
backend = "cpu"
cpu = "x86-64-v4"
"""
#: As variantlib 0.2.2 writes it.
RELEASE = {
    "$schema": "https://variants-schema.wheelnext.dev/v0.2.0.json",
    "default-priorities": {"namespace": ["x86_64", "nvidia"]},
    "providers": {"x86_64": {"plugin-api": "x:x", "requires": ["provider-variant-x86-64"]}},
    "variants": {
        "null": {},
        "v2": {"x86_64": {"level": ["v2"]}},
        "v4": {"x86_64": {"level": ["v4"]}},
        "cu128": {"nvidia": {"cuda_version_lower_bound": ["12.8"]}},
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    (tmp_path / "req.in").write_text("demo\n")
    (tmp_path / "demo-1-variants.json").write_text(json.dumps(RELEASE))
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(("inspect", *arguments))
    return int(stop.value.code or 0)


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict:
    assert run(*arguments, "--format", "json") == code
    (result,) = json.loads(capsys.readouterr().out)["files"]
    return result


@pytest.mark.usefixtures("folder")
def test_the_variants_of_a_release_and_who_takes_which(capsys: pytest.CaptureFixture[str]) -> None:
    result = inspected(capsys, "demo-1-variants.json", "--select", "cpu-py311-default")
    assert result["kind"] == "variants"
    uses = {
        variant["label"]: {use["machines"]: use["use"] for use in variant["uses"]}
        for variant in result["variants"]
    }
    assert uses == {
        "cu128": {"edge": "not-taken", "new": "not-taken"},
        "null": {"edge": "not-taken", "new": "not-taken"},
        "v2": {"edge": "taken", "new": "not-taken"},
        "v4": {"edge": "not-taken", "new": "taken"},
    }


@pytest.mark.usefixtures("folder")
def test_the_same_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo-1-variants.json", "--select", "cpu-py311-default") == 0
    text = capsys.readouterr().out
    assert "demo-1-variants.json  " in text and ", 4 variants of a release\n" in text
    assert "  variant v2\n    x86_64 :: level :: v2\n    edge: taken\n" in text
    assert "    edge: not taken (x86_64 :: level :: v4 needs x86-64-v4, and edge has" in text


@pytest.mark.usefixtures("folder")
def test_without_a_target_properties_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    result = inspected(capsys, "demo-1-variants.json")
    assert [variant["uses"] for variant in result["variants"]] == [[]] * 4


def test_a_wheel_that_is_a_variant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = folder / "demo-1-py3-none-manylinux_2_28_x86_64-v4.whl"
    one = RELEASE | {"variants": {"v4": {"x86_64": {"level": ["v4"]}}}}
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "demo-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1\n"
        )
        archive.writestr("demo-1.dist-info/RECORD", "")
        archive.writestr("demo-1.dist-info/variant.json", json.dumps(one))
    result = inspected(capsys, wheel.name, "--select", "cpu-py311-default")
    (variant,) = result["variants"]
    assert (variant["label"], variant["properties"]) == ("v4", ["x86_64 :: level :: v4"])
    assert [use["use"] for use in variant["uses"]] == ["not-taken", "taken"]


@pytest.mark.parametrize(
    ("data", "times"), [(b"", 1), (b"{}", 1), (b"[1", 1), (b" ", LARGEST_OF_INDEX + 1)]
)
def test_a_file_that_lies_is_said_and_undecided(
    folder: Path, data: bytes, times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "demo-2-variants.json").write_bytes(data * times)
    result = inspected(capsys, "demo-2-variants.json", code=3)
    (unread,) = result["unread"]
    assert "\n" not in unread["why"]
    assert result["variants"] == []


def test_an_installed_variant_is_named_with_its_distribution(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = folder / "site-packages" / "demo-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1\n")
    one = RELEASE | {"variants": {"v2": {"x86_64": {"level": ["v2"]}}}}
    (metadata / "variant.json").write_text(json.dumps(one))
    assert run("dir:site-packages", "--select", "cpu-py311-default") == 0
    assert "  variant v2 of demo 1\n    x86_64 :: level :: v2\n" in capsys.readouterr().out
