"""Report the devices visible to the container and to each installed framework.

Runs inside an image, by the image's Python, 3.8 or newer. Each framework is queried in its own
process. See `preflight.protocol` for the output.
"""

from __future__ import annotations

import os
import platform
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from buildmatrix.preflight.probes.bounded import (
    Emit,
    ask_each,
    measure_container_memory,
    read_options,
    report,
)
from buildmatrix.preflight.probes.runtimes import FRAMEWORKS

#: Nodes, libraries and characters of them that are reported.
MOST, LONGEST = 256, 40_000


def read_text(path: str) -> str:
    """Return the content of a file; empty if missing or unreadable."""
    try:
        with Path(path).open("rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def list_nodes(host: dict[str, Any]) -> list[str]:
    """Return the device nodes that a container sees of one kind of host (`[[hosts]]`)."""
    paths = []
    for pattern in host["nodes"]:
        for node in sorted(Path("/").glob(pattern.lstrip("/")))[:MOST]:
            vendor = read_text(f"{host['sysfs']}/{node.name}/device/vendor").strip()
            # Docker creates a folder in place of a missing node that it was to pass in.
            if not node.is_dir() and (not host["vendor"] or vendor == host["vendor"]):
                paths.append(str(node))
    return paths


def list_drivers(host: dict[str, Any]) -> list[str]:
    """Return `MODULE VERSION` of the drivers, from the kernel or their own files."""
    said = [
        f"{name} {read_text(f'/sys/module/{name}/version').strip()}".strip()
        for name in host["modules"]
        if Path(f"/sys/module/{name}").is_dir()
    ]
    for path in host["version_files"]:
        match = re.search(host["version"], read_text(path))
        if match:
            said.append(f"{path} {match.group(1)}")
    return said


def report_machine(question: dict[str, Any]) -> None:
    """Report the machine as seen by the container."""
    seen: list[str] = []
    missing: list[str] = []
    unusable: list[str] = []
    versions: list[str] = []
    for host in question["hosts"]:
        here = list_nodes(host)
        seen += [node for node in here if node not in seen]
        versions += [version for version in list_drivers(host) if version not in versions]
        if here:
            needed = [*here, *host["needs"]]
            missing += [node for node in host["needs"] if not Path(node).exists()]
            unusable += [
                node
                for node in needed
                if Path(node).exists() and not os.access(node, os.R_OK | os.W_OK)
            ]
    limit, free = measure_container_memory()
    report(
        "machine",
        "passed",
        nodes=seen,
        missing_nodes=missing,
        unusable_nodes=unusable,
        drivers=versions,
        environment=[
            f"{name}={value}"[:500]
            for name, value in sorted(os.environ.items())
            if any(fnmatchcase(name, pattern) for pattern in question["environment"])
        ],
        memory_bytes=limit,
        memory_free_bytes=free,
        kernel=platform.release(),
        architecture=platform.machine(),
        **read_processor(),
    )


def read_processor() -> dict[str, Any]:
    """Return the CPU, and the part of it available to this process."""
    model, flags = "", ""
    for line in read_text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware"):
            model = model or value.strip()
        elif name.strip() in ("flags", "Features"):
            flags = flags or value.strip()
        if model and flags:
            break
    return {"cpu": model, "cpus": len(os.sched_getaffinity(0)), "cpu_flags": flags}


def list_libraries() -> list[str]:
    """Return the shared objects mapped by this process, without Python extension modules."""
    paths = {line.partition("/")[2] for line in read_text("/proc/self/maps").splitlines()}
    shared = re.compile(r"\.so(\.[0-9.]+)?( \(deleted\))?\Z")
    paths = {f"/{p}" for p in paths if shared.search(p) and ".cpython-" not in p}
    kept, size = [], 0
    for path in sorted(paths):
        size += len(path)
        if size > LONGEST:
            break
        kept.append(path)
    return kept


def ask(name: str, question: dict[str, Any], emit: Emit) -> None:
    """Query one framework."""
    framework = FRAMEWORKS[name](question["kinds"], question["imports"])
    emit(version=framework.version)
    devices = framework.devices()[:MOST]
    emit(
        build=framework.build,
        reason=framework.reason,
        ids=[device.id for device in devices],
        kinds=[device.kind for device in devices],
        names=[device.name for device in devices],
        memory_bytes=[float(device.memory) for device in devices],
        libraries=list_libraries(),
    )


def main() -> None:
    """Examine the machine, then query each installed framework."""
    report_machine(read_options())
    for name, seconds, ended in ask_each(FRAMEWORKS, ask):
        values = {key: value for answer in ended.answers for key, value in answer.items()}
        state = "passed" if "ids" in values and not ended.why else "failed"
        message = f"asking it for its devices {ended.account}" if state == "failed" else ""
        report(name, state, message, seconds, **values)


if __name__ == "__main__":
    main()
