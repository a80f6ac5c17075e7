"""A fake container engine: an image is a folder, and "building" is reading that folder.

Its settings are a JSON file in the working folder, so that a case file can write them:

    {"fails": [TARGET], "interrupts": [TARGET], "roots": {TARGET: FOLDER}, "smoke": {TARGET: CODE},
     "refuses": [TARGET], "runs_nothing": WHY, "waits": [TARGET], "lacks": {TARGET: LIBRARY},
     "builders": [BUILDER], "dies": {BUILDER: TARGET},
     "push_fails": [TARGET], "unreachable": [TARGET], "raises": TEXT}

What "waits" builds until it is cancelled, and what "fails" does so once all of those have begun.
A builder that "dies" does so with that target and with all after it, or with all for "*".
Where it "runs_nothing", that says what to install.
Where a target "lacks" a library, what the probes of `preflight` import fails; all else passes.
Every target has `roots/TARGET` as its root file system unless `roots` names another folder. The
scanner that buildmatrix generated reads it, in a process of its own, as it would in a builder.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from golden_archives import saved_image
from golden_registry import FileRegistry

from buildmatrix.base.errors import (
    BuildError,
    BuildmatrixError,
    ComponentError,
    Interrupted,
    UsageError,
)
from buildmatrix.base.progress import Progress
from buildmatrix.engines.model import (
    BuildJob,
    BuildOutcome,
    Facilities,
    ImageFacts,
    Pushed,
    Run,
    RunResult,
    Surroundings,
)
from buildmatrix.net.registry_mirrors import Reference

SETTINGS = "engine.json"
#: Remembers images between commands: reference → root folder.
_IMAGES = ".fake-images.json"
#: Seconds until a test that should have been interrupted fails.
_PATIENCE = 300


class FakeEngine:
    """Does what `buildmatrix.engines.model.Engine` asks for, with folders in place of images."""

    name = "docker"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings: Mapping[str, Any] = json.loads((folder / SETTINGS).read_text())
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._waiting = threading.Semaphore(0)

    def _told(self, setting: str, target: str) -> bool:
        return target in self._settings.get(setting, ())

    def check(self, builder: str | None = None) -> str:
        if "missing" in self._settings:
            raise ComponentError(self._settings["missing"])
        if builder not in self._settings.get("builders", (builder,)):
            raise UsageError(f"there is no builder {builder!r}; `docker buildx ls` lists those")
        return "docker 28.5.2, buildx v0.29.1"

    def facilities(self) -> Facilities:
        return Facilities(("runc",), None)

    def refusals(self, jobs: Sequence[BuildJob]) -> Mapping[str, BuildmatrixError]:
        return {
            job.id: BuildError("this engine builds no such thing")
            for job in jobs
            if self._told("refuses", job.id)
        }

    def build(self, job: BuildJob, surroundings: Surroundings, progress: Progress) -> BuildOutcome:
        if "raises" in self._settings:
            raise RuntimeError(self._settings["raises"])
        progress.step(job.id, "building")
        job.log.parent.mkdir(parents=True, exist_ok=True)
        job.log.write_text(f"fake build of {job.id}\n")
        if self._settings.get("dies", {}).get(job.builder) in (job.id, "*"):
            self._settings["dies"][job.builder] = "*"
            raise ComponentError("the connection to the builder broke off while it worked")
        if self._told("interrupts", job.id):
            # Ctrl-C arrives at the main thread, and wakes it from its wait.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self._until_cancelled()
        if self._told("waits", job.id):
            self._waiting.release()
            self._until_cancelled()
        if self._told("fails", job.id):
            for _ in self._settings.get("waits", ()):
                assert self._waiting.acquire(timeout=_PATIENCE), "nobody began the other build"
            raise BuildError("RUN pip install failed with exit code 1", log=job.log)
        root = self._folder / self._settings.get("roots", {}).get(job.id, f"roots/{job.id}")
        inventory = job.scan_output / "inventory.json"
        job.scan_output.mkdir(parents=True, exist_ok=True)
        scanner = job.bake_file.parent / "scan/scan.pyz"
        subprocess.run([sys.executable, "-I", scanner, root, inventory], check=True)
        digest = _digest(root)
        self._remember({job.staged or job.tags[0]: root.name})
        return BuildOutcome(job.id, digest, inventory, 1.5, digest, True, {"PATH": "/opt/venv/bin"})

    def _until_cancelled(self) -> None:
        assert self._cancelled.wait(_PATIENCE), "nobody cancelled the build"
        raise Interrupted("interrupted")

    def release(self, staged: str, tags: Sequence[str]) -> None:
        images = self._images()
        self._remember(dict.fromkeys(tags, images[staged]))

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        pass

    def image(self, reference: str) -> ImageFacts | None:
        root = self._root(reference)
        if root is None:
            return None
        _, layers, history = saved_image(root)
        digest = _digest(root)
        return ImageFacts(digest, {"PATH": "/opt/venv/bin"}, {}, 1000, "app", history, layers)

    def present(self, references: Sequence[str]) -> Mapping[str, str]:
        images = self._images()
        return {
            one: _digest(self._folder / "roots" / images[one])
            for one in references
            if one in images
        }

    def unreachable(self, references: Sequence[str], builder: str | None) -> Mapping[str, str]:
        return {
            reference: "connection refused"
            for reference in references
            if any(name in reference for name in self._settings.get("unreachable", ()))
        }

    def push(
        self,
        jobs: Sequence[BuildJob],
        surroundings: Surroundings,
        progress: Progress,
        *,
        tagged: bool = True,
    ) -> Pushed:
        pushed: dict[str, str] = {}
        for job in jobs:
            if self._told("push_fails", job.id):
                return Pushed(pushed, job.id, BuildError("the registry said 500", log=job.log))
            pushed[job.id] = job.config or ""
            if not tagged:
                name = Reference.parse(job.tags[0])
                with FileRegistry(self._folder) as registry:
                    image = registry.image(name.with_tag("none"), salt=job.id)
                    del registry.tags[name.name, "none"]
                pushed[job.id] = image.digest
        return Pushed(pushed)

    def cannot_run(self, reference: str) -> BuildmatrixError | None:
        why_not = self._settings.get("runs_nothing")
        return ComponentError(why_not) if why_not else None

    @contextmanager
    def runner(self, reference: str, devices: object = None) -> Iterator[Run]:
        root = self._root(reference)
        assert root is not None, reference
        code = self._settings.get("smoke", {}).get(root.name, 0)
        output = "ModuleNotFoundError: No module named 'inferno'\n" * bool(code)
        lacks = self._settings.get("lacks", {}).get(root.name)
        yield lambda command, _timeout_s: _answer(command, lacks) or RunResult(code, output, False)

    @contextmanager
    def export(self, reference: str) -> Iterator[Iterator[bytes]]:
        root = self._root(reference)
        assert root is not None, reference
        yield iter([saved_image(root)[0]])

    def _images(self) -> dict[str, str]:
        path = self._folder / _IMAGES
        with self._lock:
            return dict(json.loads(path.read_text())) if path.exists() else {}

    def _remember(self, images: Mapping[str, str]) -> None:
        images = {**self._images(), **images}
        with self._lock:
            (self._folder / _IMAGES).write_text(json.dumps(images))

    def _root(self, reference: str) -> Path | None:
        for name, root in self._images().items():
            path = self._folder / "roots" / root
            if reference in (name, _digest(path)):
                return path
        return None


def _answer(command: Sequence[str], lacks: str | None) -> RunResult | None:
    """What the probes of the rungs `import` and `device` say; None for other commands."""
    try:
        options = json.loads(command[-1])
    except ValueError:
        return None
    checks: list[dict[str, Any]]
    if "frameworks" in options:
        machine = {"architecture": "riscv64", "cpu": "ACME 64", "cpus": 2}
        checks = [
            {"subject": "machine", "state": "passed", "values": machine},
            {"subject": "frameworks", "state": "passed", "values": {"names": []}},
        ]
    else:
        check: dict[str, Any] = {"subject": "numpy", "state": "passed"}
        if lacks:
            check = {**check, "state": "failed", "values": {"missing_library": lacks}}
        listing = {"subject": "modules", "state": "passed", "values": {"names": ["numpy"]}}
        checks = [listing, check]
    lines = [options["mark"] + json.dumps(check) for check in checks]
    return RunResult(0, "\n".join(lines), False)


def _digest(root: Path) -> str:
    return "sha256:" + hashlib.sha256(root.name.encode()).hexdigest()
