"""Shards of a matrix: disjoint, complete, balanced, and the same wherever they are asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rulecases import target

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.matrix.matrix import Shard, divide_targets, plan_digest
from buildmatrix.matrix.model import Target

_BARE = target("cpu")


def targets(count: int) -> list[Target]:
    return [replace(_BARE, id=f"cpu-py3{n // 4}-v{n}") for n in range(count)]


def parts(
    matrix: Sequence[Target], count: int, seconds: dict[str, float]
) -> list[tuple[Target, ...]]:
    numbers = divide_targets(matrix, seconds, count)
    return [tuple(t for t in matrix if numbers[t.id] == n) for n in range(1, count + 1)]


_TIMES = st.dictionaries(st.integers(0, 60), st.floats(0.001, 5000), max_size=61)


@given(total=st.integers(0, 60), count=st.integers(1, 70), times=_TIMES)
def test_shards_are_disjoint_complete_and_in_the_order_of_the_matrix(
    total: int, count: int, times: dict[int, float]
) -> None:
    matrix = targets(total)
    seconds = {t.id: times[n] for n, t in enumerate(matrix) if n in times}
    shards = parts(matrix, count, seconds)
    ids = [t.id for shard in shards for t in shard]
    assert sorted(ids) == sorted(t.id for t in matrix)
    for shard in shards:
        assert list(shard) == [t for t in matrix if t in shard]


@given(total=st.integers(1, 60), count=st.integers(1, 12), times=_TIMES)
def test_no_shard_is_longer_than_the_shortest_by_more_than_one_target(
    total: int, count: int, times: dict[int, float]
) -> None:
    matrix = targets(total)
    seconds = {t.id: times.get(n, 7.0) for n, t in enumerate(matrix)}
    loads = [sum(seconds[t.id] for t in shard) for shard in parts(matrix, count, seconds)]
    rounding = 0.001 * total
    assert max(loads) - min(loads) <= max(seconds.values()) + rounding


@given(times=_TIMES, seed=st.integers())
def test_neither_the_order_of_the_times_nor_strange_targets_change_a_shard(
    times: dict[int, float], seed: int
) -> None:
    matrix = targets(40)
    seconds = {t.id: times[n] for n, t in enumerate(matrix) if n in times}
    shuffled = [*seconds.items(), ("gone-py27-old", 1e6)]
    random.Random(seed).shuffle(shuffled)
    assert parts(matrix, 5, seconds) == parts(matrix, 5, dict(shuffled))


def test_without_times_neighbors_stay_together() -> None:
    matrix = targets(10)
    assert [[t.id for t in shard] for shard in parts(matrix, 3, {})] == [
        [t.id for t in matrix[:3]],
        [t.id for t in matrix[3:6]],
        [t.id for t in matrix[6:]],
    ]


def test_a_slow_target_has_a_shard_of_its_own_and_an_unknown_one_counts_as_the_median() -> None:
    matrix = targets(5)
    seconds = dict(zip((t.id for t in matrix), (600.0, 10.0, 10.0, 10.0), strict=False))
    first, second = parts(matrix, 2, seconds)
    assert first == (matrix[0],)
    assert second == tuple(matrix[1:])


def test_more_shards_than_targets_leave_some_empty() -> None:
    assert sorted(map(len, parts(targets(2), 4, {}))) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "１/２", "1 /2"]
)
def test_what_is_no_part_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="write I/N with I from 1 to N: --shard 2/5"):
        Shard.parse(text)


def test_a_part_is_written_as_it_was_read() -> None:
    assert str(Shard.parse("2/5")) == "2/5"


def test_a_division_has_a_digest_that_says_which_target_is_where() -> None:
    matrix = targets(8)
    even = plan_digest(divide_targets(matrix, {}, 3), 3)
    assert even == plan_digest(divide_targets(list(matrix), {"gone": 3.0}, 3), 3)
    others = (
        plan_digest(divide_targets(matrix, {}, 4), 4),
        plan_digest(divide_targets(matrix[1:], {}, 3), 3),
        plan_digest(divide_targets(matrix, {matrix[0].id: 100.0, matrix[1].id: 1.0}, 3), 3),
    )
    assert len({even, *others}) == 4
