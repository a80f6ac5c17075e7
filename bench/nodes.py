"""Times `node-classes import` and `check` on a cluster of 10,000 nodes with 300 sets of labels.

    python bench/nodes.py [FOLDER]

FOLDER (a temporary one by default) gets the list, about 270 MB as `kubectl get nodes -o json`
writes it. Seconds of wall time and of processor time, and the peak of memory of each command are
shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NODES, SETS = 10_000, 300
PRODUCTS = (
    ("NVIDIA-H100-80GB-HBM3", "9", "0", "81559"),
    ("NVIDIA-A100-SXM4-80GB", "8", "0", "81920"),
    ("Tesla-T4", "7", "5", "15360"),
)
SPEC = """\
[project]
name = "fleet"
version = "1"
[defaults]
python = ["3.12"]
requirements = ["base.in"]
base = "debian:12"
[backend.cuda]
runtime = "12.8"
"""


def node(number: int) -> dict[str, Any]:
    """One of them, with the annotations, images and managed fields that real ones have."""
    name, kind = f"node-{number:05}", number % SETS
    product, major, minor, memory = PRODUCTS[kind % len(PRODUCTS)]
    cpu = ("ADX", "AESNI", "AVX", "AVX2", "AVX512BW", "AVX512VL", "FMA3", "VMX")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                **{f"feature.node.kubernetes.io/cpu-cpuid.{word}": "true" for word in cpu},
                "nvidia.com/cuda.driver-version.full": f"570.{kind}.06",
                "nvidia.com/gfd.timestamp": str(1_700_000_000 + number),
                "nvidia.com/gpu.compute.major": major,
                "nvidia.com/gpu.compute.minor": minor,
                "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.memory": memory,
                "nvidia.com/gpu.product": product,
            },
            "annotations": {f"annotation-{at}": "v" * 60 for at in range(30)},
            "managedFields": [
                {"manager": "kubelet", "fieldsV1": {f"f:{at}": {} for at in range(60)}}
                for _ in range(3)
            ],
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": {"cpu": "192", "nvidia.com/gpu": "8"},
            "conditions": [{"type": kind, "message": "m" * 80} for kind in "abcdef"],
            "images": [
                {"names": [f"example/image@sha256:{at:064}", f"example/image:{at}"]}
                for at in range(50)
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kernelVersion": "5.15.0-1067-nvidia",
            },
        },
    }


def timed(title: str, *arguments: str) -> str:
    """Run a command line, and say what it took; its output."""
    start = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "buildmatrix", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    used = usage.ru_utime + usage.ru_stime
    memory = usage.ru_maxrss / 1024
    print(f"{title}: {seconds:.2f} s ({used:.2f} s CPU), {memory:.0f} MiB, exit code {code}")
    return output


def main(folder: Path) -> None:
    """Write the list, and time both commands."""
    path = folder / "nodes.json"
    cluster = {"kind": "List", "items": [node(number) for number in range(NODES)]}
    path.write_text(json.dumps(cluster, indent=4))
    print(f"{NODES} nodes, {path.stat().st_size / 1e6:.0f} MB")
    os.chdir(folder)
    tables = timed("import", "node-classes", "import", "nodes.json")
    (folder / "base.in").write_text("numpy\n")
    (folder / "buildmatrix.toml").write_text(SPEC + tables)
    timed("check", "node-classes", "check", "nodes.json")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))
