"""Accelerator libraries mapped by a live process, and their origins.

Source: proc_pid_maps(5) and proc_pid_mountinfo(5); nothing of the process is run or stopped. Paths
are in the process's own mount namespace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.names import demangle, matches_any, version_of
from buildmatrix.commands.doctor.machine import MachineFiles
from buildmatrix.reports.doctor import DoctorLine, MappedLibrary, Origin, ProcessLibraries

#: Bytes read of `maps`; a process may have 65,530 mappings of files with long names.
LARGEST = 32 << 20
#: Characters of RECORD files searched for the owners of libraries; torch's has 2 million.
_RECORDS = 128 << 20
_ESCAPED = re.compile(r"\\([0-7]{3})")
_DELETED = " (deleted)"
_PACKAGES = re.compile(r"(.*/(?:site|dist)-packages)/(.+)")


@dataclass(frozen=True, slots=True)
class _MappedFile:
    path: str
    deleted: bool


def examine(
    pid: int, catalogue: Catalogue, machine: MachineFiles | None = None
) -> ProcessLibraries:
    """Read the mappings of a process; failures are in `unread`."""
    machine = machine or MachineFiles()
    command = (machine.text(f"/proc/{pid}/comm") or "").strip()
    mapped, unread = _read_maps(machine.root / f"proc/{pid}/maps")
    mounts = _read_mounts(machine, pid)
    owners = _find_owners(
        MachineFiles(machine.root / f"proc/{pid}/root"), {item.path for item in mapped}
    )
    libraries = []
    for item in mapped:
        name = item.path.rpartition("/")[2]
        matches = library(name, item.path.lstrip("/"), catalogue)
        vendor = next((match.owned.vendor for match in matches if match.owned.vendor), None)
        if vendor is None:
            continue
        libraries.append(
            MappedLibrary(
                path=item.path,
                vendor=vendor,
                backends=tuple(dict.fromkeys(match.owned.backend for match in matches)),
                role=matches[0].owned.entry.role,
                version=version_of(name),
                distribution=owners.get(item.path, ""),
                origin=_find_origin(mounts, item.path),
                deleted=item.deleted,
            )
        )
    nodes = [node for owned in catalogue.hosts for node in (*owned.entry.nodes, *owned.entry.needs)]
    return ProcessLibraries(
        pid=pid,
        command=command,
        libraries=tuple(libraries),
        devices=tuple(item.path for item in mapped if matches_any(nodes, item.path)),
        unread=unread,
    )


def format_process(process: ProcessLibraries) -> Iterator[DoctorLine]:
    """Format the result for people: the process, then each library with all its copies."""
    subject = f"process {process.pid}"
    named = f" ({process.command})" if process.command else ""
    if process.unread:
        yield DoctorLine("unknown", subject, process.unread)
    if not process.libraries and not process.unread:
        yield DoctorLine("none", subject, f"no library of an accelerator is mapped{named}")
    if process.libraries:
        vendors = ", ".join(dict.fromkeys(item.vendor for item in process.libraries))
        count = len(process.libraries)
        text = f"{count} librar{'ies' if count > 1 else 'y'} of {vendors}{named}"
        if process.devices:
            text += f"; devices {' '.join(process.devices)}"
        yield DoctorLine("ok", subject, text)
    copies: dict[str, list[MappedLibrary]] = {}
    for item in process.libraries:
        copies.setdefault(_library_stem(item.path), []).append(item)
    for stem, same in copies.items():
        text = "; ".join(map(_describe, same))
        if len(same) > 1:
            yield DoctorLine(
                "partly", f"library {stem}",
                f"{len(same)} copies: {text}. Which one a symbol comes from depends on the order "
                "of loading: remove one of them, or have both brought by one distribution.",
            )  # fmt: skip
        elif same[0].deleted:
            yield DoctorLine(
                "partly", f"library {stem}",
                f"{text}. The file was removed or replaced since: start the process again.",
            )  # fmt: skip
        else:
            yield DoctorLine("ok", f"library {stem}", text)


_ORIGINS: Mapping[Origin, str] = {
    "machine": "of this machine",
    "image": "of the image",
    "mounted": "mounted into the container",
    "unknown": "whose is not known",
}


def _describe(item: MappedLibrary) -> str:
    parts = [_ORIGINS[item.origin], item.distribution, "deleted" if item.deleted else ""]
    return f"{item.path} ({', '.join(filter(None, parts))})"


def _library_stem(path: str) -> str:
    """Return a library's name without its version, the same for all copies."""
    return demangle(path.rpartition("/")[2]).partition(".so")[0]


def _read_maps(path: Path) -> tuple[list[_MappedFile], str]:
    """Return the mapped files without duplicates, and a text about unreadable ones."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(LARGEST)
    except FileNotFoundError:
        return [], "there is no such process"
    except PermissionError:
        return [], "its mappings may not be read: run as its user, or as root with CAP_SYS_PTRACE"
    except OSError as error:
        return [], f"its mappings cannot be read: {error.strerror}"
    cut = len(data) == LARGEST
    if not data:
        return [], "it has no memory of its own: it is part of the kernel, or has ended"
    mapped: dict[tuple[str, str], _MappedFile] = {}
    for text in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = text.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        name = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[5])
        deleted = name.endswith(_DELETED)
        # Two files can have the same path, if one has replaced the other.
        mapped.setdefault((name, fields[4]), _MappedFile(name.removesuffix(_DELETED), deleted))
    return list(mapped.values()), f"more than {LARGEST:,} bytes of mappings" if cut else ""


@dataclass(frozen=True, slots=True)
class _Mounts:
    """Mount points of a process; None if unreadable."""

    points: tuple[str, ...] | None
    #: True if it sees the files of this machine as we do.
    ours: bool


def _read_mounts(machine: MachineFiles, pid: int) -> _Mounts:
    try:
        proc = machine.root / "proc"
        ours = (proc / f"{pid}/ns/mnt").readlink() == (proc / "self/ns/mnt").readlink()
    except OSError:
        return _Mounts(None, ours=False)
    text = machine.text(f"/proc/{pid}/mountinfo", LARGEST)
    if text is None:
        return _Mounts(None, ours)
    rows = [row.split(" ") for row in text.splitlines()]
    points = tuple(
        _ESCAPED.sub(lambda match: chr(int(match[1], 8)), row[4]) for row in rows if len(row) > 9
    )
    layered = any(
        row[4] == "/" and "overlay" in row[row.index("-") + 1]
        for row in rows if len(row) > 9 and "-" in row[:-1]
    )  # fmt: skip
    # In a container of our own, the root is also an image's.
    return _Mounts(points, ours and not layered)


def _find_origin(mounts: _Mounts, path: str) -> Origin:
    if mounts.ours:
        return "machine"
    if mounts.points is None:
        return "unknown"
    within = [
        point
        for point in mounts.points
        if path == point or path.startswith(point.rstrip("/") + "/")
    ]
    return "image" if max(within, key=len, default="/") == "/" else "mounted"


def _find_owners(files: MachineFiles, paths: Collection[str]) -> Mapping[str, str]:
    """Map paths to name and version of their distribution, by the RECORDs beside them."""
    wanted: dict[str, dict[str, str]] = {}
    for path in paths:
        match = _PACKAGES.fullmatch(path)
        if match is not None:
            wanted.setdefault(match[1], {})[match[2]] = path
    owners: dict[str, str] = {}
    left = _RECORDS
    for folder, members in wanted.items():
        for record in files.nodes(f"{escape(folder)}/*.dist-info/RECORD"):
            text = files.text(record, left) or ""
            left -= len(text)
            for row in text.splitlines():
                path = members.get(row.partition(",")[0], "")
                if path:
                    name = record.split("/")[-2].removesuffix(".dist-info")
                    owners.setdefault(path, " ".join(name.rsplit("-", 1)))
    return owners
