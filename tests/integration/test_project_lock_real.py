"""A workspace with a `uv.lock`, from `init` to images of both engines that hold what is locked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tomllib
import urllib.request
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Buildmatrix
from package_index import PackageIndex, serve

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("engine")]

PROJECT = """\
[project]
name = "NAME"
version = "1.0"
requires-python = ">=3.11,<3.12"
dependencies = ["engine"]
[project.optional-dependencies]
cpu = ["onnxruntime"]
gpu = ["onnxruntime-gpu", "nvidia-cuda-runtime-cu12"]
[project.scripts]
acme-serve = "acme:main"
[dependency-groups]
dev = ["pytest"]
[tool.uv]
conflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]
workspace = { members = ["packages/*"] }
sources = { engine = { workspace = true } }
[tool.uv.build-backend]
module-name = "acme"
[build-system]
requires = ["uv_build>=0.8"]
build-backend = "uv_build"
"""
MEMBER = """\
[project]
name = "engine"
version = "1.0"
requires-python = ">=3.11,<3.12"
dependencies = ["numpy"]
[build-system]
requires = ["uv_build>=0.8"]
build-backend = "uv_build"
"""
SCRIPT = """\
def main():
    import engine, onnxruntime
    print("serving with", engine.numpy.RELEASE, onnxruntime.BUILD)
"""
SMOKE = '[[smoke]]\nname = "serve"\nlevel = "import"\ncommand = ["acme-serve"]\n'
#: Digests of all files of distributions.
FILES = """\
import hashlib, json, os
top = "/opt/venv/lib/python3.11/site-packages"
print(json.dumps({
    os.path.relpath(path, top): hashlib.sha256(open(path, "rb").read()).hexdigest()
    for folder, _, names in os.walk(top) for name in names
    if not (path := os.path.join(folder, name)).endswith(".pyc")
}))
"""
#: Written by installers.
OWN = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    with serve() as served:
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url("pypi"))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        served.add("pypi", "numpy", "2.0", modules={"numpy": "RELEASE = '2.0'\n"})
        for name, build in (("onnxruntime", "cpu"), ("onnxruntime-gpu", "gpu")):
            served.add("pypi", name, "1.22.0", modules={"onnxruntime": f"BUILD = {build!r}\n"})
        served.add("pypi", "nvidia-cuda-runtime-cu12", "12.8.90")
        served.add("pypi", "pytest", "9.0")
        yield served


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Iterator[Path]:
    """The project, locked; since then its index has newer files. Its images are removed."""
    folder = tmp_path / "project"
    name = f"acme-{uuid.uuid4().hex[:12]}"
    for path, text in {
        "pyproject.toml": PROJECT.replace("NAME", name),
        "src/acme/__init__.py": SCRIPT,
        "packages/engine/pyproject.toml": MEMBER,
        "packages/engine/src/engine/__init__.py": "import numpy\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    subprocess.run(["uv", "lock", "--quiet"], cwd=folder, check=True)
    index.add("pypi", "numpy", "2.1", modules={"numpy": "RELEASE = '2.1'\n"})
    index.add_wheel("pypi", "numpy", "2.0", "1-py3-none-any")
    yield folder
    listed = docker("image", "ls", "--quiet", f"registry.example.com/{name}").split()
    if listed:
        docker("image", "rm", "--force", *listed)


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def locked(folder: Path, *names: str) -> dict[str, str]:
    """Digests of the files in the wheels that the lock has of distributions."""
    files = {}
    for package in tomllib.loads((folder / "uv.lock").read_text())["package"]:
        if package["name"] not in names:
            continue
        (wheel,) = package["wheels"]
        with urllib.request.urlopen(wheel["url"]) as answer:
            data = answer.read()
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == wheel["hash"]
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files |= {n: hashlib.sha256(archive.read(n)).hexdigest() for n in archive.namelist()}
    return {name: digest for name, digest in files.items() if not name.endswith(OWN)}


def test_both_engines_install_exactly_what_a_uv_lock_holds(
    project: Path, buildmatrix: Buildmatrix
) -> None:
    run = buildmatrix(project, "init", "--offline")
    assert run.code == 0, run.err
    assert run.err.splitlines()[-1] == "next: buildmatrix build"
    specification = project / "buildmatrix.toml"
    specification.write_text(specification.read_text() + SMOKE)
    run = buildmatrix(project, "lock")
    assert run.out.splitlines() == [
        "cpu-py311-default: taken from uv.lock[cpu]",
        "cuda12.8-py311-default: taken from uv.lock[gpu]",
    ]
    expected = {
        "cpu": locked(project, "numpy", "onnxruntime"),
        "cuda12.8": locked(project, "numpy", "onnxruntime-gpu", "nvidia-cuda-runtime-cu12"),
    }
    nowhere = {"DOCKER_HOST": f"unix://{project}/no.sock"}
    for engine, env in (("oci", nowhere), ("docker", {})):
        saved = [] if env == {} else ["--save", str(project / "{id}.tar")]
        # Which files a lock has for a target depends on no engine: Docker builds one of both.
        selection = () if saved else ("--select", "cpu*")
        options = ("--no-audit", "--engine", engine, "--format", "json")
        arguments = ("build", "--locked", *selection, *options)
        run = buildmatrix(project, *arguments, *saved, env={**os.environ, **env})
        assert run.code == 0, run.err
        for target in run.report()["targets"]:
            backend = target["id"].partition("-")[0]
            if saved:
                docker("load", "--quiet", "--input", str(project / f"{target['id']}.tar"))
            command = ["sh", "-c", f"acme-serve && python -c '{FILES}'"]
            output = docker("run", "--rm", "--network=none", target["image"], *command)
            said, files = output.splitlines()
            build = "cpu" if backend == "cpu" else "gpu"
            assert said == f"serving with 2.0 {build}", engine
            assert expected[backend] == {
                name: digest
                for name, digest in json.loads(files).items()
                if not name.startswith(("acme", "engine"))
                and not name.endswith((*OWN, "_virtualenv.py"))
            }, engine
