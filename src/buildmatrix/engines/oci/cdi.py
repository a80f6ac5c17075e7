"""Devices of the Container Device Interface.

Edits of nodes, variables, mounts and groups are applied; mounts are read-only. Hooks are programs
of the host that run as root during the creation of a container. None is run: what NVIDIA's do is
done here, in the files of the image. Devices with other hooks or unknown edits are refused.

Sources: cncf-tags/container-device-interface, SPEC.md 1.0: `/etc/cdi` and `/var/run/cdi`, of which
the second wins. NVIDIA/nvidia-container-toolkit, `cmd/nvidia-cdi-hook`.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from buildmatrix.base.data import replace
from buildmatrix.base.threads import prepare_type
from buildmatrix.engines.process import shorten
from buildmatrix.facts.binaries.reader import Malformed, read_elf
from buildmatrix.facts.files import read_at_most
from buildmatrix.facts.inventory.listing import follow_links
from buildmatrix.facts.trees.archive import OpenFile

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
#: Maximum bytes of a description, and descriptions per folder.
_LARGEST, _MOST = 1 << 20, 1_000


class _Node(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    host_path: str = ""


class _Mount(msgspec.Struct, frozen=True, rename="camel"):
    host_path: str
    container_path: str


class _Hook(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    #: The first one is the name of the program.
    args: tuple[str, ...] = ()


class _Edits(msgspec.Struct, frozen=True, rename="camel"):
    env: tuple[str, ...] = ()
    device_nodes: tuple[_Node, ...] = ()
    mounts: tuple[_Mount, ...] = ()
    hooks: tuple[_Hook, ...] = ()
    additional_gids: tuple[int, ...] = msgspec.field(default=(), name="additionalGids")


class Edits(Struct, frozen=True):
    """Edits of a container."""

    #: Nodes: path inside → path here.
    nodes: Mapping[str, str] = field(default_factory=dict)
    #: Files and folders to mount read-only: path inside → path here.
    mounts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[int, ...] = ()
    #: Links to create: path inside → its target.
    links: Mapping[str, str] = field(default_factory=dict)
    #: Folders inside whose mounted libraries the loader has to find.
    library_folders: tuple[str, ...] = ()
    #: Version of the driver, if newer libraries in the image may replace its own.
    driver: str = ""
    #: Folders in front of others for LD_LIBRARY_PATH; see `lay_out`.
    library_path: tuple[str, ...] = ()

    def __add__(self, other: Edits) -> Edits:
        """Return both; `other` wins."""
        return Edits(
            {**self.nodes, **other.nodes},
            {**self.mounts, **other.mounts},
            {**self.environment, **other.environment},
            tuple(dict.fromkeys((*self.groups, *other.groups))),
            {**self.links, **other.links},
            tuple(dict.fromkeys((*self.library_folders, *other.library_folders))),
            other.driver or self.driver,
        )


class NoSuchDevice(Exception):
    """A device without a description, or with one that cannot be applied."""


def offered(folders: Sequence[Path], made: Mapping[str, Edits]) -> tuple[str, ...]:
    """Return names of usable devices: `amd.com/gpu=all`.

    `made` are devices with edits for kinds that no file describes.
    """
    described = _described(folders)
    names = []
    for name, parts in described.items():
        try:
            _merged(name, parts)
        except NoSuchDevice:
            continue
        names.append(name)
    return (*names, *_undescribed(made, described))


def edits(names: Sequence[str], folders: Sequence[Path], made: Mapping[str, Edits]) -> Edits:
    """Return the merged edits of these devices; see `offered`. Raises `NoSuchDevice`."""
    described = _described(folders)
    undescribed = _undescribed(made, described)
    whole = Edits()
    for name in names:
        if name in undescribed:
            whole += undescribed[name]
        elif name in described:
            whole += _merged(name, described[name])
        else:
            raise NoSuchDevice(f"nothing in {' or '.join(map(str, folders))} describes {name}")
    return whole


def _undescribed(made: Mapping[str, Edits], described: Iterable[str]) -> dict[str, Edits]:
    kinds = {name.partition("=")[0] for name in described}
    return {name: own for name, own in made.items() if name.partition("=")[0] not in kinds}


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
    for edit in read:
        for hook in edit.hooks:
            merged += _edits_of_hook(name, hook)
    nodes = (*merged.nodes, *merged.nodes.values())
    mounts = (*merged.mounts, *merged.mounts.values())
    for path in (*nodes, *mounts, *merged.links, *merged.library_folders):
        if not path.startswith("/") or posixpath.normpath(path) != path or "\0" in path:
            raise NoSuchDevice(f"the description of {name} has {shorten(path, 100)!r} as a path")
    if stray := [path for path in merged.nodes if not path.startswith("/dev/")]:
        raise NoSuchDevice(f"the description of {name} has a node at {stray[0]}, not below /dev")
    return merged


def _edits_of_hook(name: str, hook: _Hook) -> Edits:
    """Return what a hook of NVIDIA does as edits. Raises `NoSuchDevice` for another one."""
    words = list(hook.args[1:])
    if words[:1] == ["hook"]:  # nvidia-ctk
        del words[0]
    command, options = words[0] if words else "", _options(words[1:])
    if posixpath.basename(hook.path) in ("nvidia-cdi-hook", "nvidia-ctk"):
        match command:
            case "create-symlinks":
                pairs = [text.partition("::") for text in options.get("link", ())]
                return Edits(links={link: target for target, _, link in pairs})
            case "update-ldcache" | "create-soname-symlinks":
                return Edits(library_folders=tuple(options.get("folder", ())))
            case "enable-cuda-compat" | "cuda-compat":
                return Edits(driver="".join(options.get("host-driver-version", ())[-1:]))
            case "chmod" | "disable-device-node-modification":
                # Sandboxes let everybody into the folders of nodes, and nothing inside makes nodes.
                return Edits()
    line = " ".join((posixpath.basename(hook.path), *([command] if command else [])))
    raise NoSuchDevice(
        f"the description of {name} has the hook {shorten(line, 100)!r}, which the engine oci does "
        "not know; Docker runs it (--engine docker)"
    )


def _options(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of options: `--folder X`, `--folder=X`."""
    options: dict[str, list[str]] = {}
    ahead = iter(words)
    for word in ahead:
        name, equals, value = word.lstrip("-").partition("=")
        options.setdefault(name, []).append(value if equals else next(ahead, ""))
    return options


# Edits in the files of an image


#: Folder inside with links to the libraries of a driver, by their SONAME and names of links.
_DRIVER_FOLDER = "/usr/local/lib/buildmatrix-driver"
#: Folder of images with the libraries of a newer driver, and the name of one of them.
_COMPAT = "/usr/local/cuda/compat"
_LIBCUDA = re.compile(r"libcuda\.so\.(\d{1,9})\.\d+")


def lay_out(root: Path, edits: Edits) -> Edits:
    """Create the links and mount points of `edits` in a root folder with untrusted links.

    Returns the edits with the places of mounts behind the links of the image, and with the folders
    of libraries. The loader's cache stays as it is. Raises `NoSuchDevice` if something is in the
    way.
    """
    mounts = {_behind_links(root, path): here for path, here in edits.mounts.items()}
    for path, here in mounts.items():
        add_mount_point(root, path, here)
    links = {_behind_links(root, path): target for path, target in edits.links.items()}
    for path, target in links.items():
        _add_link(root, path, target)
    folders = {_folder(root, path) for path in edits.library_folders}
    sonames = {
        path: _soname(here)
        for path, here in mounts.items()
        if posixpath.dirname(path) in folders and ".so" in posixpath.basename(path)
    }
    library_path = [_COMPAT] if edits.driver and _is_newer(root, edits.driver) else []
    if any(sonames.values()):
        library_path.append(_DRIVER_FOLDER)
        # The loader's cache would have libcuda.so, too.
        for path in links:
            if posixpath.dirname(path) in folders:
                _add_link(root, f"{_DRIVER_FOLDER}/{posixpath.basename(path)}", path)
    for path, soname in sonames.items():
        if soname is None:
            continue
        _add_link(root, f"{_DRIVER_FOLDER}/{soname}", path)
        # As ldconfig does: a file of this name stays.
        folder, name = posixpath.split(path)
        beside = root / folder.lstrip("/") / soname
        if beside.is_symlink() or not beside.exists():
            _add_link(root, f"{folder}/{soname}", name)
    return replace(edits, mounts=mounts, library_path=tuple(library_path))


def _behind_links(root: Path, path: str) -> str:
    """Return a path inside with the links in its folders followed. Raises `NoSuchDevice`."""
    folder, name = posixpath.split(path)
    return posixpath.join(_folder(root, folder), name)


def _folder(root: Path, path: str) -> str:
    """Return a folder inside with its links followed. Raises `NoSuchDevice` for a loop."""

    def target_of(inside: str) -> str | None:
        try:
            return str((root / inside).readlink())
        except OSError:
            return None

    resolved = follow_links(path, target_of)
    if resolved is None:
        raise NoSuchDevice(f"nothing can be mounted below {path}: its links lead in a circle")
    return f"/{resolved}"


def _soname(path: str) -> str | None:
    """Return the SONAME of a library of this machine, if it can be a file name."""
    with suppress(OSError, Malformed), Path(path).open("rb") as file:
        opened = OpenFile(file.fileno())
        elf = read_elf(opened, opened.size, deep=False)
        if elf is not None and elf.soname and "/" not in elf.soname:
            return elf.soname
    return None


def _is_newer(root: Path, driver: str) -> bool:
    """Return True if the image has libraries of a driver with a higher major version."""
    try:
        folder = root / _folder(root, _COMPAT).lstrip("/")
        names = [entry.name for entry in islice(folder.iterdir(), _MOST)]
    except (OSError, NoSuchDevice):
        return False
    versions = [match[1] for match in map(_LIBCUDA.match, names) if match is not None]
    major = driver.partition(".")[0]
    return len(versions) == 1 and major.isdecimal() and int(versions[0]) > int(major)


def _add_link(root: Path, inside: str, target: str) -> None:
    """Create a link, in place of a file that is there; see `_parent` for errors."""
    path = _parent(root, inside) / posixpath.basename(inside)
    if path.is_symlink() and str(path.readlink()) == target:
        return
    if path.is_dir() and not path.is_symlink():
        raise NoSuchDevice(f"no link can be made at {inside}: the image has a folder there")
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _parent(root: Path, inside: str) -> Path:
    """Make the folders above a path. Raises `NoSuchDevice` if a link or a file is in the way."""
    path = root
    for name in posixpath.dirname(inside).strip("/").split("/"):
        path /= name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise NoSuchDevice(f"nothing can be mounted on {inside}: {name} is no folder there")
        path.mkdir(mode=0o755, exist_ok=True)
    return path


def add_mount_point(root: Path, inside: str, here: str) -> None:
    """Create the mount point of a device in a root folder with untrusted links.

    Raises `NoSuchDevice` if a link or another file is in the way.
    """
    is_folder = Path(here).is_dir()
    path = _parent(root, inside)
    path /= posixpath.basename(inside)
    if path.is_symlink() or (path.exists() and path.is_dir() != is_folder):
        raise NoSuchDevice(
            f"nothing can be mounted on {inside}: the image has something else there"
        )
    if is_folder:
        path.mkdir(mode=0o755, exist_ok=True)
    elif not path.exists():
        path.touch(mode=0o644)
