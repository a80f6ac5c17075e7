"""What a driver makes of a toolkit, and the vendors' tables behind that."""

from __future__ import annotations

import pytest

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.load import load
from buildmatrix.matrix.kinds import version_range


@pytest.mark.parametrize(
    ("toolkit", "driver", "expected"),
    [
        ("12.8", "570.26", "full"),
        ("12.8", "550.54.14", "line"),
        ("12.8", "525.60.12", "refused"),
        ("12.8", "525.60.13", "line"),
        ("13.0", "550.163.01", "refused"),
        ("13.0", "580.65.06", "full"),
        ("13.0", "580", "full"),
        ("13.2", "580.95.05", "line"),
        # Before CUDA 11 every minor asks for its own driver.
        ("10.2", "430.50", "refused"),
        ("10.2", "440.33", "full"),
        # What is known of the line alone.
        ("12", "575.51.03", "full"),
        ("12", "550.54.14", "line"),
        ("12", "520.61.05", "refused"),
        # Ranges count by their lowest end.
        ("12.8", ">=550,<600", "line"),
        ("12.8", ">=570", "full"),
        ("12.8", "<600", "unknown"),
        ("12.8", "", "unknown"),
        ("12.8", ">=580,<570", "unknown"),
        # Newer than every table: the driver is judged by the newest row, the toolkit by its line.
        ("12.9", "999.1", "full"),
        ("13.9", "999.1", "unknown"),
        ("13.9", "550.54", "refused"),
        ("99.1", "610.43.02", "unknown"),
    ],
)
def test_what_a_driver_makes_of_a_toolkit(toolkit: str, driver: str, expected: str) -> None:
    assert drivers.runs(toolkit, version_range(driver), "cuda", load()) == expected


# CUDA Toolkit Release Notes, table 3, and the compatibility guide; read anew for this test.
@pytest.mark.parametrize(
    ("toolkit", "driver"),
    [
        ("13.0", "580.65.06"),
        ("12.9", "575.51.03"),
        ("12.8", "570.26"),
        ("12.6", "560.28.03"),
        ("12.4", "550.54.14"),
        ("12.2", "535.54.03"),
        ("11.8", "520.61.05"),
        ("10.2", "440.33"),
    ],
)
def test_the_oldest_driver_of_a_toolkit(toolkit: str, driver: str) -> None:
    row = drivers.minimum(toolkit, "cuda", load())
    assert row is not None and row.driver == driver


def test_there_is_no_toolkit_between_two_releases() -> None:
    assert drivers.minimum("12.7", "cuda", load()) is None
    assert drivers.runs("12.7", version_range("570.26"), "cuda", load()) == "unknown"


@pytest.mark.parametrize(
    ("driver", "toolkit"),
    [
        ((550, 163, 1), "12.4"),
        ((535, 104, 5), "12.2"),
        ((580, 95, 5), "13.0"),
        ((999,), "13.4"),
        ((300,), None),
    ],
)
def test_the_newest_toolkit_of_a_driver(driver: tuple[int, ...], toolkit: str | None) -> None:
    assert drivers.toolkit_of(driver, "cuda", load()) == toolkit


@pytest.mark.parametrize(
    ("language", "toolkit"), [("8.8", "12.9"), ("7.8", "11.8"), ("9.2", "13.2"), ("42.0", None)]
)
def test_what_compiles_device_code(language: str, toolkit: str | None) -> None:
    assert drivers.compiles("ptx", language, "cuda", load()) == toolkit


@pytest.mark.parametrize(
    ("driver", "row"),
    [
        ("6.3.3", "6.3"),
        ("6.3", "6.3"),
        ("30.20.1", "30.20"),
        ("99.1", "31.40"),
        ("30.15", None),
        ("5.1", None),
        ("", None),
    ],
)
def test_the_row_of_a_kernel_driver(driver: str, row: str | None) -> None:
    pair = drivers.pair_of(version_range(driver), "rocm", load())
    assert (pair.driver if pair is not None else None) == row


def test_a_driver_beyond_all_tables_says_so() -> None:
    assert drivers.is_beyond(version_range("999.1"), "cuda", load())
    assert not drivers.is_beyond(version_range("610.99"), "cuda", load())
    assert not drivers.is_beyond(version_range(""), "cuda", load())
    assert not drivers.is_beyond(version_range("1.0"), "cpu", load())


def test_every_row_says_where_it_is_from() -> None:
    for name, file in load().files.items():
        if name.endswith(".compat.toml"):
            for entry in (*file.toolkit_drivers, *file.driver_pairs, *file.framework_libraries):
                assert entry.source and all(file.sources[key] for key in entry.source)
