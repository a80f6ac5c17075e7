"""Markers of locks, held against a target."""

from __future__ import annotations

import pytest
from lock_cases import target

from buildmatrix.locks.markers import BrokenMarker, holds
from buildmatrix.locks.platform import marker_environment

HERE = marker_environment(target())


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        (None, True),
        ("sys_platform == 'linux' and python_full_version < '3.12'", True),
        ("platform_machine == 'aarch64'", False),
        ("extra == 'gpu'", True),
        ("extra != 'gpu'", False),
        ('"gpu" == extra or extra == "none"', True),
        ("extra == 'GPU' and extra == 'web'", True),
        ("extra == 'gpu' and extra == 'other'", False),
        ("'gpu' in extras and 'dev' in dependency_groups", True),
        ("'dev' not in dependency_groups or 'other' in extras", False),
    ],
)
def test_several_extras_and_groups_can_hold_at_once(marker: str | None, expected: bool) -> None:
    assert holds(marker, HERE, {"gpu", "web"}, {"dev"}) is expected


@pytest.mark.parametrize("marker", ["nonsense", "python_version >", "(" * 5000, "x" * 200_000])
def test_what_is_no_marker_is_said_and_no_crash(marker: str) -> None:
    with pytest.raises(BrokenMarker):
        holds(marker, HERE)
