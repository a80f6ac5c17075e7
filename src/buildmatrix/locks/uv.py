"""uv, which does all resolving: its settings in a project, its calls and its errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base import child
from buildmatrix.base.errors import (
    BuildmatrixError,
    ComponentError,
    Problem,
    SpecError,
    UndecidedError,
)
from buildmatrix.base.text import shown
from buildmatrix.base.toml import mapping, string, tool_table, written
from buildmatrix.locks.lines import read_toml
from buildmatrix.locks.plan import INDEX_PROJECT
from buildmatrix.locks.selection import BrokenMarker, LockSelection, python_platform
from buildmatrix.matrix.model import Target
from buildmatrix.net.machine_indexes import names_python, pip_settings_for_uv

# Errors. uv has no machine-readable ones: its exit status 1 means "no solution", 2 anything else,
# and the reason is a text. All parsing of that text is in this module.


#: Prefixes of uv's lines, now and in older releases.
_LEAD = re.compile(r"^\s*(?:error:|cause:|Caused by:|×|├─▶|╰─▶|│)\s*")
_TLS = re.compile(r"certificate|UnknownIssuer|InvalidContentType|tls handshake", re.IGNORECASE)
#: uv's message for a requirements file that it cannot parse, with the place.
_UNPARSED = re.compile(r"((?:Unexpected|Expected) .*): (\S[^:]*):(\d+):(\d+)")
#: uv's message if only source distributions are published, and builds are disabled.
_SOURCE_ONLY = re.compile(r"Wheels are required for `([^`]+)` because building from source")
#: Name of the project that an audit generates beside `PROJECT`.
REQUEST_PROJECT = "buildmatrix-asked"
#: uv's message for a distribution that requires a newer Python than the target's.
_TOO_OLD = re.compile(r"Python>=(3\.\d+)")
#: Replaces uv's message after a timeout.
TOO_LONG = "no answer in time"
#: Message of a Rust program that is out of memory.
_NO_MEMORY = re.compile(r"memory allocation of \d+ bytes failed")
#: Server that uv could not reach, or its answer.
_UNREACHABLE = re.compile(r"Failed to (?:fetch|download)[^h]*(https?://[^\s`]+)")
_STATUS = re.compile(r"\((\d{3} [^)]*)\)")
_LONGEST = 700


class NoSolution(UndecidedError):
    """The requirements have no solution, together or alone."""

    def __init__(self, message: str, python: str | None) -> None:
        super().__init__(message)
        #: The oldest Python that the requirements need, if that is the reason.
        self.python = python


class NeedsBuilding(UndecidedError):
    """A distribution is published as source code only, and builds are not allowed."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        #: Normalized name.
        self.name = name


class Unreached(UndecidedError):
    """An index does not answer, and may later."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        #: Host and port.
        self.host = host


def explain_failure(target: Target, stderr: str) -> BuildmatrixError:
    """Return the error for a `uv pip compile` that failed with `stderr`."""
    lines = [_LEAD.sub("", line).strip() for line in shown(stderr).splitlines()]
    lines = [line for line in lines if line and not line.startswith("warning:")]
    for line in lines:
        if unparsed := _UNPARSED.fullmatch(line):
            reason, file, number, column = unparsed.groups()
            hint = "write it in a form that uv accepts"
            return SpecError([Problem(_cut(reason), file, int(number), int(column), hint)])
    message = f"{target.id}: {_explain(target, lines)}"
    if lines and lines[0].startswith("No solution found") and not _SOURCE_ONLY.search(stderr):
        pythons = _TOO_OLD.findall(stderr) if "requested Python version" in stderr else []
        return NoSolution(message, max(pythons, key=_parse_minor, default=None))
    if source := _SOURCE_ONLY.search(stderr):
        return NeedsBuilding(message, canonicalize_name(source[1]))
    if (host := _find_away(" ".join(lines))) is not None:
        return Unreached(message, host)
    return UndecidedError(message)


def _find_away(text: str) -> str | None:
    """Return the host that did not answer and may later; None for any other reason."""
    from buildmatrix.net.addresses import TEMPORARY_STATUSES

    unreachable = _UNREACHABLE.search(text)
    if unreachable is None or TOO_LONG in text:
        return None
    if status := _STATUS.search(text):
        if int(status[1][:3]) not in TEMPORARY_STATUSES:
            return None
    elif _TLS.search(text):
        return None
    return urlsplit(unreachable[1]).netloc.rpartition("@")[2]


def _explain(target: Target, lines: list[str]) -> str:
    text = " ".join(lines)
    if TOO_LONG in text:
        return (
            f"uv gave {TOO_LONG} and was stopped: an index answers too slowly or without end; find "
            "out which one, or pin more versions if the search is long."
        )
    if _NO_MEMORY.search(text):
        return (
            "uv ran out of memory and was stopped: an index sends a page that has "
            "no end, or that unpacks to gigabytes."
        )
    if "network was disabled" in text or "Network connectivity is disabled" in text:
        return (
            "uv's cache does not have all files, and the network is off; "
            "run this once without `--offline`."
        )
    if refused := re.search(r"\((https?://\S+)\) (?:could not|returned).*?(40[13])", text):
        return (
            f"the index {refused[1]} refused the request (HTTP {refused[2]}); give its credentials "
            "in a netrc file or in UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD."
        )
    if unreachable := _UNREACHABLE.search(text):
        if status := _STATUS.search(text):
            return f"{unreachable[1]} answers {status[1]}; try again later."
        if _TLS.search(text):
            return (
                f"no trusted connection to {unreachable[1]} ({lines[-1]}); set SSL_CERT_FILE to "
                "the certificate bundle that your network uses."
            )
        return (
            f"{unreachable[1]} cannot be reached ({lines[-1]}); check the network, the proxy and "
            "the address of the index."
        )
    if lines and lines[0].startswith("No solution found"):
        reasons = [line for line in lines[1:] if not line.startswith("hint:")]
        hints = [line.removeprefix("hint: ") for line in lines[1:] if line.startswith("hint:")]
        reason = " ".join(reasons).replace(f"{INDEX_PROJECT} depends on", "you require")
        reason = reason.replace(f"{REQUEST_PROJECT} depends on", "you require")
        bound = "".join(
            f" The {family} family is taken from {shown(url)} only."
            for family, url in target.index.items()
            if family in reason
        )
        return f"its requirements cannot be resolved. {_cut(reason)}{bound}" + "".join(
            f" {hint}" for hint in hints[:1]
        )
    return f"uv failed: {_cut(text)}" if text else "uv failed and gave no reason."


def _parse_minor(python: str) -> int:
    return int(python.partition(".")[2])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4].rsplit(" ", 1)[0] + " ..."


# Settings of uv in a project.
#
# An audit runs uv in a folder of its own, so that only settings that affect the resolution apply to
# a project that is not reviewed yet: `[tool.uv.pip] python`, for example, names a program that uv
# would run. Keys: https://docs.astral.sh/uv/reference/settings/.


_RESOLUTION_KEYS = (
    "index",
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
    "index-strategy",
    "constraint-dependencies",
    "override-dependencies",
    "exclude-dependencies",
    "dependency-metadata",
    "prerelease",
    "resolution",
    "exclude-newer",
    "exclude-newer-package",
)
#: Settings with addresses or with paths relative to the project.
_PLACES = ("index-url", "extra-index-url", "find-links")


def settings_of(folder: Path) -> Mapping[str, object]:
    """Return the settings in `folder` that affect the resolution.

    From `uv.toml`, else from `[tool.uv]` in `pyproject.toml`. Raises `SpecError` for an existing
    file that is not TOML.
    """
    table = _read_table(folder) or {}
    return {key: _rebase_paths(key, table[key], folder) for key in _RESOLUTION_KEYS if key in table}


def settings_above(folder: Path) -> Mapping[str, object]:
    """Return all settings that uv takes from `folder`, or from the nearest one above."""
    for place in (folder.absolute(), *folder.absolute().parents):
        try:
            table = _read_table(place)
        except SpecError:
            continue  # uv says so
        if table is not None:
            return table
    return {}


def _read_table(folder: Path) -> Mapping[str, object] | None:
    for name in ("uv.toml", "pyproject.toml"):
        path = folder / name
        if not path.is_file():
            continue
        document = read_toml(path, name)
        if name == "uv.toml":
            return document
        if "uv" in mapping(document.get("tool")):
            return mapping(mapping(document["tool"])["uv"])
    return None


def source_of(
    name: str, project: Mapping[str, object], selection: LockSelection
) -> Mapping[str, object]:
    """Return the entry of `[tool.uv.sources]` for a distribution; empty for none."""
    sources = mapping(tool_table(project, "uv").get("sources"))
    for key, value in sources.items():
        if canonicalize_name(key) != name:
            continue
        for item in value if isinstance(value, list) else [value]:
            entry = mapping(item)
            extra, group = string(entry.get("extra")), string(entry.get("group"))
            if extra and canonicalize_name(extra) not in selection.extras:
                continue
            if group and canonicalize_name(group) not in selection.groups:
                continue
            try:
                if selection.fits(string(entry.get("marker")) or None):
                    return entry
            except BrokenMarker:
                continue  # uv reports it where it matters.
    return {}


def project_text(
    bound: Mapping[str, str],
    settings: Mapping[str, object],
    lines: list[str],
    name: str = REQUEST_PROJECT,
) -> str:
    """Return a `pyproject.toml` that requires `lines`, with those settings and bindings."""
    sources = {distribution: {"index": index} for distribution, index in sorted(bound.items())}
    document = {
        "project": {"name": name, "version": "0", "dependencies": lines},
        "tool": {"uv": {**settings, "sources": sources}},
    }
    return "".join(f"{key} = {written(value)}\n" for key, value in document.items())


def _rebase_paths(key: str, value: object, folder: Path) -> object:
    if key == "index":
        items = value if isinstance(value, list) else []
        return [
            {
                name: _rebase_path(content, folder) if name == "url" else content
                for name, content in item.items()
            }
            for item in items
            if isinstance(item, dict)
        ]
    if key in _PLACES:
        return (
            [_rebase_path(content, folder) for content in value]
            if isinstance(value, list)
            else _rebase_path(value, folder)
        )
    return value


def _rebase_path(value: object, folder: Path) -> object:
    if not isinstance(value, str) or "://" in value:
        return value
    return str((folder / value).resolve())


# Calls


def compile_arguments(
    target: Target, torch: str | None, flags: Iterable[str], python: str = ""
) -> list[str]:
    """Return the arguments of `uv pip compile` for `target`, without the files.

    `torch` is uv's name of a torch back end, `python` a version in place of the target's.
    """
    return [
        *("pip", "compile", "--no-header", "--quiet"),
        f"--python-version={python or target.python}",
        f"--python-platform={python_platform(target)}",
        *([f"--torch-backend={torch}"] if torch else []),
        *flags,
    ]


#: The first release with all of `--excludes`, PEP 751 output and per-package index annotations.
MINIMUM = (0, 9, 8)

#: Timeout in seconds of one call. Of five applications with all of their extras, resolved together,
#: the longest search for versions took 84 s.
SECONDS = 300.0
#: Maximum bytes of memory; that search used 0.4 GB, and 1 GB was not enough for it.
MEMORY = 4 << 30

#: Variables with the place of packages and the way to them, which belong to the machine. Every
#: other `UV_*` would change the resolution without the specification, so uv does not get it.
_PASSED = re.compile(
    r"UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|INDEX_.+_(USERNAME|PASSWORD)"
    r"|CACHE_DIR|NO_CACHE|CONFIG_FILE|CREDENTIALS_DIR|KEYRING_PROVIDER|INSECURE_HOST|OFFLINE"
    r"|NATIVE_TLS|SYSTEM_CERTS|HTTP_.+|REQUEST_TIMEOUT|CONCURRENT_.+)"
)


class Uv(Struct, frozen=True):
    """A usable `uv`."""

    path: Path
    version: str

    def run(
        self, arguments: Sequence[str], folder: Path, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run uv in `folder` and wait for it; the caller checks the exit status.

        After a timeout it is stopped, and its output has a message like one of its own errors.

        Args:
            arguments: of uv.
            folder: where it runs; settings of uv in there, or above, apply.
            options: index options of the requirements files that `arguments` name.

        Raises `UndecidedError` if only pip is configured, and uv cannot use its settings.
        """
        forwarded = pip_settings_for_uv(os.environ, settings_above(folder), options)
        at = arguments.index("--") if "--" in arguments else len(arguments)
        command = [str(self.path), *arguments[:at], *forwarded.arguments, *arguments[at:]]
        environment = {**_make_environment(), **forwarded.variables}
        try:
            return child.run(command, folder, environment, seconds=SECONDS, memory=MEMORY)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 2, "", f"error: {TOO_LONG}\n")

    def interpreter(self, version: str, folder: Path) -> str | None:
        """Return the Python that uv uses in `folder` for builds for `version`.

        That of this version, else the default, as each call would find by itself: if PATH has
        entries for missing versions (pyenv), the search takes longer than a resolution. None leaves
        the choice to uv: settings name another Python, or there is none.
        """
        folder = folder.absolute()
        with _SEARCHES.setdefault((version, folder), threading.Lock()):
            return _interpreter(self, version, folder)


#: Threads that need the same Python wait for the first of them.
_SEARCHES: dict[tuple[str, Path], threading.Lock] = {}


@cache
def _interpreter(uv: Uv, version: str, folder: Path) -> str | None:
    if names_python(os.environ, settings_above(folder)):
        return None
    for request in (version, "default"):
        command = [str(uv.path), "python", "find", "--no-project", "--", request]
        try:
            answer = child.run(command, folder, _make_environment(), seconds=SECONDS, memory=MEMORY)
        except subprocess.TimeoutExpired:
            return None
        path = answer.stdout.strip()
        if answer.returncode == 0 and Path(path).is_absolute():
            return path
    return None


#: Targets are locked in threads, and uv's own lookup calls `sysconfig`, which is not thread-safe.
_FINDING = threading.Lock()


def find_uv() -> Uv:
    """Return the `uv` that came with buildmatrix, else the one on PATH.

    Raises `ComponentError` if there is none, or if it is too old.
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


def _make_environment() -> dict[str, str]:
    passed = {
        name: value
        for name, value in child.user_environment().items()
        if not name.startswith("UV_") or _PASSED.fullmatch(name)
    }
    # An active virtual environment would lend its interpreter's markers.
    passed.pop("VIRTUAL_ENV", None)
    # With a width, uv would break the lines that `explain_failure` reads.
    passed.pop("COLUMNS", None)
    return passed | {"UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}
