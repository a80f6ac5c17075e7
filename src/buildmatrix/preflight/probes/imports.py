"""Import every top-level module of every installed distribution, each in its own process.

Runs inside an image, by the image's Python, 3.8 or newer; standard library only. See
`preflight.protocol` for the output.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.machinery import PathFinder

from buildmatrix.preflight.probes.bounded import (
    measure_container_memory,
    measure_process,
    read_options,
    report,
)

#: Seconds and bytes of one import.
SECONDS, MEMORY = read_options()["seconds"], 4 << 30
#: Installed top-level modules.
INSTALLED: set[str] = set()
#: Environment of import processes.
ENVIRONMENT = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONFAULTHANDLER="1")
#: Prefix of an import process's error report.
FAILURE = read_options()["mark"] + "error "
CHILD = """
import functools, json, traceback
try:
    names = {attribute!r}.split(".") if {attribute!r} else []
    # As the script of an entry point does, `from MODULE import NAME`: the name may be a submodule.
    found = __import__({module!r}, fromlist=names[:1] or ["__name__"])
    functools.reduce(getattr, names, found)
except BaseException as error:
    chain = []
    while error is not None and len(chain) < 20:
        chain.append(error)
        error = error.__cause__ or error.__context__
    first = chain[0]
    names = [e.name for e in chain if isinstance(e, ModuleNotFoundError) and e.name]
    frames = traceback.extract_tb(chain[-1].__traceback__)
    said = {{
        "message": (type(first).__name__ + ": " + str(first))[:1500],
        "missing_module": names[-1] if names else None,
        "raised_in": frames[-1].filename if frames else "",
    }}
    print()
    print({mark!r} + json.dumps(said), flush=True)
    raise
"""
MISSING = re.compile(r"(?:ImportError|OSError): (\S+?): cannot open shared object file")
TRIED = re.compile(r"error: (\S+): cannot open shared object file")


def list_modules() -> dict[str, tuple[str, str]]:
    """Map module names to their distribution and the kind of name."""
    origins: dict[str, tuple[str, str]] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or "?"
        text = distribution.read_text("top_level.txt")
        for module in list_top_level(distribution, text):
            origins.setdefault(module, (name, "module"))
        for entry in distribution.entry_points:
            if entry.group in ("console_scripts", "gui_scripts"):
                origins.setdefault(entry.value.partition("[")[0].strip(), (name, "entry point"))
    return origins


def list_top_level(distribution: metadata.Distribution, text: str | None) -> list[str]:
    """Return the importable names of a distribution: those it lists that have modules.

    `top_level.txt` often includes folders without modules (`dist`, `website`).
    """
    modules, folders = set(), set()
    for file in distribution.files or ():
        first = file.parts[0]
        if file.suffix not in (".py", ".so"):
            continue
        if len(file.parts) == 1:
            modules.add(first.partition(".")[0])
        elif len(file.parts) == 2 and file.name == "__init__.py":
            modules.add(first)
        elif file.suffix == ".so" or file.name == "__init__.py":
            # A namespace of packages or of extension modules.
            folders.add(first)
    names = set(text.split()) if text else modules
    if text and distribution.files:
        names &= modules | folders
    usable = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
    # Tests that some distributions install are not an interface.
    return sorted({n for n in names if usable.match(n) and n not in ("tests", "test", "docs")})


def run_import(name: str, debug: bool = False) -> tuple[int, str, str]:
    """Return exit code, end of the output, and why it was killed."""
    module, _, attribute = name.partition(":")
    source = CHILD.format(module=module, attribute=attribute, mark=FAILURE)
    env = dict(ENVIRONMENT, LD_DEBUG="libs") if debug else ENVIRONMENT
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            cwd="/",
            start_new_session=True,
        )
        killed = watch(process)
        output.seek(0, os.SEEK_END)
        size = output.tell()
        output.seek(max(0, size - ((4 << 20) if debug else (16 << 10))))
        text = output.read().decode("utf-8", "replace")
    return process.returncode, text, killed


def watch(process: subprocess.Popen[bytes]) -> str:
    """Wait for a process, and kill it and its children at a limit."""
    end = time.monotonic() + SECONDS
    killed = ""
    while process.poll() is None and not killed:
        time.sleep(0.02)
        if time.monotonic() > end:
            killed = f"took more than {SECONDS} s"
        elif measure_process(process.pid) > MEMORY:
            killed = f"took more than {MEMORY >> 20} MiB of memory"
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return killed


def has_bytecode() -> bool:
    """True if most installed modules were compiled when they were installed."""
    specs = [PathFinder.find_spec(module) for module in INSTALLED]
    cached = [spec.cached for spec in specs if spec and spec.cached]
    return 2 * sum(map(os.path.exists, cached)) >= len(cached)


def parse_failure(text: str) -> dict[str, str]:
    """Return the error report of an import process."""
    for line in reversed(text.splitlines()):
        if line.startswith(FAILURE):
            said: dict[str, str] = json.loads(line[len(FAILURE) :])
            return said
    return {}


def is_optional(module: str, distribution: str) -> bool:
    """True if no installed distribution has the module, and it is required only by an extra."""
    first = module.partition(".")[0]
    if first in INSTALLED or first in sys.builtin_module_names:
        return False
    plain = re.compile(r"[-_.]+")
    required = {
        plain.sub("-", re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]).lower()
        for line in metadata.requires(distribution) or ()
        if "extra ==" not in line
    }
    return plain.sub("-", first).lower() not in required


def check(item: tuple[str, tuple[str, str]]) -> None:
    """Import one name, and report the result."""
    name, (distribution, kind) = item
    began = time.monotonic()
    code, text, killed = run_import(name)
    seconds = time.monotonic() - began
    values: dict[str, object] = {"distribution": distribution, "kind": kind}
    if killed:
        report(name, "failed", "importing it " + killed, seconds, **values)
    elif code == 0:
        report(name, "passed", "", seconds, **values)
    elif code < 0:
        name_of = signal.Signals(-code).name
        report(name, "failed", f"importing it died by {name_of}", seconds, signal=name_of, **values)
    else:
        said = parse_failure(text)
        lines = [line for line in text.splitlines() if line.strip()]
        last = said.get("message") or (lines[-1].strip()[:1500] if lines else f"exit code {code}")
        # The file that raised the error shows the distribution that broke it.
        values["raised_in"] = said.get("raised_in") or ""
        module = said.get("missing_module")
        if module == name.partition(":")[0] and kind == "module":
            message = f"{distribution} names it, and has no such module"
            report(name, "not-run", message, seconds, exit_code=code, **values)
            return
        if module and is_optional(module, distribution):
            values["missing_module"] = module
            message = f"it needs the module {module}, which is optional and not installed"
            report(name, "not-run", message, seconds, exit_code=code, **values)
            return
        match = MISSING.search(text)
        if match or "shared object" in text or "undefined symbol" in text:
            # The loader's own output names the library that it did not find.
            libraries = TRIED.findall(run_import(name, debug=True)[1])
            libraries = libraries or ([match.group(1)] if match else [])
            if libraries:
                values["missing_library"] = libraries[-1]
        report(name, "failed", last, seconds, exit_code=code, **values)


def main() -> None:
    """Import all modules."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    origins = list_modules()
    INSTALLED.update(name.partition(":")[0].partition(".")[0] for name in origins)
    items = sorted(origins.items())
    report("modules", "passed", "", count=len(items), names=[name for name, _ in items])
    # In parallel, one per CPU with 2 GiB of free memory.
    _, free = measure_container_memory()
    workers = max(1, min(len(os.sched_getaffinity(0)), free // (2 << 30)))
    compiled = tempfile.mkdtemp()
    if not has_bytecode():
        # Each process would compile again what the ones before it compiled.
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = compiled
        del ENVIRONMENT["PYTHONDONTWRITEBYTECODE"]
    try:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(check, items))
    finally:
        shutil.rmtree(compiled, ignore_errors=True)


main()
