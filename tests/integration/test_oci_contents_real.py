"""Images of a small matrix, made here and by Docker from one lock, compared path by path."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from components import missing
from conftest import ROOT, Buildmatrix

from buildmatrix.base.progress import Silent
from buildmatrix.engines.oci.bases import Bases, BuiltImage
from buildmatrix.engines.oci.contents import assemble
from buildmatrix.engines.oci.store import ImageStore
from buildmatrix.images.layers import iter_archive as archive_of
from buildmatrix.images.store.cache import Cache
from buildmatrix.locks.pylock import read_lock
from buildmatrix.matrix.load import load_spec
from buildmatrix.net.registry_client import Registry

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

#: Kind, mode, owner and group; and the bytes of a file as their hash, or the target of a link.
Entry = tuple[str, str, int, int, str]

#: docs/engines.md names each of these.
BYTECODE = re.compile(r".*\.pyc|.*/__pycache__")
#: Files whose bytes differ: the day of the password, the release of uv.
CONTENTS = re.compile(r"etc/shadow|opt/venv/pyvenv\.cfg")
#: What apt, dpkg and ldconfig leave behind, and nothing reads again.
TRACES = re.compile(
    r"var/log/.*|var/cache/.*|etc/ld\.so\.cache|var/lib/dpkg/(status-old|info/.*\.list|lock.*)"
    r"|var/lib/apt/extended_states"
)


#: One target for each way to an image: Python from apt; Python in the base and packages from apt.
#: Its wheels are small: with console scripts, a C extension, a namespace and a `.data` folder.
SPECIFICATION = """
schema = 1

[project]
name = "contents"
version = "0.1.0"
image = "registry.example.com/buildmatrix-test/{project}"

[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["requirements/base.in"]
copy = [["app", "/app"]]
command = ["python", "-m", "inferno"]
env = { INFERNO_BACKEND = "{backend}", PYTHONPATH = "/app" }
user = { name = "app", uid = 10001, groups = ["video"] }

[backend.cuda]
runtime = { "12.8" = { full = "12.8.1" } }
base = "nvidia/cuda:{runtime.full}-base-ubuntu22.04"
requirements = ["requirements/cuda.in"]

[backend.oneapi]
runtime = "2025.0"
base = "python:{python}-slim-bookworm"
system-packages = ["libze1", "ocl-icd-libopencl1", "libedit2"]
requirements = ["requirements/oneapi.in"]
"""
REQUIREMENTS = {
    "base": "numpy<2.3\nuvicorn\n",
    "cuda": "nvidia-cuda-runtime-cu12==12.8.*\n",
    "oneapi": "tcmlib==1.2.0\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Project of the small matrix; its targets share one store."""
    folder = tmp_path_factory.mktemp("both") / "project"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "images/app", folder / "app", ignore=ignore)
    (folder / "requirements").mkdir()
    for name, text in REQUIREMENTS.items():
        (folder / f"requirements/{name}.in").write_text(text)
    (folder / "buildmatrix.toml").write_text(SPECIFICATION)
    return folder


def locked(project: Path, buildmatrix: Buildmatrix, target: str) -> None:
    if not (project / "locks" / f"pylock.{target}.toml").exists():
        run = buildmatrix(project, "lock", "--select", target)
        assert run.code == 0, run.err


@contextmanager
def built(project: Path, target: str) -> Iterator[tuple[ImageStore, BuiltImage]]:
    spec = load_spec(project / "buildmatrix.toml")
    (wanted,) = [item for item in spec.targets if item.id == target]
    place = project.parent / "store"
    with Registry() as registry, ImageStore(place / "images", Cache(place / "cache")) as images:
        bases = Bases(registry, os.environ.get("BUILDMATRIX_MIRROR", ""))
        base = bases.take(wanted.base.final, wanted.platform)
        lock = read_lock(project / wanted.lock)
        yield images, assemble(spec, wanted, lock, base, images, Silent())


def exported(image: str) -> dict[str, Entry]:
    """The files of a container that was made of an image and not started."""
    made = subprocess.run(["docker", "create", image, "x"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    container = made.stdout.strip()
    found: dict[str, Entry] = {}
    try:
        export = subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE)
        assert export.stdout is not None
        with tarfile.open(fileobj=export.stdout, mode="r|") as tar:
            for member in tar:
                data = tar.extractfile(member) if member.isreg() else None
                shown = hashlib.sha256(data.read()).hexdigest() if data else member.linkname
                entry = (member.type.decode(), f"{member.mode:o}", member.uid, member.gid, shown)
                found[member.name.rstrip("/")] = entry
        assert export.wait() == 0
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True)
    return found


def comparable(files: dict[str, Entry]) -> dict[str, Entry]:
    kept = {}
    for path, entry in files.items():
        if not BYTECODE.fullmatch(path) and not TRACES.fullmatch(path):
            kept[path] = (*entry[:4], "") if CONTENTS.fullmatch(path) else entry
    return kept


@pytest.mark.parametrize(
    "target",
    [
        # A base without Python.
        "cuda12.8-py311-server",
        # A base with Python: test_project_lock_real.py compares what both engines install there.
        pytest.param("oneapi2025.0-py311-server", marks=pytest.mark.weekly),
    ],
)
def test_docker_and_this_engine_make_the_same_image_of_one_lock(
    project: Path, buildmatrix: Buildmatrix, target: str
) -> None:
    locked(project, buildmatrix, target)
    selection = ("--select", target, "--engine", "docker")
    options = (*selection, "--no-audit", "--no-smoke", "--format", "json")
    run = buildmatrix(project, "build", *options, timeout=1800)
    assert run.code in (0, 1), run.err
    (theirs,) = [found["image"] for found in run.report()["targets"]]
    ours = f"buildmatrix-test/contents:{target}"
    archive = project.parent / f"{target}.tar"
    with built(project, target) as (store, image), archive.open("wb") as file:
        file.writelines(archive_of(store.layout, image.descriptor, [f"docker.io/{ours}"]))
    loaded = subprocess.run(["docker", "load", "-i", archive], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    archive.unlink()

    left, right = comparable(exported(theirs)), comparable(exported(ours))
    assert len(left) > 3000
    differing = {path: (left.get(path), right.get(path)) for path in left.keys() | right.keys()}
    assert {path: pair for path, pair in differing.items() if pair[0] != pair[1]} == {}

    inspect = ["docker", "image", "inspect", "--format", "{{json .Config}}"]
    configurations = []
    for name in (theirs, ours):
        shown = subprocess.run([*inspect, name], capture_output=True, text=True, check=True).stdout
        values = {key: value for key, value in json.loads(shown).items() if value}
        values.pop("ArgsEscaped", None)  # Docker's own, for Windows
        configurations.append(values)
    assert configurations[0] == configurations[1]

    script = "import inferno, numpy, uvicorn; assert inferno.__file__.startswith('/app/')"
    command = ["docker", "run", "--rm", "--network=none", ours, "python", "-c", script]
    started = subprocess.run(command, capture_output=True, text=True)
    assert started.returncode == 0, started.stderr


def test_other_tools_read_the_layout(project: Path, buildmatrix: Buildmatrix) -> None:
    for tool in ("skopeo", "umoci"):
        if shutil.which(tool) is None:
            missing(tool, f"install Debian's package {tool}")
    target = "oneapi2025.0-py311-server"
    locked(project, buildmatrix, target)
    with built(project, target) as (store, image):
        store.layout.publish(image.descriptor, ["both"])
        layout = store.layout.folder
    inspect = ["skopeo", "inspect", f"oci:{layout}:both"]
    shown = subprocess.run(inspect, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["Layers"] == [layer.descriptor.digest for layer in image.layers]
    assert document["Labels"]["dev.buildmatrix.target"] == target
    copied = project.parent / "copied"
    copy = ["skopeo", "copy", "-q", f"oci:{layout}:both", f"dir:{copied}"]
    assert subprocess.run(copy, capture_output=True).returncode == 0
    bundle = project.parent / "bundle"
    unpack = ["umoci", "unpack", "--image", f"{layout}:both", bundle]
    if os.geteuid() != 0:
        unpack.insert(2, "--rootless")
    unpacked = subprocess.run(unpack, capture_output=True, text=True)
    assert unpacked.returncode == 0, unpacked.stderr
    root = bundle / "rootfs"
    assert (root / "opt/venv/bin/python").readlink() == Path("/usr/local/bin/python3.11")
    assert (root / "app/inferno/server.py").is_file()
    shutil.rmtree(bundle)
