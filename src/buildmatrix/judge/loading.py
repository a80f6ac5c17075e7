"""Rules about missing libraries and symbols, for which the loader refuses a file: BM302, BM305."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from buildmatrix.base.text import listing
from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.model import demangle, matches_any, version_of
from buildmatrix.catalogue.releases import requirements
from buildmatrix.facts.inventory.model import Binary, ClosedFile, Link
from buildmatrix.facts.loader import Needed
from buildmatrix.facts.loader_binding import Unbound
from buildmatrix.facts.loader_process import file_name
from buildmatrix.judge.evidence import is_extension
from buildmatrix.judge.findings import (
    BASE,
    USES,
    chain_to_file,
    file_holder,
    finding,
    holder,
    split_owner,
)
from buildmatrix.judge.fixes import quote
from buildmatrix.judge.model import SEVERITY_RANK, Finding, Fix, Severity
from buildmatrix.judge.subject import ImageSubject, once

# BM302: a file links a library that the image lacks.
#
# A folder or a wheel without a C library leaves all system libraries unresolved, which proves
# nothing. There a name counts only if it is of another toolkit line of this backend, which no base
# image of the target's line has, or if a distribution required by the linking one has the library
# in another major version. Names of other backends are BM301's.
#
# The message names the library on which an import fails: ld.so loads breadth first, and stops at
# the first missing library.


def check_unresolved_soname(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution, and one for all files that belong to none."""
    is_root = image.resolution.is_root
    linked = image.linked
    owners = {binary.path: binary.owner or "" for binary in linked.inventory.binaries}
    # Tables of single libraries settle no verdict.
    known = set(image.resolution.missing)
    missing = [
        needed
        for needed in linked.resolution.missing
        if (
            (needed in known and (is_root or image.tree.is_other_line(needed.name)))
            or (not is_root and _other_major(image, owners[needed.binary], needed.name))
        )
        and not _is_expected(image, needed)
        and image.backend not in image.tree.supplied.get(owners[needed.binary], ())
    ]
    missing.sort(key=lambda needed: (owners[needed.binary], needed.binary, needed.name))
    for owner, group in groupby(missing, key=lambda needed: owners[needed.binary]):
        yield _missing_library(image, owner or None, list(group))


@once
def _versions(image: ImageSubject) -> Mapping[str, Mapping[str, str]]:
    """Name of a library without its version → file names → owners.

    Copies under names of their own are no other version.
    """
    names: dict[str, dict[str, str]] = {}
    inventory = image.linked.inventory
    files: tuple[Binary | ClosedFile, ...] = (*inventory.loadable, *inventory.closed)
    for file in files:
        name = file_name(file.path)
        stem, separator, _ = name.rpartition(".so.")
        if separator and file.owner and name == demangle(name):
            names.setdefault(stem, {})[name] = file.owner
    return names


@once
def _holders_of_other_versions(image: ImageSubject, owner: str) -> frozenset[str]:
    """Distributions whose libraries `owner` may mean: those that it requires, and vendors'."""
    required = {
        required.name
        for item in image.inventory.distributions
        if item.owner == owner
        for required in requirements(item, image.catalogue)
        if required.active
    }
    vendors = {
        present.owner
        for present, match in image.matches
        if match.kind == "native" and match.backend == image.backend
    }
    installed = {item.owner for item in image.inventory.distributions if item.name in required}
    return frozenset(vendors | installed) - {owner}


def _other_major(image: ImageSubject, owner: str, name: str) -> tuple[str, str] | None:
    """Another major version of the library `name`, which `owner` links, and whose it is."""
    stem, separator, version = name.rpartition(".so.")
    major = version.partition(".")[0]
    if not separator or not major.isdecimal():
        return None
    for other, holds in sorted(_versions(image).get(stem, {}).items()):
        found = version_of(other).partition(".")[0]
        is_other = found.isdecimal() and int(found) != int(major)
        if is_other and holds in _holders_of_other_versions(image, owner):
            return other, holds
    return None


def _missing_library(image: ImageSubject, owner: str | None, missing: list[Needed]) -> Finding:
    ways = _ways(image, owner)
    judged = {needed: _missing_library_severity(image, owner, needed) for needed in missing}
    severity = max(judged.values(), key=SEVERITY_RANK.__getitem__)
    worst = [needed for needed in missing if judged[needed] == severity]
    first = worst[0]
    if any(_entry(needed) in ways for needed in worst):
        order = {entry: place for place, entry in enumerate(ways)}
        missing.sort(key=lambda needed: order.get(_entry(needed), len(order)))
        first = missing[0]
    way = ways.get(_entry(first), (first.binary,))
    other = _other_major(image, owner or "", first.name)
    notes = [_use(image, first, way[0])]
    if image.tree.is_other_line(first.name):
        backend = image.catalogue.title(image.backend)
        notes.append(
            f". {first.name} is of {backend} {_lines_of(image, first)}, and this target is"
        )
        notes.append(f" for {backend} {image.line}")
    if other is not None:
        notes.append(f". {other[1].replace('==', ' ')} has {other[0]}")
    if _is_glibc_on_musl(image, first):
        notes.append(
            f". {first.name} is glibc's, for which manylinux wheels are built; this image has musl"
        )
    return finding(
        "BM302",
        image,
        f"{holder(owner)} links {listing(dict.fromkeys(needed.name for needed in missing))}, which "
        f"is not in {image.noun} and is not provided by the host: {first.binary} cannot be loaded"
        + "".join(notes),
        severity=severity,
        owner=owner,
        path=first.binary,
        chain=chain_to_file(image, owner, *way, first.name),
        fix=_missing_library_fix(image, owner, first, missing),
    )


def _entry(needed: Needed) -> tuple[str, str]:
    return needed.binary, needed.name


@once
def _links(image: ImageSubject) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    return image.resolution.links()


@once
def _imported(image: ImageSubject) -> frozenset[str]:
    """Files that Python code imports by their names, with nothing that catches the failure."""
    return frozenset(item.path for item in image.inventory.loadable if item.reach == "import")


@once
def _ways(image: ImageSubject, owner: str | None) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Binary and NEEDED entry → files from what an import of `owner` opens down to the binary.

    In the order in which ld.so comes to them.
    """
    if owner is None:
        return {}
    links = _links(image)
    ways: dict[tuple[str, str], tuple[str, ...]] = {}
    seen: set[str] = set()
    named = _imported(image)
    heads = [
        binary.path
        for binary in image.inventory.loadable
        if binary.owner == owner and (binary.path in named or is_extension(binary.path))
    ]
    # Some import their modules by names that only a run shows, as cv2 does.
    for head in sorted(
        heads, key=lambda path: (path not in named, image.tree.reach.get(path) != "import")
    ):
        ahead: list[tuple[str, ...]] = [(head,)]
        for way in ahead:  # grows while it is walked
            if way[-1] in seen:
                continue
            seen.add(way[-1])
            for name, paths in links.get(way[-1], {}).items():
                ways.setdefault((way[-1], name), way)
                ahead.extend((*way, path) for path in paths[:1])
    return ways


#: Names of glibc's loader (glibc, shlib-versions).
_GLIBC_LOADER = re.compile(r"ld(?:-linux.*|64)\.so\.\d")


@once
def _has_musl(image: ImageSubject) -> bool:
    files: tuple[Binary | Link, ...] = (*image.inventory.loadable, *image.inventory.links)
    return any(file_name(file.path).startswith("ld-musl-") for file in files)


def _is_glibc_on_musl(image: ImageSubject, needed: Needed) -> bool:
    return _GLIBC_LOADER.fullmatch(needed.name) is not None and _has_musl(image)


def _lines_of(image: ImageSubject, needed: Needed) -> str:
    return " or ".join(
        line
        for match in library(needed.name, None, image.catalogue)
        if match.owned.backend == image.backend
        for line in match.lines
    )


def _missing_library_fix(
    image: ImageSubject, owner: str | None, item: Needed, missing: Sequence[Needed]
) -> Fix:
    name, _ = split_owner(owner)
    if image.tree.is_other_line(item.name):
        backend = image.catalogue.title(image.backend)
        return Fix(
            "pin",
            f"take a release of {name or item.binary} that was built for {backend} {image.line}, "
            f"or make the target for {backend} {_lines_of(image, item)}",
        )
    if _is_glibc_on_musl(image, item) and name:
        line = f"no-binary = [{quote(name)}]"
        where = f"[backend.{image.backend}]"
        return Fix(
            "rebuild",
            f"install a musllinux wheel of {name}, build it from source (write `{line}` under "
            f"{where}), or take a base image with glibc",
            f"{where}\n{line}\n",
        )
    names = sorted({needed.name for needed in missing})
    # Those behind extension modules.
    opened = (needed.name for needed in missing if _entry(needed) in _ways(image, owner))
    imported = list(dict.fromkeys(opened))
    # If no import needs any, plugins do.
    cure = _packages(image, imported or names, [name for name in names if name not in imported])
    if cure is not None:
        return cure
    entry = f"allow-unresolved = {{ {image.backend} = [{', '.join(map(quote, names))}] }}"
    subject, pronoun = ("it is", "it") if len(names) == 1 else ("they are", "them")
    return Fix(
        "rebuild",
        f"install what provides {', '.join(names)}"
        + (f", or take {name} in a build for this runtime" if name else "")
        + f"; or, if {subject} never loaded, allow {pronoun}: `{entry}` under [policy]",
        f"[policy]\n{entry}\n",
    )


def _packages(image: ImageSubject, names: Sequence[str], plugins: Sequence[str] = ()) -> Fix | None:
    """Return the system's packages of the libraries `names` that the catalogue has.

    `plugins` are the libraries that only files need which no import loads.
    """
    rows = {name: row.entry for row in image.catalogue.library_packages for name in row.entry.names}
    entries = [rows[name] for name in names if name in rows]
    if not entries:
        return None
    debian = dict.fromkeys(entry.debian for entry in entries)
    rpm = dict.fromkeys(entry.rpm for entry in entries)
    alpine = dict.fromkeys(entry.alpine for entry in entries)
    plugged = [rows[name] for name in plugins if name in rows]
    if any(package.kind == "rpm" for package in image.inventory.system_packages):
        own, system, others_are = rpm, "RPMs", f"on Debian install {', '.join(debian)}"
        further = dict.fromkeys(row.rpm for row in plugged if row.rpm not in rpm)
    else:
        own, system, others_are = debian, "Debian", f"of RPMs install {', '.join(rpm)}"
        further = dict.fromkeys(row.debian for row in plugged if row.debian not in debian)
    line = f"system-packages = [{', '.join(map(quote, own))}]"
    others = [name for name in names if name not in rows]
    return Fix(
        "rebuild",
        f"write `{line}` under [backend.{image.backend}] ({system}); {others_are}, "
        f"on Alpine {', '.join(alpine)}"
        + (f"; and install what provides {', '.join(others)}" if others else "")
        + (f"; if its plugins are used, add {', '.join(further)}" if further else ""),
        f"[backend.{image.backend}]\n{line}\n",
    )


def _use(image: ImageSubject, needed: Needed, head: str) -> str:
    """Describe how the file is loaded; `head` is the file that Python opens."""
    place = next((b.reached_from for b in image.inventory.binaries if b.path == head), None)
    reach = image.tree.reach.get(needed.binary)
    is_at = place and reach in ("import", "guarded")
    return USES.get(reach, "") + (f" ({place})" if is_at else "")


def _missing_library_severity(image: ImageSubject, owner: str | None, needed: Needed) -> Severity:
    """Return an error if an import fails for a library of the catalogue.

    What an import does without, or what a call or nothing loads, is a warning. Files of no
    distribution are the system's: what they miss is its packagers' choice.
    """
    if owner is None:
        return "note"
    verdict = image.verdicts.get(owner)
    if verdict is not None:
        failure = verdict.failure
        if failure is not None and (failure.path, failure.name) == (needed.binary, needed.name):
            return "error"
        if verdict.is_open:  # Unread files may work without it.
            return "warning"
    if image.tree.reach.get(needed.binary) != "import":
        return "warning"
    if _is_glibc_on_musl(image, needed):
        return "error"
    # Not every extension module that Python code says nothing of is imported.
    way = _ways(image, owner).get(_entry(needed), ())
    is_named = bool(way) and way[0] in _imported(image)
    is_known = library(needed.name, None, image.catalogue) or (
        is_named and _packages(image, [needed.name]) is not None
    )
    return "error" if is_known else "warning"


def _is_expected(image: ImageSubject, needed: Needed) -> bool:
    """Foreign, injected by the container runtime, or allowed by the policy."""
    owned = library(needed.name, None, image.catalogue)
    vendor = image.own_vendor
    # Graphics libraries, such as libGL, belong to no accelerator, so BM301 skips them.
    if any(
        match.owned.vendor not in (None, vendor) and match.owned.entry.role != "graphics"
        for match in owned
    ):
        return True
    if any(match.owned.entry.where == "host" for match in owned):
        return True
    allowed = image.policy.allow_unresolved
    return matches_any((*allowed.get("*", ()), *allowed.get(image.backend, ())), needed.name)


# BM305: the libraries that the loader binds lack symbols, or versions of them, that a library
# needs.
#
# The loader refuses the file with "undefined symbol" or "version not found". See
# `facts.loader_binding` for the lookup, and for the cases without an answer.


#: From files that fail with an import to files without a known loader.
_SYMBOL_SEVERITIES: dict[str, Severity] = {"import": "error", "unknown": "error", "lazy": "warning"}
#: Names that a message lists.
_MOST_SYMBOLS = 3


def check_missing_symbol(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution, and owner of the libraries that should have the symbols."""
    binaries = {binary.path: binary for binary in image.linked.inventory.loadable}
    missing = [
        (owner, _holders(image, [binaries[path] for path in item.libraries]), item)
        for item in image.linked.unbound
        if (owner := binaries[item.binary].owner) is not None
        or image.tree.reach.get(item.binary) == "import"
    ]
    missing.sort(key=lambda part: (part[0] or "", part[1]))
    for (owner, holders), group in groupby(missing, key=lambda part: part[:2]):
        yield _missing_symbol(image, owner, holders, [item for _, _, item in group], binaries)


def _missing_symbol(
    image: ImageSubject,
    owner: str | None,
    holders: Sequence[str],
    missing: Sequence[Unbound],
    binaries: Mapping[str, Binary],
) -> Finding:
    severities = [_missing_symbol_severity(image, item, owner, binaries) for item in missing]
    severity = max(severities, key=SEVERITY_RANK.__getitem__)
    first = missing[severities.index(severity)]
    name, _ = split_owner(owner)
    files = {item.binary for item in missing}
    others = f", nor can {len(files) - 1} other files" if len(files) > 1 else ""
    should = listing(f"{path} of {file_holder(image, binaries[path])}" for path in first.libraries)
    plural = len(first.libraries) > 1
    return finding(
        "BM305",
        image,
        f"{holder(owner)} needs {_wanted_symbols(first)}, and "
        + (
            f"{should}, which the loader binds, {'do' if plural else 'does'} not have it"
            if first.libraries
            else "no library that it links has it"
        )
        + f": {first.binary} cannot be loaded{others}",
        severity=severity,
        owner=owner,
        path=first.binary,
        chain=chain_to_file(
            image, owner, first.binary, *first.libraries[:1], first.version or first.names[0]
        ),
        fix=_missing_symbol_fix(
            image, name or first.binary, holders, [binaries[path] for path in first.libraries]
        ),
        identity=" ".join(split_owner(item)[0] or item for item in holders),
    )


def _missing_symbol_fix(
    image: ImageSubject, name: str, holders: Sequence[str], libraries: Sequence[Binary]
) -> Fix:
    """Make way for a wheel's own copy where another one hides it; else matching releases."""
    for binary in libraries:
        soname = binary.elf.soname
        hidden = next(
            (
                other.path
                for other in image.inventory.loadable
                if soname and other.elf.soname == soname and other.owner not in (None, binary.owner)
            ),
            None,
        )
        if binary.owner is None and hidden is not None:
            return Fix(
                "pin",
                f"take {binary.path} out of the loader's way (LD_LIBRARY_PATH, ld.so.conf), so "
                f"that it finds {hidden}",
            )
    return Fix(
        "pin",
        f"take releases of {name} and {listing(holders) or 'what it links'} that were built for "
        "each other",
    )


def _wanted_symbols(item: Unbound) -> str:
    if not item.names:
        return f"the symbol version {item.version}"
    names = listing(item.names, _MOST_SYMBOLS)
    return f"the symbol{'s' if len(item.names) > 1 else ''} {names}"


def _missing_symbol_severity(
    image: ImageSubject, item: Unbound, owner: str | None, binaries: Mapping[str, Binary]
) -> Severity:
    """A note for files of one distribution that no import loads; a warning beside packages.

    The first were made together, and their users may bind functions when they are called. A plugin
    that is newer than the system's packages is skipped: Unified Runtime opens its adapters so.
    """
    reach, packaged = image.tree.reach.get(item.binary, "unknown"), image.inventory.packaged
    if reach == "import":
        return "error"
    if all(binaries[path].owner == owner for path in item.libraries):
        return "note"
    if any(binaries[path].owner is None and path in packaged for path in item.libraries):
        return "warning"
    return _SYMBOL_SEVERITIES.get(reach, "warning")


def _holders(image: ImageSubject, libraries: Sequence[Binary]) -> tuple[str, ...]:
    """Names of the distributions and packages that have the libraries."""
    named = (file_holder(image, binary) for binary in libraries)
    return tuple(sorted({name if name == BASE else name.rpartition(" ")[0] for name in named}))
