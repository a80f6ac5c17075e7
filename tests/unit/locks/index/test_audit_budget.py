"""How deep an audit may look into which wheel."""

from __future__ import annotations

import pytest

from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.locks.index.model import (
    HEAD,
    LEAST_OF_ONE,
    MOST_SNIFFED,
    SMALL_WHEEL,
    SNIFF,
    Member,
    Need,
    WheelFacts,
    leftover_shares,
    most,
    shares,
)

MB = 1_000_000
GB = 1000 * MB


def need(size: int) -> Need:
    """A wheel of `size` bytes that is one large binary."""
    return Need.of(size, [Member("demo/libdemo.so", size * 3, size, 0)])


def test_no_large_wheel_is_read_beyond_a_fifth() -> None:
    assert shares([{"demo": need(60 * MB)}], 60 * MB) == {"demo": 12 * MB}


def test_of_a_small_wheel_every_binary_can_be_opened() -> None:
    modules = [Member(f"demo/_{n}.so", 300_000, 100_000, 0) for n in range(90)]
    assert Need.of(9 * MB, modules).most == 9 * MB
    modules = [Member(f"demo/_{n}.so", 300_000, 100_000, 0) for n in range(300)]
    assert Need.of(30 * MB, modules).most == LEAST_OF_ONE


def test_what_is_no_binary_by_its_name_needs_its_first_bytes() -> None:
    files = [Member("demo/data.json", 90 * MB, 30 * MB, 0), Member("demo/a.txt", 9, 9, 0)]
    assert Need.of(30 * MB, files).most == SNIFF
    assert Need.of(30 * MB, files[1:]).most == 0
    headers = [Member(f"demo/include/{n}.h", 9_000, 3_000, 0) for n in range(5_000)]
    assert Need.of(30 * MB, headers).most == MOST_SNIFFED * SNIFF


@pytest.mark.parametrize("total", [3 * GB, 6 * GB, 40 * GB])
def test_a_large_lock_is_read_to_less_than_a_hundredth(total: int) -> None:
    wanted = {f"demo{number}": need(300 * MB) for number in range(20)}
    assert sum(shares([wanted], total).values()) <= total // 100


def test_a_small_lock_is_not_starved() -> None:
    wanted = {"one": need(200 * MB), "other": need(200 * MB)}
    assert sum(shares([wanted], 400 * MB).values()) > 40 * MB


def test_small_wheels_get_what_they_can_use_and_large_ones_share_the_rest() -> None:
    wanted = {"small": need(2 * MB), "large": need(GB), "larger": need(2 * GB)}
    found = shares([wanted], 3 * GB)
    assert found["small"] == 2 * MB
    assert found["large"] == found["larger"] == (most(3 * GB) - 2 * MB) // 2


def test_conda_packages_get_all_or_nothing_the_small_first() -> None:
    def package(size: int) -> Need:
        facts = WheelFacts("demo-1.0-0.conda", None, size, "listing", Inventory(), ())
        return Need.of_facts(facts)

    wanted = {f"demo{number}": package(20 * MB) for number in range(5)}
    found = shares([{**wanted, "huge": package(GB)}], 2 * GB)
    assert most(2 * GB) < 60 * MB
    assert found == {"demo0": 20 * MB}
    assert leftover_shares({"huge": package(GB)}, 2 * GB, 20 * MB) == {}


def test_verdicts_come_before_evidence() -> None:
    found = shares([{"open": need(100 * MB)}, {"certain": need(900 * MB)}], GB)
    assert found["open"] == 20 * MB
    assert found["certain"] == most(GB) - 20 * MB


def test_a_wheel_that_gets_nothing_is_not_asked_for() -> None:
    assert "certain" not in shares([{"open": need(2 * GB)}, {"certain": need(GB)}], 3 * GB)


def test_what_the_shares_left_goes_to_the_heaviest_that_it_is_enough_for() -> None:
    total = 400 * MB
    left = most(total) - 20 * MB
    wanted = {
        name: Need(0, 0, whole)
        for name, whole in (("large", left), ("small", 10 * MB), ("other", left - 20 * MB))
    }
    assert leftover_shares(wanted, total, 20 * MB) == {"large": left}
    wanted["large"] = Need(0, 0, 2 * left)
    enough = {"small": 10 * MB, "other": left - 20 * MB}
    assert leftover_shares(wanted, total, 20 * MB) == {**enough, "large": 10 * MB}
    # The list of a large archive was read; a part of its files says no more.
    wanted["large"] = Need(0, 0, 2 * left, packed=2 * left)
    assert leftover_shares(wanted, total, 20 * MB) == enough
    assert leftover_shares({"one": Need(0, 0, 1)}, total, most(total)) == {}


def test_everything_in_a_wheel_costs_its_beginnings_once_more() -> None:
    members = [Member("demo/libdemo.so", 90 * MB, 30 * MB, 0), Member("demo/_C.so", 9_000, 900, 0)]
    assert Need.of(31 * MB, members).whole == 30 * MB + HEAD + 900


def test_a_small_wheel_is_read_whole() -> None:
    members = [Member("demo/libdemo.so", 12 * MB, 4 * MB, 0)]
    assert Need.of(SMALL_WHEEL, members).most == SMALL_WHEEL
    assert Need.of(SMALL_WHEEL + 1, members).most < SMALL_WHEEL
