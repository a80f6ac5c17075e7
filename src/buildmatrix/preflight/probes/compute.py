"""Multiply matrices and copy memory with each framework, on each device of the backend.

Runs inside an image, by the image's Python, 3.8 or newer. Each framework computes in its own
process. See `preflight.protocol` for the output.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from buildmatrix.preflight.probes.bounded import Emit, ask_each, read_options, report
from buildmatrix.preflight.probes.frameworks import (
    UNIT,
    Device,
    Framework,
    compute_exact,
    first_line,
    select_devices,
)
from buildmatrix.preflight.probes.runtimes import FRAMEWORKS

#: Largest relative error, as a share of the largest compared number: rounding of the result to the
#: type, and of sums kept in the type.
TOLERANCES = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 4e-2, "int8": 0.0}
#: Rows of the first and the largest product; bytes of the first and the largest copy.
FIRST, LARGEST = 256, 8_192
#: Rows below which a product does not show the speed of a device with memory of its own.
LEAST = 4_096
FIRST_COPY, LARGEST_COPY = 16 << 20, 1 << 30
#: Minimum seconds of one repetition, and repetitions for the median.
LONG_ENOUGH, REPETITIONS = 0.02, 7
#: Numbers of a product that are compared.
COMPARED = 48
#: Error texts for an unsupported type.
UNSUPPORTED = ("not implemented", "not support", "unsupported", "unimplemented", "has no attribute")


def measure_median(run: Callable[[], Any], until: float) -> tuple[float, int]:
    """Return the median time of a run in seconds, and the number of runs in the given time."""
    times: list[float] = []
    while len(times) < REPETITIONS and (not times or time.monotonic() < until):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times), len(times)


def measure_product(framework: Framework, device: Device, type: str, emit: Emit) -> None:
    """Check a small product, then find a size that takes long enough for timing."""
    subject = f"{framework.module} {device.id} {type}"
    tolerance = TOLERANCES[type]
    began = time.perf_counter()
    try:
        job = framework.product(device, type, FIRST)
        result = job.run()
    except Exception as error:  # Whatever a framework raises.
        text = first_line(error)
        lacks = type != "float32" and any(word in text.lower() for word in UNSUPPORTED)
        emit(subject=subject, state="not-run" if lacks else "failed", message=text)
        return
    cold = time.perf_counter() - began
    where = job.where(result)
    unit = 1 if type == "int8" else UNIT * UNIT
    places = [(at * 89 % FIRST, at * 57 % FIRST) for at in range(COMPARED)]
    right = [compute_exact(row, column, FIRST) / unit for row, column in places]
    got = [job.read(result, row, column) for row, column in places]
    scale = max(abs(number) for number in right)
    wrong = max(abs(number - right[at]) for at, number in enumerate(got)) / scale
    values: dict[str, Any] = {
        # JSON cannot represent non-finite numbers.
        "max_error": wrong if math.isfinite(wrong) else str(wrong),
        "tolerance": tolerance,
        "cold_seconds": round(cold, 6),
        "device": where,
    }
    message = ""
    if where != device.id:
        message = f"was computed on {where or 'an unknown device'}, and not on {device.id}"
    # Comparisons with NaN are False.
    elif not wrong <= tolerance:
        message = f"is wrong by {wrong:.2g} of its greatest number; {tolerance:g} is allowed"
    if message:
        emit(subject=subject, state="failed", message=message, **values)
        return
    until = time.monotonic() + read_options()["each"]
    least = FIRST if device.is_host else LEAST
    size, (seconds, count) = FIRST, measure_median(job.run, until)
    while (seconds < LONG_ENOUGH or size < least) and size < LARGEST and time.monotonic() < until:
        size *= 2
        began = time.monotonic()
        job = framework.product(device, type, size)
        # Some frameworks compile each size, which is not part of the timing.
        job.run()
        until += time.monotonic() - began
        seconds, count = measure_median(job.run, until)
    values.update(size=size, median_seconds=round(seconds, 6), repetitions=count)
    message = f"right; too slow to be timed with {LEAST} rows"
    if size >= least:
        tflops = 2 * size**3 / seconds / 1e12
        values["tflops"] = round(tflops, 6)
        message = f"{tflops:.3g} TFLOP/s with {size} rows"
    emit(subject=subject, state="passed", message=message, **values)


def measure_bandwidth(framework: Framework, device: Device, emit: Emit) -> None:
    """Copy device memory in growing sizes, until that takes long enough for timing."""
    subject = f"{framework.module} {device.id} memory"
    until = time.monotonic() + read_options()["each"]
    count, cold = FIRST_COPY, 0.0
    largest = min(LARGEST_COPY, read_options()["copy"] if device.is_host else LARGEST_COPY)
    try:
        while True:
            run = framework.copy(device, count)
            if run is None:
                return
            began = time.perf_counter()
            run()
            cold = cold or time.perf_counter() - began
            seconds, repetitions = measure_median(run, until)
            if seconds >= LONG_ENOUGH or count >= largest or time.monotonic() >= until:
                break
            count *= 2
            # Frees its memory before more is taken.
            run = None
    except Exception as error:
        emit(subject=subject, state="failed", message=first_line(error))
        return
    # Each byte is read once and written once.
    gbps = 2 * count / seconds / 1e9
    emit(
        subject=subject,
        state="passed",
        message=f"{gbps:.3g} GB/s",
        bytes=count,
        cold_seconds=round(cold, 6),
        median_seconds=round(seconds, 6),
        repetitions=repetitions,
        gbps=round(gbps, 3),
    )


def ask(name: str, question: dict[str, Any], emit: Emit) -> None:
    """Compute with one framework on all its devices of the backend."""
    framework = FRAMEWORKS[name](question["kinds"], question["imports"])
    devices = select_devices(framework.devices(), question["wanted"])
    emit(devices=[device.id for device in devices], reason=framework.reason)
    for device in devices:
        types = framework.types(device)
        for type in types:
            measure_product(framework, device, type, emit)
        if types:
            measure_bandwidth(framework, device, emit)
        framework.release(device)


def main() -> None:
    """Compute with each installed framework."""
    for name, seconds, ended in ask_each(FRAMEWORKS, ask):
        measured = [answer for answer in ended.answers if "subject" in answer]
        for answer in measured:
            report(**answer)
        if ended.why:
            report(name, "failed", f"computing with it {ended.account}", seconds)
        elif not measured:
            first: dict[str, Any] = ended.answers[0] if ended.answers else {}
            why = "has no product of its own" if first.get("devices") else "sees no device for it"
            message = "; ".join(part for part in (why, str(first.get("reason") or "")) if part)
            report(name, "not-run", message, seconds, devices=first.get("devices") or [])


if __name__ == "__main__":
    main()
