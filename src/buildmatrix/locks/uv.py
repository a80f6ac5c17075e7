"""Finding and running `uv`, which does all resolving."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from buildmatrix import child
from buildmatrix.errors import ComponentError
from buildmatrix.locks.machine_indexes import for_uv, names_python
from buildmatrix.locks.uv_errors import TOO_LONG
from buildmatrix.locks.uvsettings import settings_above

#: The first release with all of `--excludes`, PEP 751 output and per-package index annotations.
MINIMUM = (0, 9, 8)

#: Seconds for one call. Of five applications with all of their extras, asked for together, a search
#: for versions that took 84 s was the longest seen.
SECONDS = 300.0
#: Bytes of memory of its own; that search had 0.4 GB in use, and 1 GB was not enough for it.
MEMORY = 4 << 30

#: Variables that say where packages are and how to reach them: the machine's business. Every other
#: `UV_*` would change what is resolved behind the specification's back, so uv does not see it.
_PASSED = re.compile(
    r"UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|INDEX_.+_(USERNAME|PASSWORD)"
    r"|CACHE_DIR|NO_CACHE|CONFIG_FILE|CREDENTIALS_DIR|KEYRING_PROVIDER|INSECURE_HOST|OFFLINE"
    r"|NATIVE_TLS|SYSTEM_CERTS|HTTP_.+|REQUEST_TIMEOUT|CONCURRENT_.+)"
)


@dataclass(frozen=True, slots=True)
class Uv:
    """A `uv` that can be used."""

    path: Path
    version: str

    def run(
        self, arguments: Sequence[str], folder: Path, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run uv in `folder` and wait for it; the caller judges the exit status.

        When it takes too long it is ended, and says so as one of its own errors.

        Args:
            arguments: of uv.
            folder: where it runs; settings of uv in there, or above, count.
            options: index options of the requirements files that `arguments` name.

        Raises `UndecidedError` where only pip is configured, and uv cannot use its settings.
        """
        forwarded = for_uv(os.environ, settings_above(folder), options)
        at = arguments.index("--") if "--" in arguments else len(arguments)
        command = [str(self.path), *arguments[:at], *forwarded.arguments, *arguments[at:]]
        environment = {**_environment(), **forwarded.variables}
        try:
            return child.run(command, folder, environment, seconds=SECONDS, memory=MEMORY)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 2, "", f"error: {TOO_LONG}\n")

    def interpreter(self, version: str, folder: Path) -> str | None:
        """The Python that uv takes in `folder` to build what has to be built for `version`.

        That of this version, else the default, as each call would find by itself: where PATH leads
        to versions that are not there (pyenv), the search takes longer than to resolve. None leaves
        it to uv: settings name another Python, or there is none.
        """
        folder = folder.absolute()
        with _SEARCHES.setdefault((version, folder), threading.Lock()):
            return _interpreter(self, version, folder)


#: Threads that look for the same Python wait for the first of them.
_SEARCHES: dict[tuple[str, Path], threading.Lock] = {}


@cache
def _interpreter(uv: Uv, version: str, folder: Path) -> str | None:
    if names_python(os.environ, settings_above(folder)):
        return None
    for request in (version, "default"):
        command = [str(uv.path), "python", "find", "--no-project", "--", request]
        try:
            answer = child.run(command, folder, _environment(), seconds=SECONDS, memory=MEMORY)
        except subprocess.TimeoutExpired:
            return None
        path = answer.stdout.strip()
        if answer.returncode == 0 and Path(path).is_absolute():
            return path
    return None


#: Targets are locked in threads, and uv's own look-up calls `sysconfig`, which is not safe in them.
_FINDING = threading.Lock()


def find_uv() -> Uv:
    """The `uv` that came with buildmatrix, else the one on PATH.

    Raises `ComponentError` when there is none, or when it is too old.
    """
    with _FINDING:
        return _find_uv()


@cache
def _find_uv() -> Uv:
    path = _locate()
    if path is None:
        raise ComponentError("uv was not found, and locking needs it; run `pip install uv`.")
    try:
        output = subprocess.run(
            [path, "--version"], env=child.bare_environment(), capture_output=True,
            encoding="utf-8", check=False, timeout=30,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise ComponentError(f"{path} does not run ({error}); run `pip install uv`.") from error
    match = re.match(r"uv (\d+)\.(\d+)\.(\d+)", output)
    if match is None:
        raise ComponentError(
            f"{path} does not say which version of uv it is; run `pip install uv`."
        )
    version = tuple(int(part) for part in match.groups())
    if version < MINIMUM:
        minimum = ".".join(map(str, MINIMUM))
        raise ComponentError(
            f"{path} is uv {'.'.join(match.groups())}, and locking needs {minimum} or newer; "
            "run `pip install --upgrade uv`."
        )
    return Uv(Path(path), ".".join(match.groups()))


def _locate() -> str | None:
    try:
        from uv import find_uv_bin

        return os.fspath(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")


def _environment() -> dict[str, str]:
    passed = {
        name: value
        for name, value in child.user_environment().items()
        if not name.startswith("UV_") or _PASSED.fullmatch(name)
    }
    # A virtual environment that happens to be active would lend its interpreter's markers.
    passed.pop("VIRTUAL_ENV", None)
    # A width would make uv break the lines that `explain` reads.
    passed.pop("COLUMNS", None)
    return passed | {"UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}
