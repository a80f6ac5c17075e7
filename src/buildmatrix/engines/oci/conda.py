"""Files of an installed conda package, as rattler creates them in an environment.

Formats: `.conda` and `.tar.bz2` with `info/index.json`, `info/paths.json` and `info/link.json`
(https://conda.org/learn/ceps, conda/gateways/disk/update.py, `rattler/src/install`). A prefix in
text is replaced; one in other files is replaced up to the end of its string, which zeros then fill.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.toml import mapping, string, strings, tables
from buildmatrix.engines.oci.installation import (
    ENVIRONMENT,
    InstalledFile,
    check_paths,
    file_of,
    launcher,
    site_packages,
)
from buildmatrix.facts.trees.archive import OpenFile, Slice, Spool
from buildmatrix.facts.trees.base import Closing
from buildmatrix.facts.trees.conda import INDEX, PATHS, find_members
from buildmatrix.facts.trees.tar import TarMember
from buildmatrix.images.layers import LayerEntry, sort_key
from buildmatrix.locks.model import CondaPackage

#: Bytes of metadata, and of a file with a prefix in it, which are read into memory.
_LARGEST: Final = 64 << 20
_LARGEST_WITH_PREFIX: Final = 2 << 30
_NEW_PREFIX: Final = f"/{ENVIRONMENT}".encode()
#: Folders of `noarch: python`, whose place depends on the Python.
_SITE, _SCRIPTS = "site-packages/", "python-scripts/"
_NOT_INSTALLED: Final = "info/"
_LINK_SCRIPT: Final = re.compile(r"bin/\.[^/]+-post-link\.sh")


class InstalledCondaPackage(Closing):
    """Files of a conda package, installed for one minor version of Python.

    `files` are those of the layer, in order; their contents need the package open. Raises
    UndecidedError for an invalid package, another package than `package`, and paths outside of the
    environment; `Unreadable` for damage and bombs.
    """

    def __init__(self, archive: Path, package: CondaPackage, python: str) -> None:
        self._spool = Spool()
        try:
            filename = package.file.filename if package.file is not None else archive.name
            with archive.open("rb") as file:
                blob = Slice(OpenFile(file.fileno()), 0, archive.stat().st_size)
                self._members = find_members(blob, filename, self._spool)
            self._index = self._json(INDEX)
            self._package = package
            version = f"{self._index.get('version')}+{self._index.get('build')}"
            if (f"conda:{self._index.get('name')}", version) != (package.name, package.version):
                name = f"{self._index.get('name')} {version}"[:200]
                raise UndecidedError(
                    f"it holds {name}, and the lock says {package.name} {package.version}"
                )
            self._is_python = self._index.get("noarch") == "python"
            self._site = f"{site_packages(python).removeprefix(f'{ENVIRONMENT}/')}/"
            self._files: dict[str, InstalledFile] = {}
            self._rows: list[Mapping[str, object]] = []
            self._add_paths()
            self._add_launchers()
            self._add_record()
            check_paths(self._files)
            self.files = tuple(self._files[path] for path in sorted(self._files, key=sort_key))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the unpacked files."""
        self._spool.close()

    def _add_paths(self) -> None:
        for row in tables(self._json(PATHS).get("paths")):
            name = string(row.get("_path"))
            member = self._members.get(name)
            if member is None or name.startswith(_NOT_INSTALLED):
                raise UndecidedError(f"it lists {name[:200]!r}, and does not hold it")
            place = self._place(name)
            if _LINK_SCRIPT.fullmatch(place):
                raise UndecidedError(f"its {place} has to be run: build with `--engine docker`")
            path = f"{ENVIRONMENT}/{place}"
            if member.kind == "symlink":
                if path in self._files or not member.target or member.target.startswith("/"):
                    raise UndecidedError(f"its link {name[:200]!r} leads out of the environment")
                entry = LayerEntry(path, "symlink", 0o777, target=member.target)
                self._keep(InstalledFile(entry), {"_path": place, "path_type": "softlink"})
            elif member.kind == "file" and member.data is not None:
                self._add_file(path, place, member, row)
            elif member.kind != "folder":
                raise UndecidedError(f"its member {name[:200]!r} is a {member.kind}")

    def _add_file(self, path: str, place: str, member: TarMember, row: Mapping[str, Any]) -> None:
        assert member.data is not None
        mode = 0o755 if member.attributes is not None and member.attributes.mode & 0o111 else 0o644
        note = {"_path": place, "path_type": "hardlink", "sha256": string(row.get("sha256"))}
        old = string(row.get("prefix_placeholder")).encode()
        if not old:
            content = InstalledFile(
                LayerEntry(path, "file", mode, member.data.size), member.data.chunks
            )
        else:
            if member.data.size > _LARGEST_WITH_PREFIX:
                raise UndecidedError(f"{place[:200]!r} is too large to replace a prefix in it")
            is_text = row.get("file_mode") != "binary"
            make = partial(_with_prefix, member.data, old, is_text)
            size, hasher = 0, hashlib.sha256()
            for chunk in make():
                size += len(chunk)
                hasher.update(chunk)
            note |= {"sha256_in_prefix": hasher.hexdigest(), "prefix_placeholder": old.decode()}
            content = InstalledFile(LayerEntry(path, "file", mode, size), make)
        self._keep(content, note)

    def _place(self, name: str) -> str:
        """Return the path in the environment of a path in the package."""
        place = name
        if self._is_python and name.startswith(_SITE):
            place = self._site + name.removeprefix(_SITE)
        elif self._is_python and name.startswith(_SCRIPTS):
            place = f"bin/{name.removeprefix(_SCRIPTS)}"
        parts = place.split("/")
        if not place or {"", ".", ".."} & set(parts) or "\0" in place:
            raise UndecidedError(f"its path {name[:200]!r} leads out of the environment")
        return place

    def _add_launchers(self) -> None:
        if not self._is_python or "info/link.json" not in self._members:
            return
        settings = mapping(self._json("info/link.json").get("noarch"))
        for line in strings(settings.get("entry_points")):
            script, _, target = map(str.strip, line.partition("="))
            data = launcher(script, target)
            digest = hashlib.sha256(data).hexdigest()
            note = {"_path": f"bin/{script}", "path_type": "unix_python_entry_point"}
            file = file_of(f"{ENVIRONMENT}/bin/{script}", data, 0o755)
            self._keep(file, {**note, "sha256": digest, "sha256_in_prefix": digest})

    def _add_record(self) -> None:
        """Add the record that lists the package and its files, in `conda-meta`."""
        file = self._package.file
        assert file is not None
        record = {
            **self._index,
            "fn": file.filename,
            "url": file.url,
            "sha256": file.sha256,
            "files": [row["_path"] for row in self._rows],
            "paths_data": {"paths_version": 1, "paths": self._rows},
        }
        stem = re.sub(r"\.(?:conda|tar\.bz2)$", "", file.filename)
        data = json.dumps(record, indent=2, sort_keys=True).encode()
        path = f"{ENVIRONMENT}/conda-meta/{stem}.json"
        self._files[path] = file_of(path, data)

    def _keep(self, file: InstalledFile, note: Mapping[str, object]) -> None:
        if file.entry.path in self._files:
            raise UndecidedError(f"it lists {file.entry.path[:200]!r} twice")
        self._files[file.entry.path] = file
        self._rows.append(note)

    def _json(self, name: str) -> Mapping[str, Any]:
        member = self._members.get(name)
        if member is None or member.data is None or member.data.size > _LARGEST:
            raise UndecidedError(f"it has no readable {name}")
        try:
            value = json.loads(b"".join(member.data.chunks()))
        except (ValueError, RecursionError) as error:
            raise UndecidedError(f"its {name} is not JSON") from error
        return mapping(value)


def _with_prefix(data: Slice, old: bytes, is_text: bool) -> Iterator[bytes]:
    """Yield a file with the prefix of the environment in place of the one it was built in."""
    content = b"".join(data.chunks())
    if is_text:
        yield content.replace(old, _NEW_PREFIX)
        return
    if len(old) < len(_NEW_PREFIX):
        raise UndecidedError(f"its prefix {old.decode(errors='replace')[:80]!r} is too short")

    def replaced(match: re.Match[bytes]) -> bytes:
        return match[0].replace(old, _NEW_PREFIX).ljust(len(match[0]), b"\0")

    yield re.sub(re.escape(old) + rb"[^\0]*\0", replaced, content)
