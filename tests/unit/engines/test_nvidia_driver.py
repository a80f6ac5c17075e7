"""Edits that are made from the files of NVIDIA's driver: planted ones, with ELF files of gcc."""

from __future__ import annotations

import math
import platform
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from buildmatrix.engines.oci import cdi
from buildmatrix.engines.oci.cdi import NoSuchDevice
from buildmatrix.engines.oci.confinement import Confined, Sandbox
from buildmatrix.engines.oci.nvidia_driver import DEVICE, describe_driver
from buildmatrix.engines.oci.sandboxes import failure, run, sandboxes
from buildmatrix.engines.oci.unpacking import Identity, add_mount_points

SANDBOXES = [sandbox for sandbox in sandboxes() if failure(sandbox, math.inf) is None]
MULTIARCH = f"usr/lib/{platform.machine()}-linux-gnu"
POD = "usr/local/nvidia/lib64"
DEBIAN = f"{MULTIARCH}/nvidia/current"
VERSION = "580.95.05"
CAP = "/dev/nvidia-caps/nvidia-cap1"
#: Name of each library → number of its SONAME.
LIBRARIES = {"libcuda": 1, "libnvidia-ml": 1, "libnvidia-ptxjitcompiler": 1}


@pytest.fixture(autouse=True)
def no_folders_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)


def plant(root: Path, folder: str, version: str = VERSION) -> Path:
    """A driver of one GPU; nodes are links to one that every machine has."""
    place = root / folder
    place.mkdir(parents=True, exist_ok=True)
    source = root / "driver.c"
    source.write_text("int cuInit(unsigned flags) { return 42 + flags; }\n")
    for name, number in LIBRARIES.items():
        line = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}.so.{number}", "-o"]
        subprocess.run([*line, place / f"{name}.so.{version}", source], check=True)
    (place / "libother.so.1.2").touch()
    (root / "dev/nvidia-caps").mkdir(parents=True, exist_ok=True)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-fs0", "nvidia-caps/nvidia-cap1"):
        if not (root / "dev" / name).is_symlink():
            (root / "dev" / name).symlink_to("/dev/null")
    write(root / "sys/module/nvidia/version", f"{VERSION}\n")
    write(root / "usr/bin/nvidia-smi", "#!/bin/sh\n")
    (root / "usr/bin/nvidia-smi").chmod(0o755)
    return root


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def loader_cache(name: str, path: str) -> bytes:
    """An ld.so.cache with one library; see glibc's sysdeps/generic/dl-cache.h."""
    strings = f"{name}\0{path}\0".encode()
    start = 20 + 28 + 24
    header = struct.pack("<IIB3xI12x", 1, len(strings), 2, 0)
    entry = struct.pack("<iIIIQ", 0x303, start, start + len(name) + 1, 0, 0)
    return b"glibc-ld.so.cache1.1" + header + entry + strings


@pytest.mark.parametrize("folder", [POD, MULTIARCH, "usr/lib64", DEBIAN, "opt/nvidia"])
def test_nodes_libraries_and_programs_are_found_where_drivers_have_them(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plant(tmp_path, folder)
    if folder == DEBIAN:
        (root / MULTIARCH / "libcuda.so.1").symlink_to(f"nvidia/current/libcuda.so.{VERSION}")
        cache = loader_cache("libcuda.so.1", f"/{MULTIARCH}/libcuda.so.1")
        write(root / "etc/ld.so.cache", cache)
    if folder == "opt/nvidia":
        monkeypatch.setenv("LD_LIBRARY_PATH", "lib::/missing:/opt/nvidia")
    found = describe_driver(root)[DEVICE]
    nodes = ("nvidia0", "nvidiactl", "nvidia-uvm")
    assert found.nodes == {f"/dev/{name}": str(root / "dev" / name) for name in nodes}
    libraries = {
        f"/{POD}/{name}.so.{VERSION}": str(root / folder / f"{name}.so.{VERSION}")
        for name in LIBRARIES
    }
    assert found.mounts == {**libraries, "/usr/bin/nvidia-smi": str(root / "usr/bin/nvidia-smi")}
    assert found.driver == VERSION


def test_nvidia_ctk_lists_the_same_files(tmp_path: Path) -> None:
    """Its output for the same files, in the mode `management`; `$ROOT` is their folder.

    Written by nvidia-ctk @d34b3046 with --driver-root and --dev-root, and with nodes by mknod(1).
    """
    root = plant(tmp_path, "usr/lib64")
    written = (Path(__file__).parent / "data/nvidia-ctk-management.json").read_text()
    write(root / "etc/cdi/nvidia.json", written.replace("$ROOT", str(root)))
    theirs = cdi.edits([DEVICE], [root / "etc/cdi"], {})
    ours = describe_driver(root)[DEVICE]
    assert sorted(ours.mounts.values()) == sorted(theirs.mounts.values())
    assert (ours.driver, list(ours.links.values())) == (theirs.driver, list(theirs.links.values()))
    # The last one lets a program divide GPUs.
    assert {**ours.nodes, CAP: str(root / CAP.lstrip("/"))} == theirs.nodes


def test_parts_of_a_gpu_come_with_their_capabilities_and_no_others(tmp_path: Path) -> None:
    root = plant(tmp_path, POD)
    folder = root / "proc/driver/nvidia/capabilities"
    for name, minor in {"gpu0/mig/gi1": 12, "gpu0/mig/gi1/ci0": 13, "mig/config": 1}.items():
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"
        write(folder / name / "access" if "gpu" in name else folder / name, text)
    for minor in (12, 13, 14):
        (root / f"dev/nvidia-caps/nvidia-cap{minor}").symlink_to("/dev/null")
    nodes = describe_driver(root)[DEVICE].nodes
    caps = [path for path in nodes if "caps" in path]
    assert caps == ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"]


def test_the_libraries_are_those_of_the_driver_that_is_loaded(tmp_path: Path) -> None:
    root = plant(tmp_path, POD, "570.86.10")
    assert describe_driver(root) == {}
    plant(root, "usr/lib64")
    mounts = describe_driver(root)[DEVICE].mounts
    assert mounts[f"/{POD}/libcuda.so.{VERSION}"] == str(root / f"usr/lib64/libcuda.so.{VERSION}")
    assert not any("570" in path for path in mounts)


def test_one_libcuda_says_the_version_if_the_kernel_does_not(tmp_path: Path) -> None:
    root = plant(tmp_path, POD)
    (root / "sys/module/nvidia/version").unlink()
    assert describe_driver(root)[DEVICE].driver == VERSION
    plant(root, POD, "570.86.10")
    (root / "sys/module/nvidia/version").unlink()
    assert describe_driver(root) == {}


@pytest.mark.parametrize("missing", ["dev/nvidia0", f"{POD}/libcuda.so.{VERSION}", "dev"])
def test_nothing_is_made_without_a_gpu_or_its_driver(tmp_path: Path, missing: str) -> None:
    root = plant(tmp_path, POD)
    if missing == "dev":
        shutil.rmtree(root / missing)
    else:
        (root / missing).unlink()
    assert describe_driver(root) == {}


def test_files_of_other_kinds_are_no_driver(tmp_path: Path) -> None:
    """A library for 32-bit programs, and a node that is a file."""
    root = plant(tmp_path, "usr/lib")
    path = root / f"usr/lib/libcuda.so.{VERSION}"
    path.write_bytes(b"\x7fELF\x01" + path.read_bytes()[5:])
    write(root / "etc/ld.so.cache", b"glibc-ld.so.cache1.1 cut short")
    assert describe_driver(root) == {}
    plant(root, POD)
    (root / "dev/nvidiactl").unlink()
    (root / "dev/nvidiactl").touch()
    assert "/dev/nvidiactl" not in describe_driver(root)[DEVICE].nodes


def test_a_description_takes_the_place_of_what_is_made(tmp_path: Path) -> None:
    made = describe_driver(plant(tmp_path, POD))
    assert cdi.offered([tmp_path / "cdi"], made) == (DEVICE,)
    assert cdi.edits([DEVICE], [tmp_path / "cdi"], made).driver == VERSION
    text = '{"kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {}}]}'
    write(tmp_path / "cdi/nvidia.json", text)
    assert cdi.offered([tmp_path / "cdi"], made) == ("nvidia.com/gpu=0",)
    with pytest.raises(NoSuchDevice, match="describes nvidia"):
        cdi.edits([DEVICE], [tmp_path / "cdi"], made)


PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    for (int number = 1; number < count; number++) {
        void *driver = dlopen(words[number], RTLD_NOW);
        if (!driver) { puts(dlerror()); return 1; }
        printf("%d\\n", ((int (*)(unsigned)) dlsym(driver, "cuInit"))(number));
    }
    FILE *node = fopen("/dev/nvidia0", "w");
    return !node || fputs("x", node) < 0;
}
"""


@pytest.mark.parametrize("sandbox", SANDBOXES, ids=lambda sandbox: sandbox.name)
def test_an_image_loads_a_driver_that_nothing_describes(sandbox: Sandbox, tmp_path: Path) -> None:
    machine, root = plant(tmp_path / "machine", MULTIARCH), tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    write(tmp_path / "program.c", PROGRAM)
    program = root / "bin/program"
    subprocess.run(["gcc", "-o", program, tmp_path / "program.c", "-ldl"], check=True)
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for path in re.findall(r"/\S+\.so\S*", listed):
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    add_mount_points(root)
    for path in (tmp_path, *tmp_path.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    (tmp_path / "own").mkdir()
    laid = cdi.lay_out(root, describe_driver(machine)[DEVICE])
    confined = Confined(
        root,
        Identity(10001, 10002),
        ("/bin/program", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"),
        {"PATH": "/bin", "LD_LIBRARY_PATH": ":".join(laid.library_path)},
        folders={inside: Path(here) for inside, here in laid.mounts.items()},
        renamed=laid.nodes,
    )
    result = run(sandbox, confined, tmp_path / "own", math.inf, lambda: False)
    assert (result.output.split(), result.exit_code) == (["43", "44", "45"], 0), result.output
