"""What one layer installed and a later one deleted (docs/incidents.md, A15), in real images."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.process import plain
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import FactCache
from buildmatrix.sources.images import DockerImage
from buildmatrix.sources.model import Facts, ReadingOptions

pytestmark = pytest.mark.engine

SITE = "usr/local/lib/python3.11/site-packages"
LIBRARY = 3_000_000
INSTALL = (
    f"mkdir -p /{SITE}/nvidia/cublas/lib && head -c {LIBRARY} /dev/urandom"
    f" > /{SITE}/nvidia/cublas/lib/libcublas.so.12"
)


def built(base: str, name: str, *steps: str) -> str:
    """An image of its own layers over the base."""
    done = subprocess.run(
        ["docker", "buildx", "build", "--load", "--tag", name, "-"],
        input="\n".join([f"FROM {base}", "USER 0", *steps, ""]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, plain(done.stderr)
    return name


@pytest.fixture(scope="module")
def uninstalled(small_base: str) -> str:
    return built(
        small_base,
        "buildmatrix-test/uninstalled:1",
        f"RUN {INSTALL}",
        "ENV AFTER=1",
        f"RUN rm -r /{SITE}/nvidia",
    )


def facts(name: str, cache: FactCache | None = None) -> Facts:
    options = ReadingOptions(DockerEngine, cache=lambda: cache)
    return DockerImage(name).facts(options)


def scan(source: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "buildmatrix", "scan", str(source), "--backend", "cpu"),
            *("--no-cache", *arguments),
        ],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_the_layers_of_an_image_say_what_made_them_and_what_they_hide(uninstalled: str) -> None:
    inventory = facts(uninstalled).inventory
    *_, install, delete = inventory.layers
    assert install.instruction.startswith("RUN mkdir -p")
    assert (install.size, install.hidden) == (LIBRARY, LIBRARY)
    assert delete.instruction == f"RUN rm -r /{SITE}/nvidia"
    assert (delete.size, delete.hidden) == (0, 0)
    (buried,) = [one for one in inventory.buried if "nvidia" in one.path]
    assert (buried.layer, buried.by) == (len(inventory.layers) - 2, len(inventory.layers) - 1)
    assert {inventory.origins[one.path] for one in inventory.binaries} == {0}
    shown = subprocess.run(
        ["docker", "image", "inspect", "--format", '{{join .RootFS.Layers " "}}', uninstalled],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [one.digest for one in inventory.layers] == shown.stdout.split()


def test_deleted_cuda_fails_a_cpu_image_and_the_command_says_both_steps(
    uninstalled: str, tmp_path: Path
) -> None:
    archive = tmp_path / "saved.tar"
    subprocess.run(["docker", "save", "--output", archive, uninstalled], check=True)
    for source in (f"docker:{uninstalled}", archive):
        done = scan(source, "--format", "table")
        assert done.returncode == 1, done.stderr
        text = " ".join(done.stdout.split())
        assert "BM604" in text and "libcublas.so.12" in text and "3.0 MB" in text


def test_what_one_step_installed_and_deleted_is_nowhere(small_base: str) -> None:
    name = built(
        small_base, "buildmatrix-test/one-step:1", f"RUN {INSTALL} && rm -r /{SITE}/nvidia"
    )
    assert [one.path for one in facts(name).inventory.buried if "nvidia" in one.path] == []


def test_layers_are_exported_once_per_image_and_never_stored(
    uninstalled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FactCache(Cache(tmp_path / "cache", print))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    first = facts(uninstalled, cache).inventory

    def export(*_: object) -> None:
        raise AssertionError("the layers are known")

    monkeypatch.setattr(DockerEngine, "export", export)
    again = facts(uninstalled, cache).inventory
    assert (again.layers, again.origins, again.buried) == (
        first.layers,
        first.origins,
        first.buried,
    )
    kept = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert kept < 3_000_000 < sum(one.size for one in first.layers)


def test_the_memory_of_a_read_does_not_depend_on_what_the_files_hold(small_base: str) -> None:
    name = built(
        small_base,
        "buildmatrix-test/large:1",
        "RUN head -c 120000000 /dev/urandom > /srv/model.bin",
        "RUN rm /srv/model.bin",
    )
    program = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from buildmatrix.engines.docker_engine import DockerEngine\n"
        "from buildmatrix.images.image import LayerReader\n"
        "from buildmatrix.images.merging import merge_layers\n"
        "from buildmatrix.images.image import read_export\n"
        "from buildmatrix.images.store.cache import Cache\n"
        "engine, reader = DockerEngine(), LayerReader(Cache(None))\n"
        "_, blobs = read_export(lambda: engine.export(sys.argv[1]), reader)\n"
        "tree = merge_layers(reader.layers(blobs))\n"
        # getrusage would tell the peak of the process that started this one, when that is higher.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1]\n"
        "print(sum(one.size for one in tree.hidden_files()), peak)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, name], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    hidden, kilobytes = map(int, done.stdout.split())
    assert hidden >= 120_000_000
    assert kilobytes < 120_000
