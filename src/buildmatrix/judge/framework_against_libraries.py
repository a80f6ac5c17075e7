"""BM706: a distribution finds another version of a library than it was built with.

Its metadata, else its own files, else the catalogue state the version it was built with. The
version it finds is that of the file to which the loader resolves its NEEDED entries and the names
that it opens. Some distributions compose those names at run time: then there is a finding only if
all copies in the tree are too old. BM302 and BM303 report linked libraries of another line, BM305
missing symbols.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from packaging.specifiers import SpecifierSet

from buildmatrix.base.data import replace
from buildmatrix.base.parsing import requirement_or_none, version_or_none
from buildmatrix.base.text import listing
from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import demangle, matches_any
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import Binary, Distribution
from buildmatrix.facts.loader import Needed, Rule, resolve_opened
from buildmatrix.facts.loader_process import Preloads, file_name
from buildmatrix.judge.findings import chain_to_file, file_holder, finding, split_owner
from buildmatrix.judge.library_versions import (
    ExpectedVersion,
    LeastVersion,
    LibraryCopy,
    expected_version,
    find_overtaking,
    is_older,
    least_versions,
    library_version,
    metadata_words,
    needed_version,
    role_of,
    soname_globs,
    stated_versions,
)
from buildmatrix.judge.model import Finding, Fix
from buildmatrix.judge.subject import ImageSubject, once
from buildmatrix.matrix.kinds import Numbers, numbers

#: Roles of libraries that refuse a framework which was built with a newer one, or lack what it
#: calls: cuDNN compares versions when it is loaded.
_STRICT = ("dnn",)
#: Lead of the loader to a library, other than a search path of the linking file.
_LEADS: Mapping[Rule, str] = {
    "environment": "LD_LIBRARY_PATH leads",
    "cache": "ld.so.cache leads",
}


def check_framework_against_libraries(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and library that is found too old, or of another line."""
    binaries = {binary.path: binary for binary in image.inventory.binaries}
    needed: dict[str, list[Needed]] = {}
    for item in image.resolution.needed:
        binary = binaries.get(item.binary)
        if binary is not None and binary.owner is not None and item.path is not None:
            needed.setdefault(binary.owner, []).append(item)
    yield from _check_parts(image)
    for installed in image.inventory.distributions:
        owner = installed.owner
        yield from _check_same_versions(image, installed)
        match = distribution(installed.name, installed.version, image.catalogue)
        if match is None or match.backend != image.backend:
            continue
        least_of = least_versions(installed)
        linked = needed.get(owner, [])
        judged = list(_check_linked(image, installed, owner, linked, binaries, least_of))
        yield from judged
        yield from _find_overtaken(
            image, owner, {soname for item in judged for soname in item.chain}
        )
        names = {item.name for item in linked}
        yield from _check_opened(image, owner, names, least_of)
        yield from _check_stated_lines(image, owner, names, least_of)


@once
def _libraries(image: ImageSubject) -> Mapping[str, list[LibraryCopy]]:
    """The libraries that distributions of their own exist for, by SONAME."""
    rows = drivers.select_entries(image.catalogue.library_distributions, image.backend)
    globs = tuple(glob for row in rows for glob in row.libraries)
    libraries: dict[str, list[LibraryCopy]] = {}
    copies: list[tuple[str | None, LibraryCopy]] = [
        (file_name(file.path), file) for file in image.inventory.closed if ".so" in file.path
    ]
    for binary in image.inventory.loadable:
        is_known = binary.elf.dynamic_read
        copies.append((binary.elf.soname if is_known else file_name(binary.path), binary))
    for name, copy in copies:
        if name is not None and matches_any(globs, name):
            libraries.setdefault(name, []).append(copy)
    return libraries


def _check_opened(
    image: ImageSubject, owner: str, linked: Collection[str], least_of: Mapping[str, LeastVersion]
) -> Iterator[Finding]:
    """Yield findings about required but unlinked libraries of which every copy is too old."""
    for name, least in sorted(least_of.items()):
        expected = needed_version(least)
        if expected is None:
            continue
        globs = soname_globs(image, name)
        for soname, copies in sorted(_libraries(image).items()):
            if soname in linked or role_of(image, soname) is None:
                continue
            if not matches_any(globs, soname):
                continue
            opener, found = _find_opened(image, owner, soname, copies)
            versions = [library_version(image, copy) for copy in found]
            if all(is_older(version, expected) for version in versions):
                present, version = found[0], versions[0]
                assert version is not None
                yield _older_library(
                    image,
                    owner,
                    soname,
                    present,
                    ExpectedVersion(expected, metadata_words(name, least)),
                    version,
                    "all that it can find is" if opener is None else "what it opens by its name is",
                    opener,
                )


def _find_opened(
    image: ImageSubject, owner: str, soname: str, copies: Sequence[LibraryCopy]
) -> tuple[str | None, Sequence[LibraryCopy]]:
    """Return a file that opens a library by its bare name, and the copies that the loader finds.

    Returns all copies if no file is known to open it, or if another copy may be loaded earlier.
    """
    binaries = {binary.path: binary for binary in image.inventory.loadable}
    openers: dict[str, Binary | None] = {
        item.path: binaries[item.path]
        for item in image.evidence
        if item.kind == "dlopen"
        and item.weight == "strong"
        and item.distribution == owner
        and item.detail == soname
        and item.path in binaries
    }
    for load in image.inventory.python_loads:
        if load.owner == owner and soname in load.names and load.call != "find_library":
            openers[load.path] = None
    linked = any(item.name == soname for item in image.resolution.needed)
    if linked or not openers:
        return None, copies
    opened = [(binary, soname) for binary in openers.values()]
    found = {answer.path for answer in resolve_opened(image.inventory, opened)}
    others = [copy.path for copy in copies if copy.path not in found]
    preloads = Preloads(
        replace(load, names=tuple(name for name in load.names if "/" in name))
        for load in image.inventory.python_loads
    )
    if None in found or any(
        preloads.place(item.owner, others) for item in image.inventory.distributions
    ):
        return None, copies
    return next(iter(openers)), [copy for copy in copies if copy.path in found]


def _find_overtaken(
    image: ImageSubject, owner: str, reported: Collection[str]
) -> Iterator[Finding]:
    """Yield findings about bundled libraries ahead of which the loader finds another copy."""
    name, number = split_owner(owner)
    for item in find_overtaking(image):
        needed, present = item.needed, item.present
        lacking = any(
            missing.binary == needed.binary and present.path in missing.libraries
            for missing in image.linked.unbound
        )
        if item.owner != owner or needed.name in reported or lacking:
            continue
        yield _mismatch(
            image,
            owner,
            f"{name} {number} came with {needed.name} of {file_holder(image, item.own)}, and "
            f"{_LEADS.get(needed.rule or 'path', 'the loader leads')} it to {present.path} of "
            f"{file_holder(image, present)}, which {item.why}: it may be missing symbols "
            f"that {name} needs",
            f"take {present.path} out of the loader's way, so that it finds {item.own.path}",
            path=needed.binary,
            chain=[needed.binary, needed.name, present.path],
            is_strict=role_of(image, needed.name) in _STRICT,
            identity=needed.name,
        )


def _check_stated_lines(
    image: ImageSubject, owner: str, linked: Collection[str], least_of: Mapping[str, LeastVersion]
) -> Iterator[Finding]:
    """Yield findings about libraries the tree has in other lines than the files state."""
    named = {glob for name in least_of for glob in soname_globs(image, name)}
    for row, text in stated_versions(image, owner):
        version = numbers(text)
        copies = {
            soname: present
            for soname, present in sorted(_libraries(image).items())
            if matches_any(row.libraries, soname)
        }
        # Libraries in its metadata are installed with it, or reported by other rules.
        if version is None or not copies or named.intersection(row.libraries):
            continue
        lines = {_line(soname) for soname in copies}
        if version[0] in lines or None in lines or copies.keys() & set(linked):
            continue
        soname, present = next(iter(copies.items()))
        name, number = split_owner(owner)
        yield _mismatch(
            image,
            owner,
            f"{name} {number} was built with {demangle(soname).partition('.')[0]} {text} "
            f"({row.file} says so) and opens it at run time, but {image.noun} has only "
            f"{listing(copies)}: it continues without the GPU, or fails",
            f"bring version {version[0]} of the library, or take another {name}",
            path=present[0].path,
            chain=[soname, present[0].path],
            is_strict=role_of(image, soname) in _STRICT,
            identity=row.name,
        )


def _check_parts(image: ImageSubject) -> Iterator[Finding]:
    """Bundled libraries that open further ones of their release, which nothing there has.

    `libcudnn.so.8` opens `libcudnn_ops_infer.so.8`. Without a C library the base may bring them,
    unless the set has another release of its own.
    """
    rows = drivers.select_entries(image.catalogue.library_distributions, image.backend)
    files: tuple[LibraryCopy, ...] = (*image.inventory.loadable, *image.inventory.closed)
    present = {demangle(file_name(file.path)) for file in files if ".so" in file.path}
    present.update(binary.elf.soname or "" for binary in image.inventory.loadable)
    for binary in image.inventory.loadable:
        soname = demangle(file_name(binary.path))
        row = next((row for row in rows if matches_any(row.libraries, soname)), None)
        line = _line(soname)
        if row is None or line is None or binary.owner is None:
            continue
        begin = f"{soname.partition('.')[0]}_"
        parts = [
            literal.text
            for literal in binary.elf.literals
            if literal.text.startswith(begin)
            and _line(literal.text) == line
            and literal.text not in present
        ]
        others = {
            name: copies
            for name, copies in sorted(_libraries(image).items())
            if matches_any(row.libraries, name) and _line(demangle(name)) not in (line, None)
        }
        if not parts or not (others or image.resolution.is_root):
            continue
        name, number = split_owner(binary.owner)
        has = f", but there is {listing(others)}" if others else ""
        yield _mismatch(
            image,
            binary.owner,
            f"{name} {number} brings {soname}, which opens {listing(parts, 3)} by name, and "
            f"nothing in {image.noun} is called so{has}: what it is for fails on the GPU",
            f"bring version {line} of the library, or take another {name}",
            path=binary.path,
            chain=[binary.path, parts[0]],
            is_strict=role_of(image, soname) in _STRICT,
            identity=begin,
        )


def _line(soname: str) -> int | None:
    """The major version in a SONAME; the runtime of CUDA 11 is `libcudart.so.11.0`."""
    version = numbers(soname.partition(".so.")[2])
    return version[0] if version is not None else None


def _check_same_versions(image: ImageSubject, installed: Distribution) -> Iterator[Finding]:
    """Yield the findings about distributions that must have the same version as another one."""
    for row in drivers.select_entries(image.catalogue.version_pairs, image.backend):
        if not matches_any(row.distributions, installed.name):
            continue
        others = [item for item in image.inventory.distributions if item.name == row.beside]
        required = _specifier(installed, row.beside) if row.version == "required" else None
        if not others or any(_fits(installed, item, required) for item in others):
            continue
        version = others[0].version
        alone = "the same version" if required is None else f"{row.beside}{required}"
        either = "the same version" if required is None else "versions of one release"
        yield _mismatch(
            image,
            installed.owner,
            f"{installed.name} {installed.version} is beside {row.beside} {version}, and works "
            f"with {alone} alone: {row.effect}",
            f"bring {installed.name} and {row.beside} to {either}",
            path=installed.path,
            chain=[f"{row.beside} {version}"],
            identity=row.beside,
        )


def _fits(installed: Distribution, other: Distribution, required: SpecifierSet | None) -> bool:
    """Return True if one works beside another; unreadable versions are not compared."""
    if required is None:
        ours, theirs = numbers(installed.version), numbers(other.version)
        return ours is None or theirs is None or ours == theirs
    # A build of it, `0.10.2+rocm`, is that version.
    public = other.version.partition("+")[0]
    return version_or_none(public) is None or required.contains(public, prereleases=True)


def _specifier(installed: Distribution, name: str) -> SpecifierSet:
    """Return the versions that metadata requires, without extras and environments."""
    for line in installed.requires:
        requirement = requirement_or_none(line)
        if requirement and distribution_name(requirement.name) == name and requirement.specifier:
            return requirement.specifier
    return SpecifierSet()


def _check_linked(
    image: ImageSubject,
    installed: Distribution,
    owner: str,
    needed: list[Needed],
    binaries: Mapping[str, Binary],
    least_of: Mapping[str, LeastVersion],
) -> Iterator[Finding]:
    seen: set[str] = set()
    for item in sorted(needed, key=lambda item: (item.name, item.binary)):
        if item.name in seen or item.path is None:
            continue
        present = binaries.get(item.path)
        if role_of(image, item.name) is None or present is None or present.owner == owner:
            continue
        seen.add(item.name)
        expected = expected_version(image, installed, item.name, least_of)
        version = library_version(image, present)
        if expected is None or version is None:
            continue
        if not is_older(version, expected.version):
            continue
        leads = "the loader leads it to"
        yield _older_library(
            image, owner, item.name, present, expected, version, leads, item.binary
        )


def _mismatch(
    image: ImageSubject,
    owner: str,
    message: str,
    advice: str,
    *,
    path: str,
    chain: Sequence[str],
    is_strict: bool = True,
    identity: str = "",
) -> Finding:
    return finding(
        "BM706",
        image,
        message,
        severity="error" if is_strict else "warning",
        vendor=image.own_vendor,
        owner=owner,
        path=path,
        chain=chain_to_file(image, owner, *chain),
        fix=Fix("pin", advice),
        identity=identity,
    )


def _older_library(
    image: ImageSubject,
    owner: str,
    soname: str,
    present: LibraryCopy,
    expected: ExpectedVersion,
    version: Numbers,
    leads: str,
    binary: str | None,
) -> Finding:
    """Make the finding. `binary` links or opens the library; None if it is unknown."""
    name, number = split_owner(owner)
    wanted, has = ".".join(map(str, expected.version)), ".".join(map(str, version))
    return _mismatch(
        image,
        owner,
        f"{name} {number} was made for {soname} {wanted} or later ({expected.by}), and {leads} "
        f"{present.path} of {file_holder(image, present)}, which is {has}: it may be "
        f"missing symbols that {name} needs",
        f"take the older library out of the way, or bring {soname} to {wanted} or later there",
        path=binary or present.path,
        chain=[*([binary] if binary is not None else []), soname, present.path],
        is_strict=role_of(image, soname) in _STRICT,
    )
