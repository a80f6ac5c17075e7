"""Files of an installed wheel, as created by `uv pip sync` in an environment.

Formats: the binary distribution format, the entry points specification and "Recording installed
projects" (https://packaging.python.org/en/latest/specifications/). Where they leave a choice, this
follows uv; a test compares the result with uv's. The package `installer` is not used: its scripts
and RECORD differ, and its paths are those of the running Python.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.parser import HeaderParser
from functools import partial
from typing import Final

from msgspec import Struct
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.parsing import parse_version
from buildmatrix.facts.trees.base import Trouble, Unreadable
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images.layers import LayerEntry, is_whiteout, parent_folders, sort_key

#: Environment in the Dockerfile of our templates, relative to the root, as in a layer.
ENVIRONMENT: Final = "opt/venv"
#: Maximum bytes of RECORD, of entry points and of a script, which are read into memory.
_LARGEST: Final = 64 << 20
#: Limits of Linux for file names and paths.
_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4000
#: Maximum bytes of all folders' paths; tensorflow has 0.5 MB. Each folder becomes an entry of a
#: layer, and a ZIP directory of 16 MB could name 8 million.
_MOST_FOLDERS: Final = 16 << 20
_EXECUTABLE: Final = 0o111
_SHEBANG = re.compile(rb"#!python[^\n]*\n?")
#: Like uv: extras are ignored.
_ENTRY_POINT = re.compile(r"([\w.-]+):([\w.-]+)(?:\s+\[[^\]]*\])?", re.ASCII)
_SCRIPT = re.compile(r"[\w.+ -]+")
#: Paths of a new environment.
_RESERVED = re.compile(
    r"pyvenv\.cfg|lib64|bin/(python[\d.]*|activate.*|deactivate\.bat|pydoc\.bat)"
)
#: Like uv's (uv-install-wheel, `get_script_launcher`).
_LAUNCHER: Final = """\
#!/{environment}/bin/python
# -*- coding: utf-8 -*-
import sys
from {module} import {name}
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit({function}())
"""


class InstalledFile(Struct, frozen=True):
    """A file, folder or link of a layer, with access to its bytes."""

    entry: LayerEntry
    content: Callable[[], Iterable[bytes]] = tuple


def file_of(
    path: str, data: bytes, mode: int = 0o644, user: int = 0, group: int = 0
) -> InstalledFile:
    """Return a file with the content `data`."""
    entry = LayerEntry(path, "file", mode, len(data), user=user, group=group)
    return InstalledFile(entry, lambda: (data,))


def site_packages(python: str) -> str:
    """Return the folder of libraries, relative to the root."""
    return f"{ENVIRONMENT}/lib/python{python}/site-packages"


def launcher(script: str, target: str) -> bytes:
    """Return the script that calls `target`, an entry point. Raises UndecidedError if invalid."""
    match = _ENTRY_POINT.fullmatch(target)
    if match is None or not _SCRIPT.fullmatch(script) or script in (".", ".."):
        raise UndecidedError(f"its script {script[:100]!r} cannot be made of {target[:100]!r}")
    text = _LAUNCHER.format(
        environment=ENVIRONMENT, module=match[1], name=match[2].partition(".")[0], function=match[2]
    )
    return text.encode()


def check_paths(files: Mapping[str, InstalledFile]) -> None:
    """Raise UndecidedError for paths that no image can have, or that files and folders share."""
    folders: set[str] = set()
    room = _MOST_FOLDERS
    for path in files:
        parts = path.split("/")
        if is_whiteout(path):
            mine = path.removeprefix(f"{ENVIRONMENT}/")
            raise UndecidedError(f"{mine[:200]!r} would delete files of others in an image")
        if max(len(part.encode()) for part in parts) > _LONGEST_NAME or (
            len(path.encode()) > _LONGEST_PATH
        ):
            raise UndecidedError(f"the path {path[:100]!r}... is longer than Linux takes")
        for above in parent_folders(path):
            if above in folders:
                break
            if above in files and files[above].entry.kind != "folder":
                raise UndecidedError(f"{path[:200]!r} lies in a file")
            folders.add(above)
            room -= len(above)
            if room < 0:
                raise UndecidedError("it has too many folders for a wheel")


class InstalledWheel:
    """Files of a wheel, installed for one minor version of Python.

    `files` are those of the layer, in order. Contents are read from `tree`, whose paths must be the
    names in the wheel. Raises UndecidedError for an invalid wheel, and for paths outside of the
    environment or those of its own files.
    """

    def __init__(self, tree: WheelTree, name: str, version: str, python: str) -> None:
        for trouble in tree.walk():
            if isinstance(trouble, Trouble):
                raise UndecidedError(f"its member {trouble.path[:200]!r}: {trouble.why}")
        self._tree = tree
        self._python = python
        self._site = site_packages(python)
        self._members = {
            entry.name: entry for entry in tree.entries if not entry.name.endswith("/")
        }
        self._metadata = self._metadata_folder(name, version)
        #: Bytes of all files.
        self.size = sum(entry.size for entry in self._members.values())
        self._files: dict[str, InstalledFile] = {}
        self._rows: list[tuple[str, str, str]] = []
        self._add_members()
        self._add_folders()
        self._add_launchers()
        self._add_notes()
        self._check_paths()
        self.files = tuple(self._files[path] for path in sorted(self._files, key=sort_key))

    def _metadata_folder(self, name: str, version: str) -> str:
        folders = {top for top, _, rest in (name.partition("/") for name in self._members) if rest}
        folders = {folder for folder in folders if folder.endswith(".dist-info")}
        if len(folders) != 1:
            raise UndecidedError(f"it has {len(folders)} folders *.dist-info, and a wheel has one")
        folder = folders.pop()
        for file in ("RECORD", "WHEEL", "METADATA"):
            if f"{folder}/{file}" not in self._members:
                raise UndecidedError(f"it has no {folder}/{file}")
        mine, _, release = folder.removesuffix(".dist-info").partition("-")
        try:
            is_named = canonicalize_name(mine) == canonicalize_name(name)
            is_named &= not version or parse_version(release) == parse_version(version)
        except InvalidVersion:
            is_named = False
        if not is_named:
            raise UndecidedError(f"it holds {folder}, and the lock says {name} {version}")
        headers = HeaderParser().parsestr(self._read(f"{folder}/WHEEL").decode("utf-8", "replace"))
        if str(headers.get("Wheel-Version", "")).partition(".")[0].strip() != "1":
            raise UndecidedError("its format is not version 1 of wheels, and nothing else is known")
        return folder

    @property
    def _data(self) -> str:
        return f"{self._metadata.removesuffix('.dist-info')}.data"

    def _place(self, name: str) -> tuple[str, bool]:
        """Return the installed path of the member or folder `name`, and True for a script."""
        top, _, rest = name.partition("/")
        if top != self._data:
            return f"{self._site}/{name}", False
        scheme, _, rest = rest.partition("/")
        distribution = self._metadata.partition("-")[0]
        places = {
            "purelib": self._site,
            "platlib": self._site,
            "data": ENVIRONMENT,
            "scripts": f"{ENVIRONMENT}/bin",
            "headers": f"{ENVIRONMENT}/include/site/python{self._python}/{distribution}",
        }
        is_script = scheme == "scripts"
        if scheme not in places or not rest or (is_script and "/" in rest):
            raise UndecidedError(f"its member {name[:200]!r} is in no scheme of a wheel")
        return f"{places[scheme]}/{rest}", is_script

    def _add_members(self) -> None:
        record = f"{self._metadata}/RECORD"
        recorded = self._read_record(record)
        for name, entry in self._members.items():
            if name == record:
                continue
            path, is_script = self._place(name)
            if _resolve_lib64(path) in self._files:
                raise UndecidedError(f"{name[:200]!r} and another member are installed as one file")
            if is_script:
                shebang = f"#!/{ENVIRONMENT}/bin/python\n".encode()
                data = self._read(name)
                if _SHEBANG.match(data):
                    data = _SHEBANG.sub(shebang, data, count=1)
                self._write(path, data, 0o755)
                continue
            mode = 0o755 if entry.mode & _EXECUTABLE else 0o644
            new = LayerEntry(path, "file", mode, entry.size)
            self._keep(InstalledFile(new, partial(self._stream, name)))
            self._note(path, *recorded.get(name, ("", str(entry.size))))

    def _add_folders(self) -> None:
        """Add the wheel's folder entries: some folders are empty."""
        for entry in self._tree.entries:
            if not entry.name.endswith("/"):
                continue
            name = entry.name[:-1]
            around = f"/{name}/"
            if "//" in around or "/./" in around or "/../" in around:
                raise UndecidedError(f"its folder {entry.name[:200]!r} leads out of it")
            top, _, rest = name.partition("/")
            if top == self._data and "/" not in rest:
                continue  # the data, or one of its schemes
            path, is_script = self._place(name)
            if is_script:
                raise UndecidedError(f"its folder {name[:200]!r} stands among scripts")
            path = _resolve_lib64(f"{path}/")[:-1]
            if self._is_file(path):
                raise UndecidedError(f"it holds {name[:200]!r} as a file and as a folder")
            self._files[path] = InstalledFile(LayerEntry(path, "folder", 0o755))

    def _add_launchers(self) -> None:
        name = f"{self._metadata}/entry_points.txt"
        if name not in self._members:
            return
        for script, target in _parse_entry_points(self._read(name)):
            self._write(f"{ENVIRONMENT}/bin/{script}", launcher(script, target), 0o755)

    def _add_notes(self) -> None:
        """Add INSTALLER and REQUESTED, like uv, and a RECORD of all files."""
        folder = f"{self._site}/{self._metadata}"
        self._write(f"{folder}/INSTALLER", b"uv")
        self._write(f"{folder}/REQUESTED", b"")
        self._note(f"{folder}/RECORD", "", "")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(sorted(self._rows))
        data = text.getvalue().encode("utf-8", "surrogateescape")
        # uv overwrites the wheel's own RECORD, and keeps its mode.
        is_executable = self._members[f"{self._metadata}/RECORD"].mode & _EXECUTABLE
        mode = 0o755 if is_executable else 0o644
        self._keep(file_of(f"{folder}/RECORD", data, mode))

    def _check_paths(self) -> None:
        check_paths(self._files)
        for path, file in self._files.items():
            mine = path.removeprefix(f"{ENVIRONMENT}/")
            if file.entry.kind == "file" and _RESERVED.fullmatch(mine):
                raise UndecidedError(f"it would replace {mine} of the environment")

    def _is_file(self, path: str) -> bool:
        return path in self._files and self._files[path].entry.kind == "file"

    # Helpers

    def _write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Add a generated file; later ones replace earlier ones."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._keep(file_of(path, data, mode))
        self._note(path, f"sha256={digest}", str(len(data)))

    def _keep(self, file: InstalledFile) -> None:
        path = _resolve_lib64(file.entry.path)
        self._files[path] = replace(file, entry=replace(file.entry, path=path))

    def _note(self, path: str, digest: str, size: str) -> None:
        """Add a row to RECORD, whose paths are relative to the libraries."""
        self._rows.append((posixpath.relpath(path, self._site), digest, size))

    def _read_record(self, record: str) -> Mapping[str, tuple[str, str]]:
        """Return member → hash and size in the wheel's RECORD: unverified, but copied by uv."""
        try:
            lines = self._read(record).decode("utf-8").splitlines()
            rows = [row for row in csv.reader(lines, strict=True) if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise UndecidedError(f"its RECORD cannot be read: {error}") from None
        if any(len(row) != 3 for row in rows):
            raise UndecidedError("its RECORD has rows that are not of three fields")
        return {path: (digest, size) for path, digest, size in rows}

    def _stream(self, name: str) -> Iterator[bytes]:
        try:
            yield from self._tree.stream(name)
        except Unreadable as error:
            raise UndecidedError(f"its member {name[:200]!r}: {error}") from error

    def _read(self, name: str) -> bytes:
        if self._members[name].size > _LARGEST:
            raise UndecidedError(f"its member {name[:200]!r} is larger than {_LARGEST >> 20} MiB")
        return b"".join(self._stream(name))


def _resolve_lib64(path: str) -> str:
    """Resolve `lib64`, a link of the environment, which a folder would replace."""
    link = f"{ENVIRONMENT}/lib64/"
    return f"{ENVIRONMENT}/lib/{path.removeprefix(link)}" if path.startswith(link) else path


def _parse_entry_points(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield names of scripts and their entry points."""
    parser = configparser.ConfigParser(
        delimiters=("=",), interpolation=None, strict=False, default_section="\0"
    )
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, configparser.Error) as error:
        raise UndecidedError(f"its entry points cannot be read: {error}") from None
    for section in ("console_scripts", "gui_scripts"):
        if parser.has_section(section):
            for name, target in parser.items(section):
                yield name.strip(), target.strip()
