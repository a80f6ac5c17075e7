"""Primary paths of files with several names, and the bytes below each folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence

from buildmatrix.inventory.distributions import Ownership
from buildmatrix.inventory.listing import Listing
from buildmatrix.inventory.model import Folder, PythonPath

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
        folder = _find_common_folder(several[path]) if path in several else path.rpartition("/")[0]
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
    large = [
        Folder(path, files, size)
        for path, (files, size) in below.items()
        if size >= SMALLEST_FOLDER
    ]
    large.sort(key=lambda item: (-item.size, item.path))
    return tuple(sorted(large[:MOST_FOLDERS], key=lambda item: item.path))


def _find_common_folder(paths: Sequence[str]) -> str:
    """Return the folder that contains all of `paths`."""
    return posixpath.commonpath([path.rpartition("/")[0] for path in paths])
