"""What an audit looks at, resolved against the machine's real package index."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.base.progress import Silent
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.sources.resolved import Resolved, resolve_sources

pytestmark = pytest.mark.network

DATA = Path(__file__).parents[1] / "unit" / "locks" / "data"


def resolved(root: Path, source: str, *backends: str) -> list[Resolved]:
    found = resolve_sources([source], None, backends=backends, root=root, progress=Silent())
    for one in found:
        assert isinstance(one, Resolved), one
    return [one for one in found if isinstance(one, Resolved)]


def test_one_version_is_looked_at_for_each_backend_with_a_python_that_it_supports() -> None:
    rocm, cpu = resolved(Path(), "pypi:xgboost==3.4.1", "rocm", "cpu")
    assert rocm.lock.packages == cpu.lock.packages
    packages = {package.name: package for package in rocm.lock.packages}
    assert packages["nvidia-nccl-cu13"].via == ("xgboost",)
    wheel = choose_wheel(packages["xgboost"], rocm.target)
    assert wheel is not None
    assert wheel.filename.endswith("_x86_64.whl")


def test_a_poetry_lock_gets_the_addresses_of_its_files() -> None:
    (one,) = resolved(DATA / "poetry", "poetry.lock", "cpu")
    assert one.stale is None
    for package in one.lock.packages:
        wheel = choose_wheel(package, one.target)
        assert wheel is not None
        assert wheel.url.startswith("http"), package


def test_a_release_without_wheels_is_named_and_not_built(tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("flash-attn==2.8.3\n")
    (one,) = resolved(tmp_path, "requirements.in", "cuda")
    (package,) = one.lock.packages
    assert (package.name, package.version, package.source_only) == ("flash-attn", "2.8.3", True)
