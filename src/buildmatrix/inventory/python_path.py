"""Folders from which the Python interpreters of a tree import distributions, in order.

Follows `site` of the standard library and Debian's patch of it. Python would run the lines of
`.pth` files that begin with `import`; here they are skipped.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.model import Distribution, PythonPath

#: Size limit of a `.pth` file or a pyvenv.cfg.
LARGEST_FILE = 1 << 20
MOST_INTERPRETERS = 64
MOST_FOLDERS = 1000

_INTERPRETER = re.compile(r"^((?:.*/)?)bin/python(3\.\d+)$")
_VERSION = re.compile(r"^(3\.\d+)")


def find_python_paths(listing: Listing, environment: Mapping[str, str]) -> tuple[PythonPath, ...]:
    """Return one entry per interpreter and virtual environment, sorted by interpreter path."""
    paths: dict[str, PythonPath] = {}
    before = _parse_pythonpath(environment)
    sites = _Sites(listing, before)
    user = _user_base(environment)
    for path in sorted((*listing.files, *listing.links)):
        if len(paths) >= MOST_INTERPRETERS:
            break
        if path.endswith("pyvenv.cfg") and posixpath.basename(path) == "pyvenv.cfg":
            prefix = posixpath.dirname(path)
            settings = _read_settings(listing, path)
            version = _VERSION.match(settings.get("version", settings.get("version_info", "")))
            if version is None:
                continue
            interpreter = posixpath.join(prefix, "bin/python")
            site_folders = [posixpath.join(prefix, f"lib/python{version[1]}/site-packages")]
            if settings.get("include-system-site-packages", "").lower() == "true":
                home = posixpath.dirname(settings.get("home", "").strip("/"))
                # Only then are the user's own packages visible; they come first (site.main).
                site_folders = [*_user_site(user, version[1]), *site_folders]
                site_folders.extend(_find_site_folders(listing, home, version[1]))
            paths[interpreter] = sites.path(interpreter, version[1], site_folders)
    for path in sorted((*listing.files, *listing.links)):
        match = _INTERPRETER.match(path)
        if match is None or len(paths) >= MOST_INTERPRETERS:
            continue
        prefix, version_name = match[1].rstrip("/"), match[2]
        if posixpath.join(prefix, "pyvenv.cfg") in listing.files:
            continue
        folders = [
            *_user_site(user, version_name),
            *_find_site_folders(listing, prefix, version_name),
        ]
        if listing.paths.folder(posixpath.join(prefix, "bin")) == posixpath.join(prefix, "bin"):
            paths[path] = sites.path(path, version_name, folders)
    return tuple(paths[path] for path in sorted(paths))


def add_pythonpath(path: PythonPath, environment: Mapping[str, str]) -> PythonPath:
    """Add an image's PYTHONPATH to `path`.

    For inventories read without the image's configuration.
    """
    return replace(
        path, folders=tuple(dict.fromkeys([*_parse_pythonpath(environment), *path.folders]))
    )


def _parse_pythonpath(environment: Mapping[str, str]) -> list[str]:
    """Return the absolute folders; relative ones depend on a process's working directory."""
    folders = environment.get("PYTHONPATH", "").split(":")
    return [posixpath.normpath(folder).strip("/") for folder in folders if folder.startswith("/")]


def find_visible_distributions(
    path: PythonPath, distributions: Iterable[Distribution]
) -> Mapping[str, Distribution]:
    """Map each name to the distribution that an import finds, if several have the name."""
    order = {folder: number for number, folder in enumerate(path.folders)}
    visible = [
        distribution
        for distribution in distributions
        if posixpath.dirname(distribution.path) in order
    ]
    visible.sort(key=lambda distribution: order[posixpath.dirname(distribution.path)], reverse=True)
    return {distribution.name: distribution for distribution in visible}


def _user_base(environment: Mapping[str, str]) -> str | None:
    """Return the folder of `pip install --user`; None if Python does not use it.

    Without HOME, a container's process counts as root's.
    """
    if environment.get("PYTHONNOUSERSITE"):
        return None
    base = environment.get("PYTHONUSERBASE") or f"{environment.get('HOME') or '/root'}/.local"
    return base.strip("/") if base.startswith("/") else None


def _user_site(base: str | None, version: str) -> list[str]:
    return [] if base is None else [posixpath.join(base, f"lib/python{version}/site-packages")]


def _find_site_folders(listing: Listing, prefix: str, version: str) -> list[str]:
    """Return the site folders of the interpreter installed in `prefix`."""
    debian = "usr/lib/python3/dist-packages"
    if prefix != "usr" or not listing.names_in(debian):
        # `lib64` on systems with separate machine-specific libraries (sys.platlibdir).
        return [
            posixpath.join(prefix, f"{folder}/python{version}/site-packages")
            for folder in ("lib64", "lib")
        ]
    return [
        f"usr/local/lib/python{version}/dist-packages",
        debian,
        f"usr/lib/python{version}/dist-packages",
    ]


def _read_settings(listing: Listing, path: str) -> dict[str, str]:
    """Read the `key = value` lines of a pyvenv.cfg (PEP 405)."""
    data = listing.read(path, LARGEST_FILE)
    lines = (data or b"").decode("utf-8", "backslashreplace").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, sign, value in pairs if sign}


class _Sites:
    """Extends site folders with the folders named in their `.pth` files."""

    def __init__(self, listing: Listing, before: list[str]) -> None:
        self._listing = listing
        #: Folders of PYTHONPATH: they come first, and their `.pth` files are not read.
        self._before = [folder for folder in before if listing.has_folder(folder)]
        self._read: dict[str, list[str]] = {}

    def path(self, interpreter: str, version: str, sites: list[str]) -> PythonPath:
        folders: dict[str, None] = dict.fromkeys(self._before[:MOST_FOLDERS])
        for site in sites:
            if not self._listing.has_folder(site):
                continue
            folders[site] = None
            for folder in self._pth(site)[: MOST_FOLDERS - len(folders)]:
                folders.setdefault(folder)
        return PythonPath(interpreter, version, tuple(folders))

    def _pth(self, site: str) -> list[str]:
        """Return the folders from the `.pth` files of `site`, without lines that Python runs."""
        if site in self._read:
            return self._read[site]
        further: list[str] = []
        for name in self._listing.names_in(site):
            if not name.endswith(".pth") or name.startswith("."):
                continue
            path = self._listing.paths.file(f"{site}/{name}")
            data = None if path is None else self._listing.read(path, LARGEST_FILE)
            for line in (data or b"").decode("utf-8", "backslashreplace").splitlines():
                if line.strip() and not line.startswith(("import ", "import\t", "#")):
                    folder = posixpath.normpath(posixpath.join("/", site, line.rstrip()))
                    if self._listing.has_folder(folder.lstrip("/")):
                        further.append(folder.lstrip("/"))
        self._read[site] = further
        return further
