"""`doctor`: one line per thing that was checked, and the exit code of the contract."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from buildmatrix.cli import group
from buildmatrix.preflight import machine


@pytest.fixture(autouse=True)
def no_docker_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BUILDMATRIX_INTERVAL", "0")


def doctor(*arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(group, ["doctor", *arguments], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output.splitlines()


def test_a_machine_without_docker_builds_without_and_the_rest_is_checked() -> None:
    code, lines = doctor("--offline")
    assert code == 0
    assert lines[0].startswith("none     engine: there is no docker command; install Docker")
    assert lines[1].startswith("ok       engine: oci, part of buildmatrix; ")
    assert [line.split(":")[0].split()[1] for line in lines[2:7]] == [
        "resolver", "catalogue", "specification", "disk", "index",
    ]  # fmt: skip
    assert any(line.split()[1].startswith("devices") for line in lines)


def test_without_docker_a_builder_of_it_is_missing() -> None:
    code, lines = doctor("--offline", "--builder", "remote")
    assert code == 5
    assert lines[0].startswith("missing  engine: there is no docker command; install Docker")


def test_a_wrong_specification_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "buildmatrix.toml").write_text("[project]\nnme = 1\n")
    code, lines = doctor("--offline")
    assert code == 2
    assert any("buildmatrix.toml:2:1: unknown key `nme`" in line for line in lines)


def test_a_specification_that_is_no_toml_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "buildmatrix.toml").write_text("x = \n")
    code, lines = doctor("--offline")
    assert code == 2
    (line,) = [line for line in lines if "this is not TOML" in line]
    assert line.startswith("wrong    specification:")


def test_an_index_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:secret@127.0.0.1:9/simple")
    _, lines = doctor()
    (line,) = [line for line in lines if "index:" in line and "127.0.0.1" in line]
    assert line.startswith("unknown  index: http://127.0.0.1:9/simple")
    assert "secret" not in "".join(lines)


def test_a_folder_of_wheels_is_an_index_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simple").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "simple").as_uri())
    _, lines = doctor()
    assert any(line.startswith("ok       index: file:") for line in lines)


@pytest.fixture
def hot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of which one sensor is above what it calls critical."""
    sensor = tmp_path / "machine/sys/class/hwmon/hwmon0"
    sensor.mkdir(parents=True)
    (sensor / "temp1_input").write_text("99000\n")
    (sensor / "temp1_crit").write_text("90000\n")
    monkeypatch.setattr(
        machine, "MachineFiles", partial(machine.MachineFiles, tmp_path / "machine")
    )
    return sensor


def test_a_sick_node_is_told_and_fails_with_strict_alone(hot: Path) -> None:
    code, lines = doctor("--offline")
    assert code == 0
    assert "partly   node temperature: hwmon/hwmon0/temp1_input: 99 °C (should be below 90)." in (
        "\n".join(lines)
    )
    assert doctor("--offline", "--strict")[0] == 1
    (hot / "temp1_input").unlink()
    os.mkfifo(hot / "temp1_input")
    assert doctor("--offline", "--strict")[0] == 3
    assert doctor("--offline")[0] == 0


def test_counters_are_looked_at_twice(hot: Path, tmp_path: Path) -> None:
    counter = tmp_path / "machine/sys/class/net/eth0/statistics/rx_dropped"
    counter.parent.mkdir(parents=True)
    counter.write_text("7\n")
    _, lines = doctor("--offline", "--interval", "0.01")
    assert "ok       node packet-drops: 0 packets/s" in lines


def test_programs_get_checks_and_measures(hot: Path) -> None:
    _, lines = doctor("--offline", "--format", "json")
    document = json.loads("\n".join(lines))
    (check,) = [check for check in document["node"] if check["id"] == "temperature"]
    assert check["measures"] == [
        {
            "place": "/sys/class/hwmon/hwmon0/temp1_input",
            "value": "99",
            "number": 99.0,
            "bound": "should be below 90",
            "holds": False,
        }
    ]
    assert "process" not in document
    _, lines = doctor("--offline", "--format", "prometheus")
    assert 'buildmatrix_doctor_check{check="temperature",backend="",state="partly"} 1' in lines


def test_of_a_process_nothing_else_is_said() -> None:
    code, lines = doctor("--process", str(os.getpid()))
    assert code == 0
    assert lines[0].split()[1] == "process"
    code, lines = doctor("--process", str(2**30))
    assert (code, lines) == (3, [f"unknown  process {2**30}: there is no such process"])
