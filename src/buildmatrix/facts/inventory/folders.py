"""Folders: those that Python imports from, and the bytes below each."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from buildmatrix.facts.inventory.listing import Listing
from buildmatrix.facts.inventory.model import Distribution, Folder, PythonPath

if TYPE_CHECKING:
    from buildmatrix.facts.inventory.distributions import Ownership

# Folders on `sys.path`, in order.
#
# Follows `site` of the standard library and Debian's patch of it. Python would run the lines of
# `.pth` files that begin with `import`; here they are skipped.


#: Size limit of a `.pth` file or a pyvenv.cfg.
LARGEST_FILE = 1 << 20
MOST_INTERPRETERS = 64
MOST_SITES = 1000

_INTERPRETER = re.compile(r"^((?:.*/)?)bin/python(3\.\d+)$")
_VERSION = re.compile(r"^(3\.\d+)")


def find_python_paths(listing: Listing, environment: Mapping[str, str]) -> tuple[PythonPath, ...]:
    """Return one entry per interpreter and virtual environment, sorted by interpreter path."""
    paths: dict[str, PythonPath] = {}
    before = _parse_pythonpath(environment)
    sites = _Sites(listing, before)
    user = _user_base(environment)
    names = sorted((*listing.files, *listing.links))
    for path in names:
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
    for path in names:
        match = _INTERPRETER.match(path)
        if match is None or len(paths) >= MOST_INTERPRETERS:
            continue
        prefix, version_name = match[1].rstrip("/"), match[2]
        if posixpath.join(prefix, "pyvenv.cfg") in listing.files:
            continue
        site_folders = _find_site_folders(listing, prefix, version_name)
        folders = [*_user_site(user, version_name), *site_folders]
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
    visible = [item for item in distributions if posixpath.dirname(item.path) in order]
    visible.sort(key=lambda item: order[posixpath.dirname(item.path)], reverse=True)
    return {item.name: item for item in visible}


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
        folders: dict[str, None] = dict.fromkeys(self._before[:MOST_SITES])
        for site in sites:
            if not self._listing.has_folder(site):
                continue
            folders[site] = None
            for folder in self._pth(site)[: MOST_SITES - len(folders)]:
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
            data = self._listing.read_linked(f"{site}/{name}", LARGEST_FILE) or b""
            for line in data.decode("utf-8", "backslashreplace").splitlines():
                if line.strip() and not line.startswith(("import ", "import\t", "#")):
                    folder = posixpath.normpath(posixpath.join("/", site, line.rstrip()))
                    if self._listing.has_folder(folder.lstrip("/")):
                        further.append(folder.lstrip("/"))
        self._read[site] = further
        return further


# Sizes of folders, and primary paths of files with several names


#: The largest folders, with at least this many bytes, are listed.
MOST_FOLDERS = 5_000
SMALLEST_FOLDER = 1 << 20
#: Most components of a listed path.
DEEPEST_FOLDER = 8
#: Default search locations of loaders and shells.
_STANDARD = ("lib", "lib64", "usr", "bin", "sbin")


def choose_primary_paths(
    listing: Listing, ownership: Ownership, paths: Iterable[PythonPath]
) -> tuple[list[str], dict[str, str]]:
    """Choose a path for each distinct file; return these, sorted, and other hard links to them.

    Of several names, the one in use is chosen: below a folder that an interpreter imports from, not
    below a hidden folder (uv links from `.cache`), in a system folder, owned by a distribution, and
    the shortest (conda links from `pkgs/NAME-VERSION`).
    """
    names: dict[tuple[int, int], list[str]] = {}
    primary: list[str] = []
    for path, file in listing.files.items():
        if file.identity is None:
            primary.append(path)
        else:
            names.setdefault(file.identity, []).append(path)
    sites = tuple(f"{folder}/" for python_path in paths for folder in python_path.folders if folder)

    def rank(path: str) -> tuple[object, ...]:
        return (
            not path.startswith(sites),
            path.startswith(".") or "/." in path,
            path.partition("/")[0] not in _STANDARD,
            path not in ownership.owners,
            path.count("/"),
            path,
        )

    hard_links: dict[str, str] = {}
    for same_file in names.values():
        first, *rest = sorted(same_file, key=rank)
        primary.append(first)
        hard_links.update(dict.fromkeys(rest, first))
    return sorted(primary), hard_links


def sum_folders(listing: Listing, hard_links: Mapping[str, str]) -> tuple[Folder, ...]:
    """Return the largest folders of a tree, by path.

    A file with several names counts for the folders common to all of them.
    """
    direct: dict[str, list[int]] = {}
    several: dict[str, list[str]] = {}
    for link, path in hard_links.items():
        several.setdefault(path, [path]).append(link)
    for path, file in listing.files.items():
        if path in hard_links:
            continue
        folder = path.rpartition("/")[0]
        if path in several:
            folder = posixpath.commonpath([name.rpartition("/")[0] for name in several[path]])
        totals = direct.setdefault(folder, [0, 0])
        totals[0] += 1
        totals[1] += file.size
    below: dict[str, list[int]] = {}
    for folder, (files, size) in direct.items():
        parts = folder.split("/") if folder else []
        for depth in range(1, min(len(parts), DEEPEST_FOLDER) + 1):
            totals = below.setdefault("/".join(parts[:depth]), [0, 0])
            totals[0] += files
            totals[1] += size
    folders = (Folder(path, files, size) for path, (files, size) in below.items())
    large = [folder for folder in folders if folder.size >= SMALLEST_FOLDER]
    large.sort(key=lambda item: (-item.size, item.path))
    return tuple(sorted(large[:MOST_FOLDERS], key=lambda item: item.path))
