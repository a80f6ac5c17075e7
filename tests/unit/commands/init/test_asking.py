"""What `init` asks of an index and of registries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hasty import HASTY
from image_registry import ImageRegistry
from package_index import PackageIndex, serve

from buildmatrix.commands import init_sections
from buildmatrix.commands.init import resolved_torch
from buildmatrix.commands.init_sections import Digests
from buildmatrix.net.registry_mirrors import Reference


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    with serve() as served:
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url("pypi"))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
        served.add("pypi", "torch", "2.12.0")
        served.add("pypi", "numpy", "2.0")
        served.add("pypi", "sentence-transformers", "5.0", "torch>=2", "numpy")
        served.add("pypi", "acme-search", "1.0", "sentence-transformers")
        yield served


@pytest.mark.parametrize(
    ("lines", "asker"),
    [
        ("numpy\n", ""),
        # A line that names torch needs no resolution.
        ("torch\nno-such-distribution\n", ""),
        ("# Search.\nacme-search\n", "sentence-transformers, acme-search, requirements.in:2"),
        ("no-such-distribution\n", None),
    ],
)
def test_what_requires_torch_is_found_with_the_line_that_asked_for_it(
    lines: str, asker: str | None, index: PackageIndex, tmp_path: Path
) -> None:
    path = tmp_path / "requirements.in"
    path.write_text(lines)
    assert resolved_torch([path], tmp_path) == asker


def test_registries_give_digests_and_a_silent_one_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(init_sections, "_PATIENCE", HASTY)
    with ImageRegistry() as server:
        image = server.image([b""], tag="1")
        with Digests() as digests:
            assert digests.of(f"{server.host}/team/app:1") == image["digest"]
            assert digests.of(f"{server.host}/team/app:2") == ""
            assert digests.of(f"{server.host}/team/app:1") == image["digest"]
            host = server.host
    asked: list[Reference] = []
    with Digests() as digests:
        real = digests._registry.digest
        monkeypatch.setattr(digests._registry, "digest", lambda one: asked.append(one) or real(one))
        assert [digests.of(f"{host}/team/app:{tag}") for tag in "123"] == ["", "", ""]
    assert len(asked) == 1
