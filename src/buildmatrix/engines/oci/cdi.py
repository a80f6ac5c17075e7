"""Devices of the Container Device Interface.

Edits of nodes, variables, mounts and groups are applied; mounts are read-only. Hooks are programs
of the host that run as root during the creation of a container, and links and the loader's cache
depend on them: devices with hooks are refused, and so are unknown edits.

Source: cncf-tags/container-device-interface, SPEC.md 1.0: `/etc/cdi` and `/var/run/cdi`, of which
the second wins.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.process import shorten
from buildmatrix.facts.files import read_at_most

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
#: Maximum bytes of a description, and descriptions per folder.
_LARGEST, _MOST = 1 << 20, 1_000


class _Node(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    host_path: str = ""


class _Mount(msgspec.Struct, frozen=True, rename="camel"):
    host_path: str
    container_path: str


class _Edits(msgspec.Struct, frozen=True, rename="camel"):
    env: tuple[str, ...] = ()
    device_nodes: tuple[_Node, ...] = ()
    mounts: tuple[_Mount, ...] = ()
    additional_gids: tuple[int, ...] = msgspec.field(default=(), name="additionalGids")


class Edits(Struct, frozen=True):
    """Edits of a container."""

    #: Nodes: path inside → path here.
    nodes: Mapping[str, str] = field(default_factory=dict)
    #: Files and folders to mount read-only: path inside → path here.
    mounts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[int, ...] = ()


class NoSuchDevice(Exception):
    """A device without a description, or with one that cannot be applied."""


def offered(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return names of usable devices: `amd.com/gpu=all`."""
    names = []
    for name, parts in _described(folders).items():
        try:
            _merged(name, parts)
        except NoSuchDevice:
            continue
        names.append(name)
    return tuple(names)


def edits(names: Sequence[str], folders: Sequence[Path]) -> Edits:
    """Return the merged edits of these devices. Raises `NoSuchDevice`."""
    described = _described(folders)
    whole = Edits()
    for name in names:
        if name not in described:
            raise NoSuchDevice(f"nothing in {' or '.join(map(str, folders))} describes {name}")
        own = _merged(name, described[name])
        whole = Edits(
            {**whole.nodes, **own.nodes},
            {**whole.mounts, **own.mounts},
            {**whole.environment, **own.environment},
            tuple(dict.fromkeys((*whole.groups, *own.groups))),
        )
    return whole


def groups(edits: Edits) -> Iterator[int]:
    """Yield the group IDs of nodes on this machine, except root's."""
    for path in edits.nodes.values():
        with suppress(OSError):
            if number := Path(path).stat().st_gid:
                yield number


def _described(folders: Sequence[Path]) -> dict[str, list[Any]]:
    """Return device → edits of its file and its own, unparsed."""
    described: dict[str, list[Any]] = {}
    for path in _files(folders):
        document = _document(path)
        if not isinstance(document, dict) or not isinstance(kind := document.get("kind"), str):
            continue
        devices = document.get("devices")
        for device in devices if isinstance(devices, list) else []:
            if isinstance(device, dict) and isinstance(name := device.get("name"), str):
                parts = [document.get("containerEdits"), device.get("containerEdits")]
                described[f"{kind}={name}"] = [part for part in parts if part is not None]
    return described


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        try:
            paths = sorted(folder.iterdir())[:_MOST]
        except OSError:
            continue
        yield from (path for path in paths if path.suffix in (".json", ".yaml", ".yml"))


def _document(path: Path) -> object:
    """Read a description; None if it is invalid or unreadable."""
    import yaml

    try:
        data = read_at_most(path, _LARGEST)
        if len(data) > _LARGEST:
            return None
        return json.loads(data) if path.suffix == ".json" else yaml.safe_load(data)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None


def _merged(name: str, parts: Sequence[Any]) -> Edits:
    fields = {field.encode_name for field in msgspec.structs.fields(_Edits)}
    read = []
    for part in parts:
        unknown = sorted(key for key, value in part.items() if key not in fields and value) if (
            isinstance(part, dict)
        ) else ["containerEdits"]  # fmt: skip
        if unknown:
            raise NoSuchDevice(
                f"the description of {name} has {shorten(', '.join(map(str, unknown)), 100)}, "
                "which the engine oci does not apply; Docker does (--engine docker)"
            )
        try:
            read.append(msgspec.convert(part, prepare_type(_Edits)))
        except msgspec.ValidationError as error:
            raise NoSuchDevice(f"the description of {name} cannot be read: {error}") from error
    merged = Edits(
        {node.path: node.host_path or node.path for edit in read for node in edit.device_nodes},
        {mount.container_path: mount.host_path for edit in read for mount in edit.mounts},
        dict(text.partition("=")[::2] for edit in read for text in edit.env),
        tuple(number for edit in read for number in edit.additional_gids if number > 0),
    )
    for path in (*merged.nodes, *merged.nodes.values(), *merged.mounts, *merged.mounts.values()):
        if not path.startswith("/") or posixpath.normpath(path) != path or "\0" in path:
            raise NoSuchDevice(f"the description of {name} has {shorten(path, 100)!r} as a path")
    if stray := [path for path in merged.nodes if not path.startswith("/dev/")]:
        raise NoSuchDevice(f"the description of {name} has a node at {stray[0]}, not below /dev")
    return merged


def add_mount_point(root: Path, inside: str, here: str) -> None:
    """Create the mount point of a device in a root folder with untrusted links.

    Raises `NoSuchDevice` if a link or another file is in the way.
    """
    is_folder = Path(here).is_dir()
    path = root
    *folders, last = inside.strip("/").split("/")
    for name in folders:
        path /= name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise NoSuchDevice(f"nothing can be mounted on {inside}: {name} is no folder there")
        path.mkdir(mode=0o755, exist_ok=True)
    path /= last
    if path.is_symlink() or (path.exists() and path.is_dir() != is_folder):
        raise NoSuchDevice(
            f"nothing can be mounted on {inside}: the image has something else there"
        )
    if is_folder:
        path.mkdir(mode=0o755, exist_ok=True)
    elif not path.exists():
        path.touch(mode=0o644)
