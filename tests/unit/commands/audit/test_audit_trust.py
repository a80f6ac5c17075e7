"""An audit is green for what was looked at, never for what somebody says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_index import Locked, library, noise

from buildmatrix.base.data import replace
from buildmatrix.locks.model import Package
from buildmatrix.reports.run import Report, exit_code


@pytest.fixture
def locked(locked: Locked) -> Locked:
    """h11, which is clean, and xgboost, which is not; no request brings either as a whole."""
    locked.add("h11 0.16.0", "requirements.in:1", {"h11/data.bin": noise(200_000)})
    cuda = {"xgboost/lib/libcudart.so.12": library(size=400_000)}
    locked.add("xgboost 3.2.0", "requirements.in:2", cuda)
    return locked


def planted(locked: Locked) -> Package:
    """h11 under the hash of xgboost."""
    h11, xgboost = locked.packages
    wheel = replace(h11.wheels[0], sha256=xgboost.wheels[0].sha256, size=None)
    return replace(h11, wheels=(wheel,))


def found(report: Report) -> list[str]:
    return [f"{one.rule} {one.distribution}" for one in report.findings]


def test_a_lock_that_claims_another_wheels_hash_makes_that_one_no_cleaner(
    locked: Locked, tmp_path: Path
) -> None:
    xgboost, hostile = locked.packages[1], planted(locked)
    locked.packages = [xgboost]
    honest = locked.audit("cpu")
    assert "BM201 xgboost" in found(honest)
    locked.packages = [hostile]
    locked.audit("cpu", cache=tmp_path / "cache")
    locked.packages = [xgboost]
    for _ in range(2):
        again = locked.audit("cpu", cache=tmp_path / "cache")
        assert found(again) == found(honest)


def test_two_distributions_under_one_hash_in_one_lock_are_each_read(locked: Locked) -> None:
    locked.packages = [planted(locked), locked.packages[1]]
    assert "BM201 xgboost" in found(locked.audit("cpu"))


def test_a_file_of_another_distribution_is_no_file_of_this_one(locked: Locked) -> None:
    h11, xgboost = locked.packages
    for wheels, version in ((h11.wheels, "3.2.0"), (xgboost.wheels, "3.3.0")):
        locked.packages = [replace(xgboost, wheels=wheels, version=version)]
        report = locked.audit("cpu")
        (one,) = [one for one in report.findings if one.rule == "BM107"]
        assert f"names {wheels[0].filename}, which is not a file of this version" in one.message
        assert "xgboost" not in {one.name for one in report.distributions}
        assert exit_code(report, "never") == 3


def test_a_pin_without_a_local_version_allows_a_build_that_has_one(locked: Locked) -> None:
    locked.add("demo 2.9.0+local1", "requirements.in:3")
    locked.packages = [replace(locked.packages[-1], version="2.9.0")]
    report = locked.audit("cpu")
    assert (found(report), exit_code(report, strict=True)) == ([], 0)


UNKNOWN = {
    "a source distribution": {"source_only": True},
    "a repository": {"source": "git+https://example.com/demo.git@abc"},
    "an archive": {"source": "https://example.com/demo-1.0.tar.gz"},
    "an archive of this machine": {"source": "./demo-1.0.tar.gz"},
    "no file": {},
    "no such version": {"unknown": "the index has no demo 1.0"},
    "other hashes": {"unknown": "the index has demo 1.0 with other hashes than the lock"},
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_distribution_of_which_nothing_is_known_leaves_the_run_undecided(
    locked: Locked, what: str
) -> None:
    locked.packages = [
        locked.packages[0],
        Package("demo", "1.0", None, (), **{"source_only": False, "via": ()} | UNKNOWN[what]),
    ]
    report = locked.audit("cpu", "rocm")
    assert [one.gates["lock"] for one in report.targets] == ["undecided"] * 2
    assert exit_code(report) == exit_code(report, "never") == 3
    assert exit_code(report, strict=True) == exit_code(report, "never", strict=True) == 1


def test_wheels_for_other_platforms_alone_leave_the_run_undecided(locked: Locked) -> None:
    locked.add("demo 1.0", tag="cp311-cp311-win_amd64")
    locked.packages = locked.packages[-1:]
    assert exit_code(locked.audit("cpu")) == 3


def test_what_the_users_own_folder_requires_is_known_where_its_project_says_it(
    locked: Locked,
) -> None:
    own = Package("demo", "", None, (), False, (), source="./packages/demo")
    asked = replace(locked.packages[0], via=("packages/demo/pyproject.toml:4",))
    for packages, is_known in (([own], False), ([own, asked], True)):
        locked.packages = packages
        (one,) = locked.audit("cpu").findings
        assert ("what it requires is not known yet" in one.message) != is_known


@pytest.mark.parametrize("source", [".", "packages/demo", "file", "this workspace"])
def test_the_users_own_folder_is_undecided_for_strict_runs_only(
    locked: Locked, source: str
) -> None:
    locked.packages = [Package("demo", "", None, (), False, (), source=source)]
    report = locked.audit("cpu")
    assert [one.severity for one in report.findings] == ["note"]
    assert (exit_code(report), exit_code(report, strict=True)) == (0, 1)
