"""Real components for the integration tests; on CI a missing one is a failure, never a skip."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import find_browser, started
from components import missing
from playwright.sync_api import Browser
from scripts.stack import engine as stack_engine
from scripts.stack.layout import Layout

if TYPE_CHECKING:
    from loader_roots import Toolchain

ROOT = Path(__file__).resolve().parents[2]


def stack_program(name: str, unpacked: str) -> Path:
    """A program that `scripts.stack up` unpacks (a path in its cache), or that is installed."""
    ask = "from scripts.stack.layout import Layout; print(Layout.of_environment().cache)"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folder = (Path(done.stdout.strip()) / unpacked).parent
    path = shutil.which(name, path=f"{folder}:{os.environ['PATH']}")
    if path is None:
        missing(name, "run `python3 -m scripts.stack up`, or install the package")
    return Path(path)


@functools.cache
def downloads() -> dict[str, str]:
    """Variables with which pip and uv use what was downloaded before, in a home that is empty."""
    commands = {"PIP_CACHE_DIR": "pip cache dir", "UV_CACHE_DIR": "uv cache dir"}
    return {
        name: subprocess.run(
            [sys.executable, "-m", *command.split()], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name, command in commands.items()
    }


@dataclass(frozen=True)
class Run:
    """How one call of the command line ended."""

    code: int
    out: str
    err: str

    def report(self) -> dict:
        """Standard output as a report."""
        return json.loads(self.out)


Buildmatrix = Callable[..., Run]


@pytest.fixture(scope="session")
def engine() -> None:
    """A Docker engine with buildx that answers."""
    for command in (["docker", "buildx", "version"], ["docker", "info"]):
        if (
            shutil.which("docker") is None
            or subprocess.run(command, capture_output=True).returncode
        ):
            missing("a Docker engine with buildx", "run scripts/test, which starts one")


#: Debian with a shell and the programs that steps of tests call: 9 MB instead of 120 MB.
_SMALL_BASE = r"""
FROM REGISTRYpython:3.11-slim-bookworm AS full
RUN mkdir /small && cd /usr/bin && \
    programs="bash cat cp dash date false head ln ls mkdir mkfifo printf rm seq sh sleep tee touch \
        true wc" && \
    { ls -d /bin /lib* /sbin /etc/os-release /usr/lib/os-release /etc/passwd /etc/group \
        /var/lib/dpkg/status /tmp /opt /srv /root; \
      for name in $programs; do echo /usr/bin/$name; done; \
      for library in $(ldd bash ls cp | grep -o '/lib[^ ]*' | sort -u); do \
        echo /usr$library; readlink -f $library; \
      done; \
    } | tar -c --no-recursion -T - | tar -x -C /small && \
    mkdir -p /small/usr/local/lib/python3.11/site-packages /small/usr/share/doc/base && \
    echo read me >/small/usr/share/doc/base/README
FROM scratch
COPY --from=full /small /
CMD ["bash"]
"""


@pytest.fixture(scope="session")
def small_base(engine: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small Debian in the registry on loopback: few tests need a whole one."""
    registry = os.environ.get("BUILDMATRIX_MIRROR", "localhost:5000/")
    name = f"{registry}buildmatrix-test/small-base:1"
    # Each process builds it, the second one out of the builder's cache: the same image. Two at once
    # would get in each other's way: "already exists".
    with (tmp_path_factory.getbasetemp().parent / "small-base.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["docker", "buildx", "build", "--push", "--provenance=false", "--tag", name, "-"],
            input=_SMALL_BASE.replace("REGISTRY", registry),
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    return name


@pytest.fixture(scope="module")
def containerd_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a daemon with containerd's store, whose BuildKit sends images to clients."""
    layout = Layout.of_environment()
    if os.geteuid() != 0 or not (layout.prefix / "usr/sbin/dockerd").is_file():
        missing("a second Docker daemon", "run `python3 -m scripts.stack up` as root on Debian")
    data = tmp_path_factory.mktemp("daemon")
    try:
        with stack_engine.beside(layout, data) as started:
            yield started.docker_host
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def registry_tag() -> str:
    """An image name in the registry that the mirror prefix leads to."""
    mirror = os.environ.get("BUILDMATRIX_MIRROR", "")
    if not mirror.startswith("localhost:"):
        missing("the registry on loopback", "run scripts/test, which starts one")
    return f"{mirror}buildmatrix-test/{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages of a module."""
    path = find_browser()
    if path is None:
        missing("a browser", "install the package chromium")
    with started(path) as browser:
        yield browser


@pytest.fixture(scope="session")
def buildmatrix() -> Buildmatrix:
    """Run the command line in a folder."""

    def run(
        folder: Path, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 900
    ) -> Run:
        done = subprocess.run(
            [sys.executable, "-m", "buildmatrix", *arguments],
            cwd=folder,
            # What is published about our dependencies tomorrow is not what these tests are about,
            # nor is the ladder, which takes seconds in each image; tests of it ask for it.
            env={
                **os.environ,
                "BUILDMATRIX_NO_VULNERABILITIES": "1",
                "BUILDMATRIX_PREFLIGHT": "none",
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """The linker of the host, and what the objects of both oracles of loaders are made of."""
    from loader_roots import make_toolchain

    return make_toolchain(tmp_path_factory.mktemp("toolchain"))


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheels")
    command = ["uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def copy_of(example: Sequence[str], folder: Path) -> Path:
    """The named files and folders of the repository, copied into a folder of the test's own."""
    for name in example:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", ".buildmatrix", "locks")
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    return folder
