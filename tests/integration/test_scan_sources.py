"""Every kind of SOURCE, made by the tools that users make them with."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import distribution
from pathlib import Path

import pytest

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError, ComponentError, UndecidedError, UsageError
from buildmatrix.engines.model import Engine
from buildmatrix.facts.inventory.model import Inventory, Stats
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import SETTLED_NS, FactCache
from buildmatrix.sources.local import system_packages
from buildmatrix.sources.model import Argument, Facts, ReadingOptions, Source
from buildmatrix.sources.parse import parse as parse_argument


def no_engine() -> Engine:
    raise AssertionError("this source needs no engine")


def parse(text: str) -> Source:
    return parse_argument(Argument(text, "scan"))


def read(
    source: Source,
    engine: Callable[[], Engine],
    cache: FactCache | None = None,
) -> Facts:
    return source.facts(ReadingOptions(engine, cache=lambda: cache))


def facts(text: str | Path, cache: FactCache | None = None) -> Facts:
    return read(parse(str(text)), no_engine, cache)


def bare(inventory: Inventory) -> Inventory:
    """Without what differs from run to run."""
    return replace(inventory, stats=Stats())


def names(inventory: Inventory) -> set[str]:
    return {one.name for one in inventory.distributions}


def package(site: Path, name: str) -> None:
    """An installed distribution."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("")
    metadata = site / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "RECORD").write_text(f"{name}/__init__.py,,\n")


# Virtual environments


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    package(next(folder.glob("lib/python3*")) / "site-packages", "inside")
    return folder


def test_a_virtual_environment_is_read_from_its_folder_and_from_its_interpreter(
    environment: Path,
) -> None:
    assert parse(str(environment)) == parse(str(environment / "bin/python"))
    assert names(facts(environment).inventory) == {"inside"}


def test_packages_of_the_base_are_read_where_the_environment_lets_them_in(
    environment: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    (base / "bin").mkdir(parents=True)
    package(base / "lib/python3.11/site-packages", "below")
    package(base / "lib/python3/dist-packages", "debian")
    package(base / "lib/python3.10/site-packages", "another-python")
    configuration = environment / "pyvenv.cfg"
    for word, expected in [("false", {"inside"}), ("true", {"inside", "below", "debian"})]:
        configuration.write_text(
            f"home = {base / 'bin'}\ninclude-system-site-packages = {word}\nversion = 3.11.2\n"
        )
        assert names(facts(environment).inventory) == expected
    paths = {one.path for one in facts(environment).inventory.distributions}
    assert f"{str(base)[1:]}/lib/python3.11/site-packages/below-1.0.dist-info" in paths


def test_what_a_real_environment_lets_in_is_what_its_interpreter_sees(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    base = Path(sys.executable).resolve()  # That of the virtual environment this runs in.
    venv = ["-m", "venv", "--without-pip", "--system-site-packages"]
    subprocess.run([base, *venv, folder], check=True)
    program = "import site; print(*site.getsitepackages(), sep='\\n')"
    seen = subprocess.run(
        [folder / "bin/python", "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    outside = {Path(path).resolve() for path in seen if Path(path).is_dir()} - {
        path.resolve() for path in folder.glob("lib/python3*/site-packages")
    }
    assert outside <= {path.resolve() for path in system_packages(folder)}


def test_a_base_that_is_gone_is_not_passed_over(environment: Path) -> None:
    (environment / "pyvenv.cfg").write_text(
        "home = /nonexistent/bin\ninclude-system-site-packages = true\n"
    )
    with pytest.raises(UndecidedError, match="/nonexistent/bin"):
        facts(environment)


def test_links_out_of_a_folder_are_not_followed(environment: Path, tmp_path: Path) -> None:
    package(tmp_path / "outside", "secret")
    (environment / "lib/out").symlink_to(tmp_path / "outside")
    assert names(facts(environment).inventory) == {"inside"}


# The cache


def much_later() -> int:
    """The time at which no file counts as just changed."""
    return time.time_ns() + 10 * SETTLED_NS


def test_the_second_scan_of_an_environment_reads_only_what_changed(
    environment: Path, tmp_path: Path
) -> None:
    notes: list[str] = []
    cache = FactCache(Cache(tmp_path / "cache", notes.append), now_ns=much_later)
    first = facts(environment, cache).inventory
    second = facts(environment, cache).inventory
    assert bare(first) == bare(second)
    assert second.stats.cached == second.stats.files > 0
    package(next(environment.glob("lib/python3*")) / "site-packages", "added")
    third = facts(environment, cache).inventory
    assert names(third) == {"inside", "added"}
    assert third.stats.cached == second.stats.files
    assert not notes


def test_a_second_scan_reads_next_to_nothing_again(tmp_path: Path) -> None:
    # A copy: what runs out of this environment writes byte code into it at any time.
    for name in ("lief", "msgspec", "rich", "docker", "cryptography"):
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and file.suffix != ".pyc" and source.is_file():
                target = tmp_path / "site-packages" / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    cache = FactCache(Cache(tmp_path / "cache", print), now_ns=much_later)
    first, second = (facts(tmp_path / "site-packages", cache).inventory for _ in range(2))
    assert {"lief", "cryptography"} <= names(first)
    assert bare(first) == bare(second)
    assert second.stats.bytes_read < first.stats.bytes_read / 20


# Saved images


def test_a_source_that_is_not_there_is_said(tmp_path: Path) -> None:
    for text in ("./missing", "/missing", "missing.tar", "missing.whl", "a/missing.tar.gz"):
        with pytest.raises(UsageError, match="there is no"):
            parse(text)
    for kind in ("tar", "wheel", "dir", "oci"):
        with pytest.raises(UndecidedError, match=f"{kind}:.* cannot be read: no such file"):
            facts(f"{kind}:{tmp_path}/missing")
    with pytest.raises(UsageError, match="names nothing"):
        parse("tar:")
    (tmp_path / "text").write_text("x")
    with pytest.raises(
        UsageError,
        match="not recognized by scan; write its kind: dir:, wheel:",
    ):
        parse(str(tmp_path / "text"))


def test_a_daemon_that_is_down_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from buildmatrix.engines.docker_engine import DockerEngine

    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    with pytest.raises(ComponentError, match="daemon"):
        read(parse("docker:acme:1"), lambda: DockerEngine(environment))


@pytest.fixture(scope="module")
def image(small_base: str) -> str:
    """An image with a hidden folder, a hidden file and one that was replaced."""
    from buildmatrix.engines.process import plain

    name = "buildmatrix-test/sources:1"
    dockerfile = (
        f"FROM {small_base}\nUSER 0\nRUN echo 1 > /opt/a && echo 1 > /opt/b && mkdir /opt/d"
        " && ln -s /opt/d /opt/link && ln /opt/a /opt/hard\n"
        "RUN rm -r /opt/b /usr/share/doc && echo 2 > /opt/a && echo 3 > /opt/link/c\n"
        "ENV CUDA_VERSION=12.8\nLABEL dev.buildmatrix.backend=cpu\n"
    )
    built = subprocess.run(
        ["docker", "buildx", "build", "--load", "--tag", name, "-"],
        input=dockerfile,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, plain(built.stderr)
    return name


@pytest.mark.engine
def test_a_saved_image_has_the_facts_that_the_engine_gives(image: str, tmp_path: Path) -> None:
    from buildmatrix.engines.docker_engine import DockerEngine

    archive = tmp_path / "saved.tar"
    subprocess.run(["docker", "save", "--output", archive, image], check=True)
    (tmp_path / "saved.tar.gz").write_bytes(gzip.compress(archive.read_bytes(), 1))
    by_engine = read(parse(f"docker:{image}"), DockerEngine)
    for text in (archive, tmp_path / "saved.tar.gz"):
        saved = facts(text)
        assert saved.backend == by_engine.backend == "cpu"
        assert saved.inventory.environment["CUDA_VERSION"] == "12.8"
        assert bare(saved.inventory) == bare(by_engine.inventory)


@pytest.mark.engine
@pytest.mark.parametrize("compression", ["uncompressed", "gzip", "zstd"])
@pytest.mark.parametrize("form", ["tar", "folder"])
def test_an_oci_archive_of_the_builder_is_read(
    image: str, containerd_host: str, tmp_path: Path, compression: str, form: str
) -> None:
    saved = tmp_path / "saved.tar"
    subprocess.run(["docker", "save", "--output", saved, image], check=True, capture_output=True)
    there = ["docker", "--host", containerd_host]
    subprocess.run([*there, "load", "--input", saved], check=True, capture_output=True)
    place = tmp_path / ("image.tar" if form == "tar" else "layout")
    output = (
        f"type=oci,dest={place},tar={'true' if form == 'tar' else 'false'}"
        f",compression={compression},force-compression=true"
    )
    subprocess.run(
        [*there, "buildx", "build", "--output", output, "-"],
        input=f"FROM {image}\nRUN rm /opt/hard\n",
        text=True,
        check=True,
        capture_output=True,
    )
    found = facts(place)
    assert found.backend == "cpu"
    assert found.inventory.system_packages and not found.inventory.unread


@pytest.mark.engine
def test_a_truncated_archive_of_an_image_is_undecided(image: str, tmp_path: Path) -> None:
    archive = tmp_path / "saved.tar"
    subprocess.run(["docker", "save", "--output", archive, image], check=True)
    size = archive.stat().st_size
    for keep in (size // 3, size // 2, size - 2000, 512, 0):
        os.truncate(archive, keep)
        with pytest.raises(UndecidedError, match="cannot be read"):
            facts(archive)


@pytest.mark.engine
def test_an_image_is_scanned_once_for_all_its_names(image: str, tmp_path: Path) -> None:
    from buildmatrix.engines.docker_engine import DockerEngine

    class NoExport(DockerEngine):
        def export(self, reference: str) -> AbstractContextManager[Iterator[bytes]]:
            raise AssertionError(f"{reference} was exported")

    cache = FactCache(Cache(tmp_path / "cache", print))
    first = read(parse(f"docker:{image}"), DockerEngine, cache)
    subprocess.run(["docker", "tag", image, f"{image}-again"], check=True)
    again = read(parse(f"docker:{image}-again"), NoExport, cache)
    assert bare(first.inventory) == bare(again.inventory)
    assert again.inventory.stats.cached == first.inventory.stats.files


@pytest.mark.engine
def test_an_image_that_is_not_there_is_said(engine: None) -> None:
    from buildmatrix.engines.docker_engine import DockerEngine

    with pytest.raises(BuildmatrixError, match="pull or build it first"):
        read(parse("docker:buildmatrix-test/missing:1"), DockerEngine)
