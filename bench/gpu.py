"""Compares what buildmatrix says of this machine's GPU with what the GPU does, in four minutes.

    PYTHONPATH=src python3 bench/gpu.py [PART...]

Run it with the Python that has the frameworks. Parts: doctor node-classes import engine libraries
process device compute memory cold-start. Each has a time limit of its own; one that breaks is a row
of the table, and the others go on. The exit code is 1 if a row disagrees, 2 without nvidia-smi.
With $OUT, $OUT/gpu.json has every check that was made.

Oracles: nvidia-smi, importlib, /proc/PID/maps, own programs that time each framework, and libraries
that nvcc makes for other GPUs (bench/gpu_libraries.py).

A machine without network gets the dependencies as wheels, 8 MB. On a machine with network, in a
checkout whose .git/info/exclude has `/.whl/`:

    python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 \\
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \\
        --platform manylinux_2_17_x86_64 -d .whl backports.zstd certifi click deflate h11 \\
        httpcore jinja2 lief markdown-it-py markupsafe mdurl msgspec packaging pygments pyyaml \\
        rich tomli tomlkit

and on the other, in the same checkout:

    python3 -m pip install -q --no-index --no-deps --no-compile --target /tmp/site .whl/*.whl
    PYTHONPATH=/tmp/site:src python3 bench/gpu.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from gpu_libraries import LIBRARIES, Made, make, nvcc, seen, verdicts

BACKEND = "cuda"
#: Seconds for everything, and for each part.
ALL_S = 235
PARTS_S = {
    "doctor": 20, "node-classes": 10, "import": 75, "engine": 20, "libraries": 75, "process": 40,
    "device": 60, "compute": 80, "memory": 45, "cold-start": 45,
}  # fmt: skip
#: What nvidia-smi is asked.
ASKED = (
    "name,driver_version,memory.total,pci.bus_id,pcie.link.width.current,pcie.link.gen.current,"
    "mig.mode.current,compute_cap"
)
#: GT/s of a lane, by the generation of PCI Express.
SPEEDS = {"1": 2.5, "2": 5, "3": 8, "4": 16, "5": 32, "6": 64}
#: Rows of a product that has a rate; how far two measures of one rate may differ; how much slower
#: than torch another framework may be.
LEAST, FACTOR, SLOWER = 4_096, 2.0, 2.0
#: Memory of a device that its vendor calls 80 GB is 80 GiB, less what the driver takes.
MEMORY = 0.08
#: Libraries of the vendor, by the names of their files.
VENDOR = re.compile(
    r"lib(cuda|cudart|cublas|cublasLt|cudnn\w*|cufft|cufile|cupti|curand|cusolver|cusparse"
    r"|cusparseLt|nccl|nvJitLink|nvrtc|nvshmem_host|nvidia-ptxjitcompiler)\.so[.\d]*"
)
#: Programs that ask a framework without buildmatrix: devices, TFLOP/s and GB/s.
CLOCK = """
import json, os, time
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
N, TIMES = 8192, 10
said = {}
def seconds(run, wait):
    for _ in range(3):
        wait(run())
    began = time.perf_counter()
    for _ in range(TIMES):
        result = run()
    wait(result)
    return (time.perf_counter() - began) / TIMES
def rate(name, run, wait):
    said[name] = 2 * N**3 / seconds(run, wait) / 1e12
def copied(run, wait, bytes):
    said["memory"] = 2 * bytes / seconds(run, wait) / 1e9
"""
PROGRAMS = {
    "torch": """
import torch
said["devices"] = torch.cuda.device_count()
if said["devices"]:
    wait = lambda _: torch.cuda.synchronize()
    for name in ("float32", "float16", "bfloat16"):
        a, b = (torch.randn(N, N, device="cuda").to(getattr(torch, name)) for _ in "ab")
        rate(name, lambda: a @ b, wait)
    c = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
    d = torch.zeros_like(c)
    copied(lambda: d.copy_(c), wait, 1 << 30)
""",
    "jax": """
import jax, jax.numpy as jnp
said["devices"] = sum(device.platform != "cpu" for device in jax.devices())
if said["devices"]:
    wait = lambda result: result.block_until_ready()
    for name in ("float32", "float16", "bfloat16"):
        keys = jax.random.split(jax.random.key(0))
        a, b = (jax.random.normal(key, (N, N), name) for key in keys)
        multiply = jax.jit(jnp.matmul)
        rate(name, lambda: multiply(a, b), wait)
    c, add = jnp.ones(1 << 28, "float32"), jax.jit(lambda x: x + 1)
    copied(lambda: add(c), wait, 1 << 30)
""",
    "cupy": """
import cupy, numpy
said["devices"] = cupy.cuda.runtime.getDeviceCount()
if said["devices"]:
    wait = lambda _: cupy.cuda.Device().synchronize()
    for name in ("float32", "float16"):
        a, b = (cupy.asarray(numpy.random.rand(N, N).astype(name)) for _ in "ab")
        rate(name, lambda: a @ b, wait)
    c, d = cupy.ones(1 << 30, "uint8"), cupy.zeros(1 << 30, "uint8")
    copied(lambda: cupy.copyto(d, c), wait, 1 << 30)
""",
    "onnxruntime": """
import onnxruntime
said["devices"] = int("CUDAExecutionProvider" in onnxruntime.get_available_providers())
""",
}
#: A process that holds a device until its standard input ends.
HOLDER = """
import sys, torch
(torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")).sum().item()
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Row:
    """One comparison; `ok` is None for a note, which decides nothing."""

    part: str
    check: str
    expected: str
    seen: str
    ok: bool | None


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these did."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def kill(process: subprocess.Popen[Any]) -> None:
    """End a process with all that it started, also what made sessions of its own."""
    for pid in [process.pid, *descendants(process.pid)]:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@dataclass
class Bench:
    """The machine, by nvidia-smi, and what the parts need of each other."""

    folder: Path
    until: float
    rows: list[Row] = field(default_factory=list)
    #: What each part measured, for the file.
    details: dict[str, Any] = field(default_factory=dict)
    #: When the part that runs has to end.
    part_until: float = 0.0
    part: str = ""
    compiled: list[Future[Made]] = field(default_factory=list)

    def row(self, check: str, expected: object, seen: object, ok: bool | None) -> None:
        """Write a row down."""
        self.rows.append(Row(self.part, check, str(expected), str(seen), ok))

    def same(self, check: str, expected: object, seen: object) -> None:
        """Write down whether two things are the same."""
        self.row(check, expected, seen, expected == seen)

    def left(self, seconds: float, until: float | None = None) -> float:
        """Seconds that a command may take."""
        return max(0.5, min(seconds, (until or self.part_until) - time.monotonic()))

    def run(
        self,
        command: Sequence[str],
        seconds: float,
        variables: Mapping[str, str] | None = None,
        until: float | None = None,
    ) -> tuple[int, str, str]:
        """Exit code (124: its time was up), stdout and stderr of a command."""
        environment = {**os.environ, **(variables or {})}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
            )
            try:
                code = process.wait(self.left(seconds, until))
            except subprocess.TimeoutExpired:
                kill(process)
                code = 124
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read(64 << 20).decode("utf-8", "replace"))
        return code, texts[0], texts[1]

    def product(self, *arguments: str) -> tuple[int, str, str]:
        """Run buildmatrix."""
        return self.run([sys.executable, "-m", "buildmatrix", *arguments], 60)

    def probe(self, command: Sequence[str], seconds: float) -> Any:
        """Run a probe as `engines.model.Run` does, by this Python, without our modules."""
        from buildmatrix.engines.model import RunResult

        code, out, err = self.run(
            ["env", "-u", "PYTHONPATH", sys.executable, *command[1:]], seconds
        )
        return RunResult(code, f"{out}\n{err}", timed_out=code == 124)

    @cached_property
    def catalogue(self) -> Any:
        """The product's."""
        from buildmatrix.catalogue.load import load

        return load()

    @cached_property
    def gpus(self) -> list[dict[str, str]]:
        """What nvidia-smi says of each GPU."""
        command = ["nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader,nounits"]
        code, out, err = self.run(command, 20)
        names = ASKED.split(",")
        rows = [[word.strip() for word in row.split(",")] for row in out.splitlines() if row]
        if code or not rows or any(len(row) != len(names) for row in rows):
            raise RuntimeError(f"nvidia-smi: exit code {code}: {(out + err).strip()[-300:]}")
        return [dict(zip(names, row, strict=True)) for row in rows]

    @property
    def arch(self) -> str:
        """Architecture of the first GPU."""
        return f"sm_{self.gpus[0]['compute_cap'].replace('.', '')}"

    @cached_property
    def diagnosis(self) -> dict[str, Any]:
        """What `doctor` says of this machine."""
        code, out, err = self.product("doctor", "--offline", "--format", "json")
        try:
            said: dict[str, Any] = json.loads(out)
        except ValueError:
            raise RuntimeError(f"doctor: exit code {code}: {err.strip()[-300:]}") from None
        self.details["diagnosis"] = said
        return said

    @cached_property
    def clocks(self) -> dict[str, dict[str, float]]:
        """What the programs say that ask frameworks without buildmatrix."""
        said = {}
        for name, program in PROGRAMS.items():
            source = CLOCK + program + "\nprint('said', json.dumps(said))"
            code, out, err = self.run(["env", "-u", "PYTHONPATH", sys.executable, "-c", source], 40)
            text = next((x[5:] for x in out.splitlines() if x.startswith("said ")), None)
            if text is not None:
                said[name] = json.loads(text)
            elif f"No module named '{name}'" not in err:
                last = " ".join(err.split())[-200:]
                self.row(f"{name} by itself", "an answer", f"exit code {code}: {last}", False)
        self.details["clocks"] = said
        return said

    @cached_property
    def device_checks(self) -> tuple[Any, ...]:
        """The checks of the rung `device`."""
        from buildmatrix.preflight.rungs import run_devices

        checks, _ = run_devices(self.probe, BACKEND, self.catalogue, None)
        return checks

    def keep(self, checks: Sequence[Any]) -> None:
        """Keep the checks of a rung for the file."""
        import msgspec

        self.details[self.part] = msgspec.to_builtins(checks)


def doctor(bench: Bench) -> None:
    """Devices, driver, memory, PCI Express and MIG, as nvidia-smi has them."""
    gpus, held = bench.gpus, bench.diagnosis
    own = next((item for item in held["devices"] if item["backend"] == BACKEND), None)
    if own is None:
        bench.row("devices", len(gpus), "none", False)
        return
    checks = {check["id"]: check for check in held.get("node") or ()}
    bench.same("devices", len(gpus), len(own["nodes"]))
    bench.same("products", sorted({gpu["name"] for gpu in gpus}), sorted(own["products"]))
    bench.same("driver", gpus[0]["driver_version"], own["driver"])
    user = checks.get("nvidia-user-driver", {})
    values = sorted({measure["value"] for measure in user.get("measures", ())})
    bench.same("driver of libcuda", [gpus[0]["driver_version"]], values)
    for name in own["products"]:
        entry = product_of(bench, name)
        memory = [gpu["memory.total"] for gpu in gpus if gpu["name"] == name][:1]
        stated = entry.memory if entry else None
        bench.row(
            f"memory of {name}", f"{' '.join(memory)} MiB", f"{stated} (catalogue)",
            bool(memory and stated and same_memory(stated, memory[0])),
        )  # fmt: skip
    for id, what in (
        ("pcie-link-width", lambda gpu: float(gpu["pcie.link.width.current"])),
        ("pcie-link-speed", lambda gpu: SPEEDS[gpu["pcie.link.gen.current"]]),
    ):
        places = {
            measure["place"].split("/")[-2]: measure["number"]
            for measure in checks.get(id, {}).get("measures", ())
        }
        for gpu in gpus:
            # It writes the domain with eight digits, and in capitals.
            address = gpu["pci.bus_id"].lower().removeprefix("0000")
            text = gpu["pcie.link.width.current"], gpu["pcie.link.gen.current"]
            if any(not word.isdecimal() for word in text):
                bench.row(f"{id} {address}", "not told by nvidia-smi", places.get(address), None)
            else:
                bench.same(f"{id} {address}", what(gpu), places.get(address))
    parts = bench.run(["nvidia-smi", "-L"], 20)[1]
    mig = checks.get("nvidia-mig", {})
    bench.same(
        "parts (MIG)", len(re.findall(r"^\s+MIG ", parts, re.M)), len(mig.get("measures", ()))
    )
    bench.row(
        "MIG is looked at", f"mode {gpus[0]['mig.mode.current']}", mig.get("text", "not looked at"),
        bool(mig),
    )  # fmt: skip


def product_of(bench: Bench, name: str) -> Any:
    """What the catalogue says of a device."""
    from buildmatrix.catalogue.drivers import product

    owned = product(name, BACKEND, bench.catalogue)
    return owned.entry if owned else None


def same_memory(stated: str, mebibytes: str) -> bool:
    """Whether a size as the product writes it is that of nvidia-smi."""
    from buildmatrix.matrix.kinds import size

    return abs(int(mebibytes) * 2**20 / size(stated) - 1) <= MEMORY


def node_classes(bench: Bench) -> None:
    """The table that `node-classes import` makes of the doctor's file."""
    file = bench.folder / "doctor.json"
    file.write_text(json.dumps(bench.diagnosis))
    code, out, err = bench.product("node-classes", "import", str(file))
    tables = tomllib.loads(out).get("node-class", {}) if not code else {}
    own = [table for table in tables.values() if table["backend"] == BACKEND]
    if not own:
        bench.row("table", "one for cuda", f"exit code {code}: {err.strip()[-200:]}", False)
        return
    bench.details[bench.part] = tables
    (table, *_), gpu = own, bench.gpus[0]
    bench.same("driver", gpu["driver_version"], table.get("driver", "").lstrip(">=~ "))
    bench.same("count", len(bench.gpus), table.get("count"))
    memory = table.get("memory", "")
    bench.row(
        "memory", f"{gpu['memory.total']} MiB", memory or "none in the table",
        bool(memory) and same_memory(memory, gpu["memory.total"]),
    )  # fmt: skip
    archs = table.get("archs") or [
        arch
        for name in table.get("products", ())
        if (entry := product_of(bench, name))
        for arch in entry.architectures
    ]
    bench.same("architecture, by `archs` or `products`", [bench.arch], list(archs))


def imports(bench: Bench) -> None:
    """What the rung says cannot be imported, and whether Python says so."""
    from buildmatrix.preflight.rungs import run_imports

    began = time.monotonic()
    checks = run_imports(bench.probe, bench.catalogue, BACKEND)
    seconds = time.monotonic() - began
    bench.keep(checks)
    states = [check.state for check in checks]
    number = {state: states.count(state) for state in dict.fromkeys(states)}
    told = ", ".join(f"{count} {state}" for state, count in number.items())
    bench.row("modules", "none undecided", f"{told} in {seconds:.0f} s", "undecided" not in states)
    failed = [check for check in checks if check.state == "failed"]
    for check in failed[:20]:
        module, _, attribute = check.subject.partition(":")
        path = attribute.split(".") if attribute else []
        source = f"import functools, {module}; functools.reduce(getattr, {path!r}, {module})"
        code, _, err = bench.run(
            ["env", "-u", "PYTHONPATH", "-C", "/", sys.executable, "-c", source], 20
        )
        last = (err.strip().splitlines() or [""])[-1]
        absent = "ModuleNotFoundError" in last and repr(module) in last
        right = code != 0 and not absent
        bench.row(check.subject, f"failed: {check.message[:80]}", f"{code}: {last[:100]}", right)
    for check in checks:
        if check.state == "not-run" and "missing_library" in check.values:
            # Here is the driver that it is said to wait for.
            bench.row(check.subject, "imports with a driver", check.message[:150], False)


#: Program of an image without a driver: counts the devices of the one that is put there.
COUNTER = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int count = -1, error;
    if (!driver) { puts(dlerror()); return 1; }
    error = ((int (*)(unsigned)) dlsym(driver, "cuInit"))(0);
    if (!error) error = ((int (*)(int *)) dlsym(driver, "cuDeviceGetCount"))(&count);
    return printf("error %d, %d devices\\n", error, count) < 0;
}
"""


def engine(bench: Bench) -> None:
    """Devices that an image of one program counts in each sandbox, with or without CDI files."""
    from buildmatrix.engines.oci import cdi
    from buildmatrix.engines.oci.nvidia_driver import DEVICE, describe_driver
    from buildmatrix.engines.oci.sandboxes import failure, sandboxes

    made = describe_driver()
    seen = made[DEVICE].driver if made else "no driver"
    bench.same("driver by its files", bench.gpus[0]["driver_version"], seen)
    ways = {"files": made.get(DEVICE)}
    if DEVICE in cdi.offered(cdi.FOLDERS, {}):
        ways["CDI"] = cdi.edits([DEVICE], cdi.FOLDERS, {})
    expected = f"error 0, {len(bench.gpus)} devices"
    usable = [sandbox for sandbox in sandboxes() if failure(sandbox, 10) is None]
    if not usable:
        bench.row("image", expected, "no sandbox works here", None)
    for name, edits in ways.items():
        for sandbox in usable if edits else ():
            said = count_devices(bench.folder / f"{name}-{sandbox.name}", sandbox, edits)
            bench.same(f"image, {name}, {sandbox.name}", expected, said)


def count_devices(folder: Path, sandbox: Any, edits: Any) -> str:
    """What COUNTER prints in a root folder of its own."""
    from buildmatrix.engines.oci import cdi
    from buildmatrix.engines.oci.confinement import Confined
    from buildmatrix.engines.oci.sandboxes import run
    from buildmatrix.engines.oci.unpacking import Identity, add_mount_points

    root = folder / "root"
    for path in (root / "bin", folder / "own"):
        path.mkdir(parents=True)
    (folder / "counter.c").write_text(COUNTER)
    program = root / "bin/counter"
    # Libraries of the C library that libcuda links, too.
    libraries = ("-Wl,--no-as-needed", "-ldl", "-lm", "-lpthread", "-lrt")
    subprocess.run(["gcc", "-o", program, folder / "counter.c", *libraries], check=True)
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for path in re.findall(r"/\S+\.so\S*", listed):
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    add_mount_points(root)
    laid = cdi.lay_out(root, edits)
    confined = Confined(
        root,
        Identity(os.geteuid(), os.getegid(), tuple(cdi.groups(laid))),
        ("/bin/counter",),
        {"PATH": "/bin", "LD_LIBRARY_PATH": ":".join(laid.library_path)},
        folders={inside: Path(here) for inside, here in laid.mounts.items()},
        renamed=laid.nodes,
    )
    return " ".join(run(sandbox, confined, folder / "own", 15, lambda: False).output.split())


def libraries(bench: Bench) -> None:
    """Libraries for different GPUs: the static verdict, and what the GPU does with them."""
    if not bench.compiled:
        bench.row("nvcc", "installed", "not found", None)
        return
    done, late = wait(bench.compiled, bench.left(45))
    if late:
        bench.row("compiled in time", len(bench.compiled), len(done), False)
    made = []
    for item in (future.result() for future in bench.compiled if future in done):
        if item.error:
            known = not re.search(r"[Uu]nsupported gpu architecture", item.error)
            bench.row(item.library.name, "compiles", item.error[-150:], False if known else None)
        else:
            made.append(item)
    archs = sorted({"sm_80", "sm_90", "sm_100", bench.arch})
    static = verdicts(bench.folder, archs, bench.run, 30)
    with ThreadPoolExecutor(4) as pool:
        ran = list(pool.map(lambda item: seen(item, bench.run, 20), made))
    for item, (how, codes) in zip(made, ran, strict=True):
        said = static.get(item.path.name, {})
        expected = said.get(bench.arch, "nothing said")
        told = how if how == expected else f"{how} (codes {codes})"
        bench.row(item.library.name, expected, told, how == expected)
    bench.details[bench.part] = {
        item.path.name: {"objects": item.library.objects, "scan": static.get(item.path.name),
                         "gpu": how, "codes": codes}
        for item, (how, codes) in zip(made, ran, strict=True)
    }  # fmt: skip


def process(bench: Bench) -> None:
    """A process of torch: libraries, their owners and devices, as /proc and importlib have them."""
    command = ["env", "-u", "PYTHONPATH", sys.executable, "-c", HOLDER]
    with (
        tempfile.TemporaryFile() as err,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True
        ) as holder,
    ):
        try:
            assert holder.stdout is not None
            with ThreadPoolExecutor(1) as pool:
                ready = pool.submit(holder.stdout.readline)
                try:
                    answer = ready.result(bench.left(30))
                except TimeoutError:
                    kill(holder)
                    answer = ready.result()
            if answer.strip() != "ready":
                err.seek(0)
                last = err.read().decode("utf-8", "replace").strip()[-200:]
                bench.row("torch", "holds the device", f"does not: {last}", False)
                return
            compare_process(bench, holder.pid)
        finally:
            kill(holder)


def compare_process(bench: Bench, pid: int) -> None:
    """Compare `doctor --process` of a process with its maps."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    code, out, err = bench.product("doctor", "--process", str(pid), "--format", "json")
    if not out:
        bench.row("doctor", "an answer", f"exit code {code}: {err.strip()[-200:]}", False)
        return
    held = json.loads(out)["process"]
    bench.details[bench.part] = held
    rows = [row.split(None, 5) for row in maps.splitlines()]
    paths = {row[5] for row in rows if len(row) == 6 and row[5].startswith("/")}
    told = {library["path"]: library for library in held["libraries"]}
    wanted = sorted(path for path in paths if VENDOR.fullmatch(path.rpartition("/")[2]))
    lost = [path for path in wanted if path not in told]
    bench.row(
        "libraries of the vendor", f"{len(wanted)} in /proc/PID/maps",
        f"{len(told)}, {len(lost)} of those not: {', '.join(lost)}" if lost else f"{len(told)}",
        not lost and bool(wanted),
    )  # fmt: skip
    nodes = sorted(path for path in paths if path.startswith("/dev/nvidia"))
    bench.row(
        "devices", " ".join(nodes), " ".join(held["devices"]), set(nodes) <= set(held["devices"])
    )
    owners = {}
    for distribution in metadata.distributions():
        name = f"{plain(distribution.metadata['Name'])} {distribution.version}"
        for file in distribution.files or ():
            if ".so" in file.name:
                owners[os.path.realpath(str(distribution.locate_file(file)))] = name
    wrong = []
    for path, library in told.items():
        name, _, version = library["distribution"].rpartition(" ")
        own = f"{plain(name)} {version}" if version else ""
        if own != owners.get(path, ""):
            wrong.append(f"{path}: {own or 'nobody'}, not {owners.get(path, 'nobody')}")
    owned = sum(path in owners for path in told)
    bench.row(
        "owners", f"{owned} of {len(told)} by importlib",
        "; ".join(wrong) or "the same", not wrong and bool(owned),
    )  # fmt: skip


def plain(name: str) -> str:
    """A name of a distribution in its usual form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def device(bench: Bench) -> None:
    """Whether each framework sees the devices that it says it sees when asked without us."""
    bench.keep(bench.device_checks)
    machine = [check for check in bench.device_checks if " " not in check.subject]
    for name, said in bench.clocks.items():
        number = int(said["devices"])
        own = [c for c in bench.device_checks if c.subject.startswith(f"{name} ")]
        passed = sum(check.state == "passed" for check in own)
        whole = next((check for check in machine if check.subject == name), None)
        if number:
            bench.row(name, f"{number} passed", f"{passed} passed" if own else f"{whole}",
                      passed == number)  # fmt: skip
        else:
            state = whole.state if whole else "nothing said"
            bench.row(f"{name}, a CPU build", "not-run", state, state == "not-run")
            bench.row(f"{name} says", "", whole.message if whole else "", None)
    known = set(bench.clocks)
    for check in bench.device_checks:
        if check.subject.partition(" ")[0] not in known:
            state = f"{check.state}: {check.message[:120]}"
            ok = None if check.state == "not-run" and check.subject != "machine" else False
            bench.row(check.subject, "passed", state, check.state == "passed" or ok)


def compute(bench: Bench) -> None:
    """Rates of products and copies, beside those of programs without us and of torch."""
    from buildmatrix.preflight.rungs import run_compute, select_seen_devices

    devices = select_seen_devices(bench.device_checks)
    checks, why = run_compute(bench.probe, BACKEND, bench.catalogue, devices)
    bench.keep(checks)
    if why:
        bench.row("rung", "runs", why, False)
    rates: dict[tuple[str, str], float] = {}
    for check in checks:
        name, _, type = check.subject.partition(" ")
        type = type.rpartition(" ")[2]
        if check.state == "not-run":
            bench.row(check.subject, "", check.message[:150], None)
            continue
        is_copy = type == "memory"
        rate = check.values.get("gbps" if is_copy else "tflops")
        own = bench.clocks.get(name, {}).get(type)
        size = check.values.get("size")
        told = f"{check.state}: {check.message[:150]}"
        big = is_copy or (isinstance(size, int) and size >= LEAST)
        near = own is None or (isinstance(rate, float) and 1 / FACTOR <= rate / own <= FACTOR)
        unit = "GB/s" if is_copy else f"TFLOP/s, {LEAST} rows or more"
        expected = f"{own:.4g} {unit}" if own else f"a rate, {unit}"
        bench.row(check.subject, expected, told, check.state == "passed" and big and near)
        if isinstance(rate, float):
            rates.setdefault((name, type), rate)
    for (name, type), rate in rates.items():
        best = rates.get(("torch", type))
        if name != "torch" and best:
            bench.row(
                f"{name} {type} beside torch", f"at least {1 / SLOWER:g} times",
                f"{rate / best:.2f}", rate / best >= 1 / SLOWER,
            )  # fmt: skip


def memory(bench: Bench) -> None:
    """Memory of the machine and of the device is taken and comes back."""
    from buildmatrix.preflight.rungs import run_memory

    checks, why = run_memory(bench.probe, BACKEND, bench.catalogue)
    bench.keep(checks)
    if why:
        bench.row("rung", "runs", why, False)
    total = float(bench.gpus[0]["memory.total"]) * 2**20
    for check in checks:
        told = f"{check.state}: {check.message[:150]}"
        if check.subject == "container" or check.state == "not-run":
            ok = None if check.state == "not-run" else check.state == "passed"
            bench.row(check.subject, "passed", told, ok)
            continue
        # Half of what is free; jax has three quarters of a device.
        taken = check.values.get("taken_bytes")
        part = taken / total if isinstance(taken, int | float) else 0.0
        expected = f"30 to 55 % of {total / 2**30:.1f} GiB"
        bench.row(check.subject, expected, told, check.state == "passed" and 0.3 <= part <= 0.55)


def cold_start(bench: Bench) -> None:
    """Each framework with a device answers from a new process."""
    from buildmatrix.preflight.cold_start import run_cold_start

    checks = run_cold_start(bench.probe, 1, BACKEND, bench.catalogue, (), is_within=True)
    bench.keep(checks)
    started = {check.subject.partition(" ")[0] for check in checks if check.state == "passed"}
    for name, said in bench.clocks.items():
        if said["devices"]:
            bench.row(
                f"{name} starts", "passed", "passed" if name in started else "not", name in started
            )
    for check in checks:
        ok = None if check.state in ("passed", "not-run") else False
        bench.row(check.subject, "", f"{check.state}: {check.message[:170]}", ok)


PARTS: dict[str, Callable[[Bench], None]] = {
    "doctor": doctor, "node-classes": node_classes, "import": imports, "libraries": libraries,
    "engine": engine, "process": process, "device": device, "compute": compute, "memory": memory,
    "cold-start": cold_start,
}  # fmt: skip


def line(row: Row) -> str:
    """A row of the table."""
    ok = {True: "ok", False: "NO", None: "note"}[row.ok]
    return f"{row.part:<13}{row.check[:32]:<33}{row.expected[:32]:<33}{ok:<5}{row.seen[:200]}"


def run_part(bench: Bench, name: str) -> None:
    """Run one part within its time; what breaks is a row."""
    began = time.monotonic()
    bench.part = name
    bench.part_until = min(bench.until, began + PARTS_S[name])
    if bench.until - began < 3:
        bench.row("part", "time for it", f"none left of {ALL_S} s", False)
        return
    try:
        PARTS[name](bench)
    except Exception as error:
        traceback.print_exc()
        bench.row("part", "runs to its end", f"{type(error).__name__}: {error}"[:300], False)
    seconds = round(time.monotonic() - began, 1)
    bench.details.setdefault("seconds", {})[name] = seconds
    own = [row for row in bench.rows if row.part == name]
    wrong = sum(row.ok is False for row in own)
    print(f"{name}: {len(own)} rows, {wrong} disagree, in {seconds} s", flush=True)
    if out := os.environ.get("OUT"):
        # What comes later may take the machine with it.
        write(bench, Path(out) / "gpu.json")


@contextmanager
def compiling(bench: Bench) -> Iterator[None]:
    """Make the libraries while other parts run."""
    compiler = nvcc()
    (bench.folder / "libs").mkdir()
    run = partial(bench.run, until=bench.until)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        if compiler is not None:
            bench.compiled += [
                pool.submit(make, library, compiler, bench.folder, run, 60) for library in LIBRARIES
            ]
        try:
            yield
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def main() -> int:
    """Run the parts, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if shutil.which("nvidia-smi") is None:
        parser.error("nvidia-smi is not installed: this machine has no NVIDIA GPU to compare with")
    # bench/html.py is not what others mean by `html`.
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    began = time.monotonic()
    parts = [name for name in PARTS if name in (options.parts or PARTS)]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), began + ALL_S)
        if "libraries" in parts:
            with compiling(bench):
                for name in parts:
                    run_part(bench, name)
        else:
            for name in parts:
                run_part(bench, name)
    wrong = [row for row in bench.rows if row.ok is False]
    print(f"\n{'part':<13}{'check':<33}{'expected':<33}{'ok':<5}seen")
    for row in bench.rows:
        print(line(row))
    with suppress(Exception):
        gpu = bench.gpus[0]
        print(f"\n{gpu['name']}, driver {gpu['driver_version']}, {datetime.now(UTC):%Y-%m-%d}")
    seconds = time.monotonic() - began
    print(f"{len(bench.rows)} rows, {len(wrong)} disagree, in {seconds:.0f} s")
    return 1 if wrong else 0


def write(bench: Bench, path: Path) -> None:
    """Write everything to a file."""
    versions = {}
    for name in ("torch", "jax", "cupy-cuda13x", "cupy-cuda12x", "onnxruntime", "triton"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    with suppress(Exception):
        bench.details["gpus"] = bench.gpus
    document = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": versions,
        "rows": [asdict(row) for row in bench.rows],
        "details": bench.details,
    }
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")


if __name__ == "__main__":
    sys.exit(main())
