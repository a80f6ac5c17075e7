"""Allocate device memory in steps, write to all of it, release it, and repeat.

Runs inside an image, by the image's Python, 3.8 or newer. Device memory is allocated by the
frameworks; container memory by this file itself, within its limit. See
`preflight.protocol` for the output.
"""

from __future__ import annotations

import gc
import mmap
import os
import time
from collections.abc import Callable
from typing import Any

from buildmatrix.preflight.probes.bounded import (
    Emit,
    ask_each,
    compute_memory_limit,
    measure_container_memory,
    measure_resident,
    read_options,
    report,
    run,
)
from buildmatrix.preflight.probes.frameworks import first_line, select_devices
from buildmatrix.preflight.probes.runtimes import FRAMEWORKS

#: Steps of the allocation; share of the memory that may stay with the process.
STEPS, STAYS = 8, 0.1


def take_twice(
    subject: str,
    target: int,
    take: Callable[[int], Any],
    release: Callable[[], None],
    free: Callable[[], int | None],
    emit: Emit,
    values: dict[str, Any],
) -> None:
    """Allocate `target` bytes twice, which checks that they were released in between."""
    step = target // STEPS
    before = free()
    fastest = 0.0
    for turn in ("first", "second"):
        held: list[Any] = []
        try:
            for _ in range(STEPS):
                began = time.perf_counter()
                held.append(take(step))
                seconds = time.perf_counter() - began
                fastest = max(fastest, step / seconds / 1e9)
        except Exception as error:
            taken = len(held) * step
            message = f"{taken >> 20} of {target >> 20} MiB the {turn} time: {first_line(error)}"
            emit(subject=subject, state="failed", message=message, taken_bytes=taken, **values)
            return
        finally:
            held.clear()
            gc.collect()
            release()
    after = free()
    values.update(taken_bytes=step * STEPS, steps=STEPS, touch_gbps=round(fastest, 3))
    message = f"{step * STEPS >> 20} MiB taken twice and given back"
    state = "passed"
    if before is not None and after is not None:
        values.update(lost_bytes=max(0, before - after))
        if before - after > STAYS * target:
            state, message = (
                "failed",
                f"{before - after >> 20} of {target >> 20} MiB did not return",
            )
    emit(subject=subject, state=state, message=message, **values)


def take_container_memory(emit: Emit) -> None:
    """Test memory of the container, which is the host's."""
    limits = read_options()
    limit, free = measure_container_memory()
    target = min(int(limits["share"] * min(limit, free)), limits["most"])

    def take(count: int) -> mmap.mmap:
        if measure_container_memory()[1] < (1 - limits["share"]) * free / 2:
            raise MemoryError("other processes took the remaining free memory")
        taken = mmap.mmap(-1, count)
        for page in range(0, count, mmap.PAGESIZE):
            taken[page] = 1
        return taken

    take_twice(
        "container",
        target,
        take,
        lambda: None,
        # Memory that this process does not use counts as free.
        lambda: limit - measure_resident(os.getpid()),
        emit,
        {"total_bytes": limit, "free_bytes": free},
    )


def ask(name: str, question: dict[str, Any], emit: Emit) -> None:
    """Test memory of a framework's devices of the backend."""
    framework = FRAMEWORKS[name](question["kinds"], question["imports"])
    devices = select_devices(framework.devices(), question["wanted"])
    emit(devices=[device.id for device in devices])
    for device in devices:
        share, most = read_options()["share"], read_options()["most"]
        available = framework.free(device) or device.memory
        if device.is_host:
            # Host memory, whatever size the device reports.
            available = min(available or compute_memory_limit(), compute_memory_limit(), most)
        if not available:
            continue
        framework_free: Callable[[], int | None] = lambda: framework.free(device)  # noqa: B023, E731
        try:
            kept = framework.fill(device, 1 << 20)
        except Exception as error:
            emit(subject=f"{name} {device.id}", state="failed", message=first_line(error))
            continue
        if kept is None:
            continue
        take_twice(
            f"{name} {device.id}",
            int(share * available),
            lambda count: framework.fill(device, count),  # noqa: B023
            lambda: framework.release(device),  # noqa: B023
            framework_free,
            emit,
            {"total_bytes": device.memory},
        )


def main() -> None:
    """Test the container first, then the devices of each framework."""
    limits = read_options()
    began = time.monotonic()
    ended = run(take_container_memory, limits["seconds"], compute_memory_limit())
    for answer in ended.answers:
        report(**answer)
    if ended.why:
        report("container", "failed", f"taking memory {ended.account}", time.monotonic() - began)
    for name, seconds, ended in ask_each(FRAMEWORKS, ask):
        for answer in ended.answers:
            if "subject" in answer:
                report(**answer)
        if ended.why:
            report(name, "failed", f"taking memory with it {ended.account}", seconds)


if __name__ == "__main__":
    main()
