"""uv's account of a failure, said in terms of the target.

uv has no machine-readable errors: its exit status 1 means "no solution", 2 anything else, and the
reason is a text. All reading of that text is in this module.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from buildmatrix.errors import BuildmatrixError, Problem, SpecError, UndecidedError
from buildmatrix.http.failures import TEMPORARY_STATUSES
from buildmatrix.locks.plan import INDEX_PROJECT
from buildmatrix.spec.model import Target
from buildmatrix.text import shown

#: What uv puts in front of a line, now and in older releases.
_LEAD = re.compile(r"^\s*(?:error:|cause:|Caused by:|×|├─▶|╰─▶|│)\s*")
_TLS = re.compile(r"certificate|UnknownIssuer|InvalidContentType|tls handshake", re.IGNORECASE)
#: What uv says of a requirements file that it cannot parse, with the place.
_UNPARSED = re.compile(r"((?:Unexpected|Expected) .*): (\S[^:]*):(\d+):(\d+)")
#: What uv says when nothing but source code is published, and building is switched off.
_SOURCE_ONLY = re.compile(r"Wheels are required for `([^`]+)` because building from source")
#: Name of the project that an audit generates beside `PROJECT`.
REQUEST_PROJECT = "buildmatrix-asked"
#: What uv says of a distribution that is for newer Pythons than the target's.
_TOO_OLD = re.compile(r"Python>=(3\.\d+)")
#: What is put in the place of uv's account where it was ended for taking too long.
TOO_LONG = "no answer in time"
#: How a program in Rust reports that it is out of memory.
_NO_MEMORY = re.compile(r"memory allocation of \d+ bytes failed")
#: Whom uv could not reach, or what it answered.
_UNREACHABLE = re.compile(r"Failed to (?:fetch|download)[^h]*(https?://[^\s`]+)")
_STATUS = re.compile(r"\((\d{3} [^)]*)\)")
_LONGEST = 700


class NoSolution(UndecidedError):
    """What is asked for cannot be had together, or not at all."""

    def __init__(self, message: str, python: str | None) -> None:
        super().__init__(message)
        #: The oldest Python that what is asked for would need, where that is the reason.
        self.python = python


class NeedsBuilding(UndecidedError):
    """A distribution is published as source code only, and nothing may be built."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        #: Normalized name.
        self.name = name


class Unreached(UndecidedError):
    """An index gives no answer, and may later."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        #: Host and port.
        self.host = host


def explain(target: Target, stderr: str) -> BuildmatrixError:
    """The error to raise for a `uv pip compile` that failed with `stderr`."""
    lines = [_LEAD.sub("", line).strip() for line in shown(stderr).splitlines()]
    lines = [line for line in lines if line and not line.startswith("warning:")]
    for line in lines:
        if unparsed := _UNPARSED.fullmatch(line):
            reason, file, number, column = unparsed.groups()
            hint = "write it as uv reads it"
            return SpecError([Problem(_cut(reason), file, int(number), int(column), hint)])
    message = f"{target.id}: {_sentence(target, lines)}"
    if lines and lines[0].startswith("No solution found") and not _SOURCE_ONLY.search(stderr):
        pythons = _TOO_OLD.findall(stderr) if "requested Python version" in stderr else []
        return NoSolution(message, max(pythons, key=_minor, default=None))
    if source := _SOURCE_ONLY.search(stderr):
        return NeedsBuilding(message, canonicalize_name(source[1]))
    if (host := _away(" ".join(lines))) is not None:
        return Unreached(message, host)
    return UndecidedError(message)


def _away(text: str) -> str | None:
    """The host that gave no answer and may later; None where that is not the reason."""
    unreachable = _UNREACHABLE.search(text)
    if unreachable is None or TOO_LONG in text:
        return None
    if status := _STATUS.search(text):
        if int(status[1][:3]) not in TEMPORARY_STATUSES:
            return None
    elif _TLS.search(text):
        return None
    return urlsplit(unreachable[1]).netloc.rpartition("@")[2]


def _sentence(target: Target, lines: list[str]) -> str:
    text = " ".join(lines)
    if TOO_LONG in text:
        return (
            f"uv gave {TOO_LONG} and was ended: an index answers too slowly or without end; see "
            "which one does, or pin more versions where the search is long."
        )
    if _NO_MEMORY.search(text):
        return (
            "uv needed too many gigabytes of memory and was ended: an index sends a page that has "
            "no end, or that unpacks to gigabytes."
        )
    if "network was disabled" in text or "Network connectivity is disabled" in text:
        return (
            "not everything that it needs is in uv's cache, and the network is off; "
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


def _minor(python: str) -> int:
    return int(python.partition(".")[2])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4].rsplit(" ", 1)[0] + " ..."
