"""A server with eight H100, of which two are sick, and a process on it with two CUDA runtimes."""

from pathlib import Path

import hosts

MAPPED = (
    "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10",
    "/opt/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12",
    "/usr/local/cuda/lib64/libcudart.so.12.4.127",
    "/dev/nvidia0",
)
SITE = "/proc/4711/root/opt/venv/lib/python3.12/site-packages"
PROCESS = {
    "/proc/4711/comm": "python3\n",
    "/proc/4711/maps": "".join(
        f"7f{n:02}-7f{n + 1:02} r-xp 00000000 00:2b {n} {path}\n" for n, path in enumerate(MAPPED)
    ),
    "/proc/4711/mountinfo": (
        "1 0 0:2b / / rw - overlay overlay rw,lowerdir=/x\n"
        f"2 1 8:1 {MAPPED[0]} {MAPPED[0]} ro - ext4 /dev/sda1 ro\n"
    ),
    "/proc/4711/ns/mnt": "->mnt:[2]",
    "/proc/self/ns/mnt": "->mnt:[1]",
    f"{SITE}/nvidia_cuda_runtime_cu12-12.8.90.dist-info/RECORD": (
        "nvidia/cuda_runtime/lib/libcudart.so.12,,\n"
    ),
}
hosts.write(Path("machine"), hosts.dgx() | PROCESS)
