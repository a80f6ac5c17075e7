"""A folder with a bake file and Dockerfiles, as `generate` writes them, for tests of the engine."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from buildmatrix.engines.model import BuildJob, Surroundings
from buildmatrix.facts.inventory.archive import build_scanner_archive

MIRROR = os.environ.get("BUILDMATRIX_MIRROR", "")
NETWORK = os.environ.get("BUILDMATRIX_NETWORK", "")
PYTHON = "python:3.11-slim-bookworm"
HERE = Surroundings(mirror=MIRROR, network=NETWORK)

SCANNER = f"""\
ARG MIRROR=
FROM ${{MIRROR}}{PYTHON} AS scanner
RUN --network=none --mount=type=bind,from=rootfs,target=/rootfs,readonly \\
    --mount=type=bind,source=scan.pyz,target=/scan.pyz \\
    mkdir /out && python3 -I /scan.pyz /rootfs /out/inventory.json
FROM scratch
COPY --from=scanner /out/inventory.json /
"""


class Project:
    """A folder with a bake file and a Dockerfile per target, each image with tags of its own."""

    def __init__(self, folder: Path, base: str) -> None:
        self.folder, self.base = folder, base
        self.tag = f"buildmatrix-test/{uuid.uuid4().hex[:12]}"
        self.targets: dict[str, object] = {}
        (folder / "scan").mkdir(parents=True)
        (folder / "scan/Dockerfile").write_text(SCANNER)
        (folder / "scan/scan.pyz").write_bytes(build_scanner_archive())

    def job(self, name: str, steps: str, base: str = "") -> BuildJob:
        """A target whose Dockerfile has these steps."""
        tags = (f"{self.tag}:{name}",)
        (self.folder / f"{name}.Dockerfile").write_text(
            f"ARG MIRROR=\nFROM {base or self.base}\n{textwrap.dedent(steps)}\n"
        )
        self.targets[name] = {"context": ".", "dockerfile": f"{name}.Dockerfile", "tags": tags}
        rootfs = {"rootfs": f"target:{name}"}
        self.targets[f"scan-{name}"] = {"context": "scan", "contexts": rootfs}
        bake = self.folder / "docker-bake.json"
        bake.write_text(json.dumps({"target": self.targets}))
        state = self.folder / "state" / name
        return BuildJob(
            name, bake, name, f"scan-{name}", self.folder, tags, state / "log", state / "scan"
        )


@contextmanager
def docker_project(folder: Path, base: str) -> Iterator[Project]:
    """A project whose images are removed at the end; `base` is what most of them are made from."""
    project = Project(folder, base)
    try:
        yield project
    finally:
        listed = subprocess.run(
            ["docker", "image", "ls", "--quiet", project.tag], capture_output=True, text=True
        ).stdout.split()
        if listed:
            subprocess.run(["docker", "image", "rm", "--force", *listed], capture_output=True)
