"""A machine whose pip alone knows the private index: the public one is not asked for its names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lock_cases import spec_of, target
from package_index import PackageIndex, serve, wheel_bytes

from buildmatrix.base.progress import Silent
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.model import Package
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.sources.resolved import Resolved, Unresolved, resolve_sources

#: The public index, and the private one, have both a package of this name.
NAME = "company-tool"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    with serve() as served:
        for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        served.add("private", NAME, "1.5")
        served.add("public", NAME, "1.0")
        served.add("public", "numpy", "2.0")
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def resolved(root: Path, source: str, cache: Path | None = None) -> dict[str, Package]:
    (found,) = resolve_sources(
        [source], None, backends=["cpu"], root=root, cache=Cache(cache), progress=Silent(), jobs=2
    )
    assert isinstance(found, Resolved), found
    return {package.name: package for package in found.lock.packages}


def test_the_index_of_pip_is_asked_and_no_other(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url("private"))
    (root / "requirements.in").write_text(f"{NAME}\n")
    found = resolved(root, "requirements.in")[NAME]
    assert (found.version, found.index) == ("1.5", index.url("private"))


def test_so_it_is_with_a_settings_file_and_with_pins(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[global]\nindex-url = {index.url('private')}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    (root / "requirements.txt").write_text(f"{NAME}==1.5\n")
    (wheel,) = resolved(root, "requirements.txt")[NAME].wheels
    assert wheel.url.startswith(index.url("private").removesuffix("simple"))


def test_of_several_indexes_the_best_version_counts_as_for_pip(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url("public"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{index.url('private')} file:///nowhere/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    (root / "requirements.in").write_text(f"{NAME}\nnumpy\n")
    found = resolved(root, "requirements.in")
    assert (found[NAME].version, found["numpy"].version) == ("1.5", "2.0")


def test_an_index_in_the_file_replaces_that_of_pip(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url("private"))
    (root / "requirements.in").write_text(f"--index-url {index.url('public')}\n{NAME}\n")
    assert resolved(root, "requirements.in")[NAME].version == "1.0"


def test_a_folder_of_pip_serves_without_an_index(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "wheel house, ours"
    folder.mkdir()
    name, data = wheel_bytes(NAME, "3.0")
    (folder / name).write_bytes(data)
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[global]\nno-index = true\nfind-links = {folder.as_uri()}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    (root / "requirements.in").write_text(f"{NAME}\n")
    (wheel,) = resolved(root, "requirements.in")[NAME].wheels
    assert "3.0" in wheel.filename


def test_lock_asks_the_same_index(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url("private"))
    (root / "requirements.in").write_text(f"{NAME}\n")
    spec = spec_of(root, target())
    locks = lock_targets(
        spec, spec.targets, upgrade=False, offline=False, progress=Silent(), jobs=1
    )
    (package,) = locks[spec.targets[0].id].packages
    assert (package.version, package.index) == ("1.5", index.url("private"))


def test_settings_that_nobody_can_read_leave_the_run_undecided(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = tmp_path / "pip.conf"
    conf.write_text("index-url = x\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(conf))
    (root / "requirements.in").write_text(f"{NAME}\n")
    (found,) = resolve_sources(
        ["requirements.in"], None, backends=["cpu"], root=root, progress=Silent(), jobs=2
    )
    assert isinstance(found, Unresolved)
    assert (found.exit_code, "is not a valid settings file of pip" in found.message) == (3, True)


# What is remembered


def put(folder: Path, version: str, *requires: str) -> Path:
    name, data = wheel_bytes(NAME, version, requires)
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


@pytest.mark.parametrize("by", ["a line", "uv", "pip", "the project"])
def test_a_wheel_that_is_added_to_a_folder_is_seen(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    folder, cache, source = tmp_path / "wheels", tmp_path / "cache", "requirements.in"
    put(folder, "2.0")
    monkeypatch.setenv("PIP_INDEX_URL", index.url("private"))
    line = ""
    if by == "a line":
        line = f"--find-links {folder}\n"
    elif by == "the project":
        source = "pyproject.toml"
        (root / source).write_text(
            f'[project]\nname = "p"\nversion = "1"\ndependencies = ["{NAME}"]\n'
            '[tool.uv]\nfind-links = ["../wheels"]\n'
        )
    else:
        monkeypatch.setenv(f"{by.upper()}_FIND_LINKS", str(folder))
    (root / "requirements.in").write_text(f"{line}{NAME}\n")
    assert resolved(root, source, cache)[NAME].version == "2.0"
    before = index.requests
    assert resolved(root, source, cache)[NAME].version == "2.0"
    assert index.requests == before, "it was not remembered"
    put(folder, "2.1")
    assert resolved(root, source, cache)[NAME].version == "2.1"


def test_a_wheel_that_is_built_again_at_its_place_is_read_again(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.url("public"))
    path = put(tmp_path / "wheels", "2.0")
    (root / "requirements.in").write_text(f"{NAME} @ {path.as_uri()}\n")
    cache = tmp_path / "cache"
    first = resolved(root, "requirements.in", cache)
    assert set(first) == {NAME}
    put(tmp_path / "wheels", "2.0", "numpy")
    second = resolved(root, "requirements.in", cache)
    assert set(second) == {NAME, "numpy"}
    assert second[NAME].wheels[0].sha256 != first[NAME].wheels[0].sha256


def test_another_index_is_another_question_for_pins_too(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index.add("private", "numpy", "2.0", "company-tool")
    (root / "requirements.txt").write_text("numpy==2.0\n")
    urls = []
    for name in ("public", "private"):
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url(name))
        (wheel,) = resolved(root, "requirements.txt", tmp_path / "cache")["numpy"].wheels
        urls.append(wheel.url)
    assert ["public" in urls[0], "private" in urls[1]] == [True, True]


def test_settings_of_uv_and_folders_that_are_indexes_are_part_of_the_question(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served = tmp_path / "simple" / NAME
    served.mkdir(parents=True)

    def publish(version: str) -> None:
        name = put(served, version).name
        links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in served.glob("*.whl"))
        (served / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
        assert name in links

    publish("2.0")
    settings = tmp_path / "uv.toml"
    settings.write_text(f'index-url = "{(tmp_path / "simple").as_uri()}"\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    (root / "requirements.in").write_text(f"{NAME}\n")
    cache = tmp_path / "cache"
    assert resolved(root, "requirements.in", cache)[NAME].version == "2.0"
    publish("2.1")
    assert resolved(root, "requirements.in", cache)[NAME].version == "2.1"
    settings.write_text(f'index-url = "{index.url("public")}"\n')
    assert resolved(root, "requirements.in", cache)[NAME].version == "1.0"
