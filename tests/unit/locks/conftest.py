from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from package_index import PackageIndex, serve


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    """An index with a torch stack, as uv's default one; uv's cache starts empty."""
    with serve() as served:
        for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url("pypi"))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        served.add("pypi", "numpy", "2.0")
        served.add("pypi", "numpy", "2.1")
        served.add("pypi", "torch", "2.13.0", "triton", "nvidia-cublas", "numpy")
        served.add("pypi", "triton", "3.9.0")
        served.add("pypi", "nvidia-cublas", "13.0")
        served.add("pypi", "nvidia-cublas-cu12", "12.8")
        served.add("pypi", "sentence-transformers", "5.0", "torch>=2", "numpy")
        served.add("pypi", "xgboost", "3.4.1", "nvidia-nccl-cu13", "numpy")
        served.add("pypi", "nvidia-nccl-cu13", "2.28")
        served.add("pypi", "xgboost-cpu", "3.4.1", "numpy")
        served.add("pypi", "xgboost-cpu", "3.5.0", "numpy")
        served.add("pypi", "booster", "1.0", "xgboost>=3")
        served.add("cu128", "torch", "2.12.0+cu128", "triton==3.8.0", "nvidia-cublas-cu12")
        served.add("cu128", "triton", "3.8.0")
        served.add("cu128", "numpy", "9.9")
        served.add("cpu", "torch", "2.12.0+cpu", "numpy")
        served.add("cpu", "numpy", "9.9")
        yield served
