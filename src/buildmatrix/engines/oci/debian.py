"""Debian packages of an image, resolved by apt and unpacked without being run.

apt selects the packages (`engines.oci.apt`), and dpkg-deb opens them. A package is refused if a
script or trigger of it would change a file; only updates of the loader's cache are ignored.

Formats: deb(5), deb-control(5), deb-triggers(5), dpkg(1) (`path-exclude`).
Source: dpkg 1.21, lib/dpkg/{parse,fields,dbmodify}.c, for the order of fields in `status`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from msgspec import Struct

from buildmatrix.base.child import bare_environment, log_process, scratch
from buildmatrix.base.errors import UndecidedError
from buildmatrix.engines.oci import apt
from buildmatrix.engines.oci.base_files import BaseFiles
from buildmatrix.engines.oci.installation import InstalledFile, file_of
from buildmatrix.engines.oci.maintainer_scripts import find_effect
from buildmatrix.facts.trees.archive import CHUNK, OpenFile, Slice, safe_path
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.tar import TarMember, members
from buildmatrix.images.layers import LayerEntry, is_whiteout, parent_folders

#: Maximum bytes of a package's files; the largest in Debian have 2 GB.
_LARGEST: Final = 8 << 30
_LARGEST_CONTROL: Final = 64 << 20
_ARCHITECTURES: Final = {"linux/amd64": "amd64", "linux/arm64": "arm64"}
#: Scripts of an installation, with their arguments where no version was installed before.
_SCRIPTS: Final = {
    "preinst": ("install",),
    "postinst": ("configure", ""),
    "config": ("configure", ""),
}
_TRIGGERS: Final = "var/lib/dpkg/triggers/File"
#: Name of a path, or of a file in dpkg's folder of triggers.
_TRIGGER = re.compile(r"/[!-~]{1,1000}|[A-Za-z0-9][A-Za-z0-9_.:+-]{0,200}")
_INTERESTS: Final = ("interest", "interest-await", "interest-noawait")
#: Fields in dpkg's order; others follow in the order of the package.
_FIELDS: Final = (
    "Package", "Essential", "Protected", "Status", "Priority", "Section", "Installed-Size",
    "Origin", "Maintainer", "Bugs", "Architecture", "Multi-Arch", "Source", "Version", "Replaces",
    "Provides", "Depends", "Pre-Depends", "Recommends", "Suggests", "Breaks", "Conflicts",
    "Enhances", "Conffiles", "Description",
)  # fmt: skip


class _Package(Struct, frozen=True):
    """A fetched and opened package."""

    fields: Mapping[str, str]
    #: Files of its control archive, by name.
    control: Mapping[str, bytes]
    #: Its files, by path; None for a path that leads out of the root.
    members: Sequence[tuple[str | None, TarMember]]

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
        self._excluded = [*_read_filters(base)][::-1]
        self._changed = set(_find_changed_paths(base))

    def files(self, names: Sequence[str]) -> dict[str, InstalledFile]:
        """Return path → file of the layer, for the packages `names` and their dependencies."""
        status = self._base.read("var/lib/dpkg/status")
        if status is None:
            raise UndecidedError("the base image has no dpkg, and so no Debian packages")
        folder = self._held.enter_context(scratch("packages"))
        wanted, debs = apt.fetch_packages(self._base, self._architecture, names, status, folder)
        packages = [self._open_package(folder, deb) for deb in sorted(debs)]
        if {package.name for package in packages} != wanted:
            raise UndecidedError("apt fetched other packages than it had resolved; try again")
        files: dict[str, InstalledFile] = {}
        unpacked = [(package, self._unpack(package)) for package in packages]
        for package, own in unpacked:
            for path, file in own.items():
                if path in files and "folder" not in (file.entry.kind, files[path].entry.kind):
                    raise UndecidedError(f"{package.name} and another package bring /{path}")
                if files.setdefault(path, file).entry.kind != file.entry.kind:
                    raise UndecidedError(f"/{path} is a folder in one package and not in another")
        for path in files:
            for above in parent_folders(path):
                if above in files and files[above].entry.kind != "folder":
                    raise UndecidedError(f"/{above} is not a folder, but /{path} is below it")
        self._check_triggers(unpacked)
        known = _split_stanzas(status)
        for package, own in unpacked:
            self._check_scripts(package, own, files, known.get(package.name, ""))
        if packages:
            files |= self._make_database(known, packages, names)
        return files

    # Scripts and triggers

    def _check_scripts(
        self,
        package: _Package,
        own: Mapping[str, InstalledFile],
        files: Mapping[str, InstalledFile],
        before: str,
    ) -> None:
        """Raise UndecidedError for a package with a script that may have an effect.

        `before` is its stanza in the base, if any.
        """
        is_known = bool(before) and not _parse_stanza(before).get("Status", "").endswith(
            " not-installed"
        )
        for name, arguments in _SCRIPTS.items():
            if name not in package.control:
                continue
            text = package.control[name].decode("utf-8", "replace")
            tree = _ScriptTree(self._base, files, own if name != "preinst" else {})
            line = find_effect(text, arguments, tree)
            if line is not None:
                shown = (*text.splitlines(), "")[line - 1].strip()[:100] if line else ""
                raise UndecidedError(
                    f"the package {package.name} runs a script when it is installed ({name}, line "
                    f"{line}: `{shown}`), which this engine does not. Build with --engine docker, "
                    f"or on a base with {package.name}"
                )
            if is_known:
                raise UndecidedError(
                    f"{package.name} was removed from the base, but not its configuration: its "
                    f"script {name} may change it. Purge the package, or build with "
                    "--engine docker"
                )

    def _check_triggers(
        self, unpacked: Sequence[tuple[_Package, Mapping[str, InstalledFile]]]
    ) -> None:
        """Raise UndecidedError for a trigger that another package may activate."""
        lines = (self._base.read(_TRIGGERS) or b"").decode("utf-8", "replace").splitlines()
        watched = [
            (path, owner.partition("/")[0])
            for path, _, owner in (line.partition(" ") for line in lines)
        ]
        for package, _ in unpacked:
            for kind, name in _parse_triggers(package):
                if kind in _INTERESTS and name.startswith("/"):
                    watched.append((name, package.name))
                elif kind not in _INTERESTS and name != "ldconfig":
                    raise UndecidedError(
                        f"the package {package.name} has the trigger `{kind} {name}`, which "
                        "this engine does not run"
                    )
        interests: dict[str, set[str]] = {}
        for path, owner in watched:
            place = self._base.resolve_new(path)
            interests.setdefault(path.strip("/") if place is None else place, set()).add(owner)
        for package, own in unpacked:
            for path in own:
                for place in (path, *parent_folders(path)):
                    others = interests.get(place, set()) - {package.name}
                    if others:
                        raise UndecidedError(
                            f"/{path} of {package.name} activates a trigger of {min(others)}, "
                            "which this engine does not run. Build with --engine docker"
                        )

    # Packages

    def _open_package(self, folder: Path, deb: Path) -> _Package:
        command = ["dpkg-deb", "--ctrl-tarfile", str(deb)]
        try:
            control = {
                name: member.data.read(0, member.data.size)
                for name, member in _list_members(self._open_tar(folder, command, _LARGEST_CONTROL))
                if member.data is not None and name and "/" not in name
            }
            fields = _parse_stanza(control.get("control", b"").decode("utf-8", "replace"))
            architectures = (self._architecture, "all")
            if "Package" not in fields or fields.get("Architecture") not in architectures:
                raise UndecidedError(f"{deb.name} is not a package for {self._architecture}")
            command = ["dpkg-deb", "--fsys-tarfile", str(deb)]
            return _Package(
                fields, control, _list_members(self._open_tar(folder, command, _LARGEST))
            )
        except Unreadable as error:
            raise UndecidedError(f"{deb.name} cannot be read: {error}") from error

    def _open_tar(self, folder: Path, command: Sequence[str], most: int) -> Slice:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed with `held`)
        self._held.callback(file.close)
        log_end = log_process(command)
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
        log_end(run.returncode)
        if run.returncode:
            raise UndecidedError(f"dpkg-deb cannot open {Path(command[-1]).name}")
        file.flush()
        return Slice(OpenFile(file.fileno()), 0, size)

    def _unpack(self, package: _Package) -> dict[str, InstalledFile]:
        files: dict[str, InstalledFile] = {}
        for path, member in package.members:
            attributes = member.attributes
            if (
                path is None
                or is_whiteout(path)
                or member.kind == "other"
                or member.kind == "device"
                or attributes is None
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
            if attributes.uid or attributes.gid:
                raise UndecidedError(f"{package.name}: /{path} is not owned by root")
            there = self._base.entry(path)
            if member.kind == "folder" and there is not None and there.kind == "folder":
                continue  # dpkg keeps a folder, or a link to one
            place = self._resolve(path)
            if place in self._base.entries:
                raise UndecidedError(f"{package.name} brings /{path}, which the base has")
            if place in files and not member.kind == files[place].entry.kind == "folder":
                raise UndecidedError(f"{package.name} brings /{path} twice")
            size = member.data.size if member.data is not None else 0
            target = member.target
            if member.kind == "hardlink":
                target = self._resolve(safe_path(target) or "")
                if target not in files or files[target].entry.kind != "file":
                    raise UndecidedError(
                        f"{package.name}: /{path} is a link to what no file before it is"
                    )
            entry = LayerEntry(place, member.kind, attributes.mode, size, target)
            content = member.data.chunks if member.data is not None else tuple
            files[place] = InstalledFile(entry, content)
        return files

    def _resolve(self, path: str) -> str:
        """Resolve links of the base, like dpkg: `/lib` may be a link to `/usr/lib`."""
        folder, _, name = path.rpartition("/")
        place = self._base.resolve_new(folder)
        if place is None:
            raise UndecidedError(f"a parent of /{path} is not a folder in the base image")
        return f"{place}/{name}".lstrip("/")

    def _is_excluded(self, path: str, kind: str) -> bool:
        # dpkg still creates the parent folders of included files. The last match wins.
        matches = (value for pattern, value in self._excluded if fnmatchcase(f"/{path}", pattern))
        return kind != "folder" and next(matches, False)

    # dpkg's database

    def _make_database(
        self, known: Mapping[str, str], packages: Sequence[_Package], names: Sequence[str]
    ) -> dict[str, InstalledFile]:
        stanzas = dict(known)
        files: dict[str, InstalledFile] = {}
        automatic = self._base.read("var/lib/apt/extended_states") or b""
        marks = automatic.decode("utf-8", "surrogateescape")
        wanted = {name.partition("=")[0].partition(":")[0] for name in names}
        for package in packages:
            stanzas[package.name] = _format_status(package)
            files |= self._make_info(package)
            if package.name not in wanted:
                # apt takes `all` for the architecture of the system.
                marks += (
                    f"Package: {package.name}\nArchitecture: {self._architecture}\n"
                    "Auto-Installed: 1\n\n"
                )
        text = "\n".join(stanzas[name] for name in sorted(stanzas)) + "\n"
        contents = self._list_interests(packages)
        contents["var/lib/dpkg/status"] = text.encode("utf-8", "surrogateescape")
        if marks:
            contents["var/lib/apt/extended_states"] = marks.encode("utf-8", "surrogateescape")
        return files | {path: file_of(path, data) for path, data in contents.items()}

    def _list_interests(self, packages: Sequence[_Package]) -> dict[str, bytes]:
        """Return dpkg's lists of interested packages: lib/dpkg/trigdeferred.c and triglib.c."""
        lists: dict[str, bytes] = {}
        for package in packages:
            for kind, name in _parse_triggers(package):
                if kind not in _INTERESTS:
                    continue
                path = _TRIGGERS if name.startswith("/") else f"var/lib/dpkg/triggers/{name}"
                # Names of files are in one list, which begins its lines with them.
                prefix = f"{name} " if path == _TRIGGERS else ""
                suffix = "/noawait" if kind == "interest-noawait" else ""
                before = lists[path] if path in lists else self._base.read(path) or b""
                lists[path] = before + f"{prefix}{package.info}{suffix}\n".encode()
        return lists

    def _make_info(self, package: _Package) -> dict[str, InstalledFile]:
        files: dict[str, InstalledFile] = {}
        lines = (
            f"/{path or '.'}\n"
            for path, member in package.members
            if not self._is_excluded(path or "", member.kind)
        )
        listed = "".join(lines).encode("utf-8", "surrogateescape")
        for name, data in {**package.control, "list": listed}.items():
            if name != "control":
                path = f"var/lib/dpkg/info/{package.info}.{name}"
                mode = 0o755 if name in (*_SCRIPTS, "prerm", "postrm") else 0o644
                files[path] = file_of(path, data, mode)
        return files


def _parse_triggers(package: _Package) -> Iterator[tuple[str, str]]:
    """Yield directives and names of triggers; raises UndecidedError for others."""
    for line in package.control.get("triggers", b"").decode("utf-8", "replace").splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        kinds = (*_INTERESTS, "activate", "activate-await", "activate-noawait")
        if len(words) != 2 or words[0] not in kinds or not _TRIGGER.fullmatch(words[1]):
            raise UndecidedError(
                f"the package {package.name} has the trigger `{' '.join(words)[:100]}`, which "
                "this engine does not know"
            )
        yield words[0], words[1]


class _ScriptTree(Struct, frozen=True):
    """File system that a script of a package sees: see `maintainer_scripts.Tree`."""

    base: BaseFiles
    files: Mapping[str, InstalledFile]
    own: Mapping[str, InstalledFile]

    def kind(self, path: str) -> str | None:
        place = self.base.resolve_new(path)
        if place is None:
            return None
        folder, _, name = path.rstrip("/").rpartition("/")
        above = self.base.resolve_new(folder)
        # A link is shown itself, and not its target.
        link = f"{above}/{name}".lstrip("/") if above is not None else place
        if link in self.base.entries and self.base.entries[link].kind == "symlink":
            return "symlink"
        if place in self.base.entries:
            return self.base.entries[place].kind
        above_it = (self.files.get(parent) for parent in parent_folders(place))
        if any(file is not None and file.entry.kind != "folder" for file in above_it):
            return None
        if place not in self.files:
            return ""
        kind = self.files[place].entry.kind
        return (kind if kind != "hardlink" else "file") if place in self.own else None

    def is_empty(self, folder: str) -> bool:
        place = self.base.resolve_new(folder)
        return place is not None and not any(
            path.startswith(f"{place}/")
            for paths in (self.base.entries, self.files)
            for path in paths
        )


def _list_members(archive: Slice) -> list[tuple[str | None, TarMember]]:
    """Return the members of an archive with their paths. Raises `Unreadable`."""
    return [(safe_path(member.name), member) for member in members(archive, as_dpkg=True)]


def _split_stanzas(status: bytes) -> dict[str, str]:
    """Return package → its part of dpkg's database."""
    return {
        _parse_stanza(text).get("Package", ""): text.strip("\n") + "\n"
        for text in status.decode("utf-8", "surrogateescape").split("\n\n")
        if text.strip()
    }


def _format_status(package: _Package) -> str:
    fields = {**package.fields, "Status": "install ok installed"}
    conffiles = package.control.get("conffiles", b"").decode("utf-8", "replace").split("\n")
    sums = []
    contents = dict(package.members)
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


def _parse_stanza(text: str) -> dict[str, str]:
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


def _read_filters(base: BaseFiles) -> Iterator[tuple[str, bool]]:
    """Yield patterns of `path-exclude` and `path-include`; True for excluding ones."""
    folder = re.compile(r"etc/dpkg/dpkg\.cfg\.d/[A-Za-z0-9_-]+")
    names = [path for path in base.entries if folder.fullmatch(path)]
    # Like dpkg's lib/dpkg/options.c: other names are ignored, and its own file comes last.
    for path in [*sorted(names), "etc/dpkg/dpkg.cfg"]:
        for line in (base.read(path) or b"").decode("utf-8", "replace").splitlines():
            match = re.fullmatch(r"\s*path-(exclude|include)[\s=]+(\S+)\s*", line)
            if match:
                yield match[2], match[1] == "exclude"


def _find_changed_paths(base: BaseFiles) -> Iterator[str]:
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
