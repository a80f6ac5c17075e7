"""What is said of a fleet: bytes, offenders, node classes, causes, owners, drift."""

from __future__ import annotations

import random

import pytest

from buildmatrix.base.data import replace
from buildmatrix.judge.composition import VendorBytes
from buildmatrix.reports.fleet import (
    FleetFinding,
    FleetFit,
    FleetLayer,
    FleetReport,
    FleetResult,
)
from buildmatrix.reports.fleet_answer import FleetAnswer
from buildmatrix.reports.fleet_assembly import assemble, drift_between, exit_code
from buildmatrix.reports.fleet_sections import share
from buildmatrix.reports.formats import FLEET, Destination, find_format


def image(number: int, backend: str = "cpu", **values) -> FleetResult:
    result = FleetResult(
        repository=f"registry.example.com/a{number}",
        names=("1.0",),
        digest=f"sha256:{number:064}",
        platform="linux/amd64",
        backend=backend,
        state="passed",
    )
    return replace(result, **values)


def layer(name: str, size: int = 100, unusable: int = 0) -> FleetLayer:
    return FleetLayer(digest=f"sha256:{name}", size=size, installed=2 * size, unusable=2 * unusable)


def report(*results: FleetResult, **options) -> FleetReport:
    return assemble("images.txt", results, "2026-11-20", **options)


def answer(*results: FleetResult, **options) -> FleetAnswer:
    return FleetAnswer(report(*results, **options))


FINDING = FleetFinding(
    rule="BM101",
    severity="error",
    vendor="nvidia",
    distribution="nvidia-nccl-cu12",
    version="2.27.3",
    message="nvidia-nccl-cu12 2.27.3 belongs to NVIDIA CUDA, not usable on cpu",
    fix='write `torch = "cpu"` under [backend.cpu]',
    size=400,
)

# Bytes


def test_a_layer_counts_once_and_only_what_no_image_can_use() -> None:
    layers = answer(
        image(1, layers=(layer("base"), layer("cuda", 1000, 900))),
        image(2, "rocm", layers=(layer("base"), layer("cuda", 1000, 700))),
        image(3, "cuda", layers=(layer("base"), layer("own", 50), layer("other", 500, 500))),
    ).layers
    assert (layers.layers, layers.size) == (4, 1650)
    # Of `cuda`, both have no use for 700, and one for 200 more; nobody has a use for `other`.
    assert (layers.unusable, layers.unusable_in_some) == (1200, 200)


def test_a_layer_that_one_image_uses_is_not_unusable_and_one_that_nobody_could_judge_neither() -> (
    None
):
    wasted = layer("cuda", 1000, 1000)
    used = replace(wasted, unusable=0)
    one = answer(image(1, layers=(wasted,)), image(2, "cuda", layers=(used,))).layers
    assert (one.unusable, one.unusable_in_some) == (0, 1000)
    open_ = image(3, layers=(used,), state="undecided")
    two = answer(image(1, layers=(wasted,)), open_).layers
    assert (two.unusable, two.unusable_open, two.unusable_in_some) == (1000, 1000, 0)
    alone = answer(replace(open_, layers=(wasted,))).layers
    assert (alone.size, alone.unusable) == (1000, 0)


def test_a_layer_with_more_unusable_bytes_than_bytes_is_unusable_and_no_more() -> None:
    odd = FleetLayer(digest="sha256:a", size=10, installed=5, unusable=500)
    empty = FleetLayer(digest="sha256:b", size=10, installed=0, unusable=7)
    layers = answer(image(1, layers=(odd, empty))).layers
    assert (layers.size, layers.unusable) == (20, 10)


def test_a_layer_that_is_in_an_image_twice_counts_once() -> None:
    hidden, seen = layer("a", 100, 0), layer("a", 100, 80)
    layers = answer(image(1, layers=(hidden, seen)), image(2, layers=(seen, seen))).layers
    assert (layers.layers, layers.size, layers.unusable) == (1, 100, 80)
    assert layers.unusable_in_some == 20


def test_pulls_count_each_image_once_and_once_for_each_container() -> None:
    pulls = answer(
        image(1, download=100, unusable_download=60, containers=3),
        # One image on two node classes: what one of its backends uses is used.
        image(2, "cpu", download=200, unusable_download=150),
        image(2, "cuda", download=200, unusable_download=10),
        image(3, download=50),
    ).pulls
    assert (pulls.images, pulls.size, pulls.unusable) == (3, 350, 70)
    assert (pulls.containers, pulls.running, pulls.unusable_running) == (3, 300, 180)


def test_the_worst_come_first_by_pull_and_by_containers() -> None:
    few = image(1, unusable_download=60, containers=100)
    much = image(2, unusable_download=900)
    clean = image(3, containers=10**6)
    told = answer(clean, few, much)
    assert [result.title for result in told.worst] == [much.title, few.title]
    assert told.worst_running == [few]


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, ""), (0, 9, "0 %"), (1, 1000, "<1 %"), (999, 1000, "99 %"), (9, 9, "100 %")],
)
def test_a_share_never_says_nothing_or_all_of_what_is_not(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


# What breaks


def test_on_a_node_class_what_is_not_known_is_not_fine() -> None:
    refused = FleetFit(node="b200", state="refused", reasons=("no code for sm_100", "old driver"))
    told = answer(
        image(1, fits=(refused,)),
        image(2, fits=(refused, FleetFit(node="a100", state="ok"))),
        image(3, fits=(FleetFit(node="b200", state="jit", reasons=("compiled",)),)),
        image(4, fits=(FleetFit(node="b200", state="undecided", reasons=("unread",)),)),
        image(5, state="undecided", error="no answer"),
        image(6, node_classes=("l4",), state="undecided"),
        would_run_on=["b200"],
    )
    b200, a100, l4 = told.nodes
    assert [node.node for node in told.nodes] == ["b200", "a100", "l4"]
    assert list(b200.states) == ["refused", "undecided", "jit"]
    assert (len(b200.refused), b200.open, len(b200.unknown)) == (2, 3, 2)
    assert [(r.state, r.text, len(r.results)) for r in b200.reasons] == [
        ("refused", "no code for sm_100", 2),
        ("refused", "old driver", 2),
        ("undecided", "unread", 1),
        ("jit", "compiled", 1),
    ]
    # Nobody asked about this one: only images that run there are due.
    assert (len(a100.states["ok"]), a100.open, l4.open) == (1, 0, 1)
    assert (b200.is_asked, a100.is_asked) == (True, False)


def test_a_node_class_that_was_asked_about_is_answered_where_nothing_is_known() -> None:
    (node,) = answer(image(1), would_run_on=["b200"]).nodes
    assert (node.states, len(node.unknown)) == ({}, 1)


# Causes


def test_one_fix_is_one_cause_over_images_versions_and_distributions() -> None:
    newer = replace(FINDING, version="2.28.0", message="another sentence", size=500)
    cublas = replace(FINDING, distribution="nvidia-cublas-cu12", size=800)
    other = replace(FINDING, fix=None, distribution="cupy", size=10)
    twin = replace(other, distribution="xgboost")
    told = answer(
        image(1, owner="search", findings=(FINDING, cublas)),
        image(2, owner="search", findings=(newer,)),
        image(3, owner="", findings=(newer, other)),
        image(4, owner="ads", findings=(other, twin)),
    )
    first, *others = told.causes
    assert (len(first.results), first.size, first.fix) == (3, 400 + 800 + 500 + 500, FINDING.fix)
    assert first.about == ("nvidia-nccl-cu12", "nvidia-cublas-cu12")
    assert first.owners == ("search",)
    assert [(cause.title, len(cause.results), cause.size) for cause in others] == [
        ("cupy", 2, 20),
        ("xgboost", 1, 10),
    ]
    assert told.advice.startswith("3 images with nvidia-nccl-cu12 and 1 more: write")


def test_what_one_fix_cures_is_one_cause_whatever_the_rules_and_vendors() -> None:
    code = replace(FINDING, rule="BM401", size=300, message="nvidia-nccl-cu12 has device code")
    other = replace(FINDING, rule="BM203", vendor="amd", size=5)
    (cause,) = answer(image(1, findings=(FINDING, code, other)), image(2, findings=(other,))).causes
    assert (cause.rules, len(cause.results), cause.size) == (("BM101", "BM203", "BM401"), 2, 405)


def test_without_a_fix_vendors_are_causes_of_their_own() -> None:
    finding = replace(FINDING, fix=None)
    told = answer(image(1, findings=(finding, replace(finding, vendor="amd"))))
    assert [cause.first.vendor for cause in told.causes] == ["amd", "nvidia"]


def test_errors_come_first_and_what_is_accepted_or_a_note_is_nothing_to_do() -> None:
    note = replace(FINDING, severity="note", fix="a")
    warning = replace(FINDING, severity="warning", size=10**9, fix="b")
    accepted = replace(FINDING, waived="until spring", fix="c")
    told = answer(image(1, findings=(note, warning, accepted, FINDING)))
    assert [cause.first.severity for cause in told.causes] == ["error", "warning"]


# Owners, vendors, undecided


def test_what_several_findings_say_of_one_distribution_counts_once_in_an_image() -> None:
    twice = replace(FINDING, path="lib/libnccl.so", size=300)
    (cause,) = answer(image(1, findings=(FINDING, twice)), image(2, findings=(twice,))).causes
    assert (len(cause.results), cause.size) == (2, 400 + 300)


def test_an_open_finding_is_the_reason_where_there_is_no_other() -> None:
    open_ = FleetFinding(rule="BM902", severity="warning", message="lib/a.so ends early")
    (group,) = answer(image(1, state="undecided", findings=(open_,))).undecided
    assert group.text == "lib/a.so ends early"


def test_owners_have_their_images_once_with_what_failed_and_what_is_open() -> None:
    told = answer(
        image(1, owner="search", state="failed", download=9, unusable_download=5),
        image(2, "cpu", owner="search", state="undecided"),
        image(2, "cuda", owner="search"),
        image(3),
    )
    rows = [(o.owner, o.pulls.images, o.failed, o.undecided, o.pulls.unusable) for o in told.owners]
    assert rows == [("search", 2, 1, 1, 5), ("", 1, 0, 0, 0)]


def test_vendors_have_their_bytes_and_images() -> None:
    held = (VendorBytes("", 5), VendorBytes("nvidia", 100, 100))
    used = (VendorBytes("nvidia", 300),)
    told = answer(image(1, vendors=held), image(2, "cuda", vendors=used)).vendors
    assert [(v.vendor, v.images, v.unusable_images, v.size, v.unusable) for v in told] == [
        ("nvidia", 2, 1, 400, 100),
        ("", 1, 0, 5, 0),
    ]


def test_what_is_undecided_is_grouped_by_reason_and_nothing_of_it_is_clean() -> None:
    def lost(number: int, error: str | None) -> FleetResult:
        return image(number, state="undecided", error=error)

    told = answer(
        lost(1, f"layer sha256:{1:064} ends early"),
        lost(2, f"layer sha256:{2:064} ends early"),
        lost(3, None),
        image(4),
    )
    assert [len(group.results) for group in told.undecided] == [2, 1]
    assert told.undecided[1].text == "not all of it could be read"
    assert (told.state, told.undecided_images, exit_code(told.report)) == ("undecided", 3, 3)
    assert exit_code(told.report, strict=True) == 1


def test_what_was_not_looked_at_is_no_success() -> None:
    told = answer(image(1), missing=["the registry has no catalog"])
    assert (told.state, exit_code(told.report)) == ("undecided", 3)
    assert told.headline == "Undecided: not everything was looked at"
    assert answer(missing=["x"]).headline == told.headline
    lost = image(2, state="undecided")
    assert answer(image(1), lost).headline == "Undecided: 1 of 2 images"
    assert answer(image(1)).headline == "Passed"
    assert exit_code(report(image(1))) == 0
    assert exit_code(report(image(1), image(2, findings=(FINDING,)), missing=["x"])) == 1


# Drift


def test_drift_is_the_same_in_whatever_order_and_says_what_became_of_each() -> None:
    old = [
        image(1, state="passed"),
        image(2, state="failed", unusable_download=70),
        image(3, unusable_download=10),
        image(4),
        image(5, owner="ads", unusable_download=9),
        image(6),
    ]
    new = [
        image(1, state="failed", digest="sha256:ff", unusable_download=100),
        image(2, digest="sha256:ee"),
        image(3, digest="sha256:dd", unusable_download=30),
        image(4, digest="sha256:cc"),
        image(6),
        image(7, owner="ads"),
    ]
    before = report(*old)
    drift = drift_between(before, report(*new))
    assert [(c.change, c.title[-6:]) for c in drift.changes] == [
        ("worse", "a1:1.0"),
        ("new", "a7:1.0"),
        ("changed", "a3:1.0"),
        ("better", "a2:1.0"),
        ("gone", "a5:1.0"),
    ]
    assert (drift.same, drift.rebuilt, drift.notes) == (1, 1, ())
    chance = random.Random(3)
    for _ in range(5):
        chance.shuffle(old)
        chance.shuffle(new)
        assert drift_between(report(*old), report(*new)) == drift
    told = FleetAnswer(report(*new, since=before))
    assert told.report.drift == drift
    assert [(row.owner, row.new, row.gone, row.more) for row in told.owner_drift] == [
        ("", 0, 0, 100 - 70 + 20),
        ("ads", 1, 1, -9),
    ]


def test_a_tag_that_moves_is_one_image_built_again_and_one_that_got_a_name_is_the_same() -> None:
    before = report(image(1, names=("1.0", "latest")))
    renamed = drift_between(before, report(image(1, names=("stable",))))
    assert (renamed.same, renamed.changes) == (1, ())
    moved = drift_between(
        before,
        report(image(1, names=("1.0",)), image(1, names=("1.1", "latest"), digest="sha256:ff")),
    )
    # The old image is where it was: so the one that took its tag is new.
    assert (moved.same, [c.change for c in moved.changes]) == (1, ["new"])


def test_what_breaks_on_another_node_class_is_a_change() -> None:
    refused = FleetFit(node="b200", state="refused")
    drift = drift_between(report(image(1)), report(image(1, fits=(refused,))))
    (change,) = drift.changes
    assert change.after is not None
    assert (change.change, change.after.refused) == ("changed", ("b200",))


def test_what_makes_two_reports_hard_to_compare_is_said() -> None:
    before = report(image(1), missing=["a"])
    tool = replace(before.tool, version="0.0.1", catalogue="2025-01-01")
    other = replace(before, tool=tool, subject="elsewhere", would_run_on=("b200",))
    drift = drift_between(other, report(image(2), missing=["b"]))
    assert len(drift.notes) == 6
    assert drift.tool == tool
    assert "the catalogue changed from 2025-01-01 to 2026-11-20" in drift.notes[0]


def test_what_nobody_asked_for_is_said_with_the_files_that_leave_it_out() -> None:
    def lock(number: int, text: str = "") -> FleetResult:
        names = ("pyproject.toml",)
        return image(number, kind="lock", names=names, left_out=text, state="passed")

    train = "not audited of pyproject.toml: extras `train`. `pyproject.toml[train]` looks at more"
    told = answer(lock(1, train), lock(2, train), lock(3))
    (group,) = told.left_out
    assert (group.text, len(group.results)) == (train, 2)
    # Nothing is undecided, and nobody may think that all of it was judged.
    assert (told.state, exit_code(told.report)) == ("passed", 0)
    for name in ("table", "markdown", "html"):
        text = find_format(FLEET, name).render(told.report, Destination())
        assert "xtras and groups that were not requested" in text and "looks at more" in text
