"""BM106: one cause is one finding, however many targets have it."""

from __future__ import annotations

from datetime import date

from buildmatrix.base.data import replace
from buildmatrix.judge.locks import merge_stale_locks
from buildmatrix.judge.model import Finding, Fix, TargetResult
from buildmatrix.matrix.model import Position, Waiver
from buildmatrix.reports import ci, run_table
from buildmatrix.reports import json_form as as_json
from buildmatrix.reports.run import assemble, exit_code
from buildmatrix.reports.saved import accept

STALE = Finding(
    rule="BM106",
    name="stale-lock",
    severity="error",
    target="cpu",
    backend="cpu",
    vendor=None,
    message="the lock does not fit its inputs: base.in changed",
    path="locks/pylock.cpu.toml",
    fix=Fix("upgrade", "run `buildmatrix lock`"),
    fingerprint="0" * 32,
)
OTHER = replace(STALE, target="rocm", backend="rocm", path="locks/pylock.rocm.toml")
UNLIKE = replace(STALE, target="cuda", message="the lock does not fit its inputs: there is none")
FOREIGN = replace(STALE, rule="BM101", target="cuda")


def test_targets_with_one_cause_are_named_in_one_finding() -> None:
    found = merge_stale_locks([STALE, FOREIGN, OTHER, UNLIKE])
    assert [(one.rule, one.target, one.also) for one in found] == [
        ("BM101", "cuda", ()),
        ("BM106", "cpu", ("rocm",)),
        ("BM106", "cuda", ()),
    ]
    assert found[1].message.endswith("base.in changed; the same holds for rocm")


def test_what_one_waiver_covers_stays_apart_from_what_none_does() -> None:
    assert len(merge_stale_locks([STALE, replace(OTHER, waived="until the move")])) == 2


def test_a_report_counts_it_once_and_fails_the_gate_of_each_target() -> None:
    targets = [TargetResult(id, id, {"lock": "failed"}) for id in ("cpu", "rocm")]
    report = assemble(
        "x", "2026-01-01", targets=targets, findings=merge_stale_locks([STALE, OTHER])
    )
    assert "2 failed; 1 error," in run_table.render(report, width=100, color=False)
    assert exit_code(report) == 1
    assert "lock failed: 1 open finding in rocm" in ci.render_junit(report)
    assert '"also": [\n        "rocm"\n      ]' in as_json.render(report)
    waiver = Waiver("BM106", ("*",), None, None, "moving", "me", date(2030, 1, 1), Position("w", 1))
    accepted = accept(report, [waiver], (), date(2026, 1, 1), "error")
    assert [one.gates["lock"] for one in accepted.targets] == ["passed", "passed"]
