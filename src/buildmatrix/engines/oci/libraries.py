"""The layers of `/opt/venv`: one for each heavy distribution, and one for the rest.

A heavy layer depends only on its wheel, or package of conda, and the minor version of Python. So
all targets and later builds with the same file share it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from buildmatrix.base.child import bare_environment, scratch
from buildmatrix.base.data import replace
from buildmatrix.base.errors import ComponentError, UndecidedError
from buildmatrix.base.progress import Progress
from buildmatrix.base.threads import side_by_side
from buildmatrix.engines.oci.base_files import BaseFiles, BasePython
from buildmatrix.engines.oci.conda import InstalledCondaPackage
from buildmatrix.engines.oci.installation import (
    ENVIRONMENT,
    InstalledFile,
    InstalledWheel,
    file_of,
    site_packages,
)
from buildmatrix.engines.oci.store import ImageStore, folder, made_by, write_layer
from buildmatrix.engines.process import writing
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images.layers import LayerEntry, LayerPaths, StoredLayer, parent_folders, sort_key
from buildmatrix.locks.model import CondaPackage, Lock, Package, Wheel
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
    files, version = _make_environment()
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
        file_of(f"{ENVIRONMENT}/pyvenv.cfg", lines.encode()),
        file_of(f"{ENVIRONMENT}/{_LOCK}", b"", 0o666),
        _link("bin/python", python.executable),
        _link("bin/python3", "python"),
        _link(f"bin/python{minor}", "python"),
        _link("lib64", "lib"),
        InstalledFile(LayerEntry(site_packages(minor), "folder", 0o755)),
    ]
    for name, data, mode in files:
        data = data.replace(here.encode(), f"python{minor}".encode())
        made.append(file_of(f"{ENVIRONMENT}/{name}", data, mode))
    return {file.entry.path: file for file in made}


@cache
def _make_environment() -> tuple[tuple[tuple[str, bytes, int], ...], str]:
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
        settings = (place / "pyvenv.cfg").read_text(encoding="utf-8")
        version = re.search(r"^uv *= *(.*?) *$", settings, re.MULTILINE)
    return tuple(files), version[1] if version else ""


def _link(name: str, target: str) -> InstalledFile:
    return InstalledFile(LayerEntry(f"{ENVIRONMENT}/{name}", "symlink", 0o777, target=target))


#: Minimum bytes of a wheel with its own layer.
HEAVY: Final = 1 << 20
#: Maximum such layers of an image, for the largest wheels: containerd and Docker allow 127 in all.
MOST_HEAVY: Final = 80
#: Concurrent downloads.
_FETCHES: Final = 8


class ChosenWheel(Struct, frozen=True):
    """A package of a lock, and its selected wheel; for a package of conda, its file."""

    package: Package
    wheel: Wheel

    @property
    def origin(self) -> str:
        """Name of its layer."""
        return f"{self.package.name} {self.package.version}".strip()


class Libraries:
    """Builder of the library layers of one target."""

    def __init__(self, target: Target, lock: Lock, store: ImageStore, progress: Progress) -> None:
        self._target = target
        self._lock = lock
        self._store = store
        self._progress = progress
        self._made_by = made_by()
        #: Downloaded wheels of the required ones.
        self._fetched = self._total = 0

    def layers(self, base: BaseFiles, python: BasePython | None) -> dict[str, StoredLayer]:
        """Return distribution → its layer, sorted; the layer of the rest is last, without a name.

        Without a `python` of the base, a package of conda has one. Raises UndecidedError for a file
        that cannot be fetched or installed, and BuildError.
        """
        chosen = [
            ChosenWheel(package, wheel)
            for package in sorted(self._lock.packages, key=lambda package: package.name)
            if (wheel := choose_wheel(package, self._target)) is not None
        ]
        chosen += [
            ChosenWheel(package, Wheel(file.filename, file.url, file.sha256, file.size))
            for package in sorted(self._lock.conda, key=lambda package: package.name)
            if isinstance(package, CondaPackage) and (file := package.file) is not None
        ]
        largest = sorted(chosen, key=lambda item: (-self._find_size(item), item.origin))
        heavy = [item for item in largest if self._find_size(item) >= HEAVY][:MOST_HEAVY]
        light = [item for item in chosen if item not in heavy]
        rest_key = self._make_rest_key(light, python, base)
        rest = self._store.layer(rest_key)
        stored = {item.origin: self._store.layer(self._make_key(item)) for item in heavy}
        # Largest first: smaller ones fill the gaps.
        wanted = [
            item
            for item in largest
            if (stored[item.origin] is None if item in heavy else rest is None)
        ]
        self._fetched, self._total = 0, len(wanted)

        def work(item: ChosenWheel) -> StoredLayer | None:
            path = self._fetch(item)
            if item not in heavy:
                return None
            return self._store.make_once(
                self._make_key(item), lambda: self._make_heavy_layer(item, path)
            )

        made = side_by_side(work, wanted, _FETCHES, "wheel")
        stored |= {item.origin: layer for item, layer in zip(wanted, made, strict=True) if layer}
        layers = {origin: layer for origin, layer in sorted(stored.items()) if layer is not None}
        layers[""] = rest or self._store.make_once(
            rest_key, lambda: self._make_rest_layer(light, python, base)
        )
        _check_folders(layer.paths for layer in layers.values())
        return layers

    def _find_size(self, item: ChosenWheel) -> int:
        """Return bytes of a wheel; fetches it if the lock has no size."""
        if item.wheel.size is not None:
            return item.wheel.size
        return self._store.wheels.fetch(item.wheel, self._lock).stat().st_size

    def _make_key(self, item: ChosenWheel) -> str:
        return (
            f"wheel {item.wheel.sha256} {item.package.name} {item.package.version} "
            f"{self._target.python} {self._made_by}"
        )

    def _make_rest_key(
        self, light: Sequence[ChosenWheel], python: BasePython | None, base: BaseFiles
    ) -> str:
        environment = new_environment(python) if python is not None else {}
        hasher = hashlib.sha256(f"{_find_opt(base)}\0".encode())
        for path in sorted(environment):
            file = environment[path]
            hasher.update(repr(file.entry).encode() + b"".join(file.content()))
        for item in light:
            hasher.update(self._make_key(item).encode())
        return f"environment {hasher.hexdigest()} {self._made_by}"

    # Creation

    def _fetch(self, item: ChosenWheel) -> Path:
        path = self._store.wheels.fetch(item.wheel, self._lock)
        self._fetched += 1
        text = f"wheels {self._fetched}/{self._total} {item.origin}"
        self._progress.step(self._target.id, text)
        return path

    def _make_heavy_layer(self, item: ChosenWheel, path: Path) -> StoredLayer:
        self._progress.step(self._target.id, f"layer of {item.origin}")
        with self._store.making, ExitStack() as held:
            files = self._install(item, path, held)
            return self._write(item.origin, files, {item.origin: _list_paths(files)})

    def _make_rest_layer(
        self, light: Sequence[ChosenWheel], python: BasePython | None, base: BaseFiles
    ) -> StoredLayer:
        self._progress.step(self._target.id, "layer of the other distributions")
        with self._store.making, ExitStack() as held:
            files: dict[str, InstalledFile] = {}
            paths: dict[str, Sequence[str]] = {}
            for item in light:
                installed = self._install(item, self._store.wheels.path(item.wheel), held)
                paths[item.origin] = _list_paths(installed)
                # If two distributions have the same path, the later name always wins.
                files.update((file.entry.path, file) for file in installed)
            environment = new_environment(python) if python is not None else {}
            paths["the environment"] = _list_paths(environment.values())
            _check_folders([paths])
            files |= environment
            for entry in (_find_opt(base), LayerEntry(ENVIRONMENT, "folder", 0o755)):
                files[entry.path] = InstalledFile(entry)
            ordered = [files[path] for path in sorted(files, key=sort_key)]
            return self._write("the environment", ordered, paths)

    def _install(self, item: ChosenWheel, path: Path, held: ExitStack) -> Sequence[InstalledFile]:
        package = item.package
        with _name_errors(item.wheel.filename):
            if isinstance(package, CondaPackage):
                conda = InstalledCondaPackage(path, package, self._target.python)
                return held.enter_context(conda).files
            tree = held.enter_context(WheelTree(path, located=str))
            return InstalledWheel(tree, package.name, package.version, self._target.python).files

    def _write(self, origin: str, files: Iterable[InstalledFile], paths: LayerPaths) -> StoredLayer:
        with _name_errors(origin), writing(self._store.layout.folder):
            return replace(write_layer(files, self._store), paths=paths)


@contextmanager
def _name_errors(name: str) -> Iterator[None]:
    """Add the wheel's name to errors."""
    try:
        yield
    except UndecidedError as error:
        raise UndecidedError(f"{name}: {error.message}") from error
    except Unreadable as error:
        raise UndecidedError(f"{name}: {error}") from error


def _find_opt(base: BaseFiles) -> LayerEntry:
    """Return the parent folder of the environment, as in the base."""
    there = base.entries.get("opt")
    if base.resolve(ENVIRONMENT) is not None or (there is not None and there.kind != "folder"):
        raise UndecidedError(
            f"the base image has /{ENVIRONMENT} already, or /opt is not a folder; use another base"
        )
    return folder("opt", base)


def _list_paths(files: Iterable[InstalledFile]) -> list[str]:
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
            for above in parent_folders(path):
                if above in checked:
                    break
                if above in files:
                    raise UndecidedError(
                        f"{files[above]} installs a file /{above}, and {origin} a file in a folder "
                        "of that name"
                    )
                checked.add(above)
