"""CDI edits for NVIDIA's driver, made from the files of a machine that has no description.

No program or library of the driver runs. Nodes are those of all GPUs and of their MIG parts.
Libraries have the version of the loaded driver and come from one folder. Daemons, their sockets,
firmware, WSL and Tegra are left out.

Source: NVIDIA/nvidia-container-toolkit @d34b3046, `pkg/nvcdi/management.go` and `driver-nvml.go`:
the files that `nvidia-ctk cdi generate` lists.
"""

from __future__ import annotations

import os
import platform
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from buildmatrix.engines.oci.cdi import Edits
from buildmatrix.facts.files import read_at_most
from buildmatrix.facts.inventory.system import LARGEST_CACHE, read_cache

DEVICE = "nvidia.com/gpu=all"
_GPU = re.compile(r"nvidia\d{1,4}")
#: Nodes that programs need beside those of GPUs.
_CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
#: Files with the minor number of a MIG part's node. Source: MIG user guide, device nodes.
_PARTS = ("gpu*/mig/gi*/access", "gpu*/mig/gi*/ci*/access")
_MINOR = re.compile(rb"DeviceFileMinor:\s*(\d{1,9})")
_LIBCUDA = re.compile(r"libcuda\.so\.(\d+\.\d[\d.]*)")
#: Folders of a driver that the loader's cache lacks; the first is that of Kubernetes' operators.
_FOLDERS = (
    "/usr/local/nvidia/lib64",
    f"/usr/lib/{platform.machine()}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump")
_PROGRAM_FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin")
#: Folders inside; the loader finds the first by LD_LIBRARY_PATH, see `cdi.lay_out`.
_INSIDE, _PROGRAMS_INSIDE = "/usr/local/nvidia/lib64", "/usr/bin"


def describe_driver(root: Path = Path("/")) -> Mapping[str, Edits]:
    """Return device → edits for a machine's driver; empty if nodes of GPUs or libcuda are missing.

    `root` stands for the machine's root folder.
    """
    nodes = {f"/dev/{name}": str(root / "dev" / name) for name in _nodes(root)}
    driver = next(_drivers(root), None) if nodes else None
    if driver is None:
        return {}
    folder, version = driver
    mounts = {
        f"{_INSIDE}/{path.name}": str(path.resolve())
        for path in sorted(folder.iterdir())
        if path.name.endswith(f".so.{version}") and path.is_file()
    }
    for name in _PROGRAMS:
        places = [root / place.lstrip("/") / name for place in _PROGRAM_FOLDERS]
        mounts.update(
            (f"{_PROGRAMS_INSIDE}/{name}", str(path.resolve()))
            for path in places if path.is_file()
        )  # fmt: skip
    # Many programs open libcuda.so; the SONAME is libcuda.so.1.
    links = {f"{_INSIDE}/libcuda.so": "libcuda.so.1"}
    return {DEVICE: Edits(nodes, mounts, links=links, library_folders=(_INSIDE,), driver=version)}


def _nodes(root: Path) -> Iterator[str]:
    """Yield names of nodes below /dev; none without a GPU."""
    with suppress(OSError):
        names = [path.name for path in (root / "dev").iterdir() if _GPU.fullmatch(path.name)]
        if not any(_is_node(root, name) for name in names):
            return
        folder = root / "proc/driver/nvidia/capabilities"
        for path in sorted(path for part in _PARTS for path in folder.glob(part)):
            if match := _MINOR.search(read_at_most(path, 4096)):
                names.append(f"nvidia-caps/nvidia-cap{match[1].decode()}")
        yield from (name for name in (*sorted(names), *_CONTROL) if _is_node(root, name))


def _is_node(root: Path, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISCHR((root / "dev" / name).stat().st_mode)
    return False


def _drivers(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield folders with the libcuda of the loaded driver, and its version."""
    loaded = ""
    with suppress(OSError):
        loaded = read_at_most(root / "sys/module/nvidia/version", 64).decode("ascii", "replace")
    for folder in _folders(root):
        place = root / folder.lstrip("/")
        try:
            matches = [(path, _LIBCUDA.fullmatch(path.name)) for path in place.iterdir()]
        except OSError:
            continue
        versions = [match[1] for path, match in matches if match and _is_for_this_machine(path)]
        if loaded.strip() in versions:
            yield place, loaded.strip()
        elif not loaded and len(versions) == 1:
            yield place, versions[0]


def _folders(root: Path) -> Iterator[str]:
    yield from filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    with suppress(OSError, ValueError):
        for library in read_cache(read_at_most(root / "etc/ld.so.cache", LARGEST_CACHE)):
            if library.name == "libcuda.so.1":
                # Debian links it to a folder of the version that is chosen.
                yield posixpath.dirname(library.path)
                place = (root / library.path.lstrip("/")).resolve().parent
                if place.is_relative_to(root):
                    yield f"/{place.relative_to(root)}"
    yield from _FOLDERS


def _is_for_this_machine(path: Path) -> bool:
    """Return True if a library has the word size of this machine's programs."""
    with suppress(OSError), path.open("rb") as file, Path("/proc/self/exe").open("rb") as own:
        return file.read(5) == own.read(5)  # Source: elf(5), EI_CLASS.
    return False
