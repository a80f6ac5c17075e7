"""Findings that an earlier report had, and waivers from a file of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from rulecases import of_lock, pin, target

from buildmatrix.base.errors import SpecError
from buildmatrix.judge import acceptance
from buildmatrix.matrix.load import load_waivers

CPU = target("cpu")
WAIVER = """
[[waive]]
rule = "BM101"
select = ["cpu-*"]
distribution = "nvidia-*"
reason = "until the index is right"
owner = "team@example.com"
expires = 2027-01-31
"""


def foreign(version: str = "2.27.3"):
    return of_lock(CPU, pin(f"nvidia-nccl-cu12 {version}"))


def test_what_the_baseline_has_is_accepted_also_in_a_newer_version() -> None:
    known = {one.fingerprint for one in foreign()}
    (one,) = acceptance.apply_baseline(foreign("2.28.0"), known)
    assert one.waived == acceptance.BASELINE_REASON
    assert acceptance.is_from_baseline(one)


def test_what_the_baseline_does_not_have_stays_open() -> None:
    known = {one.fingerprint for one in foreign()}
    found = of_lock(CPU, pin("nvidia-cublas-cu12 12.8.4.1"))
    assert [one.waived for one in acceptance.apply_baseline(found, known)] == [None]


def test_a_reason_that_somebody_gave_is_kept() -> None:
    from buildmatrix.base.data import replace

    waived = [replace(one, waived="accepted (team)") for one in foreign()]
    (one,) = acceptance.apply_baseline(waived, {one.fingerprint for one in waived})
    assert one.waived == "accepted (team)"
    assert not acceptance.is_from_baseline(one)


def test_waivers_of_a_file_are_read_like_those_of_a_specification(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(WAIVER)
    (one,) = load_waivers(path, [CPU.id])
    assert (one.rule, one.distribution, one.position.line) == ("BM101", "nvidia-*", 2)
    assert str(one.position) == f"{path}:2"


def test_a_pattern_that_selects_no_target_is_a_mistake_where_targets_are_known(tmp_path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(WAIVER.replace("cpu-*", "gpu-*"))
    with pytest.raises(SpecError, match=r"waivers\.toml:4:11: no target matches `gpu-\*`"):
        load_waivers(path, [CPU.id])
    assert len(load_waivers(path, None)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WAIVER.replace("owner", "onwer"), r"waivers\.toml:7:1: unknown key `onwer`"),
        ("[project]\nname = 'a'\n", r"waivers\.toml:1:2: unknown key `project`"),
        ("[[waive]\n", r"waivers\.toml:1:\d+: this is not TOML"),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_places(tmp_path, text, message) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        load_waivers(path, None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gone\.toml: there is no such file"):
        load_waivers(tmp_path / "gone.toml", None)


def test_a_waiver_of_a_rule_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(WAIVER.replace("BM101", "BM999"))
    with pytest.raises(SpecError, match=r"waivers\.toml:2: there is no rule BM999"):
        acceptance.check_waived_rules(load_waivers(path, None))
