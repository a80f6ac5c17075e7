"""What bake is given, and what it gives back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines import docker_bake as bake
from buildmatrix.engines.model import BuildJob, Surroundings

DATA = Path(__file__).parent / "data"
JOB = BuildJob(
    id="cpu-py311",
    bake_file=Path("/p/gen/docker-bake.json"),
    image_target="cpu-py311",
    scan_target="scan-cpu-py311",
    context=Path("/p"),
    tags=("registry.example.com/a:1",),
    log=Path("/p/state/cpu-py311/build.log"),
    scan_output=Path("/p/state/cpu-py311/scan"),
)


def test_the_overlay_holds_what_this_machine_adds() -> None:
    surroundings = Surroundings("mirror.example.com/", "host", {"ca": Path("/etc/ca.pem")})
    overlay = bake.image_overlay(JOB, surroundings, "type=docker")

    assert overlay == {
        "cpu-py311": {
            "args": {"MIRROR": "mirror.example.com/"},
            "network": "host",
            "output": ["type=docker"],
            "secret": ["id=ca,src=/etc/ca.pem"],
        }
    }


def test_the_scan_gets_neither_network_nor_secrets() -> None:
    surroundings = Surroundings("", "host", {"ca": Path("/etc/ca.pem")})
    scan = bake.scan_overlay(JOB, surroundings)["scan-cpu-py311"]

    assert scan == {
        "args": {"MIRROR": ""},
        "output": ["type=local,dest=/p/state/cpu-py311/scan"],
    }


def test_a_path_with_a_comma_stays_one_path() -> None:
    overlay = bake.image_overlay(JOB, Surroundings(secrets={"ca": Path("/a,b/ca")}), "type=docker")

    assert overlay["cpu-py311"]["secret"] == ['id=ca,"src=/a,b/ca"']


def test_bake_expands_nothing_in_what_it_is_given(tmp_path: Path) -> None:
    bake.write_overlay(tmp_path / "o.json", {"t": {"args": {"A": "${HOME} %{ if x }"}}})
    text = json.loads((tmp_path / "o.json").read_text())

    assert text["target"]["t"]["args"]["A"] == "$${HOME} %%{ if x }"


def test_exactly_what_is_used_is_allowed() -> None:
    flags = bake.entitlements(JOB, Surroundings("", "host", {"ca": Path("/etc/ca.pem")}))

    assert "--allow=network.host" in flags
    assert "--allow=fs.read=/etc/ca.pem" in flags
    assert "--allow=fs.write=/p/state/cpu-py311/scan" in flags
    assert "--allow=network.host" not in bake.entitlements(JOB, Surroundings())


def test_recorded_metadata_names_the_image_its_bases_and_its_environment() -> None:
    built = bake.read_metadata(DATA / "metadata.json", "cpu-py311-v2", "scan-cpu-py311-v2")

    assert built.digest.startswith("sha256:")
    assert built.config is not None
    assert built.config.startswith("sha256:")
    assert built.config != built.digest
    assert built.labels["org.opencontainers.image.title"] == "tiny"
    assert set(built.bases) == {
        "localhost:5000/python:3.11-slim-bookworm",
        "localhost:5000/ghcr.io/astral-sh/uv:0.13.8",
    }
    assert set(built.unpinned) == set(built.bases)
    assert built.environment is not None
    assert built.environment["V"] == "v2"
    assert built.environment["PATH"].startswith("/opt/venv/bin:")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"cpu-py311-v2": {}}', "null"])
def test_metadata_that_names_no_image_decides_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(text)

    with pytest.raises(UndecidedError, match=r"metadata\.json"):
        bake.read_metadata(path, "cpu-py311-v2", "scan-cpu-py311-v2")


def test_missing_metadata_decides_nothing(tmp_path: Path) -> None:
    with pytest.raises(UndecidedError, match="metadata"):
        bake.read_metadata(tmp_path / "none.json", "a", "b")


def test_without_a_scan_the_environment_is_unknown_and_not_empty() -> None:
    assert bake.read_metadata(DATA / "metadata.json", "cpu-py311-v2", "none").environment is None


def test_relative_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    job = replace(JOB, scan_output=Path("scan"))

    assert f"--allow=fs.write={tmp_path / 'scan'}" in bake.entitlements(job, Surroundings())
