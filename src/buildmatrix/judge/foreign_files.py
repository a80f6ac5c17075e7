"""Rules about files of another backend or the driver, and what links or loads them:
BM201 to BM203, BM301, BM401, BM501 and BM502.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from buildmatrix.base.data import replace
from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.inventory.model import Binary, PythonImport
from buildmatrix.facts.loader import Needed, Rule, resolve_opened
from buildmatrix.judge.evidence import find_system_backend, is_base, total
from buildmatrix.judge.failing import LOADER
from buildmatrix.judge.findings import (
    OwnedEvidence,
    chain_to_file,
    finding,
    finding_in_files,
    foreign_files,
    group_by_owner,
    severity_by_verdict,
    split_owner,
)
from buildmatrix.judge.fixes import accept, fix
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import Finding, Fix
from buildmatrix.judge.subject import ImageSubject

# BM201: a distribution ships a library of another backend, as a file or statically linked


def check_bundled_foreign_library(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all the libraries."""
    libraries = (
        item
        for item in image.foreign
        if item.kind in ("bundled", "static") and item.where != "host" and not is_base(item)
    )
    for owned in group_by_owner(libraries):
        shown = listing(_shown_library(item) for item in owned.items)
        weight = f" ({owned.weight(image)})" if total(owned.items) else ""
        yield foreign_files(
            "BM201",
            image,
            owned,
            f"{owned.holder} ships what belongs to {owned.title(image)} and is not usable on "
            f"{image.backend}: {shown}{weight}",
        )


def _shown_library(item: Evidence) -> str:
    """Return the name of a library; of a static one, with the file that contains it."""
    if item.kind != "static":
        return item.detail
    library, _, _ = item.detail.partition(" (")
    return f"a static {library} in {item.path.rpartition('/')[2]}"


# BM202: the image contains a file of the driver, which the host must provide.
#
# The user-space half of the driver must be of the same release as the kernel half. The container
# runtime mounts the host's copy; a copy in the image hides it or is hidden by it. Copies for
# forward compatibility have their own place, which the catalogue marks, and are not reported.
# Linker stubs are marked too, unless a loader finds them by a search path or after ldconfig, which
# container runtimes run when they mount the driver.


def check_driver_library_in_image(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, foreign or not; one for each stub."""
    drivers = (
        item
        for item in image.evidence
        if item.where == "host" and item.kind in ("bundled", "tool") and item.path
    )
    for owned in group_by_owner(drivers):
        path = owned.items[0].path
        yield finding_in_files(
            "BM202",
            image,
            owned,
            f"{owned.holder} ships {owned.details} "
            f"({size(total(owned.items))}): the driver's user-space half must come from the host, "
            "or it does not fit the kernel's half",
            fix=Fix(
                "remove",
                f"delete {path} in the step that brings it, or remove what installs it",
                accept("BM202", path=path),
            ),
        )
    loadable = {binary.path: binary for binary in image.inventory.loadable}
    for item in image.evidence:
        binary = loadable.get(item.path)
        if item.kind == "bundled" and item.where != "host" and binary is not None:
            yield from _stub(image, item, binary)


def _stub(image: ImageSubject, item: Evidence, binary: Binary) -> Iterator[Finding]:
    """A finding where a loader takes a stub for the driver."""
    file_name = item.path.rpartition("/")[2]
    soname = binary.elf.soname or file_name
    # An exception of the catalogue alone takes it from the host's.
    if item.weight == "strong" or not any(
        match.owned.backend == item.backend and match.owned.entry.where == "host"
        for match in library(soname, None, image.catalogue)
    ):
        return
    folder = item.path.rpartition("/")[0]
    asked = next((needed for needed in image.resolution.needed if needed.path == item.path), None)
    named = {
        found.name: found
        for found in resolve_opened(image.inventory, [(None, soname), (None, file_name)])
        if found.path == item.path
    }
    if asked is not None:
        name, how = asked.name, f"{asked.binary} is led to it by {_driver_way(asked)}"
    elif soname in named:
        name, how = soname, f"{_driver_way(named[soname])} leads to it"
    elif folder in image.inventory.library_folders:
        name, how = soname, "ld.so.conf names its folder, and ldconfig puts it into ld.so.cache"
    elif named:
        name, how = file_name, f"{_driver_way(named[file_name])} leads to it"
    else:
        return
    owned = OwnedEvidence(item.distribution, item.vendor, (replace(item, where="host"),))
    yield finding_in_files(
        "BM202",
        image,
        owned,
        f"{owned.holder} has a stub for the linker where the loader looks for {name}: {how}. "
        "It stands in for the driver that the host provides, and every call of it fails",
        # Only some programs ask for the name that linkers use.
        severity="error" if name == soname else "warning",
        fix=Fix(
            "remove",
            f"take {folder} out of LD_LIBRARY_PATH, ld.so.conf and search paths of files: linkers "
            "find it by -L or LIBRARY_PATH",
            accept("BM202", path=item.path),
        ),
    )


#: Settings that lead the loader to a library, other than a search path of a file.
_WAYS: Mapping[Rule, str] = {
    "environment": "LD_LIBRARY_PATH",
    "cache": "ld.so.cache",
    "default": "a default folder",
}


def _driver_way(needed: Needed) -> str:
    """Name the setting that leads the loader to a library."""
    return _WAYS.get(needed.rule or "path", "a search path of a file")


# BM203: a compiler, profiler or device bitcode of another backend


def check_foreign_tool(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all the tools."""
    tools = (
        item
        for item in image.foreign
        if item.kind == "tool" and item.where != "host" and not is_base(item)
    )
    for owned in group_by_owner(tools):
        yield foreign_files(
            "BM203",
            image,
            owned,
            f"{owned.holder} ships {owned.details} "
            f"({owned.weight(image)}): tools of {owned.title(image)}, which make nothing that "
            f"{image.backend} can run",
        )


# BM301: a file links a library of another backend.
#
# As severe as the distribution's verdict: an error if the library is present and loaded, or if an
# import fails without it. A file that no import needs (an optional plugin) is a warning if the
# library is absent: nothing of the other backend can come in through it.


def check_foreign_needed(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all files and names."""
    needed = (
        item
        for item in image.foreign
        # Names from a string table leave a verdict open; they prove nothing.
        if item.kind == "needed"
        and item.path not in image.unlinked
        and not is_base(item)
        and (item.role != LOADER or (item.path, item.detail) in image.tree.missing)
    )
    for owned in group_by_owner(needed):
        absent = [item for item in owned.items if (item.path, item.detail) in image.tree.missing]
        # An import that was not read may survive the failure.
        imported = [
            item
            for item in absent
            if image.tree.reach.get(item.path) == "import"
            and owned.owner not in image.tree.unread_python
        ]
        first = (imported or absent or owned.items)[0]
        verdict = image.verdicts.get(owned.owner or "")
        fails = verdict is not None and verdict.failure is not None
        harmless = (
            owned.owner is not None and not (imported or fails) and len(absent) == len(owned.items)
        )
        yield finding_in_files(
            "BM301",
            image,
            owned,
            f"{owned.holder} links {owned.details} of "
            f"{image.catalogue.title(first.backend)}"
            + (
                f", and {image.noun} does not have {listing(item.detail for item in absent)}: "
                f"{first.path} cannot be loaded" + (", and no import needs it" if harmless else "")
                if absent
                else f"; {first.path} loads it where {image.backend} should be alone"
            ),
            severity=severity_by_verdict(image, owned.owner) or ("warning" if harmless else None),
            first=first,
            is_named=True,
            fix=_needed_fix(image, owned.owner, harmless),
        )


def _needed_fix(image: ImageSubject, owner: str | None, harmless: bool) -> Fix | None:
    """Return the catalogue's fix; a custom build is too much for a file that nothing needs."""
    name, version = split_owner(owner)
    if name is None:
        return None
    usual = fix(image, name, version, "BM301")
    if not harmless or usual.kind != "rebuild":
        return usual
    return Fix(
        "waive",
        f"nothing has to be done as long as {name} is not asked for that file; accept it with a "
        "[[waive]]",
        accept("BM301", distribution=name),
    )


# BM401: a file contains device code for another backend


def check_foreign_device_code(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and vendor, with all files."""
    code = (item for item in image.foreign if item.kind == "device-code" and not is_base(item))
    for owned in group_by_owner(code):
        architectures = sorted({arch for item in owned.items for arch in item.architectures})
        files = {item.path for item in owned.items}
        where = owned.items[0].path if len(files) == 1 else count(len(files), "file")
        named = f" ({listing(architectures)})" if architectures else ""
        if files & image.partial:
            named = f"{listing(architectures, 12)}; " if architectures else ""
            named = f" ({named}the list may be incomplete, `audit --deep` reads the rest)"
        yield foreign_files(
            "BM401",
            image,
            owned,
            f"{owned.holder} holds {owned.weight(image)} of device code for {owned.title(image)}"
            f"{named} in {where}, which {image.backend} cannot run",
        )


# BM501: a file contains the name of another backend's library and can load it at run time.
#
# A name alone costs and breaks nothing, so this is a note. BM502 reports failing imports.


def check_foreign_dlopen(image: ImageSubject) -> Iterator[Finding]:
    """One note per distribution and vendor; parts of other text do not count."""
    failures = (
        verdict.failure for verdict in image.verdicts.values() if verdict.failure is not None
    )
    fails = {(item.path, item.detail) for failure in failures for item in failure.evidence}
    names = (
        item
        for item in image.foreign
        if item.kind in ("dlopen", "python-dlopen")
        and item.weight == "strong"
        and (item.path, item.detail) not in fails
        and not is_base(item)
    )
    for owned in group_by_owner(names):
        yield finding_in_files(
            "BM501",
            image,
            owned,
            f"{owned.holder} can load {owned.details} of "
            f"{owned.title(image)} at run time; harmless if absent",
            is_named=True,
        )


# BM502: an import fails because a library that Python code opens or calls into is missing.
#
# A missing module counts as well: one of a vendor's software breaks the distribution, any other is
# a warning. Failures of linked libraries are BM301's and BM302's.


def check_failing_import(image: ImageSubject) -> Iterator[Finding]:
    """Yield one finding per distribution that is itself broken; it names those that import it."""
    for owner, verdict in image.verdicts.items():
        failure = verdict.failure
        if failure is None or failure.kind in ("link", "plugin"):
            continue
        yield finding(
            "BM502",
            image,
            f"{verdict.name} {verdict.version} cannot be imported on {image.backend}: "
            f"{failure.reason}{_followers(image, owner)}",
            vendor=failure.vendor or None,
            owner=owner,
            path=failure.path,
            evidence=failure.evidence,
            chain=chain_to_file(image, owner, failure.place, failure.name),
            fix=fix(image, verdict.name, verdict.version, "BM502"),
        )
    yield from _missing_modules(image)


def _missing_modules(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution that imports modules which are missing."""
    if image.tree.is_single or not _is_all_listed(image):
        return
    missing: dict[str, list[PythonImport]] = {}
    for imported in image.inventory.python_imports:
        is_missing = imported.how == "missing" and imported.provider is None
        if is_missing and find_system_backend(imported.module, image.catalogue) is None:
            missing.setdefault(imported.owner, []).append(imported)
    for owner, statements in sorted(missing.items()):
        verdict = image.verdicts.get(owner)
        if verdict is None or verdict.failure is not None:
            continue
        first = statements[0]
        names = listing(dict.fromkeys(one.module.partition(".")[0] for one in statements))
        place = f"{first.path}:{first.line}"
        yield finding(
            "BM502",
            image,
            f"{verdict.name} {verdict.version} cannot be imported: it imports {names} ({place}), "
            f"which {image.noun} does not have",
            severity="warning",
            owner=owner,
            path=first.path,
            chain=chain_to_file(image, owner, place, first.module),
            fix=Fix(
                "pin",
                f"require what has {names}, or take {verdict.name} out",
                accept("BM502", distribution=verdict.name),
            ),
        )


def _is_all_listed(image: ImageSubject) -> bool:
    """Return True if all modules are known: no wheel is unread, and none has to be built."""
    unread = (item.path.endswith(".whl") for item in image.inventory.unread)
    return not isinstance(image, Wheels) or not (image.without_wheel or any(unread))


def _followers(image: ImageSubject, owner: str) -> str:
    """Those that are broken only because they import it."""
    importers = {
        imported.owner
        for imported in image.inventory.python_imports
        if imported.provider == owner and imported.how == "imported"
    }
    names = [
        verdict.name
        for verdict in image.verdicts.values()
        if verdict.verdict == "broken" and verdict.failure is None and verdict.owner in importers
    ]
    return f"; with it fails {listing(names)}, which imports it" if names else ""
