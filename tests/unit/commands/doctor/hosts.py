"""Small trees that look as machines with accelerators do; nothing of them is from a real machine.

What the files are called and hold is what their drivers write: the sources are those of the
catalogue's `*.checks.toml`. A text `->PLACE` is a link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from buildmatrix.preflight.machine import MachineFiles

Files = dict[str, str]


def write(root: Path, files: Mapping[str, str]) -> MachineFiles:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            path.symlink_to(text[2:])
        else:
            path.write_text(text)
    return MachineFiles(root)


def pci(
    address: str,
    module: str,
    *,
    driver: str = "",
    width: tuple[int, int] = (16, 16),
    speed: tuple[str, str] = ("32.0", "32.0"),
    numa: int = 0,
    iommu: str = "identity",
    slot: tuple[int, str] | None = None,
    **files: str,
) -> Files:
    """A device on the PCI bus that a driver has, in a slot of so many lanes and such a speed."""
    driver = driver or module
    bus = "pci0000:00" if slot is None else "pci0000:00/0000:00:01.0"
    folder = f"/sys/devices/{bus}/{address}"
    if slot is not None:
        files["..__max_link_width"] = f"{slot[0]}\n"
        files["..__max_link_speed"] = f"{slot[1]} GT/s PCIe\n"
    return {
        f"/sys/bus/pci/devices/{address}": f"->../../..{folder.removeprefix('/sys')}",
        f"/sys/bus/pci/drivers/{driver}/{address}": f"->../../../..{folder.removeprefix('/sys')}",
        f"{folder}/current_link_width": f"{width[0]}\n",
        f"{folder}/max_link_width": f"{width[1]}\n",
        f"{folder}/current_link_speed": f"{speed[0]} GT/s PCIe\n",
        f"{folder}/max_link_speed": f"{speed[1]} GT/s PCIe\n",
        f"{folder}/numa_node": f"{numa}\n",
        f"{folder}/iommu_group/type": f"{iommu}\n",
        **{f"{folder}/{name.replace('__', '/')}": text for name, text in files.items()},
    }


def module(name: str, version: str = "", driver: str = "") -> Files:
    files = {
        f"/sys/module/{name}/initstate": "live\n",
        f"/sys/module/{name}/drivers/pci:{driver or name}": (
            f"->../../../bus/pci/drivers/{driver or name}"
        ),
    }
    return files | ({f"/sys/module/{name}/version": f"{version}\n"} if version else {})


def linux(*, processors: int = 2, governor: str = "performance", sockets: int = 1) -> Files:
    """What every machine has."""
    files = {
        "/proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "/proc/self/limits": (
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max locked memory         unlimited            unlimited            bytes     \n"
        ),
        "/proc/self/mounts": "tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=528000000k,inode64 0 0\n",
        "/proc/stat": "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 100 0 100 800 0 0 0 0 0 0\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
        "/sys/class/net/eth0/statistics/rx_dropped": "7\n",
        "/dev/kmsg": "6,1,0,-;Linux version 6.8.0-60-generic\n",
    }
    for number in range(processors):
        files[f"/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor"] = f"{governor}\n"
    for number in range(sockets):
        files[f"/sys/devices/system/node/node{number}/cpulist"] = "0-1\n"
    return files


def dgx() -> Files:
    """Eight GPUs of a data center, the first divided; one with half its lanes, one lost."""
    files = {**linux(sockets=2), **module("nvidia", "570.86.10")}
    for number in range(8):
        address = f"0000:{0x1B + number:02x}:00.0"
        lanes = 8 if number == 3 else 16
        files |= pci(address, "nvidia", width=(lanes, 16), numa=number // 4)
        files[f"/dev/nvidia{number}"] = ""
        files[f"/proc/driver/nvidia/gpus/{address}/information"] = "Model: NVIDIA H100 80GB HBM3\n"
    for instance in (1, 2, 3):
        folder = f"/proc/driver/nvidia/capabilities/gpu0/mig/gi{instance}"
        files[f"{folder}/ci0/access"] = "DeviceFileMinor: 12\n"
    return files | {
        "/dev/nvidiactl": "",
        "/dev/nvidia-uvm": "",
        "/dev/kmsg": (
            "6,1,0,-;Linux version 6.8.0-60-generic\n"
            "4,2,1,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=77, name=python\n"
            "4,3,2,-;NVRM: Xid (PCI:0000:1f:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
            "4,4,3,-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 22013, Non-fatal, Link 60 x\n"
            "4,5,4,-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM\n"
        ),
        "/usr/bin/nvidia-ctk": "",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10": "",
        "/etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n# /lib/libcuda.so.565.57.01\n",
        "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
        "/sys/devices/system/edac/mc/mc0/ue_count": "0\n",
        "/sys/devices/system/edac/mc/mc0/ce_count": "12\n",
    }


def desktop() -> Files:
    """One idle GPU in a narrow slot, whose driver was updated and not loaded again."""
    return {
        **linux(governor="powersave"),
        **module("nvidia", "580.65.06"),
        **pci(
            "0000:01:00.0",
            "nvidia",
            width=(8, 16),
            speed=("2.5", "16.0"),
            iommu="DMA-FQ",
            numa=-1,
            slot=(8, "16.0"),
        ),
        "/dev/nvidia0": "",
        "/dev/nvidiactl": "",
        "/dev/nvidia-uvm": "",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05": "",
        "/sys/class/hwmon/hwmon0/temp1_input": "101000\n",
        "/sys/class/hwmon/hwmon0/temp1_crit": "100000\n",
        "/sys/class/hwmon/hwmon0/temp2_input": "40000\n",
        "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "5\n",
    }


def instinct() -> Files:
    """Two GPUs, each divided into eight parts, of which all but the first are platform devices."""
    files = {**linux(sockets=2), **module("amdgpu", "6.10.5"), "/dev/kfd": ""}
    for gpu in range(2):
        address = f"0000:{0xC + gpu:02x}:00.0"
        ras = {"ras__umc_err_count": f"ue: {gpu}\nce: 3\n", "ras__gfx_err_count": "ue: 0\nce: 0\n"}
        modes = {"current_compute_partition": "CPX\n", "current_memory_partition": "NPS4\n"}
        files |= pci(address, "amdgpu", numa=gpu, vendor="0x1002\n", **ras, **modes)
        for part in range(8):
            node = f"renderD{128 + gpu * 8 + part}"
            files[f"/dev/dri/{node}"] = ""
            device = (
                f"->../../../devices/pci0000:00/{address}"
                if part == 0
                else f"->../../../devices/platform/amdgpu_xcp_{gpu * 8 + part}"
            )
            files[f"/sys/class/drm/{node}/device"] = device
            if part:
                files[f"/sys/devices/platform/amdgpu_xcp_{gpu * 8 + part}/modalias"] = "platform:\n"
    return files


def workstation() -> Files:
    """A GPU of a workstation beside the one in the processor, which has no lanes to speak of."""
    card = pci("0000:03:00.0", "amdgpu", vendor="0x1002\n", speed=("16.0", "16.0"))
    inner = pci(
        "0000:0f:00.0", "amdgpu", vendor="0x1002\n", width=(0, 255), speed=("Unknown", "Unknown")
    )
    files = {**linux(), **module("amdgpu"), **card, **inner, "/dev/kfd": ""}
    for number, address in ((128, "0000:03:00.0"), (129, "0000:0f:00.0")):
        files[f"/dev/dri/renderD{number}"] = ""
        files[f"/sys/class/drm/renderD{number}/device"] = f"->../../../devices/pci0000:00/{address}"
    return files | {
        "/dev/kmsg": (
            "3,9,9,-;amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1\n"
            "6,10,9,-;amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\n"
            "6,11,9,-;amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\n"
        )
    }


def intel() -> Files:
    return {
        **linux(),
        **module("xe"),
        **pci("0000:29:00.0", "xe", vendor="0x8086\n"),
        "/dev/dri/renderD128": "",
        "/sys/class/drm/renderD128/device": "->../../../devices/pci0000:00/0000:29:00.0",
        "/dev/kmsg": (
            "3,1,1,-;xe 0000:29:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:29:00.0 "
            "as wedged.\n"
        ),
    }


def gaudi() -> Files:
    return {
        **linux(),
        **module("habanalabs", "1.22.0"),
        **pci("0000:19:00.0", "habanalabs", vendor="0x1da3\n"),
        "/dev/accel/accel0": "",
        "/sys/class/accel/accel0/device": "->../../../devices/pci0000:00/0000:19:00.0",
    }


def neuron() -> Files:
    """The driver has another name on the bus than its module."""
    return {
        **linux(),
        **module("neuron", "2.22.2.0", driver="neuron-driver"),
        **pci("0000:00:1e.0", "neuron", driver="neuron-driver"),
        "/dev/neuron0": "",
        "/proc/self/limits": (
            "Max locked memory         8388608              8388608              bytes     \n"
        ),
    }


def virtual() -> Files:
    """A virtual machine without accelerators, whose memory files are small."""
    return {
        **linux(),
        "/proc/self/mounts": "shm /dev/shm tmpfs rw,nosuid,size=65536k,inode64 0 0\n",
    }


def container() -> Files:
    """A container on a machine with a GPU that was not handed in; it may read no log."""
    files = {
        **linux(),
        **module("nvidia", "570.86.10"),
        **pci("0000:01:00.0", "nvidia"),
        "/proc/self/mounts": "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0\n",
    }
    del files["/dev/kmsg"]
    return files


KINDS: Mapping[str, Callable[[], Files]] = {
    make.__name__: make
    for make in (
        dgx, desktop, instinct, workstation, intel, gaudi, neuron, virtual, container,
    )
}  # fmt: skip
