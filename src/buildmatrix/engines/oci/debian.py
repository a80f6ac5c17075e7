"""Debian packages of an image, resolved by apt and unpacked without being run.

apt selects the packages (`engines.oci.apt`), and dpkg-deb opens them. A package is refused if it
has to run programs; only an update of the loader's cache (`ldconfig`) is ignored.

Formats: deb(5), deb-control(5), deb-triggers(5), dpkg(1) (`path-exclude`).
Source: dpkg 1.21, lib/dpkg/{parse,fields,dbmodify}.c, for the order of fields in `status`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from buildmatrix.base.child import bare_environment
from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.scratch import scratch
from buildmatrix.engines.oci import apt
from buildmatrix.engines.oci.base_files import BaseFiles
from buildmatrix.engines.oci.installation import InstalledFile
from buildmatrix.facts.trees.archive import CHUNK, OpenFile, Slice, safe_path
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.tar import members
from buildmatrix.images.oci.layers import LayerEntry, is_whiteout

#: Maximum bytes of a package's files; the largest in Debian have 2 GB.
_LARGEST: Final = 8 << 30
_LARGEST_CONTROL: Final = 64 << 20
_ARCHITECTURES: Final = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
#: Lines of maintainer scripts without effect.
_IDLE = re.compile(r"\s*(#.*|set -[eu]+|exit 0|true|:)?\s*")
_SCRIPTS: Final = ("preinst", "postinst", "config")
#: Fields in dpkg's order; others follow in the order of the package.
_FIELDS: Final = (
    "Package", "Essential", "Protected", "Status", "Priority", "Section", "Installed-Size",
    "Origin", "Maintainer", "Bugs", "Architecture", "Multi-Arch", "Source", "Version", "Replaces",
    "Provides", "Depends", "Pre-Depends", "Recommends", "Suggests", "Breaks", "Conflicts",
    "Enhances", "Conffiles", "Description",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Package:
    """A fetched and opened package."""

    fields: Mapping[str, str]
    #: Files of its control archive, by name.
    control: Mapping[str, bytes]
    #: Its files as one tar archive.
    data: Slice

    @property
    def name(self) -> str:
        return self.fields["Package"]

    @property
    def info(self) -> str:
        """Base name of its files in dpkg's database."""
        if self.fields.get("Multi-Arch") == "same":
            return f"{self.name}:{self.fields['Architecture']}"
        return self.name


class DebianPackages:
    """Packages for one base. Their files are valid until `held` is closed.

    Methods raise UndecidedError for packages that apt cannot resolve or fetch, and for packages
    that have to run programs during installation.
    """

    def __init__(self, base: BaseFiles, platform: str, held: ExitStack) -> None:
        self._base = base
        self._architecture = _ARCHITECTURES[platform]
        self._held = held
        self._excluded = list(_filters(base))
        self._changed = set(_changed(base))

    def files(self, names: Sequence[str]) -> dict[str, InstalledFile]:
        """Return path → file of the layer, for the packages `names` and their dependencies."""
        status = self._base.read("var/lib/dpkg/status")
        if status is None:
            raise UndecidedError("the base image has no dpkg, and so no Debian packages")
        folder = self._held.enter_context(scratch("packages"))
        wanted, debs = apt.fetched(self._base, self._architecture, names, status, folder)
        packages = [self._opened(folder, deb) for deb in sorted(debs)]
        if {package.name for package in packages} != wanted:
            raise UndecidedError("apt fetched other packages than it had resolved; try again")
        files: dict[str, InstalledFile] = {}
        for package in packages:
            _check_scripts(package)
            for path, file in self._unpacked(package).items():
                if path in files and "folder" not in (file.entry.kind, files[path].entry.kind):
                    raise UndecidedError(f"{package.name} and another package bring /{path}")
                if files.setdefault(path, file).entry.kind != file.entry.kind:
                    raise UndecidedError(f"/{path} is a folder of one package, and no other's")
        for path in files:
            above = path.rpartition("/")[0]
            while above:
                if above in files and files[above].entry.kind != "folder":
                    raise UndecidedError(f"/{path} lies in what is no folder of a package")
                above = above.rpartition("/")[0]
        if packages:
            files |= self._database(status, packages, names)
        return files

    # Packages

    def _opened(self, folder: Path, deb: Path) -> _Package:
        control = self._tar(folder, ["dpkg-deb", "--ctrl-tarfile", str(deb)], _LARGEST_CONTROL)
        files = {}
        try:
            for member in members(control, as_dpkg=True):
                name = safe_path(member.name)
                if member.data is not None and name and "/" not in name:
                    files[name] = member.data.read(0, member.data.size)
        except Unreadable as error:
            raise UndecidedError(f"{deb.name} cannot be read: {error}") from error
        fields = _stanza(files.get("control", b"").decode("utf-8", "replace"))
        if "Package" not in fields or fields.get("Architecture") not in (self._architecture, "all"):
            raise UndecidedError(f"{deb.name} is no package for {self._architecture}")
        data = self._tar(folder, ["dpkg-deb", "--fsys-tarfile", str(deb)], _LARGEST)
        return _Package(fields, files, data)

    def _tar(self, folder: Path, command: Sequence[str], most: int) -> Slice:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed with `held`)
        self._held.callback(file.close)
        with subprocess.Popen(
            command,
            env=bare_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as run:
            assert run.stdout is not None
            size = 0
            while chunk := run.stdout.read(CHUNK):
                size += len(chunk)
                if size > most:
                    run.kill()
                    raise UndecidedError(
                        f"{Path(command[-1]).name} unpacks to more than {most} bytes"
                    )
                file.write(chunk)
        if run.returncode:
            raise UndecidedError(f"dpkg-deb cannot open {Path(command[-1]).name}")
        file.flush()
        return Slice(OpenFile(file.fileno()), 0, size)

    def _unpacked(self, package: _Package) -> dict[str, InstalledFile]:
        files: dict[str, InstalledFile] = {}
        try:
            for member in members(package.data, as_dpkg=True):
                path = safe_path(member.name)
                if (
                    path is None
                    or is_whiteout(path)
                    or member.kind == "other"
                    or member.kind == "device"
                    or member.attributes is None
                ):
                    raise UndecidedError(
                        f"{package.name} holds {member.name[:200]!r}, which no image can have"
                    )
                if not path or self._is_excluded(path, member.kind):
                    continue
                if f"/{path}" in self._changed:
                    raise UndecidedError(
                        f"{package.name}: the base image says that /{path} goes to another place, "
                        "or has another owner or mode (dpkg-divert, dpkg-statoverride)"
                    )
                if path.startswith("etc/ld.so.conf"):
                    raise UndecidedError(f"{package.name} changes where the loader looks")
                attributes = member.attributes
                if attributes.uid or attributes.gid:
                    raise UndecidedError(f"{package.name}: /{path} belongs to somebody but root")
                if member.kind == "folder" and self._is_folder(path):
                    continue
                place = self._place(path)
                if place in self._base.entries:
                    raise UndecidedError(f"{package.name} brings /{path}, which the base has")
                if place in files and (member.kind, files[place].entry.kind) != (
                    "folder",
                    "folder",
                ):
                    raise UndecidedError(f"{package.name} brings /{path} twice")
                size = member.data.size if member.data is not None else 0
                target = member.target
                if member.kind == "hardlink":
                    target = self._place(safe_path(target) or "")
                    if target not in files or files[target].entry.kind != "file":
                        raise UndecidedError(
                            f"{package.name}: /{path} is a link to what no file before it is"
                        )
                entry = LayerEntry(place, member.kind, attributes.mode, size, target)
                content = _content(member.data) if member.data is not None else tuple
                files[place] = InstalledFile(entry, content)
        except Unreadable as error:
            raise UndecidedError(f"{package.name} cannot be read: {error}") from error
        return files

    def _is_folder(self, path: str) -> bool:
        """Return True if the base has the folder, or a link to one, which dpkg keeps."""
        there = self._base.entry(path)
        return there is not None and there.kind == "folder"

    def _place(self, path: str) -> str:
        """Resolve links of the base, like dpkg: `/lib` may be a link to `/usr/lib`."""
        folder, _, name = path.rpartition("/")
        place = self._base.placed(folder)
        if place is None:
            raise UndecidedError(f"/{path} leads through what is no folder in the base image")
        return f"{place}/{name}".lstrip("/")

    def _is_excluded(self, path: str, kind: str) -> bool:
        is_excluded = False
        for pattern, value in self._excluded:
            if fnmatch.fnmatchcase(f"/{path}", pattern):
                is_excluded = value
        # dpkg still creates the parent folders of included files.
        return is_excluded and kind != "folder"

    # dpkg's database

    def _database(
        self, status: bytes, packages: Sequence[_Package], names: Sequence[str]
    ) -> dict[str, InstalledFile]:
        stanzas = {}
        for text in status.decode("utf-8", "surrogateescape").split("\n\n"):
            if text.strip():
                stanzas[_stanza(text).get("Package", "")] = text.strip("\n") + "\n"
        files: dict[str, InstalledFile] = {}
        automatic = self._base.read("var/lib/apt/extended_states") or b""
        marks = automatic.decode("utf-8", "surrogateescape")
        wanted = {name.partition("=")[0].partition(":")[0] for name in names}
        for package in packages:
            stanzas[package.name] = _status(package)
            files |= self._info(package)
            if package.name not in wanted:
                architecture = package.fields["Architecture"]
                marks += (
                    f"Package: {package.name}\nArchitecture: {architecture}\nAuto-Installed: 1\n\n"
                )
        text = "\n".join(stanzas[name] for name in sorted(stanzas)) + "\n"
        files |= _written("var/lib/dpkg/status", text.encode("utf-8", "surrogateescape"))
        if marks:
            files |= _written(
                "var/lib/apt/extended_states", marks.encode("utf-8", "surrogateescape")
            )
        return files

    def _info(self, package: _Package) -> dict[str, InstalledFile]:
        files: dict[str, InstalledFile] = {}
        lines = []
        for member in members(package.data, as_dpkg=True):
            path = safe_path(member.name) or ""
            if not self._is_excluded(path, member.kind):
                lines.append(f"/{path}\n" if path else "/.\n")
        listed = "".join(lines).encode("utf-8", "surrogateescape")
        files |= _written(f"var/lib/dpkg/info/{package.info}.list", listed)
        for name, data in package.control.items():
            if name != "control":
                mode = 0o755 if name in (*_SCRIPTS, "prerm", "postrm") else 0o644
                files |= _written(f"var/lib/dpkg/info/{package.info}.{name}", data, mode)
        return files


def _check_scripts(package: _Package) -> None:
    """Raise UndecidedError for a package that runs programs during installation."""
    for name in _SCRIPTS:
        text = package.control.get(name, b"").decode("utf-8", "replace")
        if not all(_IDLE.fullmatch(line) for line in text.splitlines()):
            raise UndecidedError(
                f"the package {package.name} runs a script when it is installed ({name}), which "
                "this engine does not"
            )
    for line in package.control.get("triggers", b"").decode("utf-8", "replace").splitlines():
        words = line.partition("#")[0].split()
        if words and words not in (["activate-noawait", "ldconfig"], ["activate", "ldconfig"]):
            raise UndecidedError(
                f"the package {package.name} has the trigger `{' '.join(words)[:100]}`, which "
                "this engine does not run"
            )


def _status(package: _Package) -> str:
    fields = {**package.fields, "Status": "install ok installed"}
    conffiles = package.control.get("conffiles", b"").decode("utf-8", "replace").split("\n")
    sums = []
    contents = {safe_path(member.name): member for member in members(package.data, as_dpkg=True)}
    for line in conffiles:
        member = contents.get(line.strip().strip("/"))
        if line.strip() and member is not None and member.data is not None:
            data = member.data.read(0, member.data.size)
            digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
            sums.append(f"\n {line.strip()} {digest}")
    if sums:
        fields["Conffiles"] = "".join(sums)
    order = [
        *(name for name in _FIELDS if name in fields),
        *(n for n in fields if n not in _FIELDS),
    ]
    return "".join(
        f"{name}:{'' if fields[name].startswith(chr(10)) else ' '}{fields[name]}\n"
        for name in order
    )


def _stanza(text: str) -> dict[str, str]:
    """Parse the fields of a control file in order, with continuation lines."""
    fields: dict[str, str] = {}
    name = ""
    for line in text.strip("\n").splitlines():
        if line[:1] in (" ", "\t") and name:
            fields[name] += f"\n{line}"
        else:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return fields


def _filters(base: BaseFiles) -> Iterator[tuple[str, bool]]:
    """Yield patterns of `path-exclude` and `path-include`; True for excluding ones."""
    folder = re.compile(r"etc/dpkg/dpkg\.cfg\.d/[A-Za-z0-9_-]+")
    names = [path for path in base.entries if folder.fullmatch(path)]
    # Like dpkg's lib/dpkg/options.c: other names are ignored, and its own file comes last.
    for path in [*sorted(names), "etc/dpkg/dpkg.cfg"]:
        for line in (base.read(path) or b"").decode("utf-8", "replace").splitlines():
            match = re.fullmatch(r"\s*path-(exclude|include)[\s=]+(\S+)\s*", line)
            if match:
                yield match[2], match[1] == "exclude"


def _changed(base: BaseFiles) -> Iterator[str]:
    """Yield paths that dpkg would change while unpacking: diverted, or with an overridden mode.

    Format: lib/dpkg/db-fsys-divert.c (three lines for each) and db-fsys-override.c.
    """

    def lines(name: str) -> list[str]:
        data = base.read(f"var/lib/dpkg/{name}") or b""
        return data.decode("utf-8", "surrogateescape").splitlines()

    for number, line in enumerate(lines("diversions")):
        if number % 3 < 2:  # the path, and where it goes; the third line is a package
            yield line
    for line in lines("statoverride"):
        yield line.split(" ", 3)[-1]


def _content(data: Slice) -> Callable[[], Iterable[bytes]]:
    return lambda: (data.read(at, CHUNK) for at in range(0, data.size, CHUNK))


def _written(path: str, data: bytes, mode: int = 0o644) -> dict[str, InstalledFile]:
    return {path: InstalledFile(LayerEntry(path, "file", mode, len(data)), lambda: (data,))}
