"""The rung `batch`: the user's commands again and again, cold and warm."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from probing import runner

from buildmatrix.engines.model import RunResult
from buildmatrix.matrix.model import Position, Smoke
from buildmatrix.preflight.timed_rungs import (
    REQUIRED_SAMPLES,
    UnreadableResult,
    describe,
    describe_difference,
    parse_result,
    percentile,
    run_batch,
    summarize,
)
from buildmatrix.reports.preflight import Check, Preflight, PreflightTarget, RungOutcome
from buildmatrix.reports.preflight_formats import render_table
from buildmatrix.reports.run import ReportTool


def warmup(folder: Path, source: str, timeout_s: float = 300) -> Smoke:
    script = folder / "warmup.py"
    script.write_text(source)
    command = (sys.executable, str(script))
    return Smoke("warmup", "batch", command, timeout_s, Position("buildmatrix.toml", 1, 1))


def batch(
    tmp_path: Path, source: str, reference: dict[str, float] | None = None, repeat: int = 3
) -> Sequence[Check]:
    references = {"warmup cold": reference} if reference else {}
    return run_batch([warmup(tmp_path, source)], runner(tmp_path), repeat, references)


RESULT = """print('BUILDMATRIX_RESULT {"loss": 0.25, "logits": [1.5, -0.5]}')"""


def test_a_command_is_run_cold_and_warm_and_its_numbers_are_kept(tmp_path: Path) -> None:
    cold, warm = batch(tmp_path, RESULT)
    assert (cold.subject, cold.state, cold.values["n"]) == ("warmup cold", "passed", 3)
    assert cold.values["result"] == {"loss": 0.25, "logits[0]": 1.5, "logits[1]": -0.5}
    assert (warm.subject, warm.state, warm.values["n"]) == ("warmup warm", "passed", 3)
    assert "p50_s" in cold.values and "p95_s" not in cold.values


@pytest.mark.parametrize(
    ("reference", "state", "word"),
    [
        ({"loss": 0.2501, "logits[0]": 1.5, "logits[1]": -0.5}, "passed", "tolerance 0.001"),
        ({"loss": 0.26, "logits[0]": 1.5, "logits[1]": -0.5}, "failed", "loss is 0.25, not 0.26"),
        ({"accuracy": 0.9}, "failed", "`accuracy` is not in the result"),
    ],
)
def test_numbers_are_those_of_the_reference_within_a_tolerance(
    tmp_path: Path, reference: dict[str, float], state: str, word: str
) -> None:
    cold, *_ = batch(tmp_path, RESULT, reference)
    assert cold.state == state and word in cold.message


def test_a_command_that_prints_no_result_cannot_be_compared(tmp_path: Path) -> None:
    cold, *_ = batch(tmp_path, "print('done')", {"loss": 1.0})
    assert cold.state == "undecided" and "no result to compare" in cold.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise SystemExit(3)", "failed with exit code 3"),
        ("print('words'); raise ValueError('torn')", "exit code 1: ValueError: torn"),
        ("print('BUILDMATRIX_RESULT {')", "its result is not JSON"),
        ("print('BUILDMATRIX_RESULT [1]')", "its result is not a JSON object"),
        ("print('BUILDMATRIX_RESULT {\"loss\": NaN}')", "`loss` of its result is not finite"),
        ('print(\'BUILDMATRIX_RESULT {"loss": "low"}\')', "`loss` of its result is not a number"),
    ],
)
def test_what_fails_says_how_and_is_not_run_again(
    tmp_path: Path, source: str, message: str
) -> None:
    (cold,) = batch(tmp_path, source)
    assert cold.state == "failed" and message in cold.message


def test_a_command_that_hangs_or_dies_is_bounded_and_named(tmp_path: Path) -> None:
    smoke = warmup(tmp_path, "")
    (hung,) = run_batch([smoke], lambda *_: RunResult(137, "", timed_out=True), 3, {})
    assert (hung.state, hung.message) == ("failed", "did not end within 300 s")
    (died,) = run_batch([smoke], lambda *_: RunResult(139, "", timed_out=False), 3, {})
    assert (died.state, died.message) == ("failed", "failed with exit code 139 (SIGSEGV)")


def test_what_works_once_in_a_container_is_cold_only(tmp_path: Path) -> None:
    once = tmp_path / "once"
    source = f"""
import os, pathlib
once = pathlib.Path({str(once)!r})
if "PROBED" in os.environ and once.exists(): raise SystemExit("there already")
once.touch()
"""
    smoke = warmup(tmp_path, source)
    cold_run, warm_run = runner(tmp_path), runner(tmp_path, PROBED="1")

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        if command == smoke.command:
            return cold_run(command, timeout_s)
        once.unlink()
        return warm_run(command, timeout_s)

    cold, warm = run_batch([smoke], run, 2, {})
    assert cold.state == "passed"
    assert warm.state == "not-run"
    assert warm.message.endswith("ended with exit code 1: there already")


def test_a_command_that_forks_and_floods_costs_nothing_else(tmp_path: Path) -> None:
    source = (
        """
import os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0); os.close(1); os.close(2); time.sleep(20)
sys.stdout.write('x' * 3_000_000)
print()
"""
        + RESULT
    )
    cold, warm = batch(tmp_path, source, repeat=2)
    assert (cold.state, warm.state) == ("passed", "passed")


def test_an_image_without_python_is_run_cold_only(tmp_path: Path) -> None:
    smoke = warmup(tmp_path, "")

    def run(command: Sequence[str], timeout_s: float) -> RunResult:
        found = command == smoke.command
        return RunResult(0 if found else 127, "" if found else "python: not found", timed_out=False)

    cold, warm = run_batch([smoke], run, 2, {})
    assert (cold.state, warm.state) == ("passed", "not-run")
    assert warm.message.endswith("python: not found")


def test_percentiles_are_named_from_enough_samples_on() -> None:
    samples = [float(n) for n in range(1, 101)]
    assert [percentile(samples, percent) for percent in REQUIRED_SAMPLES] == [50, 95, 99]
    assert {"p50_s", "p95_s"} <= summarize(samples[:20]).keys()
    assert "p99_s" not in summarize(samples[:99])
    assert describe([1.0, 2.0]) == "1.00 to 2.00 s of 2"
    assert describe(samples[:5]) == "p50 3.00 s of 5 (1.00 to 5.00 s)"


def test_the_last_result_counts_and_may_bring_its_tolerance() -> None:
    lines = 'BUILDMATRIX_RESULT {"a": 1}\nnoise\nBUILDMATRIX_RESULT {"a": 2, "tolerance": 0.5}\n'
    result = parse_result(lines)
    assert result == {"a": 2.0, "tolerance": 0.5}
    assert describe_difference(result, {"a": 3.0}) == ""
    assert describe_difference({"a": 1e-9, "b": 1.0}, {"a": 0.0, "b": 1.0}) == ""
    with pytest.raises(UnreadableResult, match="256 are compared"):
        parse_result(
            "BUILDMATRIX_RESULT " + str({f"n{n}": n for n in range(300)}).replace("'", '"')
        )
    with pytest.raises(UnreadableResult, match="not finite"):
        parse_result('BUILDMATRIX_RESULT {"a": ' + "9" * 400 + "}")


def test_the_table_draws_each_run_as_a_bar() -> None:
    check = Check("torch", "passed", "p50 2.00 s", values={"samples_s": [4.0, 2.0, 0.1, 4.0]})
    rungs = (RungOutcome("cold-start", "passed", (check,)),)
    tool = ReportTool(version="1", catalogue="2026-11-22")
    document = Preflight(tool, (PreflightTarget("acme", "cpu", rungs),))
    lines = render_table(document, width=80, color=False).splitlines()
    assert lines[lines.index("    passed torch: p50 2.00 s") + 1] == "    █▅▁█"


def test_the_line_of_the_page_is_a_result() -> None:
    page = Path(__file__).parents[3] / "docs/preflight.md"
    (line,) = re.findall(r"^BUILDMATRIX_RESULT .*$", page.read_text(), re.MULTILINE)
    numbers = {"loss": 0.25, "logits[0]": 1.5, "logits[1]": -0.5, "tolerance": 0.01}
    assert parse_result(line) == numbers
