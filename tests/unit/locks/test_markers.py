"""Markers of locks, held against a target."""

from __future__ import annotations

import pytest
from lock_cases import target

from buildmatrix.locks.selection import BrokenMarker, marker_environment, marker_holds

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
    assert marker_holds(marker, HERE, {"gpu", "web"}, {"dev"}) is expected


@pytest.mark.parametrize("marker", ["nonsense", "python_version >", "(" * 5000, "x" * 200_000])
def test_what_is_no_marker_is_said_and_no_crash(marker: str) -> None:
    with pytest.raises(BrokenMarker):
        marker_holds(marker, HERE)
