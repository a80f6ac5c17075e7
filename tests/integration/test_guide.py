"""docs/guide.md, played by three users whose homes are empty, up to signed images and red changes.

They share a registry on loopback in place of the page's, and have nothing of this machine but
Debian's programs, a Python, uv, what pip and uv downloaded, and what leads clients to their
servers.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from components import missing
from conftest import ROOT, downloads
from document_blocks import blocks_of
from layer_archives import tar
from registry import RegistryServer
from test_tutorials import Step, compare, script_of, steps

from buildmatrix.engines.oci.sandboxes import usable

pytestmark = [pytest.mark.network]

PAGE = ROOT / "docs/guide.md"
LOGIN = ("ann", "hunter2")
#: Settings of clients, and what names their certificates.
PASSED = re.compile(r"(PIP|UV|SSL)_\w+|(https?|no)_proxy", re.IGNORECASE)
PROJECT = """\
[project]
name = "serve"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["msgspec==0.21.1"]
"""
SITE = "opt/venv/lib/python3.11/site-packages"
CUDA = "nvidia_cuda_runtime_cu12-12.8.90.dist-info"
LIBRARY = "nvidia/cuda_runtime/lib/libcudart.so.12"


def journey(title: str, host: str) -> list[Step]:
    """The commands of a section of the page; its registry is at `host`."""
    lines = PAGE.read_text().splitlines()
    first = lines.index(f"### {title}")
    last = next(n for n in range(first + 1, len(lines)) if lines[n].startswith("##"))
    played = steps(block for block in blocks_of(PAGE) if first < block.line <= last)
    for step in played:
        step.command = step.command.replace("ghcr.io", host)
        step.expected = [line.replace("ghcr.io", host) for line in step.expected]
    return played


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where base images are: the registry of the stack, or a folder with one made of packages."""
    if "BUILDMATRIX_MIRROR" in os.environ:
        return os.environ["BUILDMATRIX_MIRROR"]
    folder = tmp_path_factory.mktemp("bases")
    make = [sys.executable, "-m", "scripts.local_base", folder]
    if subprocess.run(make, cwd=ROOT, capture_output=True).returncode:
        missing("a base image", "run scripts/test, which starts a registry that has some")
    return f"oci:{folder}"


@dataclass(frozen=True)
class Machine:
    """A machine that nobody prepared, but for clients' settings and a login to the registry."""

    home: Path
    environment: dict[str, str]

    def play(self, title: str, host: str) -> None:
        """Play a section of the page; print how long it took, and the long waits."""
        played = journey(title, host)
        assert len(played) > 3
        lines: list[str] = []
        began, silences = time.monotonic(), []
        with subprocess.Popen(
            ["/bin/bash", "-c", script_of(played)],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as shell:
            assert shell.stdout is not None
            spoke = began
            for line in shell.stdout:
                now = time.monotonic()
                silences.append((now - spoke, lines[-1] if lines else "\n"))
                spoke = now
                lines.append(line)
        # A busy machine is slower than any limit: tests/unit/cli checks with its own clock that
        # there is a line every 10 s.
        print(f"{title}: {spoke - began:.0f} s")
        for silence, line in silences:
            if silence > 11:
                print(f"{silence:.1f} s without a line after {line.strip()}")
        compare(played, "".join(lines))


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer(auth="basic", login=LOGIN) as registry:
        yield registry


def machine(home: Path, host: str, wheel: Path, mirror: str) -> Machine:
    """A home with a login; `pip install buildmatrix` installs this wheel."""
    uv = shutil.which("uv")
    assert uv is not None
    programs = home / "programs"
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    (programs / "uv").symlink_to(uv)
    (home / ".docker").mkdir()
    login = base64.b64encode(":".join(LOGIN).encode()).decode()
    (home / ".docker/config.json").write_text(json.dumps({"auths": {host: {"auth": login}}}))
    (home / "constraints.txt").write_text(f"buildmatrix @ {wheel.as_uri()}\n")
    (home / ".gitconfig").write_text("[user]\n\tname = Ann\n\temail = ann@example.com\n")
    return Machine(
        home,
        {
            **{name: value for name, value in os.environ.items() if PASSED.fullmatch(name)},
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": f"{home}/.local/bin:{programs}:/usr/bin:/bin",
            "PIP_CONSTRAINT": str(home / "constraints.txt"),
            "UV_CONSTRAINT": str(home / "constraints.txt"),
            "BUILDMATRIX_ENGINE": "oci",
            "BUILDMATRIX_MIRROR": mirror,
            **downloads(),
            # What is published about the page's wheels tomorrow is not what it is about.
            "BUILDMATRIX_NO_VULNERABILITIES": "1",
        },
    )


def add_cuda(registry: RegistryServer, name: str, tag: str, changed: str) -> None:
    """Have an image again, with a distribution of NVIDIA's in one more layer."""
    repository = registry.repositories[name]
    manifest = json.loads(repository.manifests[tag][0])
    configuration = json.loads(repository.blobs[manifest["config"]["digest"]])
    layer = tar(
        [
            (f"{SITE}/{LIBRARY}", b"\x7fELF\x02\x01\x01" + bytes(57)),
            (f"{SITE}/{CUDA}/METADATA", b"Name: nvidia-cuda-runtime-cu12\nVersion: 12.8.90\n"),
            (f"{SITE}/{CUDA}/RECORD", f"{LIBRARY},,\n".encode()),
        ]
    )
    digest = registry.put(name, layer)
    kind = "application/vnd.oci.image.layer.v1.tar"
    manifest["layers"].append({"mediaType": kind, "digest": digest, "size": len(layer)})
    configuration["rootfs"]["diff_ids"].append(digest)
    configuration["history"].append({"created_by": "COPY cuda /opt/venv"})
    data = json.dumps(configuration).encode()
    manifest["config"] |= {"digest": registry.put(name, data), "size": len(data)}
    registry.tag(name, changed, json.dumps(manifest).encode())


def test_the_guide_leads_to_signed_images_and_red_changes(
    registry: RegistryServer, mirror: str, wheels: Path, tmp_path: Path
) -> None:
    sandbox, text = usable()
    if sandbox is None:
        missing("a sandbox for smoke commands", text)
    (wheel,) = wheels.glob("*.whl")
    first, second, third = (
        machine(tmp_path / name, registry.host, wheel, mirror) for name in ("ann", "bob", "cleo")
    )
    first.play("From requirements files", registry.host)

    project = second.home / "serve"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    for command in (["uv", "lock", "--quiet"], ["git", "init", "--quiet", "-b", "main"]):
        subprocess.run(command, cwd=project, env=second.environment, check=True)
    shutil.copy(first.home / "cosign.key", second.home)
    second.play("From a uv project", registry.host)

    shutil.copy(first.home / "inferno/cosign.pub", third.home)
    add_cuda(registry, "acme/inferno", "0.1.0-cpu-py311-default", "0.2.0")
    third.play("From an image in a registry", registry.host)
