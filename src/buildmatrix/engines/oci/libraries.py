"""The layers of `/opt/venv`: one for each heavy distribution, and one for the rest.

A heavy layer depends only on its wheel and the minor version of Python. So all targets and later
builds with the same wheel share it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from buildmatrix.base.child import bare_environment
from buildmatrix.base.errors import ComponentError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.scratch import scratch
from buildmatrix.base.threads import side_by_side
from buildmatrix.engines.oci.base_files import BaseFiles, BasePython
from buildmatrix.engines.oci.installation import (
    ENVIRONMENT,
    InstalledFile,
    InstalledWheel,
    site_packages,
)
from buildmatrix.engines.oci.store import ImageStore, LayerPaths, folder, made_by, write_layer
from buildmatrix.engines.process import writing
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images.oci.layers import LayerEntry, StoredLayer, sort_key
from buildmatrix.locks.model import Lock, Package, Wheel
from buildmatrix.locks.selection import choose_wheel
from buildmatrix.matrix.model import Target

# Empty environments. uv creates one for the Python that runs this code; then its location and its
# Python are replaced.


#: Timeout in seconds; uv takes 30 ms.
_PATIENCE: Final = 60.0
#: Lock file of `uv pip sync`.
_LOCK: Final = ".lock"


def new_environment(python: BasePython) -> dict[str, InstalledFile]:
    """Return path → file of the layer, for the environment of `python`.

    Raises ComponentError if uv fails.
    """
    minor = ".".join(python.version.split(".")[:2])
    files, version = _written()
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    configuration = {
        "home": python.home,
        "implementation": "CPython",
        "uv": version,
        "version_info": python.version,
        "include-system-site-packages": "false",
    }
    lines = "".join(f"{key} = {value}\n" for key, value in configuration.items())
    made = [
        _file("pyvenv.cfg", lines.encode()),
        _file(_LOCK, b"", 0o666),
        _link("bin/python", python.executable),
        _link("bin/python3", "python"),
        _link(f"bin/python{minor}", "python"),
        _link("lib64", "lib"),
        InstalledFile(LayerEntry(site_packages(minor), "folder", 0o755)),
    ]
    for name, data, mode in files:
        made.append(_file(name, data.replace(here.encode(), f"python{minor}".encode()), mode))
    return {file.entry.path: file for file in made}


@cache
def _written() -> tuple[tuple[tuple[str, bytes, int], ...], str]:
    """Return files of a new environment (path, bytes, mode), and the version of uv."""
    import uv

    with scratch("environment") as folder:
        place = folder / "venv"
        command = [uv.find_uv_bin(), "venv", "--quiet", "--no-config", "--offline"]
        command += ["--no-project", "--python", sys.executable, str(place)]
        try:
            subprocess.run(
                command,
                env={**bare_environment(), "UV_CACHE_DIR": str(folder / "cache")},
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=_PATIENCE,
                umask=0o022,
            )
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", b"") or b""
            why = output.decode("utf-8", "replace").strip() or str(error)
            raise ComponentError(f"uv cannot make a virtual environment: {why}") from error
        files = []
        for path in sorted(place.rglob("*")):
            name = path.relative_to(place).as_posix()
            if path.is_symlink() or not path.is_file() or name == "pyvenv.cfg":
                continue
            data = path.read_bytes().replace(os.fsencode(place), f"/{ENVIRONMENT}".encode())
            files.append((name, data, path.stat().st_mode & 0o777))
        version = _setting(place / "pyvenv.cfg", "uv")
    return tuple(files), version


def _setting(path: Path, key: str) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == key:
            return value.strip()
    return ""


def _file(name: str, data: bytes, mode: int = 0o644) -> InstalledFile:
    entry = LayerEntry(f"{ENVIRONMENT}/{name}", "file", mode, len(data))
    return InstalledFile(entry, lambda: (data,))


def _link(name: str, target: str) -> InstalledFile:
    return InstalledFile(LayerEntry(f"{ENVIRONMENT}/{name}", "symlink", 0o777, target=target))


T = TypeVar("T")

#: Minimum bytes of a wheel with its own layer.
HEAVY: Final = 1 << 20
#: Maximum such layers of an image, for the largest wheels: containerd and Docker allow 127 in all.
MOST_HEAVY: Final = 80
#: Concurrent downloads.
_FETCHES: Final = 8


@dataclass(frozen=True, slots=True)
class ChosenWheel:
    """A package of a lock, and its selected wheel."""

    package: Package
    wheel: Wheel

    @property
    def origin(self) -> str:
        """Name of its layer."""
        return f"{self.package.name} {self.package.version}".strip()


@dataclass(frozen=True, slots=True)
class LibraryLayer:
    """A layer of the environment, and its distribution; empty for the rest."""

    layer: StoredLayer
    origin: str


class Libraries:
    """Builder of the library layers of one target."""

    def __init__(
        self,
        target: Target,
        lock: Lock,
        store: ImageStore,
        progress: Progress,
    ) -> None:
        self._target = target
        self._lock = lock
        self._store = store
        self._progress = progress
        self._made_by = made_by()
        #: Downloaded wheels of the required ones.
        self._fetched = self._total = 0
        #: Key of a layer → its paths.
        self._paths: dict[str, LayerPaths] = {}

    def layers(self, base: BaseFiles, python: BasePython) -> list[LibraryLayer]:
        """Return the layers of heavy distributions by name, and the rest.

        Raises UndecidedError for a wheel that cannot be fetched or installed, and BuildError.
        """
        chosen = [
            ChosenWheel(package, wheel)
            for package in sorted(self._lock.packages, key=lambda package: package.name)
            if (wheel := choose_wheel(package, self._target)) is not None
        ]
        heavy = self._heavy(chosen)
        light = [item for item in chosen if item not in heavy]
        rest_key = self._rest_key(light, python, base)
        rest = self._known(rest_key)
        layers = {item.origin: self._known(self._key(item)) for item in heavy}
        wanted = [item for item in heavy if layers[item.origin] is None]
        if rest is None:
            wanted += light
        self._fetched, self._total = 0, len(wanted)

        def work(item: ChosenWheel) -> StoredLayer | None:
            path = self._fetch(item)
            return self._heavy_layer(item, path) if item in heavy else None

        # Largest first: smaller ones fill the gaps.
        wanted.sort(key=lambda item: (-self._size(item), item.origin))
        made = side_by_side(work, wanted, _FETCHES, "wheel")
        layers.update(
            {item.origin: layer for item, layer in zip(wanted, made, strict=True) if layer}
        )
        if rest is None:
            with self._store.once(rest_key):
                rest = self._known(rest_key)
                if rest is None:
                    self._progress.step(self._target.id, "layer of the other distributions")
                    rest = self._rest_layer(rest_key, light, python, base)
        _check_folders([self._paths[key] for key in (*map(self._key, heavy), rest_key)])
        result = [
            LibraryLayer(layer, origin) for origin, layer in layers.items() if layer is not None
        ]
        return [*result, LibraryLayer(rest, "")]

    # Selection

    def _heavy(self, chosen: Sequence[ChosenWheel]) -> list[ChosenWheel]:
        heavy = [item for item in chosen if self._size(item) >= HEAVY]
        heavy = sorted(heavy, key=lambda item: (-self._size(item), item.origin))[:MOST_HEAVY]
        return sorted(heavy, key=lambda item: item.origin)

    def _size(self, item: ChosenWheel) -> int:
        """Return bytes of a wheel; fetches it if the lock has no size."""
        if item.wheel.size is not None:
            return item.wheel.size
        return self._store.wheels.fetch(item.wheel, self._lock).stat().st_size

    def _key(self, item: ChosenWheel) -> str:
        return (
            f"wheel {item.wheel.sha256} {item.package.name} {item.package.version} "
            f"{self._target.python} {self._made_by}"
        )

    def _rest_key(self, light: Sequence[ChosenWheel], python: BasePython, base: BaseFiles) -> str:
        environment = new_environment(python)
        hasher = hashlib.sha256(f"{_opt(base)}\0".encode())
        for path in sorted(environment):
            file = environment[path]
            hasher.update(repr(file.entry).encode() + b"".join(file.content()))
        for item in light:
            hasher.update(self._key(item).encode())
        return f"environment {hasher.hexdigest()} {self._made_by}"

    # Creation

    def _known(self, key: str) -> StoredLayer | None:
        """Return the layer stored under `key`, if its paths are stored as well."""
        layer = self._store.layer(key)
        if layer is not None and key not in self._paths:
            paths = self._store.paths(key)
            if paths is None:
                return None
            self._paths[key] = paths
        return layer

    def _keep(self, key: str, layer: StoredLayer, paths: LayerPaths) -> None:
        self._paths[key] = paths
        self._store.keep_paths(key, paths)
        self._store.keep(key, layer)

    def _fetch(self, item: ChosenWheel) -> Path:
        path = self._store.wheels.fetch(item.wheel, self._lock)
        self._fetched += 1
        text = f"wheels {self._fetched}/{self._total} {item.origin}"
        self._progress.step(self._target.id, text)
        return path

    def _heavy_layer(self, item: ChosenWheel, path: Path) -> StoredLayer:
        key = self._key(item)
        with self._store.once(key):
            layer = self._known(key)
            if layer is not None:
                return layer
            self._progress.step(self._target.id, f"layer of {item.origin}")
            with self._store.making, ExitStack() as held:
                files = self._installed(item, path, held).files
                layer = self._written(item.origin, files)
            self._keep(key, layer, {item.origin: _paths(files)})
            return layer

    def _rest_layer(
        self, key: str, light: Sequence[ChosenWheel], python: BasePython, base: BaseFiles
    ) -> StoredLayer:
        with self._store.making, ExitStack() as held:
            files: dict[str, InstalledFile] = {}
            paths: LayerPaths = {}
            for item in light:
                path = self._store.wheels.path(item.wheel)
                installed = self._installed(item, path, held).files
                paths[item.origin] = _paths(installed)
                # If two distributions have the same path, the later name always wins.
                files.update((file.entry.path, file) for file in installed)
            environment = new_environment(python)
            paths["the environment"] = _paths(environment.values())
            _check_folders([paths])
            files |= environment
            files |= {
                entry.path: InstalledFile(entry)
                for entry in (_opt(base), LayerEntry(ENVIRONMENT, "folder", 0o755))
            }
            layer = self._written(
                "the environment", [files[path] for path in sorted(files, key=sort_key)]
            )
        self._keep(key, layer, paths)
        return layer

    def _installed(self, item: ChosenWheel, path: Path, held: ExitStack) -> InstalledWheel:
        package = item.package

        def read() -> InstalledWheel:
            tree = held.enter_context(WheelTree(path, located=str))
            return InstalledWheel(tree, package.name, package.version, self._target.python)

        return _name_errors(item.wheel.filename, read)

    def _written(self, origin: str, files: Iterable[InstalledFile]) -> StoredLayer:
        def write() -> StoredLayer:
            with writing(self._store.layout.folder):
                return write_layer(files, self._store)

        return _name_errors(origin, write)


def _name_errors(name: str, work: Callable[[], T]) -> T:
    """Call `work`; add the wheel's name to its errors."""
    try:
        return work()
    except UndecidedError as error:
        raise UndecidedError(f"{name}: {error.message}") from error
    except Unreadable as error:
        raise UndecidedError(f"{name}: {error}") from error


def _opt(base: BaseFiles) -> LayerEntry:
    """Return the parent folder of the environment, as in the base."""
    there = base.entries.get("opt")
    if base.resolved(ENVIRONMENT) is not None or (there is not None and there.kind != "folder"):
        raise UndecidedError(
            f"the base image has /{ENVIRONMENT} already, or its /opt is no folder; take another one"
        )
    return folder("opt", base)


def _paths(files: Iterable[InstalledFile]) -> list[str]:
    return [f"{file.entry.path}{'/' * (file.entry.kind == 'folder')}" for file in files]


def _check_folders(layers: Iterable[LayerPaths]) -> None:
    """Raise UndecidedError if a path is a file of one distribution and a folder of another.

    uv and pip fail as well, in either order.
    """
    contents = [item for layer in layers for item in layer.items()]
    files = {path: origin for origin, paths in contents for path in paths if path[-1] != "/"}
    checked: set[str] = set()
    for origin, paths in contents:
        for path in paths:
            above = path.rpartition("/")[0]
            while above and above not in checked:
                if above in files:
                    raise UndecidedError(
                        f"{files[above]} installs a file /{above}, and {origin} a file in a folder "
                        "of that name"
                    )
                checked.add(above)
                above = above.rpartition("/")[0]
