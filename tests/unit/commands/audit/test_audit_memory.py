"""The same audit is answered from the cache, and only the same."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from audit_index import Locked, library

from buildmatrix.base.data import replace
from buildmatrix.commands import audit_run
from buildmatrix.commands.audit import judge_for
from buildmatrix.matrix.document import Position
from buildmatrix.matrix.model import Waiver, bare_spec
from buildmatrix.reports.run import Report

TODAY = date(2026, 11, 21)


@pytest.fixture
def locked(locked: Locked) -> Locked:
    """A wheel with a library of CUDA, and a clean one."""
    locked.add("demo 1.0", files={"demo/libcudart.so.12": library()}, requires=["plain"])
    locked.add("plain 1.0", "demo")
    return locked


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One item for each audit that judged wheels."""
    runs: list[None] = []
    judge = audit_run.AuditRun.read_and_judge

    def counted(run: audit_run.AuditRun, *, deep: bool = False, strict: bool = False) -> None:
        runs.append(None)
        judge(run, deep=deep, strict=strict)

    monkeypatch.setattr(audit_run.AuditRun, "read_and_judge", counted)
    return runs


def without_times(report: Report) -> Report:
    """The report without what differs between runs: seconds, and where facts came from."""
    assert report.stats is not None
    return replace(
        report,
        stats=replace(report.stats, seconds=0.0, bytes_read=0, cached=0),
        targets=tuple(replace(target, seconds=0.0) for target in report.targets),
    )


def test_a_second_audit_judges_nothing_and_reports_the_same(
    locked: Locked, tmp_path: Path, runs: list[None]
) -> None:
    cold = locked.audit("cpu", "cuda", cache=tmp_path / "cache")
    requests = len(locked.server.requests)
    warm = locked.audit("cpu", "cuda", cache=tmp_path / "cache")
    assert (len(runs), len(locked.server.requests)) == (1, requests)
    assert without_times(warm) == without_times(cold)
    assert cold.findings


def test_the_result_of_one_audit_is_none_of_another(
    locked: Locked, tmp_path: Path, runs: list[None]
) -> None:
    cache = tmp_path / "cache"
    locked.audit("cpu", cache=cache)
    for number, change in enumerate(
        (
            lambda: locked.audit("cuda", cache=cache),
            lambda: locked.audit("cpu", "cuda", cache=cache),
            lambda: locked.audit("cpu", cache=cache, deep=True),
            lambda: locked.audit("cpu", cache=tmp_path / "other"),
        ),
        2,
    ):
        change()
        assert len(runs) == number
    locked.packages = locked.packages[:1]
    assert [item.name for item in locked.audit("cpu", cache=cache).distributions] == ["demo"]
    policy = replace(bare_spec().policy, max_download={"cpu": 1})
    judge = judge_for(replace(bare_spec(), policy=policy), (), "error", TODAY, ())
    locked.audit("cpu", cache=cache, judge=judge)
    assert len(runs) == 7


def test_waivers_and_baselines_of_each_run_apply_to_cached_results(
    locked: Locked, tmp_path: Path, runs: list[None]
) -> None:
    waiver = Waiver(
        "BM201", (), None, None, "known", "me", date(2026, 12, 1), Position("waivers.toml", 1, 1)
    )
    states = []
    for accepted, day in (((), TODAY), ((waiver,), TODAY), ((waiver,), date(2027, 1, 1))):
        judge = judge_for(None, accepted, "error", day, ())
        report = locked.audit("cpu", cache=tmp_path, judge=judge)
        states.append([item.waived is not None for item in report.findings if item.rule == "BM201"])
    report = locked.audit("cpu", cache=tmp_path)
    known = [item.fingerprint for item in report.findings]
    judge = judge_for(None, (), "error", TODAY, known)
    assert all(item.waived for item in locked.audit("cpu", cache=tmp_path, judge=judge).findings)
    assert (states, len(runs)) == ([[False], [True], [False]], 1)


def test_what_could_not_be_read_is_read_by_the_next_run(
    locked: Locked, tmp_path: Path, runs: list[None]
) -> None:
    (path, *_) = locked.folder.glob("plain-*")
    aside = path.rename(tmp_path / "aside")
    assert locked.audit("cpu", cache=tmp_path / "cache").unread
    aside.rename(path)
    assert not locked.audit("cpu", cache=tmp_path / "cache").unread
    assert len(runs) == 2


@pytest.mark.parametrize("what", ["a file of this machine", "no hash"])
def test_files_that_may_change_are_looked_at_again(
    locked: Locked, tmp_path: Path, runs: list[None], what: str
) -> None:
    (wheel,) = locked.packages[1].wheels
    changed = (
        replace(wheel, url=str(locked.folder / wheel.filename))
        if what == "a file of this machine"
        else replace(wheel, sha256="")
    )
    locked.packages[1] = replace(locked.packages[1], wheels=(changed,))
    for number in (1, 2):
        locked.audit("cpu", cache=tmp_path / "cache")
        assert len(runs) == number


def test_a_strict_audit_judges_again_as_waivers_decide_what_it_reads(
    locked: Locked, tmp_path: Path, runs: list[None]
) -> None:
    for number in (1, 2):
        locked.audit("cpu", cache=tmp_path, strict=True)
        assert len(runs) == number
