"""Checks of the ladder that may fail, until a day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest
from test_ladder import StandInEngine

from buildmatrix.base.data import replace
from buildmatrix.base.errors import SpecError
from buildmatrix.base.progress import Silent
from buildmatrix.engines.model import ImageFacts
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Target, bare_spec
from buildmatrix.preflight import run as ladder
from buildmatrix.preflight.baseline import apply_waivers
from buildmatrix.preflight.run import RungInputs, exit_code, preflight
from buildmatrix.preflight.subject import Subject
from buildmatrix.reports import preflight_formats
from buildmatrix.reports.preflight import Check, Preflight

SPEC = """\
[project]
name = "acme"
version = "1.0"

[defaults]
base = { final = "debian:12" }
python = ["3.12"]
requirements = ["base.in"]

[backend.cpu]
runtime = "any"

[backend.cuda]
runtime = "12.8"

[[waive-check]]
rung = "import"
check = "bench*"
select = "cpu*"
reason = "a script that a wheel installs"
owner = "ml-platform"
expires = 2026-12-31
"""
FAILED = Check("benchmarks", "failed", "it needs a terminal")
OPEN = Check("bench_all", "undecided", "it took too long")


@pytest.fixture
def targets(tmp_path: Path) -> tuple[Target, ...]:
    (tmp_path / "base.in").write_text("numpy\n")
    (tmp_path / "buildmatrix.toml").write_text(SPEC)
    return load_spec(tmp_path / "buildmatrix.toml").targets


def climbed(
    target: Target, monkeypatch: pytest.MonkeyPatch, checks: Sequence[Check], today: date
) -> Preflight:
    def runner(climb: RungInputs) -> tuple[tuple[Check, ...], str]:
        return tuple(checks), ""

    monkeypatch.setattr(ladder, "RUNNERS", dict.fromkeys(ladder.RUNGS, runner))
    image = ImageFacts("sha256:1", {}, {}, 1, "")
    subject = Subject(target, bare_spec(target), cast(Any, StandInEngine()), "acme:1", image)
    return preflight([subject], "import", None, Silent(), today, scanned=True)


def test_a_failure_that_was_accepted_fails_no_rung_and_every_format_says_who_accepted_it(
    targets: tuple[Target, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = climbed(targets[0], monkeypatch, [Check("acme", "passed"), FAILED], date(2026, 12, 31))
    (rung,) = result.targets[0].rungs
    assert (rung.state, rung.why, exit_code(result)) == ("passed", "accepted: benchmarks", 0)
    texts = (
        preflight_formats.render_table(result, width=200, color=False),
        preflight_formats.render_markdown(result),
        preflight_formats.render(result),
        preflight_formats.render_junit(result),
    )
    for text in texts:
        assert "accepted" in text
        assert "a script that a wheel installs (ml-platform, until 2026-12-31)" in text


def test_it_is_a_failure_again_on_the_day_after(
    targets: tuple[Target, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = climbed(targets[0], monkeypatch, [FAILED], date(2027, 1, 1))
    assert exit_code(result) == 1
    message = result.targets[0].rungs[0].checks[0].message
    assert message == (
        "it needs a terminal (ml-platform accepted it until 2026-12-31, which has passed)"
    )


def test_other_targets_rungs_and_what_nobody_saw_are_not_accepted(
    targets: tuple[Target, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    today = date(2026, 12, 31)
    cpu, cuda = targets
    assert exit_code(climbed(cuda, monkeypatch, [FAILED], today)) == 1
    assert exit_code(climbed(cpu, monkeypatch, [FAILED, OPEN], today)) == 3
    assert apply_waivers("device", [FAILED], cpu.check_waivers, today) == (FAILED,)
    other = replace(FAILED, subject="acme")
    assert apply_waivers("import", [other], cpu.check_waivers, today) == (other,)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('rung = "static"', "`static` is not a rung of `preflight`"),
        ('rung = "import"\nmodule = "x"', "module"),
        ('rung = "import"\nselect = "rocm*"', "rocm*"),
    ],
)
def test_a_mistake_is_said_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "base.in").write_text("numpy\n")
    text = SPEC.replace('rung = "import"', line)
    (tmp_path / "buildmatrix.toml").write_text(
        text.replace('select = "cpu*"\n', "") if "select" in line else text
    )
    with pytest.raises(SpecError) as error:
        load_spec(tmp_path / "buildmatrix.toml")
    (problem,) = error.value.problems
    assert said in problem.message
    assert problem.line is not None
    assert problem.line > 14
