"""Libraries that nvcc makes for different GPUs: how this one runs them, and what `scan` says of it.

A kernel that runs is native if it also runs with CUDA_DISABLE_PTX_JIT=1, and compiled by the driver
if not. A process of its own runs each library.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Runs a command for so many seconds at most, with variables: exit code, stdout, stderr.
RunCommand = Callable[[Sequence[str], float, Mapping[str, str]], tuple[int, str, str]]

#: Errors of the CUDA runtime for code that a GPU cannot use: invalid device function, invalid
#: image, no kernel image, unsupported PTX, JIT disabled; symbol not found, for code that was linked
#: for another GPU (`-dlto`).
UNUSABLE = (98, 200, 209, 222, 223, 500)
#: Numbers in the table of a large object: more than 1,000,000 bytes of PTX.
NUMBERS = 200_000
KERNEL = """\
#include <cuda_runtime.h>
%(table)s
__global__ void kernel_%(name)s(int *p) { p[threadIdx.x] = 2 * threadIdx.x%(term)s; }
extern "C" int run_%(name)s(void) {
    int *p = 0, out[64];
    cudaError_t error = cudaMalloc(&p, sizeof out);
    if (error) return error;
    kernel_%(name)s<<<1, 64>>>(p);
    error = cudaGetLastError();
    if (!error) error = cudaMemcpy(out, p, sizeof out, cudaMemcpyDeviceToHost);
    cudaGetLastError();
    cudaFree(p);
    for (int i = 0; !error && i < 64; i++) if (out[i] != 2 * i) return 10000;
    return error;
}
"""
RUNNER = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print("codes", *(getattr(library, name)() for name in sys.argv[2:]))
"""
SPEC = """\
schema = 1
[project]
name = "gpu"
version = "1"
image = "example.com/{project}"
[defaults]
python = ["3.12"]
requirements = ["requirements.in"]
[backend.cuda]
runtime = "13.0"
base = "debian:12"
[node-class.{arch}]
backend = "cuda"
driver = ">=580"
archs = ["{arch}"]
runs = ["*"]
"""


@dataclass(frozen=True)
class Library:
    """A library to make: the code of each of its objects, and flags of nvcc."""

    name: str
    #: What `-gencode` makes of each object: `sm_90`, `compute_80`, `lto_90`, separated by spaces.
    objects: tuple[str, ...]
    flags: tuple[str, ...] = ()
    #: Flags of the link alone; empty: those of the first object.
    link: tuple[str, ...] = ()
    #: Whether the second object has more than 1 MB.
    is_large: bool = False


LIBRARIES = (
    Library("default", ("",)),
    Library("sm80", ("sm_80",)),
    Library("sm90", ("sm_90",)),
    Library("sm90a", ("sm_90a",)),
    Library("sm100", ("sm_100",)),
    Library("sm100f", ("sm_100f",)),
    Library("sm120", ("sm_120",)),
    Library("ptx80", ("compute_80",)),
    Library("ptx90", ("compute_90",)),
    Library("ptx90a", ("compute_90a",)),
    Library("ptx100", ("compute_100",)),
    Library("sm80-ptx80", ("sm_80 compute_80",)),
    Library("sm90-ptx90", ("sm_90 compute_90",)),
    Library("sm80-sm90-sm100", ("sm_80 sm_90 sm_100",)),
    Library("sm100-ptx80", ("sm_100 compute_80",)),
    Library("compress-size", ("sm_80 compute_80",), ("--compress-mode=size",)),
    Library("compress-speed", ("sm_90 compute_90",), ("--compress-mode=speed",)),
    Library("compress-none", ("compute_80",), ("--compress-mode=none",)),
    Library("rdc-sm90", ("sm_90", "sm_90"), ("-rdc=true",)),
    Library("rdc-ptx80", ("compute_80", "compute_80"), ("-rdc=true",)),
    Library("lto-sm90", ("lto_90", "lto_90"), ("-rdc=true",), ("-dlto", "-arch=sm_90")),
    Library("lto-sm80", ("lto_80", "lto_80"), ("-rdc=true",), ("-dlto", "-arch=sm_80")),
    Library("shared-cudart", ("sm_80 compute_80",), ("-cudart=none",)),
    Library("objects-sm90-sm80", ("sm_90", "sm_80")),
    Library("objects-sm90-sm100", ("sm_90", "sm_100")),
    Library("objects-ptx80-sm100", ("compute_80", "sm_100")),
    Library("objects-sm90-large-ptx80", ("sm_90", "compute_80"), is_large=True),
)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """What came of making one library; `error` is empty where it is there."""

    library: Library
    path: Path
    error: str = ""

    @property
    def functions(self) -> list[str]:
        """Those that run a kernel each."""
        return [f"run_{number}" for number in range(len(self.library.objects))]


def nvcc() -> Path | None:
    """The compiler, in PATH or where CUDA's installer puts it."""
    found = shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    return Path(found).resolve() if found else None


def make(library: Library, compiler: Path, folder: Path, run: RunCommand, seconds: float) -> Made:
    """Compile and link one library."""
    path = folder / "libs" / f"{library.name}.so"
    top = compiler.parent.parent
    places = [top / name for name in ("lib64", "lib", "targets/x86_64-linux/lib")]
    places = [place for place in places if place.is_dir()]
    flags = ["-Xcompiler", "-fPIC", *library.flags]
    link = list(library.link) or generated(library.objects[0])
    link += [f"-L{place}" for place in places]
    if "-cudart=none" in library.flags:
        runtime = next((file for p in places for file in sorted(p.glob("libcudart.so.*"))), None)
        if runtime is None:
            return Made(library, path, f"no libcudart.so.* beside {compiler}")
        link += ["-Xlinker", str(runtime), "-Xlinker", f"-rpath={runtime.parent}"]
    objects = []
    for number, codes in enumerate(library.objects):
        source = folder / f"{library.name}.{number}.cu"
        large = library.is_large and number == 1
        source.write_text(kernel(str(number), is_large=large))
        objects.append(source.with_suffix(".o"))
        more = ["--compress-mode=none"] if large else []
        command = ["-c", *flags, *more, *generated(codes), "-o", str(objects[-1]), str(source)]
        code, out, err = run([str(compiler), *command], seconds, {})
        if code:
            return Made(library, path, f"nvcc: {(err or out).strip()[-300:] or f'code {code}'}")
    command = ["--shared", *flags, *link, "-o", str(path), *map(str, objects)]
    code, out, err = run([str(compiler), *command], seconds, {})
    return Made(library, path, f"nvcc: {(err or out).strip()[-300:]}" if code else "")


def generated(codes: str) -> list[str]:
    """Flags that make code: `arch=compute_90,code=sm_90`."""
    flags = []
    for code in codes.split():
        flags += ["-gencode", f"arch=compute_{code.partition('_')[2]},code={code}"]
    return flags


def kernel(name: str, *, is_large: bool = False) -> str:
    """The source of one object, with a function that runs its kernel and gives an error code."""
    table, term = "", ""
    if is_large:
        numbers = ",".join(str(at * 2_654_435_761 % 2**31) for at in range(NUMBERS))
        table = f"__device__ int table[{NUMBERS}] = {{{numbers}}};"
        # The first number is 0.
        term = " + table[p == 0]"
    return KERNEL % {"name": name, "table": table, "term": term}


def seen(made: Made, run: RunCommand, seconds: float) -> tuple[str, str]:
    """How the GPU runs a library, in the words of `verdicts`; and the error codes."""
    command = [sys.executable, "-c", RUNNER, str(made.path), *made.functions]
    cold = {"CUDA_CACHE_DISABLE": "1"}
    answers = []
    for variables in (cold, {**cold, "CUDA_DISABLE_PTX_JIT": "1"}):
        code, out, err = run(command, seconds, variables)
        line = next((line for line in out.splitlines() if line.startswith("codes ")), None)
        if line is None:
            last = " ".join(err.split())[-200:]
            return f"ended with exit code {code}", last
        answers.append([int(word) for word in line.split()[1:]])
    states = [state(*pair) for pair in zip(*answers, strict=True)]
    codes = "; ".join(",".join(map(str, answer)) for answer in answers)
    return joined(states), codes


def state(code: int, without_jit: int) -> str:
    """How one kernel runs, by its error codes with and without the driver's compiler."""
    if code in UNUSABLE:
        return "missing"
    if code:
        return f"error {code}"
    if without_jit and without_jit not in UNUSABLE:
        return f"error {without_jit} without JIT"
    return "jit" if without_jit else "native"


def joined(states: Sequence[str]) -> str:
    """How a library with such kernels runs."""
    kinds = sorted(set(states))
    if len(kinds) == 1:
        return kinds[0]
    if kinds == ["jit", "native"]:
        return "partly jit"
    return "partly missing" if set(kinds) <= {"jit", "missing", "native"} else ", ".join(kinds)


def verdicts(
    folder: Path, architectures: Sequence[str], run: RunCommand, seconds: float
) -> dict[str, dict[str, str]]:
    """What `scan` says: library -> architecture -> `native`, `jit`, `missing`, `partly missing`."""
    said: dict[str, dict[str, str]] = {}
    (folder / "requirements.in").touch()
    spec = folder / "buildmatrix.toml"
    for arch in architectures:
        # A finding about a part of a library names the worst of several classes.
        spec.write_text(SPEC.format(arch=arch, project="{project}"))
        command = [sys.executable, "-m", "buildmatrix", "scan", f"dir:{folder / 'libs'}"]
        command += ["--select", "cuda13.0-py312-default", "-f", str(spec), "--no-cache"]
        code, out, err = run([*command, "--format", "json"], seconds, {})
        try:
            report = json.loads(out)
        except ValueError:
            raise RuntimeError(f"scan: exit code {code}: {err.strip()[-300:]}") from None
        for device in report["targets"][0]["nodes"][0]["devices"]:
            for name, served in device["holders"].items():
                said.setdefault(name, {})[arch] = "missing" if served == "none" else served
        for finding in report["findings"]:
            path = finding["path"]
            if finding["rule"] == "BM404":
                late = "no binary code" in finding["message"]
                said[path][arch] = "partly jit" if late else "partly missing"
            if finding["rule"].startswith("BM9"):
                said.setdefault(path, {})[arch] = finding["message"]
    return said
