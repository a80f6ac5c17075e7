"""Start a framework, compute twice, and list the files it wrote.

Locally each container runs one start. In a pod one container runs all of them, each in its own
process with an empty home folder.

Runs inside an image, by the image's Python, 3.8 or newer. See `preflight.protocol` for the
output.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from buildmatrix.preflight.probes.bounded import compute_memory_limit, read_options, report, run
from buildmatrix.preflight.probes.frameworks import first_line, select_devices
from buildmatrix.preflight.probes.runtimes import FRAMEWORKS

#: Time at which the container and its interpreter had started.
STARTED = time.monotonic()
#: Files examined, and folders of them reported.
MOST_FILES, MOST_FOLDERS = 20_000, 200
#: Rows of the square matrices.
ROWS = 64


def find_written(before: dict[str, tuple[int, int]]) -> dict[str, float]:
    """Map folders to the bytes of their files that are new or changed since `before`."""
    sizes: dict[str, float] = {}
    for path, state in list_files().items():
        folder = str(Path(path).parent)
        if before.get(path) != state and (folder in sizes or len(sizes) < MOST_FOLDERS):
            sizes[folder] = sizes.get(folder, 0) + state[0]
    return sizes


def list_files() -> dict[str, tuple[int, int]]:
    """Map files below cache locations to their size and modification time."""
    named = (os.environ.get(name, "") for name in read_options()["variables"])
    tops = [str(Path.home()), "/tmp", "/var/tmp", *named]  # noqa: S108 - looked at, not used
    status_of: dict[str, tuple[int, int]] = {}
    for top in dict.fromkeys(filter(os.path.isabs, tops)):
        for folder, _, names in os.walk(top):
            if len(status_of) > MOST_FILES:
                return status_of
            for name in names:
                path = f"{folder}/{name}"
                with contextlib.suppress(OSError):
                    status = os.lstat(path)
                    status_of[path] = status.st_size, status.st_mtime_ns
    return status_of


def read_boot_id() -> str:
    """Return the id of the kernel's boot: processes with the same id share its clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start(name: str, started: float, say: Callable[..., None]) -> None:
    """Import a framework, and compute on its first device of the backend."""
    question: dict[str, Any] = read_options()["frameworks"][name]
    before = list_files()
    began = time.monotonic()
    framework = FRAMEWORKS[name](question["kinds"], question["imports"])
    imported = time.monotonic()
    devices = select_devices(framework.devices(), question["wanted"])
    types = framework.types(devices[0]) if devices else ()
    if not devices or not types:
        why = "sees no device for it" if not devices else "has no product of its own"
        say(state="not-run", message="; ".join(filter(None, (why, framework.reason))))
        return
    device = devices[0]
    job = framework.product(device, types[0], ROWS)
    where = job.where(job.run())
    answered = time.monotonic()
    job.run()
    again = time.monotonic()
    fell_back = where != device.id
    say(
        state="failed" if fell_back else "passed",
        message=f"was computed on {where or 'an unknown device'}, and not on {device.id}"
        if fell_back
        else "",
        device=" ".join(filter(None, (device.id, device.name))),
        started=started,
        answered=answered,
        boot_id=read_boot_id(),
        import_s=imported - began,
        first_call_s=answered - imported,
        later_call_s=again - answered,
        written=find_written(before),
    )


def start_in_new_home(name: str, emit: Callable[..., None]) -> None:
    """Start a framework without the caches of earlier starts."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, TMPDIR=home)
        start(name, started, emit)


def start_each(names: list[str]) -> None:
    """Start each framework repeatedly, until one does not answer."""
    for name in names:
        began = time.monotonic()
        for number in range(read_options()["times"]):
            if number and time.monotonic() - began > read_options()["budget"]:
                break
            ended = run(
                partial(start_in_new_home, name), read_options()["seconds"], compute_memory_limit()
            )
            if not ended.answers:
                report(name, "failed", f"start {number + 1}: {ended.account}")
                break
            answer = ended.answers[0]
            report(name, **answer)
            if answer["state"] != "passed":
                break


def main() -> None:
    """Report the installed frameworks, and start one, or each several times."""
    name = read_options().get("start")
    if name is None:
        names = [name for name in read_options()["frameworks"] if importlib.util.find_spec(name)]
        # Others need numpy, too, and make its own time irrelevant.
        names = names if len(names) == 1 else [name for name in names if name != "numpy"]
        report("frameworks", "passed", names=names)
        if read_options().get("times"):
            start_each(names)
        return
    try:
        start(name, STARTED, partial(report, name))
    except BaseException as error:
        report(name, "failed", first_line(error))
        raise


if __name__ == "__main__":
    main()
