"""BM305: a library needs symbols, or versions of them, that those which the loader binds lack.

The loader refuses the file with "undefined symbol" or "version not found". See `loader.binding` for
what is looked up, and when nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from buildmatrix.inventory.model import Binary
from buildmatrix.loader.binding import Unbound
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import chain_to_file, finding, split_owner
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.shipped import BASE, file_holder, holder
from buildmatrix.rules.subject import ImageSubject

#: From files that fail with an import to files without a known loader.
_SEVERITIES: dict[str, Severity] = {"import": "error", "unknown": "error", "lazy": "warning"}
#: Names that a message lists.
_MOST_NAMES = 3


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution, and owner of the libraries that should have the symbols."""
    binaries = {binary.path: binary for binary in image.linked.inventory.loadable}
    missing = [
        (owner, _holders(image, [binaries[path] for path in item.libraries]), item)
        for item in image.unbound
        if (owner := binaries[item.binary].owner) is not None
        or image.reach.get(item.binary) == "import"
    ]
    missing.sort(key=lambda part: (part[0] or "", part[1]))
    for (owner, holders), group in groupby(missing, key=lambda part: part[:2]):
        yield _finding(image, owner, holders, [item for _, _, item in group], binaries)


def _finding(
    image: ImageSubject,
    owner: str | None,
    holders: Sequence[str],
    missing: Sequence[Unbound],
    binaries: Mapping[str, Binary],
) -> Finding:
    rank = ("error", "warning", "note")
    severities = [_severity(image, item, owner, binaries) for item in missing]
    severity = min(severities, key=rank.index)
    first = missing[severities.index(severity)]
    name, _ = split_owner(owner)
    files = {item.binary for item in missing}
    others = f", nor can {len(files) - 1} other files" if len(files) > 1 else ""
    should = listing(f"{path} of {file_holder(image, binaries[path])}" for path in first.libraries)
    plural = len(first.libraries) > 1
    return finding(
        "BM305",
        image,
        f"{holder(owner)} needs {_wanted(first)}, and "
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
        fix=_fix(
            image, name or first.binary, holders, [binaries[path] for path in first.libraries]
        ),
        identity=" ".join(split_owner(item)[0] or item for item in holders),
    )


def _fix(
    image: ImageSubject, name: str, holders: Sequence[str], libraries: Sequence[Binary]
) -> Fix:
    """Make way for a wheel's own copy where another one hides it; else matching releases."""
    for library in libraries:
        soname = library.elf.soname
        hidden = next(
            (
                other.path
                for other in image.inventory.loadable
                if soname
                and other.elf.soname == soname
                and other.owner not in (None, library.owner)
            ),
            None,
        )
        if library.owner is None and hidden is not None:
            return Fix(
                "pin",
                f"take {library.path} out of the loader's way (LD_LIBRARY_PATH, ld.so.conf), so "
                f"that it finds {hidden}",
            )
    return Fix(
        "pin",
        f"take releases of {name} and {listing(holders) or 'what it links'} that were built for "
        "each other",
    )


def _wanted(item: Unbound) -> str:
    if not item.names:
        return f"the symbol version {item.version}"
    names = listing(item.names, _MOST_NAMES)
    return f"the symbol{'s' if len(item.names) > 1 else ''} {names}"


def _severity(
    image: ImageSubject, item: Unbound, owner: str | None, binaries: Mapping[str, Binary]
) -> Severity:
    """A note for files of one distribution that no import loads; a warning beside packages.

    The first were made together, and their users may bind functions when they are called. A plugin
    that is newer than the system's packages is skipped: Unified Runtime opens its adapters so.
    """
    reach, packaged = image.reach.get(item.binary, "unknown"), image.inventory.packaged
    if reach == "import":
        return "error"
    if all(binaries[path].owner == owner for path in item.libraries):
        return "note"
    if any(binaries[path].owner is None and path in packaged for path in item.libraries):
        return "warning"
    return _SEVERITIES.get(reach, "warning")


def _holders(image: ImageSubject, libraries: Sequence[Binary]) -> tuple[str, ...]:
    """Names of the distributions and packages that have the libraries."""
    named = (file_holder(image, binary) for binary in libraries)
    return tuple(sorted({name if name == BASE else name.rpartition(" ")[0] for name in named}))
