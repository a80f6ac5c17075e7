"""Findings and verdicts: what is new, what is gone, and when that is no fair comparison."""

from __future__ import annotations

import pytest
from comparison_cases import difference, finding, installed, judged, side, tree, verdict

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.commands.diff import compare, exit_code
from buildmatrix.commands.diff import compare_sides as checked
from buildmatrix.commands.diff_contents import Side
from buildmatrix.facts.inventory.model import Layer
from buildmatrix.reports.diff import ChangedFinding, FindingChanges, TargetChanges

CPU = {"docker:demo:1": "cpu"}


def told(before: Side, after: Side) -> list[tuple[str, str]]:
    changes = compare(before, after).findings
    assert changes is not None and not changes.changed
    return [
        *(("added", one.fingerprint[-1]) for one in changes.new),
        *(("removed", one.fingerprint[-1]) for one in changes.gone),
    ]


def test_a_finding_is_new_gone_or_the_same_by_its_fingerprint() -> None:
    before = judged(finding("a"), finding("b"))
    after = judged(
        replace(finding("b", target="docker:demo:2"), version="3.3.0"),
        finding("c", target="docker:demo:2"),
        targets={"docker:demo:2": "cpu"},
    )
    assert told(before, after) == [("added", "c"), ("removed", "a")]
    changes = compare(before, after).findings
    assert changes is not None and changes.same == 1


def test_new_errors_come_before_new_warnings_and_before_what_is_gone() -> None:
    after = judged(finding("a", "note"), finding("b", "error"), finding("c", "warning"))
    assert told(judged(finding("0")), after) == [
        ("added", "b"), ("added", "c"), ("added", "a"), ("removed", "0"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("severity", "fail_on", "code"),
    [
        ("error", "error", 1),
        ("warning", "error", 0),
        ("warning", "warning", 1),
        ("note", "warning", 0),
        ("note", "note", 1),
        ("error", "never", 0),
    ],
)
def test_only_what_is_new_in_its_class_fails(severity: str, fail_on: str, code: int) -> None:
    new = compare(judged(), judged(finding("a", severity)))
    old = compare(judged(finding("a", severity)), judged(finding("a", severity)))
    gone = compare(judged(finding("a", severity)), judged())
    assert [exit_code(one, fail_on) for one in (new, old, gone)] == [code, 0, 0]


def test_a_waiver_that_ran_out_and_a_severity_that_rose_are_new_in_their_class() -> None:
    was_accepted = compare(judged(finding("a", waived="until June")), judged(finding("a")))
    was_warning = compare(judged(finding("a", "warning")), judged(finding("a", "error")))
    is_accepted = compare(judged(), judged(finding("a", waived="until June")))
    assert [exit_code(one, "error") for one in (was_accepted, was_warning, is_accepted)] == [
        1,
        1,
        0,
    ]
    accepted, found = finding("a", waived="until June"), finding("a")
    assert was_accepted.findings == FindingChanges(changed=(ChangedFinding(accepted, found),))


def test_a_finding_that_reached_one_more_target_is_new_there() -> None:
    targets = {"cpu-a": "cpu", "cpu-b": "cpu"}
    before = judged(finding("a", target="cpu-a"), targets=targets)
    after = judged(finding("a", target="cpu-a"), finding("a", target="cpu-b"), targets=targets)
    assert compare(before, after).findings == FindingChanges(1, (finding("a", target="cpu-b"),))


def test_targets_that_only_one_of_two_reports_has_are_named() -> None:
    before = judged(targets={"a": "cpu", "b": "cpu"})
    after = judged(targets={"b": "cpu", "c": "cpu"})
    found = checked(before, after)
    assert found.targets == TargetChanges(("c",), ("a",))


def test_verdicts_that_differ_are_told_and_clean_newcomers_are_not() -> None:
    before = judged(verdicts=[verdict("xgboost 3.2", "ok"), verdict("gone 1", "bloat")])
    after = judged(
        verdicts=[
            verdict("xgboost 3.3", "bloat"),
            verdict("clean 1", "ok"),
            verdict("new 1", "broken"),
        ]
    )
    found = compare(before, after).verdicts or ()
    assert [(one.name, one.before, one.after) for one in found] == [
        ("new", None, "broken"),
        ("xgboost", "ok", "bloat"),
        ("gone", "bloat", None),
    ]


def test_sides_for_two_backends_are_not_held_against_each_other() -> None:
    after = judged(finding("a"), targets={"x": "rocm"})
    found = compare(judged(), after)
    assert found.findings is None and found.verdicts is None
    assert "is for cpu and report:a.json for rocm; --backend judges both" in found.notes[0]


def test_without_a_backend_that_is_said_and_all_else_is_compared() -> None:
    found = difference(tree(installed("x 1.0")), tree(installed("x 2.0")))
    assert found.findings is None
    assert found.notes[0].endswith(
        "nothing says which backend docker:demo:1 is for; give --backend"
    )
    assert [one.name for one in found.distributions.changes] == ["x"]


def test_a_report_against_a_tree_says_what_it_cannot_tell() -> None:
    image = replace(side(tree(installed("x 1.0"))), findings=(), verdicts=(), targets={"i": "cpu"})
    found = compare(judged(), image)
    assert found.libraries is None and found.vendors is None and found.environment is None
    notes = " ".join(found.notes)
    assert "libraries, their versions, and bytes by vendor are not compared: report:a.json" in notes
    assert "only one side is an image" in notes


def test_what_could_not_be_read_on_either_side_is_undecided() -> None:
    undecided = replace(judged(), is_undecided=True)
    assert exit_code(compare(undecided, judged()), "never") == 3
    assert exit_code(compare(judged(), undecided), "error") == 3
    assert exit_code(compare(undecided, judged(finding("a"))), "error") == 1


def test_one_wheel_and_a_set_are_refused_in_one_sentence() -> None:
    wheel = Side("wheel:x.whl", "wheel", is_wheel=True)
    with pytest.raises(UsageError, match=r"wheel:x\.whl is one wheel and docker:y is a set"):
        checked(Side("docker:y", "image"), wheel)


def test_a_report_of_many_targets_and_one_image_need_a_choice() -> None:
    many = judged(targets={"cpu-a": "cpu", "cpu-b": "cpu"})
    with pytest.raises(UsageError, match=r"about 2 targets \(cpu-a, cpu-b\).*--select"):
        checked(many, Side("docker:y", "image", targets={"docker:y": "cpu"}))
    with pytest.raises(UsageError, match="about 2 targets"):
        checked(many, judged(targets={"rocm-a": "rocm", "rocm-b": "rocm"}))


def test_what_layers_hide_is_not_compared_where_one_image_s_layers_were_not_read() -> None:
    layers = (Layer("sha256:1", "RUN one", 10),)
    buried = replace(finding("a"), rule="BM604")
    read = replace(side(tree(layers=layers)), findings=(buried, finding("b")), targets=CPU)
    unread = replace(side(tree()), findings=(finding("b"),), targets=CPU)
    for before, after in ((unread, read), (read, unread)):
        found = compare(before, after)
        assert found.findings == FindingChanges(1)
        assert any("BM604 (what later layers hide) is not compared" in one for one in found.notes)
    gone = compare(read, replace(read, findings=(finding("b"),)))
    assert gone.findings == FindingChanges(1, gone=(buried,))
