"""Fixes that are tried: put into the inputs, resolved by the real uv, audited, then said."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fix_project import SPEC, package_index, session, write
from package_index import PackageIndex
from sarif_files import apply_fixes

from buildmatrix.base.errors import UndecidedError
from buildmatrix.commands import fix_patches
from buildmatrix.commands.fixing import fixed, try_fixes
from buildmatrix.judge.model import Fix, Trial
from buildmatrix.reports import ci, run_markdown, run_table, sarif, saved
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports.formats import RUN, Destination, document_schema, find_format
from buildmatrix.reports.run import FixesTried, Report, exit_code


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    with package_index(monkeypatch, tmp_path) as served:
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def audit(root: Path, *sources: str, dry_run: bool = True, **more: Any) -> Report:
    with session(root, *sources, **more) as one:
        found = one.resolve()
        return fixed(one, found, one.report(found), dry_run=dry_run)[1]


def on_cpu(root: Path, source: str = "base.in", **more: Any) -> Report:
    return audit(root, source, backends=("cpu",), **more)


def tried(report: Report) -> FixesTried:
    assert report.fixes is not None
    return report.fixes


def trial(report: Report, rule: str = "BM101", backend: str = "cpu") -> Trial:
    fix = fix_of(report, rule, backend)
    assert fix.tried is not None
    return fix.tried


def fix_of(report: Report, rule: str = "BM101", backend: str = "cpu") -> Fix:
    fix = next(f.fix for f in report.findings if (f.rule, f.backend) == (rule, backend))
    assert fix is not None
    return fix


def apply(root: Path, patch: str) -> None:
    subprocess.run(["git", "apply", "-"], cwd=root, input=patch, text=True, check=True)


# What is offered


def test_a_twin_is_offered_once_it_was_resolved_and_audited_clean_a9(
    index: PackageIndex, root: Path
) -> None:
    write(root, base__in="numpy\nxgboost==3.4.1  # boosting\n")
    report = on_cpu(root)
    assert trial(report).works is True
    assert trial(report).saved_download > 0
    assert trial(report).saved_installed > 0
    assert tried(report).patch == (
        "--- a/base.in\n+++ b/base.in\n@@ -1,2 +1,2 @@\n numpy\n"
        "-xgboost==3.4.1  # boosting\n+xgboost-cpu==3.4.1  # boosting\n"
    )
    assert exit_code(report) == 1, "what is there is still wrong"


def test_a_dry_run_writes_nothing_and_its_patch_can_be_applied(
    index: PackageIndex, root: Path
) -> None:
    write(root, base__in="xgboost==3.4.1")
    report = on_cpu(root)
    assert (root / "base.in").read_text() == "xgboost==3.4.1"
    apply(root, tried(report).patch)
    assert (root / "base.in").read_text() == "xgboost-cpu==3.4.1"


def test_fix_writes_the_file_and_ends_clean(index: PackageIndex, root: Path) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    (root / "base.in").chmod(0o640)
    report = on_cpu(root, dry_run=False)
    assert (root / "base.in").read_text() == "xgboost-cpu==3.4.1\n"
    assert (root / "base.in").stat().st_mode & 0o777 == 0o640
    assert exit_code(report) == 0
    assert tried(report).written
    assert [one.target for one in tried(report).saved] == ["cpu:base.in"]
    assert not list(root.glob(".*")), "nothing is left lying about"


def test_a_twin_that_lacks_the_version_is_taken_at_the_nearest_older_one(
    index: PackageIndex, root: Path
) -> None:
    faiss = {"faiss": ""}
    index.add("pypi", "faiss-gpu", "1.9.0", modules=faiss)
    for version in ("1.7.0", "1.8.0", "2.0.0"):
        index.add("pypi", "faiss-cpu", version, modules=faiss)
    write(root, base__in="faiss-gpu==1.9.0\n")
    on_cpu(root, dry_run=False)
    assert (root / "base.in").read_text() == "faiss-cpu==1.8.0\n"


def test_replacements_in_sarif_make_what_fix_writes(
    index: PackageIndex, root: Path, tmp_path: Path
) -> None:
    files = {
        "base__in": "-c limits.txt\r\nnumpy\r\nxgboost[x] \\\r\n  >=3\r\n\r\nfaiss-gpu==1.9.0",
        "limits__txt": "xgboost==3.4.1  # tested\n",
    }
    faiss = {"faiss": ""}
    index.add("pypi", "faiss-gpu", "1.9.0", modules=faiss)
    index.add("pypi", "faiss-cpu", "1.9.0", modules=faiss)
    by_hand = tmp_path / "by-hand"
    by_hand.mkdir()
    for folder in (root, by_hand):
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_bytes(text.encode())
    (run,) = json.loads(
        find_format(RUN, "sarif").render(
            on_cpu(by_hand),
            Destination(text_of=lambda name: (by_hand / name).read_bytes().decode()),
        )
    )["runs"]
    apply_fixes(run, by_hand)
    on_cpu(root, dry_run=False)
    for name in ("base.in", "limits.txt"):
        assert (by_hand / name).read_bytes() == (root / name).read_bytes()
    assert b"faiss-cpu==1.9.0" in (root / "base.in").read_bytes()


def test_a_constraint_goes_with_the_line_that_it_limits(index: PackageIndex, root: Path) -> None:
    write(root, base__in="-c limits.txt\nxgboost\n", limits__txt="xgboost==3.4.1  # tested\n")
    index.add("pypi", "xgboost-cpu", "3.9.0", modules={"xgboost": ""})
    report = on_cpu(root, dry_run=False)
    assert (root / "base.in").read_text() == "-c limits.txt\nxgboost-cpu\n"
    assert (root / "limits.txt").read_text() == "xgboost-cpu==3.4.1  # tested\n"
    assert ("xgboost-cpu", "3.4.1") in [(one.name, one.version) for one in report.distributions]


def test_a_twin_that_brings_something_foreign_too_is_not_offered(
    index: PackageIndex, root: Path
) -> None:
    index.add("pypi", "xgboost-cpu", "3.9.0", "nvidia-cublas")
    index.add("pypi", "nvidia-cublas", "13.0")
    write(root, base__in="xgboost\n")
    report = on_cpu(root, dry_run=False)
    assert trial(report, "BM104").works is False
    assert "a new finding" in trial(report, "BM104").outcome
    assert "nvidia-cublas" in trial(report, "BM104").outcome
    assert (root / "base.in").read_text() == "xgboost\n"
    assert exit_code(report) == 1


def test_a_twin_that_does_not_exist_is_said_to_be_none(index: PackageIndex, root: Path) -> None:
    index.add("pypi", "onnxruntime-gpu", "9.0")
    write(root, base__in="onnxruntime-gpu>=9\n")
    report = on_cpu(root)
    assert trial(report).works is False
    assert "onnxruntime" in trial(report).outcome
    assert tried(report).patch == ""


def test_an_index_that_does_not_answer_is_no_failure_of_the_fix_a10(
    index: PackageIndex, root: Path
) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    with session(root, "base.in", backends=("cpu",)) as one:
        found = one.resolve()
        report = one.report(found)
        index.broken["pypi"] = 503
        outcome = try_fixes(one, found, report)
    assert trial(outcome.report).works is None
    assert "503" in trial(outcome.report).outcome
    assert outcome.draft is None


def test_where_the_twin_does_not_do_the_dependency_is_left_out(
    index: PackageIndex, root: Path
) -> None:
    index.add("pypi", "xgboost", "3.9", "nvidia-nccl-cu13")
    index.add("pypi", "xgboost-cpu", "3.9", "nvidia-cublas")
    index.add("pypi", "nvidia-cublas", "13.0")
    write(
        root,
        pyproject__toml='[project]\nname = "demo"\nversion = "1"\ndependencies = ["xgboost==3.9"]\n'
        "\n[tool.uv] # ours\n",
    )
    report = on_cpu(root, "pyproject.toml", dry_run=False)
    text = (root / "pyproject.toml").read_text()
    assert 'exclude-dependencies = ["nvidia-nccl-cu13"]' in text
    assert "[tool.uv] # ours" in text
    assert [f.rule for f in report.findings if f.severity == "error"] == []


def test_several_fixes_are_one_patch(index: PackageIndex, root: Path) -> None:
    write(root, base__in="-r more.in\nxgboost==3.4.1\n", more__in="onnxruntime-gpu==1.30.0\n")
    report = on_cpu(root, dry_run=False)
    assert tried(report).files == ("base.in", "more.in")
    assert (root / "base.in").read_text() == "-r more.in\nxgboost-cpu==3.4.1\n"
    assert (root / "more.in").read_text() == "onnxruntime==1.30.0\n"
    assert exit_code(report) == 0


def test_fixes_that_only_work_alone_are_not_written_together(
    index: PackageIndex, root: Path
) -> None:
    index.add("pypi", "onnxruntime", "1.31.0", "numpy<2")
    index.add("pypi", "onnxruntime-gpu", "1.31.0", modules={"onnxruntime": ""})
    index.add("pypi", "numpy", "1.26")
    index.add("pypi", "xgboost-cpu", "3.5.0", "numpy>=2", modules={"xgboost": ""})
    index.add("pypi", "xgboost", "3.5.0", "nvidia-nccl-cu13")
    write(root, base__in="xgboost==3.5.0\nonnxruntime-gpu==1.31.0\n")
    report = on_cpu(root, dry_run=False)
    lines = (root / "base.in").read_text().splitlines()
    assert sum(line.startswith(("xgboost-cpu", "onnxruntime==")) for line in lines) == 1
    assert any("not with the others" in note for note in tried(report).notes)


def test_enough_is_enough_and_what_was_not_tried_is_said(index: PackageIndex, root: Path) -> None:
    write(root, base__in="xgboost==3.4.1\nonnxruntime-gpu==1.30.0\n")
    with session(root, "base.in", backends=("cpu",)) as one:
        found = one.resolve()
        outcome = try_fixes(one, found, one.report(found), most=1)
    report = outcome.report
    assert any("not tried" in note for note in tried(report).notes)
    assert {f.fix.tried is None for f in report.findings if f.fix and f.fix.changes} == {
        True,
        False,
    }


def test_nothing_to_fix_is_nothing_to_write(index: PackageIndex, root: Path) -> None:
    write(root, base__in="numpy\n")
    report = on_cpu(root, dry_run=False)
    assert (tried(report).patch, tried(report).notes) == ("", ())
    assert exit_code(report) == 0


# Where it is written


def test_a_file_for_several_backends_is_not_changed_for_one_of_them(
    index: PackageIndex, root: Path
) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    report = audit(root, "base.in", backends=("cuda", "cpu"), dry_run=False)
    assert (root / "base.in").read_text() == "xgboost==3.4.1\n"
    assert trial(report).works is True
    assert "shared with cuda" in trial(report).outcome
    (note,) = tried(report).notes
    assert 'replace = { xgboost = "xgboost-cpu" }' in note
    assert "[backend.cpu]" in note


def test_a_file_for_several_backends_is_changed_where_that_is_right_for_all(
    index: PackageIndex, root: Path
) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    report = audit(root, "base.in", backends=("rocm", "cpu"), dry_run=False)
    assert (root / "base.in").read_text() == "xgboost-cpu==3.4.1\n"
    assert exit_code(report) == 0


def test_a_specification_gets_an_entry_for_each_backend_and_keeps_its_comments(
    index: PackageIndex, root: Path
) -> None:
    write(root, buildmatrix__toml=SPEC, base__in="xgboost==3.4.1\n")
    report = audit(root, dry_run=False)
    text = (root / "buildmatrix.toml").read_text()
    entry = 'replace = { xgboost = "xgboost-cpu" }\n'
    assert text.replace(entry, "") == SPEC
    assert text.count(entry) == 2
    assert (root / "base.in").read_text() == "xgboost==3.4.1\n"
    assert exit_code(report) == 0
    assert {one.target for one in tried(report).saved} == {
        "cpu-py311-default",
        "rocm7.2-py311-default",
    }


def test_targets_that_were_not_chosen_stay_as_they_are(index: PackageIndex, root: Path) -> None:
    write(root, buildmatrix__toml=SPEC, base__in="xgboost==3.4.1\n")
    assert exit_code(audit(root, backends=("cuda", "cpu"), dry_run=False)) == 0
    rocm = (root / "buildmatrix.toml").read_text().partition("[backend.rocm]")[2]
    assert "replace" not in rocm


def test_a_specification_can_replace_what_no_line_names(index: PackageIndex, root: Path) -> None:
    write(root, buildmatrix__toml=SPEC, base__in="booster\n")
    assert exit_code(audit(root, dry_run=False)) == 0


def test_a_requirements_file_cannot_and_that_is_said(index: PackageIndex, root: Path) -> None:
    write(root, base__in="booster\n")
    report = on_cpu(root, dry_run=False)
    assert trial(report).works is True
    assert "no line of base.in names xgboost" in trial(report).outcome
    assert (root / "base.in").read_text() == "booster\n"


def test_locks_of_a_specification_do_not_hide_what_a_fix_does(
    index: PackageIndex, root: Path
) -> None:
    write(root, buildmatrix__toml=SPEC, base__in="xgboost==3.4.1\n")
    from buildmatrix.base.progress import Silent
    from buildmatrix.locks.resolve import lock_targets
    from buildmatrix.matrix.load import load_spec

    spec = load_spec(root / "buildmatrix.toml")
    lock_targets(spec, spec.targets, upgrade=False, offline=False, progress=Silent(), jobs=2)
    report = audit(root, dry_run=False)
    assert exit_code(report) == 0
    assert any("buildmatrix lock" in note for note in tried(report).notes)

    again = audit(root, dry_run=False)

    assert not tried(again).written
    assert trial(again).outcome == "written already"
    assert any("written already, and the locks are older" in note for note in tried(again).notes)


def test_a_lock_is_not_edited(index: PackageIndex, root: Path) -> None:
    digest = index.sha256("pypi", "xgboost-3.4.1-py3-none-any.whl")
    nccl = index.sha256("pypi", "nvidia_nccl_cu13-2.28-py3-none-any.whl")
    text = (
        "# This file is autogenerated by pip-compile\n"
        f"xgboost==3.4.1 --hash=sha256:{digest}\n"
        f"nvidia-nccl-cu13==2.28 --hash=sha256:{nccl}\n"
    )
    write(root, requirements__txt=text)
    report = on_cpu(root, "requirements.txt", dry_run=False)
    assert (root / "requirements.txt").read_text() == text
    assert all(f.fix is None or f.fix.tried is None for f in report.findings)
    assert any("change its input" in note for note in tried(report).notes)


def test_a_line_with_hashes_is_not_changed(index: PackageIndex, root: Path) -> None:
    digest = index.sha256("pypi", "xgboost-3.4.1-py3-none-any.whl")
    text = f"numpy\nxgboost==3.4.1 --hash=sha256:{digest}\n"
    write(root, base__in=text)
    report = on_cpu(root, dry_run=False)
    assert (root / "base.in").read_text() == text
    assert "base.in:2 is not changed: its hashes are those of xgboost" in trial(report).outcome


def test_a_project_file_is_changed_in_the_parts_that_are_asked_for(
    index: PackageIndex, root: Path
) -> None:
    write(
        root,
        pyproject__toml='[project]\nname = "demo"\nversion = "1"\n'
        "dependencies = [\n  'xgboost>=3.4',  # boosting\n]\n"
        '[project.optional-dependencies]\ngpu = ["xgboost"]\n',
    )
    report = on_cpu(root, "pyproject.toml", dry_run=False)
    text = (root / "pyproject.toml").read_text()
    assert "  'xgboost-cpu>=3.4',  # boosting\n" in text
    assert 'gpu = ["xgboost"]' in text
    assert exit_code(report) == 0


def test_a_wish_on_the_command_line_is_tried_and_has_no_file(
    index: PackageIndex, root: Path
) -> None:
    report = on_cpu(root, "pypi:xgboost==3.4.1", dry_run=False)
    assert trial(report).works is True
    assert trial(report).saved_download > 0
    assert tried(report).patch == ""


def test_a_file_that_changes_meanwhile_is_left_alone(
    index: PackageIndex, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    real = fix_patches.write

    def write_late(texts: Any) -> Any:
        (root / "base.in").write_text("scipy\n")
        return real(texts)

    monkeypatch.setattr("buildmatrix.commands.fixing.write", write_late)
    with pytest.raises(UndecidedError, match=r"base\.in changed while"):
        on_cpu(root, dry_run=False)
    assert (root / "base.in").read_text() == "scipy\n"


def test_a_file_in_a_folder_above_and_a_linked_one_are_found_and_changed(
    index: PackageIndex, root: Path
) -> None:
    service = root / "service"
    write(root, common__in="xgboost==3.4.1\r\n", service___base__in="-r linked.in\n")
    (service / "linked.in").symlink_to("../common.in")
    report = on_cpu(service, dry_run=False)
    assert (root / "common.in").read_bytes() == b"xgboost-cpu==3.4.1\r\n"
    assert (service / "linked.in").is_symlink()
    assert exit_code(report) == 0


def test_a_waived_finding_is_not_fixed(index: PackageIndex, root: Path) -> None:
    waiver = (
        '\n[[waive]]\nrule = "*"\ndistribution = "*"\nreason = "so be it"\nowner = "a"\n'
        "expires = 2999-01-01\n"
    )
    write(
        root, buildmatrix__toml=SPEC + waiver.replace('"*"\nd', '"BM101"\nd'), base__in="booster\n"
    )
    report = audit(root, dry_run=False)
    waived = [f for f in report.findings if f.waived is not None]
    assert waived
    assert all(f.fix is None or f.fix.tried is None for f in waived)


def test_two_sources_that_include_one_file_change_it_once(index: PackageIndex, root: Path) -> None:
    write(
        root, a__in="-r common.in\n", b__in="-r common.in\nnumpy\n", common__in="xgboost==3.4.1\n"
    )
    report = audit(root, "a.in", "b.in", backends=("cpu",), dry_run=False)
    assert (root / "common.in").read_text() == "xgboost-cpu==3.4.1\n"
    assert exit_code(report) == 0


def test_an_entry_that_a_specification_cannot_have_is_told_without_places_of_ours(
    index: PackageIndex, root: Path
) -> None:
    index.add("pypi", "tensorflow-rocm", "2.0")
    write(root, buildmatrix__toml=SPEC, base__in="tensorflow-rocm\n")
    report = audit(root, select=("cuda*",))
    told = [f.fix.tried for f in report.findings if f.fix is not None and f.fix.tried is not None]
    assert told
    assert all(one.works is False and "buildmatrix.try" not in one.outcome for one in told)
    assert "buildmatrix.toml:" in told[0].outcome


# How it is told


def test_what_was_not_tried_is_marked_so(index: PackageIndex, root: Path) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    with session(root, "base.in", backends=("cpu",)) as one:
        report = one.report(one.resolve())
    for text in (run_table.render(report, width=100, color=False), run_markdown.render(report)):
        assert "fix (not tried): ask for xgboost-cpu" in text
    assert "--fix --dry-run" in run_table.render(report, width=100, color=False)


def test_every_format_says_what_works_and_what_it_saves(index: PackageIndex, root: Path) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    report = on_cpu(root)
    text = run_table.render(report, width=100, color=False)
    assert "fix, tried: ask for xgboost-cpu" in text
    assert "+xgboost-cpu==3.4.1" in text
    assert "saves" in text
    assert "```diff\n--- a/base.in" in run_markdown.render(report)
    document = json.loads(as_json.render(report))
    jsonschema.validate(document, document_schema("report"))
    assert document["fixes"]["written"] is False
    assert document["fixes"]["saved"][0]["target"] == "cpu:base.in"


def test_a_saved_report_keeps_what_was_tried(
    index: PackageIndex, root: Path, tmp_path: Path
) -> None:
    write(root, base__in="xgboost==3.4.1\n")
    report = on_cpu(root)
    (tmp_path / "report.json").write_text(as_json.render(report))
    again = saved.read(tmp_path / "report.json")
    assert again.fixes == report.fixes
    assert as_json.render(again) == as_json.render(report)


def test_a_fix_that_failed_is_offered_by_no_format(index: PackageIndex, root: Path) -> None:
    index.add("pypi", "onnxruntime-gpu", "9.0")
    write(root, base__in="onnxruntime-gpu>=9\n")
    report = on_cpu(root)
    assert "tried, and it does not work" in run_table.render(report, width=100, color=False)
    assert "Fix:" not in sarif.render(report)
    assert "fix: " not in ci.render_junit(report)


# What a fix must not break


def test_a_twin_with_other_modules_is_advice_and_never_written(
    index: PackageIndex, root: Path
) -> None:
    # cupy-cuda12x -> numpy: code that says `import cupy` would fail.
    index.add("pypi", "cupy-cuda12x", "13.6.0", "numpy", modules={"cupy": ""})
    index.add("pypi", "numpy", "2.5.5")
    write(root, base__in="cupy-cuda12x==13.6.0\n")
    report = on_cpu(root, dry_run=False)
    assert (root / "base.in").read_text() == "cupy-cuda12x==13.6.0\n"
    assert not tried(report).written
    assert trial(report).works is True
    assert "numpy has no module `cupy`" in trial(report).outcome


@pytest.mark.parametrize("is_imported", [True, False])
def test_a_module_that_the_project_imports_is_not_taken_away(
    index: PackageIndex, root: Path, is_imported: bool
) -> None:
    both = {"xgboost": "", "xgboost_gpu": ""}
    index.add("pypi", "xgboost", "3.9", "nvidia-nccl-cu13", modules=both)
    index.add("pypi", "xgboost-cpu", "3.9", modules={"xgboost": ""})
    write(root, base__in="xgboost==3.9\n")
    write(root, app___main__py=f"import os, xgboost{'_gpu' if is_imported else ''} as gpu\n")
    report = on_cpu(root, dry_run=False)
    assert tried(report).written is not is_imported
    if is_imported:
        assert "app/main.py:1 imports `xgboost_gpu`, which would be gone" in trial(report).outcome


def test_a_module_that_a_package_calls_is_not_taken_away(index: PackageIndex, root: Path) -> None:
    index.add("pypi", "libtpu", "0.1")
    source = "import libtpu\nlibtpu.start()\n"
    index.add("pypi", "helper", "1.0", "libtpu", modules={"helper": source})
    project = '[project]\nname = "demo"\nversion = "1"\ndependencies = ["helper"]\n'
    write(root, pyproject__toml=project)
    report = on_cpu(root, "pyproject.toml", dry_run=False)
    assert (root / "pyproject.toml").read_text() == project
    assert "helper 1.0 imports `libtpu`" in trial(report).outcome


def test_where_another_package_asks_too_the_entry_is_tried_and_it_is_named(
    index: PackageIndex, root: Path
) -> None:
    index.add("pypi", "reader", "1.0", "onnxruntime-gpu")
    write(root, base__in="onnxruntime-gpu\nreader\n")
    report = on_cpu(root, dry_run=False)
    (found,) = [one for one in report.findings if one.distribution == "onnxruntime-gpu"]
    assert found.fix is not None and found.fix.tried is not None
    assert found.fix.tried.works is True
    assert "reader asks for onnxruntime-gpu too" in found.fix.tried.outcome
    assert (root / "base.in").read_text() == "onnxruntime-gpu\nreader\n"
    assert any("write `replace = " in note for note in tried(report).notes)
