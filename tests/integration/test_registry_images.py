"""One image, read from an engine, an archive, a layout and a registry, and unpacked by others.

The judges are Docker, skopeo and umoci: what they write is read, and what umoci unpacks is scanned
as a folder.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from components import missing
from layer_archives import differences, of_folder

from buildmatrix.api.judging import judge_facts
from buildmatrix.base.data import replace
from buildmatrix.commands.options import ScanOptions
from buildmatrix.engines.docker_engine import DockerEngine
from buildmatrix.engines.process import plain
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.fleet.model import Subject, WorkerSettings
from buildmatrix.fleet.work import judge_image, read_layer, resolve
from buildmatrix.images.store.cache import Cache
from buildmatrix.images.store.facts import FactCache
from buildmatrix.net.registry_client import Registry
from buildmatrix.sources.model import Argument, Facts, ReadingOptions
from buildmatrix.sources.parse import parse

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("engine")]

HOST = "localhost:5000"
BASE = f"{HOST}/python:3.11-slim-bookworm"
NAME = f"{HOST}/buildmatrix-test/layers:1"
SITE = "/usr/local/lib/python3.11/site-packages"
#: Everything that one layer does to those below.
STEPS = (
    "RUN mkdir -p /opt/a/b /opt/c && echo one > /opt/a/one && echo two > /opt/a/b/two"
    " && cp /bin/true /opt/a/true && ln /opt/a/true /opt/a/hard && ln -s /opt/a /opt/link"
    " && cp /bin/ls /opt/c/ls && mkfifo /opt/pipe",
    # A whole folder is replaced: opaque. A name through a link, and a link across layers.
    "RUN rm -r /opt/c && mkdir /opt/c && cp /bin/cat /opt/c/cat && echo three > /opt/link/three"
    " && ln /opt/a/true /opt/c/across && rm /opt/a/one",
    f"RUN mkdir -p {SITE}/demo {SITE}/demo-1.0.dist-info && cp /bin/true {SITE}/demo/_C.so"
    f" && printf 'Name: demo\\nVersion: 1.0\\n' > {SITE}/demo-1.0.dist-info/METADATA"
    f" && printf 'demo/_C.so,,\\n' > {SITE}/demo-1.0.dist-info/RECORD"
    f" && printf 'import ctypes\\nctypes.CDLL(\"libx.so\")\\n' > {SITE}/demo/__init__.py"
    f" && echo /opt/a > {SITE}/more.pth && rm -r /usr/share/doc && rm /opt/a/hard",
    "ENV A=b",
)


@pytest.fixture(scope="module")
def image(small_base: str) -> str:
    done = subprocess.run(
        ["docker", "buildx", "build", "--load", "--tag", NAME, "-"],
        input="\n".join([f"FROM {small_base}", "USER 0", *STEPS, ""]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, plain(done.stderr)
    subprocess.run(["docker", "push", "--quiet", NAME], check=True, capture_output=True)
    return NAME


def run(*command: str | Path) -> None:
    if shutil.which(command[0]) is None:
        missing(str(command[0]), "install the package")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def unpacked(image: str, tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    """What umoci makes of the image."""
    return unpack(image, tmp_path_factory.mktemp("umoci"))


def unpack(image: str, folder: Path) -> Inventory:
    """The files of an image of the registry, as umoci unpacks them."""
    folder.mkdir(exist_ok=True)
    run("skopeo", "copy", "--src-tls-verify=false", f"docker://{image}", f"oci:{folder}/layout:one")
    run("umoci", "unpack", "--image", f"{folder}/layout:one", folder / "bundle")
    inventory = of_folder(folder / "bundle/rootfs")
    shutil.rmtree(folder)
    return replace(inventory, environment={}, labels={})


def facts(text: str | Path, cache: Path | None = None) -> Facts:
    kept = None if cache is None else FactCache(Cache(cache))
    with Registry() as registry:
        return parse(Argument(str(text), "scan")).facts(
            ReadingOptions(DockerEngine, cache=lambda: kept, registry=lambda: registry)
        )


def differs(found: Facts, unpacked: Inventory) -> dict[str, tuple[object, object]]:
    """What else than the environment and labels, which only an image's configuration has."""
    inventory = found.inventory
    assert inventory.environment["A"] == "b"
    return differences(replace(inventory, environment={}, labels={}), unpacked)


def test_a_whole_debian_with_python_is_what_its_unpacked_files_are(
    engine: None, tmp_path: Path
) -> None:
    found = replace(facts(f"registry:{BASE}").inventory, environment={}, labels={})
    assert differences(found, unpack(BASE, tmp_path / "umoci")) == {}
    assert found.stats.bytes_read > 10_000_000


def test_a_registry_and_an_engine_say_what_unpacked_files_say(
    image: str, unpacked: Inventory
) -> None:
    assert differs(facts(f"registry:{image}"), unpacked) == {}
    assert differs(facts(f"docker:{image}"), unpacked) == {}
    assert {item.path for item in unpacked.binaries} >= {
        "opt/c/cat",
        f"{SITE.lstrip('/')}/demo/_C.so",
    }
    assert unpacked.unread == ()


@pytest.mark.parametrize("form", ["docker-archive", "oci-archive", "oci"])
def test_what_skopeo_writes_says_the_same(
    image: str, unpacked: Inventory, form: str, tmp_path: Path
) -> None:
    place = tmp_path / ("layout" if form == "oci" else "image.tar")
    run("skopeo", "copy", "--src-tls-verify=false", f"docker://{image}", f"{form}:{place}:x:1")
    assert differs(facts(place), unpacked) == {}
    if form == "docker-archive":
        packed = tmp_path / "packed.tar.gz"
        packed.write_bytes(gzip.compress(place.read_bytes(), 1))
        assert differs(facts(packed), unpacked) == {}


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_layers_however_skopeo_packs_them(
    image: str, unpacked: Inventory, compression: str, tmp_path: Path
) -> None:
    run("docker", "save", "--output", tmp_path / "image.tar", image)
    name = f"{HOST}/buildmatrix-test/layers:{compression}"
    run(
        *("skopeo", "copy", "--dest-tls-verify=false"),
        *("--dest-compress-format", compression, "--format", "oci"),
        *(f"docker-archive:{tmp_path}/image.tar", f"docker://{name}"),
    )
    assert differs(facts(f"registry:{name}"), unpacked) == {}


def test_whoever_has_it_its_layers_are_read_once(image: str, tmp_path: Path) -> None:
    first = facts(f"registry:{image}", tmp_path / "cache")
    assert first.inventory.stats.bytes_read > 1_000_000
    for text in (f"docker:{image}", f"registry:{image}"):
        again = facts(text, tmp_path / "cache").inventory
        assert again.stats.bytes_read == 0
        assert again.stats.cached == first.inventory.stats.files
        assert replace(again, stats=first.inventory.stats) == first.inventory


def test_the_base_below_an_image_is_not_read_again(
    image: str, small_base: str, tmp_path: Path
) -> None:
    base = facts(f"registry:{small_base}", tmp_path / "cache").inventory
    above = facts(f"registry:{image}", tmp_path / "cache").inventory
    assert above.stats.bytes_read < base.stats.bytes_read / 10


def test_a_fleet_says_of_an_image_what_a_scan_says(
    image: str, small_base: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path))
    settings = WorkerSettings(store="", platform="linux/amd64", today=date(2026, 11, 23))
    for name in (image, small_base):
        subject = Subject(reference=name, places=())
        for backend in ("cuda", "cpu"):
            asked = replace(settings, backend=backend)
            task = resolve(asked, subject)
            failed = [layer for layer in task.unread if read_layer(asked, layer).error]
            (result,) = judge_image(asked, task).results
            options = ScanOptions(name, backend=backend)
            report = judge_facts(facts(f"registry:{name}"), options, settings.today)
            (target,) = report.targets
            composition = target.composition
            assert composition is not None and failed == []
            assert result.state == target.gates["scan"]
            assert result.installed == target.size
            assert [
                (item.rule, item.severity, item.vendor, item.distribution, item.path)
                for item in result.findings
            ] == [
                (item.rule, item.severity, item.vendor, item.distribution, item.path)
                for item in report.findings
            ]
            assert result.unusable == sum(item.wasted for item in composition.distributions)
            assert [(layer.installed, layer.unusable) for layer in result.layers] == [
                (layer.size, layer.wasted) for layer in composition.layers
            ]
            assert sum(share.size for share in result.vendors) == sum(
                item.size for item in composition.distributions
            )
