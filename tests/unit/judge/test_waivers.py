"""Waivers, and BM901."""

from __future__ import annotations

from datetime import date

from rulecases import SITE, elf, file, image, of_image, sass, target

from buildmatrix.base.data import replace
from buildmatrix.judge.acceptance import apply_waivers, check_expired_or_unused_waiver
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import Position, Waiver

TODAY = date(2026, 11, 21)
CPU = target("cpu")
WAIVER = Waiver(
    rule="BM401",
    select=("cpu-*",),
    distribution="ctranslate2",
    path=None,
    reason="no build for the CPU exists",
    owner="team@example.com",
    expires=date(2027, 1, 31),
    position=Position("buildmatrix.toml", 42),
)


def device_code() -> tuple[Finding, ...]:
    tree = image(
        file("ct2/a.so", elf(device_code=sass("sm_80")), "ctranslate2 4.8.5"),
        file("ct2/b.so", elf(device_code=sass("sm_80")), "ctranslate2 4.8.5"),
    )
    return tuple(one for one in of_image(CPU, tree) if one.rule == "BM401")


def test_a_waiver_keeps_the_finding_and_gives_it_a_reason() -> None:
    (one,) = apply_waivers(device_code(), [WAIVER], TODAY)
    assert one.waived is not None
    assert "no build for the CPU exists" in one.waived and "team@example.com" in one.waived


def test_a_waiver_holds_on_its_last_day_and_not_after() -> None:
    (held,) = apply_waivers(device_code(), [WAIVER], WAIVER.expires)
    (open_again,) = apply_waivers(device_code(), [WAIVER], date(2027, 2, 1))
    assert held.waived is not None
    assert open_again.waived is None


def test_a_waiver_for_another_rule_target_or_distribution_covers_nothing() -> None:
    others = [
        replace(WAIVER, rule="BM201"),
        replace(WAIVER, select=("rocm*",)),
        replace(WAIVER, distribution="xgboost"),
        replace(WAIVER, path="opt/*"),
    ]
    (one,) = apply_waivers(device_code(), others, TODAY)
    assert one.waived is None


def test_a_waiver_may_name_any_of_the_distributions_that_own_one_path() -> None:
    (found,) = device_code()
    shared = replace(found, distribution="ctranslate2, onnxruntime")
    waivers = [replace(WAIVER, distribution=name) for name in ("ctranslate2", "onnx*", "xgboost")]
    held = [apply_waivers([shared], [waiver], TODAY)[0].waived is not None for waiver in waivers]
    assert held == [True, True, False]


def test_a_path_must_cover_every_file_of_the_finding() -> None:
    (part,) = apply_waivers(device_code(), [replace(WAIVER, path=f"{SITE}/ct2/a.so")], TODAY)
    (whole,) = apply_waivers(device_code(), [replace(WAIVER, path=f"{SITE}/ct2/*")], TODAY)
    assert part.waived is None
    assert whole.waived is not None


def test_an_empty_selector_matches_every_target() -> None:
    (one,) = apply_waivers(device_code(), [replace(WAIVER, select=(), distribution=None)], TODAY)
    assert one.waived is not None


def test_a_waiver_that_ran_out_is_named_with_its_line() -> None:
    (one,) = check_expired_or_unused_waiver(device_code(), [WAIVER], date(2027, 2, 1), [CPU.id])
    assert (one.rule, one.severity) == ("BM901", "warning")
    assert one.chain == ("buildmatrix.toml:42",)
    assert "2027-01-31" in one.message


def test_a_waiver_that_covers_nothing_is_a_note() -> None:
    (one,) = check_expired_or_unused_waiver((), [WAIVER], TODAY, [CPU.id])
    assert (one.rule, one.severity) == ("BM901", "note")


def test_a_waiver_in_use_and_one_for_targets_that_were_not_judged_stay_quiet() -> None:
    assert check_expired_or_unused_waiver(device_code(), [WAIVER], TODAY, [CPU.id]) == ()
    assert check_expired_or_unused_waiver((), [WAIVER], TODAY, ["rocm6.4-py311-server"]) == ()
