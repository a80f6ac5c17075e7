"""What a build read of an image with torch: sizes of the real wheels, as facts alone."""

from pathlib import Path

from buildmatrix.facts.elf.model import DeviceCode, Elf
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory, Stats
from buildmatrix.images import store
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import BuildRecord, State
from buildmatrix.sources.target_layers import detach_layers

SITE = "opt/venv/lib/python3.11/site-packages"
MB = 1_000_000


def library(
    path: str, owner: str, size: int, *code: tuple[str, str, int], soname: str = ""
) -> Binary:
    device_code = tuple(
        DeviceCode("nv-fatbin", kind, arch, 1, count, 4096, ".nv_fatbin")
        for kind, arch, count in code
    )
    name = soname or path.rpartition("/")[2]
    elf = Elf(64, True, "x86_64", "dyn", name, ("libc.so.6",), device_code=device_code)
    return Binary(f"{SITE}/{path}", size, elf, owner)


def distribution(name: str, version: str, size: int, *requires: str) -> Distribution:
    path = f"{SITE}/{name.replace('-', '_')}-{version}.dist-info"
    return Distribution(name, version, path, requires, size=size, files=3)


BINARIES = (
    library("torch/lib/libtorch_cuda.so", "torch==2.15.0", 890 * MB,
            ("sass", "sm_90", 181_900_000), ("sass", "sm_100", 230_300_000),
            ("ptx", "compute_75", 115_400_000)),
    library("torch/lib/libtorch_cpu.so", "torch==2.15.0", 210 * MB),
    library("nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia-cuda-runtime-cu12==12.8.90",
            728_008),
    library("nvidia/nccl/lib/libnccl.so.2", "nvidia-nccl-cu12==2.28.3", 300 * MB),
)  # fmt: skip
DISTRIBUTIONS = (
    distribution("torch", "2.15.0", 1_130 * MB, "nvidia-cuda-runtime-cu12", "nvidia-nccl-cu12"),
    distribution("nvidia-cuda-runtime-cu12", "12.8.90", 3 * MB),
    distribution("nvidia-nccl-cu12", "2.28.3", 301 * MB),
)
STATS = Stats(files=30309, binaries=438, bytes_total=1_510 * MB)
INVENTORY = Inventory(distributions=DISTRIBUTIONS, binaries=BINARIES, stats=STATS)
FILES = State(Path(".buildmatrix/state")).target_files("cuda12.8-py311-default")
IMAGE = f"sha256:{'1' * 64}"
store.write(FILES.inventory, INVENTORY)
RECORD = BuildRecord(
    key="",
    digest=IMAGE,
    config=None,
    loaded=False,
    tags=(),
    inventory=state_folder.file_sha256(FILES.inventory),
    seconds=1.0,
)
state_folder.write(FILES, RECORD)
detach_layers(FILES, IMAGE, Inventory(), print)
