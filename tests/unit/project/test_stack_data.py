"""The development engine's data are bounded: a day of builds must not fill a disk."""

from __future__ import annotations

from pathlib import Path

from scripts.stack import engine
from scripts.stack.layout import Layout

MEGABYTE = 1e-3  # in GB


def _layout(folder: Path, megabytes: int) -> Layout:
    layout = Layout(folder / "cache", folder / "run")
    snapshot = layout.data_root / "containerd" / "snapshot"
    snapshot.mkdir(parents=True)
    (snapshot / "layer").write_bytes(b"x" * megabytes * 1_000_000)
    return layout


def test_data_of_a_moderate_size_stay(tmp_path: Path) -> None:
    layout = _layout(tmp_path, megabytes=1)
    assert not engine.limit_data(layout, most=2 * MEGABYTE, free=0)
    assert (layout.data_root / "containerd/snapshot/layer").exists()


def test_data_that_grew_too_large_go(tmp_path: Path) -> None:
    layout = _layout(tmp_path, megabytes=3)
    assert engine.limit_data(layout, most=2 * MEGABYTE, free=0)
    assert not layout.data_root.exists()


def test_data_go_when_the_disk_is_nearly_full(tmp_path: Path) -> None:
    layout = _layout(tmp_path, megabytes=1)
    assert engine.limit_data(layout, most=2 * MEGABYTE, free=10**9)
    assert not layout.data_root.exists()


def test_an_engine_that_never_ran_has_no_data_to_remove(tmp_path: Path) -> None:
    assert not engine.limit_data(Layout(tmp_path / "cache", tmp_path / "run"))
