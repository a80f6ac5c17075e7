"""Files that a Dockerfile adds to its base: those of COPY, and those of a new account."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError, UndecidedError
from buildmatrix.engines.oci.base_files import BaseFiles
from buildmatrix.engines.oci.installation import InstalledFile, file_of
from buildmatrix.engines.quoting import Ignored
from buildmatrix.facts.trees.base import reason
from buildmatrix.facts.trees.tar import Attributes
from buildmatrix.images.layers import FIXED_TIME, LayerEntry
from buildmatrix.matrix.model import User

# COPY. Modes are reduced as in git: 0755 if executable by the owner, else 0644. So the umask, ACLs
# or archive of a checkout do not change the image, and its user can read files of root.


_CHUNK: Final = 1 << 20


class ContextEntry(Struct, frozen=True):
    """A file, folder or link in the copied source; its path is empty for the source itself."""

    entry: LayerEntry
    place: Path
    sha256: str = ""

    def content(self) -> Iterator[bytes]:
        """Yield the bytes of a file. Raises UndecidedError if it changed since it was hashed."""
        hasher = hashlib.sha256()
        try:
            with self.place.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    hasher.update(chunk)
                    yield chunk
        except OSError as error:
            raise UndecidedError(f"{self.place} cannot be read: {reason(error)}") from error
        if hasher.hexdigest() != self.sha256:
            raise UndecidedError(f"{self.place} changed while it was copied; build again")

    def place_at(self, path: str) -> InstalledFile:
        """Return the layer's file for the destination `path`."""
        content = self.content if self.entry.kind == "file" else tuple
        return InstalledFile(replace(self.entry, path=path), content)


def context_entries(root: Path, ignored: Ignored, source: str, subject: str) -> list[ContextEntry]:
    """Return the sorted entries of the file or folder `source` of the context `root`, with hashes.

    Raises SpecError about `subject` if the source is missing or outside of the context, and
    UndecidedError if it is unreadable.
    """
    entries: list[ContextEntry] = []
    try:
        real = (root / source).resolve(strict=True)
        path = real.relative_to(root.resolve()).as_posix()
    except (OSError, ValueError, RuntimeError):
        pass
    else:
        try:
            entries += _entries_below(ignored, path if path != "." else "", "", real)
        except OSError as error:
            raise UndecidedError(
                f"{subject}: {error.filename or source} cannot be read: {reason(error)}"
            ) from error
    if not entries:
        message = f"{subject}: `{source}` of `copy` is not there, or `.dockerignore` leaves it out"
        raise SpecError([Problem(message, ".dockerignore")])
    return entries


def _entries_below(ignored: Ignored, path: str, inside: str, place: Path) -> Iterator[ContextEntry]:
    """Yield entries in a folder: `path` is relative to the context, `inside` to the source."""
    is_ignored = bool(path) and ignored(path)
    status = place.lstat()
    if stat.S_ISDIR(status.st_mode):
        below: list[ContextEntry] = []
        if not is_ignored or ignored.has_exceptions:
            for name in sorted(os.listdir(place)):  # noqa: PTH208 (Path would make one per name)
                inner = f"{path}/{name}".lstrip("/"), f"{inside}/{name}".lstrip("/")
                below += _entries_below(ignored, *inner, place / name)
        if below or not is_ignored:
            yield ContextEntry(LayerEntry(inside, "folder", 0o755), place)
            yield from below
    elif is_ignored:
        return
    elif stat.S_ISLNK(status.st_mode):
        target = os.readlink(place)  # noqa: PTH115 (Path would tidy it)
        yield ContextEntry(LayerEntry(inside, "symlink", 0o777, target=target), place)
    elif stat.S_ISREG(status.st_mode):
        mode = 0o755 if status.st_mode & 0o100 else 0o644
        with place.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        yield ContextEntry(LayerEntry(inside, "file", mode, size), place, digest)
    else:
        raise UndecidedError(f"{path} is neither file, folder nor link, and cannot be copied")


# Accounts, added like `useradd` and `usermod` do.
#
# Source: shadow 4.13 (useradd.c, usermod.c, lib/commonio.c), and passwd(5), group(5), shadow(5),
# gshadow(5), subuid(5), login.defs(5). One difference: the day of the last password change is that
# of all files of a layer, and not today.


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}")
_DAY: Final = 86400
_FILES: Final = ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")
#: Modes of files that the base lacks, as in Debian.
_MODES: Final = {"shadow": 0o640, "gshadow": 0o640}


class Accounts:
    """Account files of a base, with the changes of several programs in sequence."""

    def __init__(self, base: BaseFiles) -> None:
        self._base = base
        self._files = {name: base.read(f"etc/{name}") for name in _FILES}
        #: Names of files that differ from those of the base, with their bytes.
        self._changed: dict[str, bytes] = {}
        self._homes: list[InstalledFile] = []
        self._settings = _parse_settings(base.read("etc/login.defs"), r"\s+")
        self._defaults = _parse_settings(base.read("etc/default/useradd"), "=")

    def add(self, user: User) -> Sequence[str]:
        """Apply the Dockerfile's `account`; return groups that the base lacks.

        Raises UndecidedError if `useradd` would fail.
        """
        row = self._find_row("passwd", 2, str(user.uid))
        if row is None:
            self._useradd(user)
        name = user.name if row is None else row[0]
        missing = []
        for group in user.groups:
            if self._find_row("group", 0, group) is None:
                missing.append(group)
            else:
                self._join(group, name)
        return missing

    def files(self) -> dict[str, InstalledFile]:
        """Return path → file of the layer."""
        files = [*self._homes]
        for name, data in self._changed.items():
            kept = self._base.entry(f"etc/{name.rstrip('-')}")
            new = Attributes(_MODES.get(name.rstrip("-"), 0o644))
            owner = kept.attributes if kept else new
            place = self._resolve(f"etc/{name}")
            files.append(file_of(place, data, owner.mode, owner.uid, owner.gid))
        if files and self._base.entry("etc/.pwd.lock") is None:
            files.append(file_of(self._resolve("etc/.pwd.lock"), b"", 0o600))
        return {file.entry.path: file for file in files}

    # useradd --uid U --user-group --create-home --no-log-init NAME

    def _useradd(self, user: User) -> None:
        name, uid = user.name, user.uid
        if _NAME.fullmatch(name) is None:
            raise UndecidedError(f"the base image takes no user of the name {name[:100]!r}")
        if self._find_row("passwd", 0, name) is not None:
            raise UndecidedError(
                f"the base image has a user {name} with another number than {uid}; choose another "
                "name, or its number"
            )
        for value, column in ((name, 0), (str(uid), 2)):
            if self._find_row("group", column, value) is not None:
                raise UndecidedError(
                    f"the base image has a group {value} already; choose another name or number "
                    "for the user"
                )
        home = f"{self._defaults.get('HOME', '/home')}/{name}"
        shell = self._defaults.get("SHELL", "/bin/sh")
        password = "x" if self._files["shadow"] is not None else "!"
        self._append("passwd", f"{name}:{password}:{uid}:{uid}::{home}:{shell}")
        days = (("PASS_MIN_DAYS", "0"), ("PASS_MAX_DAYS", "99999"), ("PASS_WARN_AGE", "7"))
        ages = ":".join(self._settings.get(key, default) for key, default in days)
        self._append("shadow", f"{name}:!:{FIXED_TIME // _DAY}:{ages}:::", where_there=True)
        self._append("group", f"{name}:x:{uid}:")
        self._append("gshadow", f"{name}:!::", where_there=True)
        if self._read_number("UID_MIN", 1000) <= uid <= self._read_number("UID_MAX", 60000):
            for file, key in (("subuid", "SUB_UID"), ("subgid", "SUB_GID")):
                self._add_range(file, key, name)
        self._make_home(home.strip("/"), uid)

    def _add_range(self, file: str, key: str, name: str) -> None:
        count = self._read_number(f"{key}_COUNT", 65536)
        start = self._read_number(f"{key}_MIN", 100000)
        taken = []
        for row in self._read_rows(file):
            if len(row) == 3 and row[1].isdecimal() and row[2].isdecimal():
                taken.append((int(row[1]), int(row[2])))
        for begin, length in sorted(taken):
            if begin < start + count and start < begin + length:
                start = begin + length
        if count:
            self._append(file, f"{name}:{start}:{count}", where_there=True)

    def _make_home(self, home: str, uid: int) -> None:
        if self._base.entry(home) is not None:
            return  # useradd says so, and leaves it as it is
        home = self._resolve(home)
        mode = self._read_mode("HOME_MODE", 0o777 & ~self._read_mode("UMASK", 0o022))
        self._homes.append(InstalledFile(LayerEntry(home, "folder", mode, user=uid, group=uid)))
        skeleton = self._defaults.get("SKEL", "/etc/skel").strip("/")
        for path, entry in self._base.entries.items():
            if not path.startswith(f"{skeleton}/"):
                continue
            place = f"{home}/{path.removeprefix(f'{skeleton}/')}"
            data = self._base.read(path) or b"" if entry.kind == "file" else b""
            file = file_of(place, data, entry.attributes.mode, uid, uid)
            new = replace(file.entry, kind=entry.kind, target=entry.target)
            self._homes.append(replace(file, entry=new))

    # usermod --append --groups GROUP NAME

    def _join(self, group: str, name: str) -> None:
        for file in ("group", "gshadow"):
            lines = self._read_lines(file)
            for number, line in enumerate(lines):
                head, _, people = line.rpartition(":")
                if line.partition(":")[0] == group and name not in people.split(","):
                    people = f"{people},{name}" if people else name
                    lines[number] = f"{head}:{people}"
                    self._write(file, lines)
                    break

    # Helpers

    def _resolve(self, path: str) -> str:
        """Resolve links of the base in `path`: `/etc` or `/home` may be one."""
        place = self._base.resolve_new(path)
        if not place:
            raise UndecidedError(f"a parent of /{path} is not a folder in the base image")
        return place

    def _find_row(self, file: str, column: int, value: str) -> list[str] | None:
        rows = (row for row in self._read_rows(file) if len(row) > column and row[column] == value)
        return next(rows, None)

    def _read_rows(self, file: str) -> list[list[str]]:
        return [line.split(":") for line in self._read_lines(file)]

    def _read_lines(self, file: str) -> list[str]:
        data = self._files[file]
        return (data or b"").decode("utf-8", "surrogateescape").splitlines()

    def _append(self, file: str, line: str, *, where_there: bool = False) -> None:
        if self._files[file] is not None or not where_there:
            self._write(file, [*self._read_lines(file), line])

    def _write(self, file: str, lines: Sequence[str]) -> None:
        """Replace a file; the previous one gets a dash, as in lib/commonio.c."""
        before = self._files[file]
        if before is not None:
            self._changed[f"{file}-"] = before
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        self._files[file] = self._changed[file] = data

    def _read_mode(self, key: str, default: int) -> int:
        value = self._settings.get(key, "")
        return int(value, 8) & 0o777 if re.fullmatch(r"[0-7]{1,5}", value) else default

    def _read_number(self, key: str, default: int) -> int:
        value = self._settings.get(key, "")
        return int(value) if value.isdecimal() else default


def _parse_settings(data: bytes | None, separator: str) -> Mapping[str, str]:
    settings = {}
    for line in (data or b"").decode("utf-8", "replace").splitlines():
        line = line.partition("#")[0].strip()
        parts = re.split(separator, line, maxsplit=1)
        if len(parts) == 2:
            settings[parts[0].strip()] = parts[1].strip().strip('"')
    return settings
