"""SARIF, as Microsoft's validator and GitHub's code scanning want it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import npm
import pytest
from click.testing import CliRunner

from buildmatrix.cli.release import report_command

REPORT = Path(__file__).parents[1] / "unit/project/documents/cpu-report/report.json"

pytestmark = pytest.mark.network


def test_the_validator_finds_no_error_and_no_warning(tmp_path: Path) -> None:
    log, said = tmp_path / "report.sarif", tmp_path / "said.sarif"
    CliRunner().invoke(report_command, [str(REPORT), "--format", f"sarif={log}"])
    assert len(json.loads(log.read_text())["runs"][0]["results"]) > 1

    package = npm.installed("sarif") / "node_modules/@microsoft/sarif-multitool-linux"
    program = package / "Sarif.Multitool"
    # Its install script would do that.
    program.chmod(0o755)
    command: list[str | Path] = [program, "validate", log, "--rule-kind", "Sarif;Ghas"]
    command += ["--level", "Error;Warning", "--kind", "Fail", "--output", said]
    # .NET looks for libicu otherwise.
    environment = {**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "Analysis completed successfully" in done.stdout, done

    (run,) = json.loads(said.read_text())["runs"]
    found = [(result["ruleId"], result["message"]) for result in run.get("results", ())]
    assert found == []
