"""The program of docs/clusters.md for SLURM, with Debian's SLURM on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from components import missing
from document_blocks import ROOT, blocks_of
from layer_archives import tar
from registry import RegistryServer
from served_images import put_image
from slurm import jobs, slurm

PAGE = ROOT / "docs/clusters.md"
(PROGRAM,) = (block.text for block in blocks_of(PAGE) if Path(__file__).name in block.marker)
(CERTIFICATE,) = (block.text for block in blocks_of(PAGE) if "openssl" in block.text)
(SETTINGS,) = (block.text for block in blocks_of(PAGE) if block.language == "yaml")


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    for program in ("munged", "slurmctld", "slurmd", "sbatch"):
        if shutil.which(program) is None:
            missing(program, "install slurmctld, slurmd, slurm-client and munge")
    with slurm(tmp_path) as settings:
        yield settings


def replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def test_jobs_of_slurm_judge_a_registry(settings: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "dask").mkdir(parents=True)
    shared = {"/shared/fleet": str(home)}
    subprocess.run(["sh", "-ec", replaced(CERTIFICATE, shared)], check=True, capture_output=True)
    (home / "dask/tls.yaml").write_text(replaced(SETTINGS, shared))
    base = tar([("usr/lib/libx.so", Path("/bin/true").read_bytes())])
    with RegistryServer() as server:
        for number in range(3):
            layers = [base, tar([(f"app/{number}", b"app")])]
            put_image(server, "team/app", f"v{number}", layers)
        program = replaced(
            PROGRAM,
            {
                "cores=8": "cores=2",
                "processes=8": "processes=2",
                "16GB": "4GB",
                "maximum_jobs=10": "maximum_jobs=1",
                "registry.example.com": server.host,
                "/shared/facts": str(home / "facts"),
            },
        )
        environment = {
            **os.environ,
            "SLURM_CONF": str(settings),
            "DASK_CONFIG": str(home / "dask"),
            "BUILDMATRIX_CACHE": str(home / "cache"),
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: all of 3 images" in done.stdout
    report = json.loads((home / "fleet.json").read_text())
    assert report["work"]["layers_read"] == 4 and report["notes"] == []
    assert any((home / "facts/layers").iterdir())
    logs = "".join(path.read_text() for path in (home / "logs").iterdir())
    assert "Starting Worker plugin buildmatrix-" in logs and "tls://" in logs
    assert "tcp://" not in logs
    assert jobs(settings) == ""
