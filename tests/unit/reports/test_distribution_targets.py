"""One backend with two targets: CUDA 12.4 and 12.9 may judge one distribution differently."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_report_formats import finding, result

from buildmatrix.base.data import replace
from buildmatrix.commands.diff_sources import read_report_side
from buildmatrix.judge.model import AuditTotals, Verdict, VerdictName
from buildmatrix.reports import ci, cyclonedx, json_form, run_html, run_table
from buildmatrix.reports.run import Report, assemble
from buildmatrix.reports.saved import merge, parse
from buildmatrix.reports.summary import list_waste

OLD, NEW, CPU = "cuda12.4", "cuda12.9", "cpu"


def on(target: str, verdict: VerdictName, size: int = 0) -> Verdict:
    backend = "cpu" if target == CPU else "cuda"
    return Verdict(
        "demo",
        "1.0",
        backend,
        verdict,
        "because",
        foreign_bytes=size,
        targets=(target,),
    )


def report(*verdicts: Verdict) -> Report:
    targets = [
        replace(result(id), backend="cpu" if id == CPU else "cuda", audit=AuditTotals())
        for id in (OLD, NEW, CPU)
    ]
    return assemble("requirements.txt", "2026-11-22", targets=targets, verdicts=verdicts)


def rows(it: Report) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.backend, one.verdict, one.targets) for one in it.distributions]


def test_a_verdict_of_one_target_does_not_hide_that_of_another() -> None:
    it = report(on(NEW, "ok"), on(OLD, "broken"))
    assert rows(it) == [("cuda", "broken", (OLD,)), ("cuda", "ok", (NEW,))]


def test_equal_verdicts_of_one_backend_are_one_row_in_the_order_of_the_targets() -> None:
    it = report(on(NEW, "bloat"), on(CPU, "bloat"), on(OLD, "bloat"))
    assert rows(it) == [("cpu", "bloat", (CPU,)), ("cuda", "bloat", (OLD, NEW))]


def test_of_a_lock_and_an_image_of_one_target_the_worse_verdict_counts() -> None:
    it = report(on(NEW, "ok"), on(NEW, "bloat"), on(NEW, "optional"), on(OLD, "ok"))
    assert rows(it) == [("cuda", "ok", (OLD,)), ("cuda", "bloat", (NEW,))]


def test_the_json_form_tells_the_targets_and_a_report_without_them_is_read() -> None:
    document = json.loads(json_form.render(report(on(NEW, "ok"), on(OLD, "broken"))))
    assert [row["targets"] for row in document["distributions"]] == [[OLD], [NEW]]
    for row in document["distributions"]:
        del row["targets"]
    old = parse(json.dumps(document).encode(), "old.json")
    assert rows(old) == [("cuda", "broken", ()), ("cuda", "ok", ())]
    # Whose they are is not known: the worst of all counts for each target, as it did.
    it = assemble("x", "", targets=old.targets, verdicts=old.distributions)
    assert rows(it) == [("cuda", "broken", ())]
    assert [it.distributions[0].is_about(id, "cuda") for id in (OLD, NEW)] == [True, True]


def test_shards_of_a_matrix_join_their_rows() -> None:
    def shard(id: str, verdict: VerdictName) -> Report:
        target = replace(result(id), backend="cuda")
        return assemble("matrix", "x", targets=[target], verdicts=[on(id, verdict)])

    assert rows(merge([shard(OLD, "ok"), shard(NEW, "ok")])) == [("cuda", "ok", (OLD, NEW))]
    assert rows(merge([shard(OLD, "ok"), shard(NEW, "bloat")])) == [
        ("cuda", "ok", (OLD,)),
        ("cuda", "bloat", (NEW,)),
    ]


def test_one_source_for_two_backends_keeps_its_rows_with_its_renamed_targets() -> None:
    def scan(backend: str, verdict: VerdictName) -> Report:
        row = Verdict("demo", "1.0", backend, verdict, "because", targets=("docker:x",))
        target = replace(result("docker:x"), backend=backend)
        return assemble("docker:x", "x", targets=[target], verdicts=[row])

    assert rows(merge([scan("cpu", "bloat"), scan("cuda", "ok")])) == [
        ("cpu", "bloat", ("docker:x (cpu)",)),
        ("cuda", "ok", ("docker:x (cuda)",)),
    ]


def test_junit_has_in_each_suite_the_verdict_of_its_target() -> None:
    root = ElementTree.fromstring(ci.render_junit(report(on(NEW, "ok"), on(OLD, "broken"))))
    told = {
        suite.get("name"): [
            line.partition(": ")[2]
            for line in (suite.findtext("system-out") or "").splitlines()
            if line.startswith("distribution ")
        ]
        for suite in root
    }
    assert told == {OLD: ["broken: because"], NEW: ["ok: because"], CPU: []}


def test_table_and_page_name_the_target_where_another_of_its_backend_differs() -> None:
    it = report(on(NEW, "ok"), on(OLD, "broken"), on(CPU, "bloat"))
    text = run_table.render(it, width=200, color=False)
    assert "demo 1.0 on cuda12.4: broken" in text
    assert "demo 1.0 on cpu: bloat" in text
    assert '<th scope="row">demo 1.0</th><td>cuda12.4</td>' in run_html.render(it)
    same = report(on(NEW, "broken"), on(OLD, "broken"))
    assert "demo 1.0 on cuda: broken" in run_table.render(same, width=200, color=False)


def test_a_finding_about_one_target_does_not_stand_for_the_verdict_of_another() -> None:
    it = report(on(NEW, "broken"), on(OLD, "broken"))
    about = replace(finding(target=OLD), backend="cuda", distribution="demo", version="1.0")
    assert "demo 1.0 on cuda" in run_table.render(
        replace(it, findings=(about,)), width=200, color=False
    )
    both = (about, replace(about, target=NEW))
    assert "demo 1.0 on cuda:" not in run_table.render(
        replace(it, findings=both), width=200, color=False
    )


def test_what_a_line_wastes_is_that_of_the_target() -> None:
    it = report(on(NEW, "bloat", size=7_000_000), on(OLD, "bloat", size=9_000_000))
    about = replace(
        finding(target=NEW),
        backend="cuda", distribution="demo", version="1.0", chain=("r.in:1", "demo 1.0"),
    )  # fmt: skip
    it = replace(it, findings=(about, replace(about, target=OLD)))
    assert [list_waste(it, id)[0].installed for id in (NEW, OLD)] == [7_000_000, 9_000_000]


def test_cyclonedx_says_the_worst_of_a_backend() -> None:
    document = json.loads(cyclonedx.render(report(on(NEW, "ok"), on(OLD, "broken"))))
    (component,) = document["components"]
    said = {one["name"].rpartition(":")[2]: one["value"] for one in component["properties"]}
    assert said["cuda"] == "broken"


@pytest.mark.parametrize(("chosen", "verdict"), [(OLD, "broken"), (NEW, "ok")])
def test_a_comparison_of_one_target_takes_its_verdict(
    tmp_path: Path, chosen: str, verdict: VerdictName
) -> None:
    path = tmp_path / "report.json"
    path.write_text(json_form.render(report(on(NEW, "ok"), on(OLD, "broken"))))
    side = read_report_side(path, [chosen], None)
    assert [one.verdict for one in side.verdicts or ()] == [verdict]
