"""`audit --diff`: what a change brings, between two commits of a real repository."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fix_project import SPEC, git, package_index, session, write
from package_index import PackageIndex

from buildmatrix import cli
from buildmatrix.commands.audit_diff import extract_inputs, reduce_report
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports import run_markdown, run_table, sarif
from buildmatrix.reports.formats import document_schema
from buildmatrix.reports.run import Difference, Report, TargetDifference, exit_code


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    with package_index(monkeypatch, tmp_path) as served:
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(root: Path, **files: str) -> None:
    write(root, **files)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")


def diff(
    root: Path, *sources: str, ref: str = "HEAD", is_resolved: bool = True, **more: Any
) -> Report:
    if sources:
        more.setdefault("backends", ("cpu",))
    with session(root, *sources, **more) as one, extract_inputs(one.inputs, ref) as then:
        found = one.resolve()
        assert [str(error) for error in found if isinstance(error, Exception) and is_resolved] == []
        return reduce_report(one, found, one.report(found), ref, then)


def difference(report: Report) -> Difference:
    assert report.diff is not None
    return report.diff


def only(report: Report) -> TargetDifference:
    (one,) = difference(report).targets
    return one


def rules(report: Report) -> set[tuple[str, str | None]]:
    return {(one.rule, one.distribution) for one in report.findings if one.severity != "note"}


def changes(report: Report) -> dict[str, str]:
    return {one.name: one.change for one in only(report).distributions.changes}


# What is new


def test_a_new_line_brings_its_findings_distributions_and_bytes(
    index: PackageIndex, root: Path
) -> None:
    commit(root, base__in="numpy\n")
    write(root, base__in="# sorted\nnumpy\nxgboost==3.4.1\n")
    report = diff(root, "base.in")
    assert ("BM101", "nvidia-nccl-cu13") in rules(report)
    assert changes(report) == {"xgboost": "added", "nvidia-nccl-cu13": "added"}
    one = only(report)
    assert one.before is not None
    assert one.after is not None
    assert one.after.download > one.before.download
    assert exit_code(report) == 1


def test_what_was_there_before_is_not_told_and_fails_nothing(
    index: PackageIndex, root: Path
) -> None:
    commit(root, base__in="xgboost==3.4.1\n")
    write(root, base__in="xgboost==3.4.1\nonnxruntime==1.30.0\n")
    report = diff(root, "base.in")
    assert report.findings == ()
    assert [one.name for one in report.distributions] == ["onnxruntime"]
    assert report.targets[0].gates["lock"] == "passed"
    assert exit_code(report) == 0
    assert only(report).findings.same > 0


def test_an_upgrade_of_what_was_foreign_already_is_no_new_finding(
    index: PackageIndex, root: Path
) -> None:
    index.add("pypi", "nvidia-nccl-cu13", "2.99")
    commit(root, base__in="xgboost==3.4.1\nnvidia-nccl-cu13==2.28\n")
    write(root, base__in="xgboost==3.4.1\nnvidia-nccl-cu13==2.99\n")
    report = diff(root, "base.in")
    assert exit_code(report) == 0
    assert changes(report) == {"nvidia-nccl-cu13": "changed"}


def test_what_a_change_takes_away_is_told(index: PackageIndex, root: Path) -> None:
    commit(root, base__in="xgboost==3.4.1\n")
    write(root, base__in="numpy\n")
    report = diff(root, "base.in")
    gone = {found.rule for found in only(report).findings.gone}
    assert "BM101" in gone
    assert changes(report) == {"xgboost": "removed", "nvidia-nccl-cu13": "removed"}
    assert exit_code(report) == 0


def test_no_change_is_no_difference(index: PackageIndex, root: Path) -> None:
    commit(root, base__in="xgboost==3.4.1\n")
    report = diff(root, "base.in")
    assert changes(report) == {}
    assert report.findings == ()
    assert "0 new findings, 0 gone" in run_table.render(report, width=100, color=False)


def test_a_change_in_an_included_file_counts(index: PackageIndex, root: Path) -> None:
    commit(root, service___base__in="-r ../common.in\n", common__in="numpy\n")
    write(root, common__in="xgboost==3.4.1\n")
    report = diff(root / "service", "base.in")
    assert ("BM101", "nvidia-nccl-cu13") in rules(report)


def test_a_file_that_is_new_is_new_as_a_whole(index: PackageIndex, root: Path) -> None:
    commit(root, other__in="numpy\n")
    write(root, base__in="xgboost==3.4.1\n")
    report = diff(root, "base.in")
    assert set(changes(report)) == {"numpy", "nvidia-nccl-cu13", "xgboost"}
    assert any("base.in does not exist at HEAD" in note for note in difference(report).notes)
    assert exit_code(report) == 1


def test_a_file_with_any_name_is_found_at_the_revision(index: PackageIndex, root: Path) -> None:
    commit(root, requirements="xgboost==3.4.1\n")
    report = diff(root, "requirements:requirements")
    assert changes(report) == {}


def test_each_backend_has_its_own_difference(index: PackageIndex, root: Path) -> None:
    commit(root, base__in="numpy\n")
    write(root, base__in="xgboost==3.4.1\n")
    report = diff(root, "base.in", backends=("cuda", "cpu"))
    new = {one.backend: len(one.findings.new) for one in difference(report).targets}
    assert new["cuda"] == 0
    assert new["cpu"] > 0
    assert {one.id: one.gates["lock"] for one in report.targets} == {
        "cuda:base.in": "passed",
        "cpu:base.in": "failed",
    }


# A specification


def test_targets_of_a_specification_are_compared_one_by_one(
    index: PackageIndex, root: Path
) -> None:
    commit(root, buildmatrix__toml=SPEC, base__in="numpy\n")
    write(root, base__in="xgboost==3.4.1\n")
    report = diff(root)
    assert [one.id for one in difference(report).targets] == [
        "cuda13.0-py311-default",
        "cpu-py311-default",
        "rocm7.2-py311-default",
    ]
    assert {one.backend for one in report.findings} == {"cpu", "rocm"}


def test_an_entry_that_the_specification_lost_is_what_brings_it_back(
    index: PackageIndex, root: Path
) -> None:
    entry = 'base = "python:{python}-slim-bookworm"\nreplace = { xgboost = "xgboost-cpu" }\n'
    kept = SPEC.replace('base = "python:{python}-slim-bookworm"\n', entry)
    commit(root, buildmatrix__toml=kept, base__in="xgboost==3.4.1\n")
    write(root, buildmatrix__toml=SPEC)
    report = diff(root, select=("cpu*",))
    assert ("BM101", "nvidia-nccl-cu13") in rules(report)
    assert changes(report)["xgboost-cpu"] == "removed"


def test_a_waiver_that_is_gone_makes_its_finding_new(index: PackageIndex, root: Path) -> None:
    waiver = (
        '\n[[waive]]\nrule = "BM101"\ndistribution = "nvidia-*"\nreason = "so be it"\n'
        'owner = "a"\nexpires = 2999-01-01\n'
    )
    commit(root, buildmatrix__toml=SPEC + waiver, base__in="xgboost==3.4.1\n")
    write(root, buildmatrix__toml=SPEC)
    report = diff(root, select=("cpu*",))
    assert rules(report) == {("BM101", "nvidia-nccl-cu13")}
    assert exit_code(report) == 1


def test_a_target_that_is_new_is_new_as_a_whole_and_one_that_went_is_named(
    index: PackageIndex, root: Path
) -> None:
    commit(root, buildmatrix__toml=SPEC, base__in="xgboost==3.4.1\n")
    write(root, buildmatrix__toml=SPEC.replace('"3.11"', '"3.12"'))
    report = diff(root)
    # Of cuda nothing is wrong but that its base has no digest.
    wrong = [finding for finding in report.findings if finding.rule != "BM607"]
    assert {finding.backend for finding in wrong} == {"cpu", "rocm"}
    assert any(
        "targets that no longer exist: cuda13.0-py311-default" in note
        for note in difference(report).notes
    )


def test_a_specification_that_was_wrong_then_does_not_stop_its_repair(
    index: PackageIndex, root: Path
) -> None:
    commit(root, buildmatrix__toml="schema = 1\nnonsense = 3\n", base__in="numpy\n")
    write(root, buildmatrix__toml=SPEC)
    report = diff(root)
    assert exit_code(report) == 0
    assert any("everything counts as new" in note for note in difference(report).notes)


# What cannot be compared


def test_what_could_not_be_resolved_then_counts_as_new_and_that_is_said(
    index: PackageIndex, root: Path
) -> None:
    commit(root, base__in="xgboost==99\n")
    write(root, base__in="xgboost==3.4.1\n")
    report = diff(root, "base.in")
    assert ("BM101", "nvidia-nccl-cu13") in rules(report)
    assert any("could not be audited as it was at" in note for note in difference(report).notes)


def test_what_cannot_be_resolved_now_is_undecided(index: PackageIndex, root: Path) -> None:
    commit(root, base__in="xgboost==3.4.1\n")
    write(root, base__in="xgboost==99\n")
    report = diff(root, "base.in", is_resolved=False)
    assert report.targets[0].gates["lock"] == "undecided"
    assert exit_code(report) == 3


def run(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str, str]:
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / ".cache"))
    with pytest.raises(SystemExit) as stop:
        cli.main(["-q", "audit", *words, "--no-vulnerabilities", "--no-cache"])
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_the_command_line_compares_and_its_exit_code_counts_new_findings_only(
    index: PackageIndex,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit(root, base__in="xgboost==3.4.1\n")
    write(root, base__in="xgboost==3.4.1\nonnxruntime\n")
    words = ("base.in", "--backend", "cpu", "--diff", "main")
    code, out, _ = run(root, capsys, monkeypatch, *words)
    assert code == 0
    assert "+ onnxruntime" in out
    write(root, base__in="xgboost==3.4.1\nonnxruntime-gpu\n")
    assert run(root, capsys, monkeypatch, *words)[0] == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("base.in", "--diff", "nope"), "git knows no revision 'nope'"),
        (("base.in", "--diff", "main", "--fix"), "mutually exclusive"),
        (("base.in", "--dry-run"), "--dry-run belongs to --fix"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    index: PackageIndex,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    told: str,
) -> None:
    commit(root, base__in="numpy\n")
    code, out, err = run(root, capsys, monkeypatch, *words)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.strip().splitlines()) == 1


def test_outside_of_a_repository_there_is_nothing_to_compare_with(
    index: PackageIndex,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    write(tmp_path, base__in="numpy\n")
    code, _, err = run(tmp_path, capsys, monkeypatch, "base.in", "--diff", "main")
    assert code == 2
    assert "is not in a git repository" in err


# How it is told


@pytest.fixture
def told(index: PackageIndex, root: Path) -> Report:
    commit(root, base__in="numpy\n")
    write(root, base__in="# sorted\nnumpy\nxgboost==3.4.1\n")
    return diff(root, "base.in", backends=("rocm", "cpu"))


def test_sarif_has_the_new_findings_at_their_present_lines(told: Report) -> None:
    (run_,) = json.loads(sarif.render(told))["runs"]
    places = {
        (
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            result["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for result in run_["results"]
    }
    assert places == {("base.in", 3)}


def test_json_fits_its_schema_and_holds_what_came_and_went(told: Report) -> None:
    document = json.loads(as_json.render(told))
    jsonschema.validate(document, document_schema("report"))
    found = document["diff"]
    assert found["ref"] == "HEAD"
    assert len(found["commit"]) == 40
    assert [one["id"] for one in found["targets"]] == ["rocm:base.in", "cpu:base.in"]
    names = [one["name"] for one in found["targets"][1]["distributions"]["changes"]]
    assert names == ["nvidia-nccl-cu13", "xgboost"]


def test_a_comment_says_the_sum_first_and_folds_the_rest(told: Report) -> None:
    text = run_markdown.render(told)
    head, _, folded = text.partition("<details>")
    assert "**2 new findings, 0 gone; 2 distributions in, out or changed" in head
    assert "base.in:3" in head
    assert "nvidia-nccl-cu13" in folded
    assert folded.count("</details>") == text.count("<details>")
    # What is the same for both backends is said once.
    assert head.count("BM101") == 1
    assert "rocm:base.in, cpu:base.in" in head
    # Their cures differ, and each is told.
    assert "under \\[backend.rocm\\] (a build for the cpu" in head
    assert "under \\[backend.cpu\\]\n" in head


def test_the_table_says_the_same(told: Report) -> None:
    text = run_table.render(told, width=100, color=False)
    assert "since HEAD: 2 new findings, 0 gone" in text
    assert re.search(r"\+ xgboost +3\.4\.1", text)
    assert all(len(line) <= 160 for line in text.splitlines())


def test_a_file_name_cannot_write_markup_into_a_comment(index: PackageIndex, root: Path) -> None:
    name = "a<img src=x>.in"
    commit(root, base__in="numpy\n")
    (root / name).write_text("xgboost==3.4.1\n")
    text = run_markdown.render(diff(root, name))
    assert not re.search(r"(?<!\\)<img", text)
