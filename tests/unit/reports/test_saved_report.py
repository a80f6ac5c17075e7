"""Reports that were saved: rendered again as they were, merged, and refused when they are none."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.facts.inventory.model import Inventory, Stats, Unread
from buildmatrix.judge.model import Verdict
from buildmatrix.reports import ci, run_html, run_markdown, run_table
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports.run import Report, exit_code
from buildmatrix.reports.saved import merge, read


def saved(folder: Path, name: str, one: Report) -> Path:
    path = folder / name
    path.write_text(as_json.render(one))
    return path


def test_a_saved_report_is_the_same_in_every_format(tmp_path: Path) -> None:
    tree = Inventory(unread=(Unread("a", "because"),), stats=Stats(3, 2, 100, 50, 1.5, 0))
    before = report(finding(waived="accepted"), inventories=[tree])

    after = read(saved(tmp_path, "report.json", before))

    assert as_json.render(after) == as_json.render(before)
    assert run_table.render(after, width=100, color=False) == run_table.render(
        before, width=100, color=False
    )


def test_shards_become_one_report(tmp_path: Path) -> None:
    one = report(finding(), targets=(result("cpu-py311-server"),))
    two = report(
        finding(target="cpu-py312-server"), targets=(result("cpu-py312-server", scan="failed"),)
    )

    merged = merge([read(saved(tmp_path, f"{n}.json", r)) for n, r in enumerate((one, two))])

    assert [t.id for t in merged.targets] == ["cpu-py311-server", "cpu-py312-server"]
    assert {f.target for f in merged.findings} == {"cpu-py311-server", "cpu-py312-server"}
    assert merged.subject == "buildmatrix.toml"


def test_one_target_in_two_reports_is_refused_because_only_one_can_count() -> None:
    with pytest.raises(UsageError, match="cpu-py311-server is in more than one report"):
        merge([report(), report()])


def test_one_image_judged_for_two_backends_becomes_two_targets_with_their_own_findings(
    tmp_path: Path,
) -> None:
    name = "docker:acme/inferno:1.4.0"
    scans = [
        replace(
            report(
                replace(finding(target=name), backend=backend),
                targets=(replace(result(name, scan=state), backend=backend),),
            ),
            distributions=(Verdict("torch", "2.9.0", backend, verdict, "because"),),
        )
        for backend, state, verdict in (("cpu", "failed", "bloat"), ("cuda", "passed", "ok"))
    ]
    merged = merge([read(saved(tmp_path, f"{n}.json", one)) for n, one in enumerate(scans)])

    assert [(one.id, one.gates["scan"]) for one in merged.targets] == [
        (f"{name} (cpu)", "failed"),
        (f"{name} (cuda)", "passed"),
    ]
    assert {(one.target, one.backend) for one in merged.findings} == {
        (f"{name} (cpu)", "cpu"),
        (f"{name} (cuda)", "cuda"),
    }
    assert [(one.backend, one.verdict) for one in merged.distributions] == [
        ("cpu", "bloat"),
        ("cuda", "ok"),
    ]
    with pytest.raises(UsageError, match="in more than one report for cpu"):
        merge([scans[0], scans[0], scans[1]])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "\x00", '{"schema": "buildmatrix/report/1"}', "[" * 100_000],
    ids=["empty", "object", "list", "nul", "cut off", "deep"],
)
def test_what_is_no_report_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=r"x\.json is not a report of buildmatrix"):
        read(path)


def test_a_report_of_another_format_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, "old.json", report())
    path.write_text(path.read_text().replace("report/1", "report/9"))

    with pytest.raises(UsageError, match="has the format buildmatrix/report/9"):
        read(path)


def test_a_missing_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json cannot be read: No such file"):
        read(tmp_path / "gone.json")


def test_what_was_published_is_told_in_every_format_and_decides_the_exit_code(
    tmp_path: Path,
) -> None:
    message = "not pushed: registry.example.com/demo could not be pushed: unauthorized"
    before = report(
        targets=(
            replace(result("a"), push="passed", bases={"debian:12": "sha256:" + "1" * 64}),
            replace(result("b"), push="failed", error=message),
            replace(result("c"), push="not-run"),
        )
    )
    after = read(saved(tmp_path, "report.json", before))

    assert after.targets == before.targets
    assert exit_code(after) == 4
    text = run_table.render(after, width=100, color=False)
    assert text.splitlines()[0].split() == [
        "target", "lock", "build", "scan", "smoke", "push", "time", "size",
    ]  # fmt: skip
    assert "could not be pushed: unauthorized" in text
    assert "| push |" in run_markdown.render(after)
    assert '<th scope="col">push</th>' in run_html.render(after)
    suite = ElementTree.fromstring(ci.render_junit(after))
    (failed,) = suite.iterfind(".//testcase[@name='gate push']/failure")
    assert "unauthorized" in (failed.text or "")
    only_undecided = replace(before, targets=(replace(before.targets[1], push="undecided"),))
    assert exit_code(only_undecided) == 3


def test_a_report_of_a_run_that_published_nothing_has_no_column_for_it() -> None:
    assert "push" not in run_table.render(report(), width=100, color=False)
