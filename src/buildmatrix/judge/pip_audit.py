"""One run of `pip-audit`, by its command line.

Its Python modules are all private (`pip_audit._service`) and change with any release; the command,
its options and `--format json` are what its documentation describes. It is started with this
interpreter as a process of its own, which can also be ended when a service never does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

import msgspec
from msgspec import Struct
from packaging.utils import canonicalize_name

from buildmatrix.base.child import bare_environment, bound, log_process
from buildmatrix.base.data import replace
from buildmatrix.base.parsing import version_or_none
from buildmatrix.base.text import shown
from buildmatrix.base.threads import prepare_type
from buildmatrix.judge.model import Advisory, Key

ServiceName = Literal["pypi", "osv"]

#: Characters of a description that are kept.
LONGEST = 300
#: Bytes of an answer that are read: a hundred times what 50 packages have.
LARGEST = 64_000_000
#: Bytes of memory of its own; a thousand pins take 0.1 GB.
MEMORY = 2 << 30
_REASON = 200
#: `requests.exceptions.HTTPError: 500 Server Error` in a traceback, `ERROR:pip_audit._cli:...`
_COMPLAINT = re.compile(r"(?:[\w.]*(?:Error|Exception|Timeout)|ERROR:[\w.]+): ?(?P<text>.+)")
#: urllib3's innermost reason: `... (Caused by Kind("Connection(...): REASON"))`.
_CAUSE = re.compile(r".*Caused by \w+\(.*?\): (?P<text>.+?)[\"']?\)\)")


class Reply(Struct, frozen=True):
    """Answer of a run of the command."""

    advisories: Mapping[Pin, tuple[Advisory, ...]]
    #: Packages unknown to the service, with pip-audit's reason.
    skipped: Mapping[Pin, str]


class _Vulnerability(msgspec.Struct):
    id: str
    fix_versions: list[str]
    aliases: list[str] = []
    description: str = ""


class _Dependency(msgspec.Struct):
    name: str
    skip_reason: str | None = None
    vulns: list[_Vulnerability] = []


class _Document(msgspec.Struct):
    dependencies: list[_Dependency]


class PipAuditRun:
    """A `pip-audit` process that asks about a batch of pins; names are unique in it."""

    def __init__(
        self,
        pins: Sequence[Pin],
        folder: Path,
        *,
        service: ServiceName,
        url: str | None,
        cache: Path,
        timeout: int,
    ) -> None:
        """Start it. `folder` is empty and its own; `timeout` is per wait for the network, in s.

        Raises OSError when it cannot be started.
        """
        self.pins = pins
        requirements = folder / "pins.txt"
        requirements.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        self._out: IO[bytes] = (folder / "out").open("w+b")
        self._err: IO[bytes] = (folder / "err").open("w+b")
        command = [
            # -P: nothing is imported from the current folder.
            *(sys.executable, "-P", "-m", "pip_audit"),
            *("--requirement", requirements, "--no-deps", "--disable-pip"),
            *("--format", "json", "--desc", "on", "--aliases", "on", "--output", "-"),
            *("--progress-spinner", "off", "--timeout", str(timeout)),
            *("--cache-dir", cache),
            *("--vulnerability-service", service),
            *(("--osv-url", url) if url is not None else ()),
        ]
        self._log_end = log_process(command)
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            # Proxies and certificates, and nothing else of the user's: it asks without logging in.
            env=bare_environment(with_network=True)
            | {"PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )
        bound(self._process.pid, memory=MEMORY, file=2 * LARGEST)

    def is_over(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """End the process and what it started, if it still runs."""
        if not self.is_over():
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._out.close()
        self._err.close()

    def result(self) -> Reply | str:
        """Its answer, once it is over, or why there is none."""
        self._log_end(self._process.returncode)
        self._out.seek(0)
        output = self._out.read(LARGEST + 1)
        self._err.seek(0)
        complaints = self._err.read(1_000_000).decode("utf-8", "replace")
        if len(output) > LARGEST:
            return f"the answer has more than {LARGEST:,} bytes"
        # Both "vulnerable" and "crashed" exit with 1: only the document tells them apart.
        try:
            document = msgspec.json.decode(output, type=prepare_type(_Document))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return last_complaint(complaints, self._process.returncode)
        return _reply(document, self.pins)


def _reply(document: _Document, pins: Sequence[Pin]) -> Reply:
    by_name = {pin.name: pin for pin in pins}
    advisories: dict[Pin, tuple[Advisory, ...]] = {}
    skipped: dict[Pin, str] = {}
    for dependency in document.dependencies:
        pin = by_name.get(dependency.name)
        if pin is None:
            continue
        if dependency.skip_reason is not None:
            skipped[pin] = _line(dependency.skip_reason, _REASON)
        else:
            advisories[pin] = _merged(map(_advisory, dependency.vulns))
    for pin in pins:
        if pin not in advisories and pin not in skipped:
            skipped[pin] = "pip-audit says nothing about it"
    return Reply(advisories, skipped)


def _advisory(vulnerability: _Vulnerability) -> Advisory:
    return Advisory(
        id=_line(vulnerability.id, 100),
        aliases=tuple(
            sorted({_line(name, 100) for name in vulnerability.aliases} - {vulnerability.id})
        ),
        fixed=tuple(_line(version, 100) for version in vulnerability.fix_versions),
        description=_line(vulnerability.description, LONGEST),
    )


def _merged(advisories: Iterable[Advisory]) -> tuple[Advisory, ...]:
    """Each flaw once, by id: pip-audit lists one that has entries in two databases twice."""
    merged: list[Advisory] = []
    for advisory in advisories:
        same_flaw = [present for present in merged if present.names & advisory.names]
        merged = [present for present in merged if present not in same_flaw]
        for present in same_flaw:
            advisory = replace(
                present,
                aliases=tuple(sorted((present.names | advisory.names) - {present.id})),
                fixed=present.fixed or advisory.fixed,
            )
        merged.append(advisory)
    return tuple(sorted(merged, key=lambda advisory_of: advisory_of.id))


def last_complaint(complaints: str, code: int) -> str:
    """The last thing that pip-audit or the library below it gave as a reason, in one line."""
    lines = complaints.strip().splitlines() or [f"pip-audit ended with exit code {code}"]
    complaint_matches = [match for line in lines if (match := _COMPLAINT.fullmatch(line))]
    text = complaint_matches[-1]["text"] if complaint_matches else lines[-1]
    if complaint_matches and " " not in text:
        text = complaint_matches[-1][0]  # `KeyError: 'vulns'`
    text = shown(text)
    cause = _CAUSE.fullmatch(text)
    return _line(cause["text"] if cause else text, _REASON)


def _line(text: str, longest: int) -> str:
    """`text` as one line of at most `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


# Pins to query, in batches


# PEP 508. Names come from images: nothing else may get into a requirements file.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


class Pin(Struct, frozen=True, order=True):
    """One line of a requirements file, `name==version`."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def pin(name: str, version: str) -> Pin | None:
    """Return the pin of an installed version; None for an invalid name or version (PEP 440).

    Advisories are about public versions: `2.6.0+cu124` is asked as `2.6.0`.
    """
    normal = canonicalize_name(name)
    valid = version_or_none(version)
    return Pin(normal, valid.public) if valid is not None and _NAME.fullmatch(normal) else None


def pins_of(packages: Iterable[Key]) -> tuple[dict[Key, Pin], tuple[Key, ...]]:
    """The pin of each package, and the packages that cannot be asked about."""
    lines = {key: pin(*key) for key in packages}
    pins = {key: line for key, line in lines.items() if line is not None}
    return pins, tuple(key for key, line in lines.items() if line is None)


def batches(pins: Iterable[Pin], parts: int, few: int, most: int) -> Iterator[Sequence[Pin]]:
    """Pins in `parts` batches, or more and fewer ones that have `few` to `most` pins.

    A requirements file cannot pin one name twice, so two versions of it are in two batches.
    """
    rounds: list[list[Pin]] = []
    turns: dict[str, int] = {}
    for item in sorted(set(pins)):
        turn = turns.get(item.name, 0)
        turns[item.name] = turn + 1
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(item)
    for distinct in rounds:
        size = min(most, max(few, -(-len(distinct) // parts)))
        yield from (distinct[start : start + size] for start in range(0, len(distinct), size))
