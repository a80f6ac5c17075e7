"""Rules about duplicate paths, distributions, runtimes and libraries:
BM204, BM205, BM303 and BM304.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from buildmatrix.base.text import count, listing, size
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence, demangle, library_names
from buildmatrix.catalogue.releases import toolkit_line
from buildmatrix.facts.inventory.folders import add_pythonpath, find_visible_distributions
from buildmatrix.facts.inventory.model import Distribution, PythonPath, SharedPath
from buildmatrix.judge.evidence import is_base, total
from buildmatrix.judge.findings import finding, split_owner
from buildmatrix.judge.fixes import line_fix
from buildmatrix.judge.library_versions import find_overtaking
from buildmatrix.judge.model import Finding, Fix, Severity
from buildmatrix.judge.subject import ImageSubject

# BM204: two distributions installed different files at the same path.
#
# Machine code from two builds is an error: one half calls into the other. If neither of two builds
# of one version is a vendor's, the one installed last is whole: a warning, as for Python code.
# Files that no import reaches are a note.


def check_path_owned_twice(image: ImageSubject) -> Iterator[Finding]:
    """One finding per group of distributions, with the first of the paths."""
    opened = {binary.path for binary in image.inventory.binaries}
    shared = [path for path in image.inventory.shared_paths if not _agree(path)]
    for owners, group in groupby(
        sorted(shared, key=lambda shared_path: (shared_path.owners, shared_path.path)),
        key=lambda shared_path: shared_path.owners,
    ):
        paths = [shared_path.path for shared_path in group]
        binaries = [path for path in paths if path in opened or ".so" in path.rpartition("/")[2]]
        first = (binaries or paths)[0]
        names = [owner.partition("==")[0] for owner in owners]
        wrong = _wrong_here(image, names)
        outcome = "the later one overwrites the earlier one, and the mix is neither of them"
        severity: Severity = "error"
        if not binaries:
            is_stray = all(_is_stray(image, names, path) for path in paths)
            severity = "note" if is_stray else "warning"
        elif _is_one_release(image, owners):
            severity = "warning"
            outcome = (
                "both are of one release, and whichever is installed last decides which build runs"
            )
        yield finding(
            "BM204",
            image,
            f"{' and '.join(owner.replace('==', ' ') for owner in owners)} both install "
            f"{count(len(paths), 'path')}, among them {first}: {outcome}",
            severity=severity,
            owner=", ".join(names),
            path=first,
            chain=(*image.chain_to(names[0]), first),
            fix=Fix(
                "remove",
                f'take {wrong} out: write `drop = ["{wrong}"]` under [backend.{image.backend}]; or '
                "keep that and take out the other",
                f'[backend.{image.backend}]\ndrop = ["{wrong}"]\n',
            ),
        )


def _wrong_here(image: ImageSubject, names: Iterable[str]) -> str:
    """The distribution that this backend misses least: a foreign one, else one for any backend."""
    matches = {present.name: match for present, match in image.matches}

    def rank(name: str) -> int:
        match = matches.get(name)
        if match is not None and image.is_foreign(match):
            return 2
        return 0 if match is not None and match.backend == image.backend else 1

    return max(names, key=rank)


def _agree(shared_path: SharedPath) -> bool:
    """Return True if all owners installed the bytes that are there, as namespace packages do.

    Files that pip compiles (`__pycache__`) are recorded without a hash: their source decides.
    """
    if not shared_path.matches and "/__pycache__/" in shared_path.path:
        return True
    return shared_path.matches is not None and set(shared_path.matches) == set(shared_path.owners)


def _is_one_release(image: ImageSubject, owners: tuple[str, ...]) -> bool:
    """Return True if the owners are builds of one version of one project without a vendor."""
    vendors = {present.name for present, match in image.matches if match.vendor is not None}
    names = {owner.partition("==")[0] for owner in owners}
    projects = {name.partition("-")[0] for name in names}
    versions = {owner.partition("==")[2] for owner in owners}
    return len(projects) == len(versions) == 1 and names.isdisjoint(vendors)


def _is_stray(image: ImageSubject, names: Iterable[str], path: str) -> bool:
    """Return True if a path is a file beside the packages that nothing imports.

    Such files are build scripts or licenses that got into a wheel by mistake; a module is imported
    by the name of its distribution, or by a statement of another one.
    """
    relative = path.rpartition("-packages/")[2]
    module, dot, suffix = relative.rpartition(".")
    if "/" in relative:
        return False
    if not dot or suffix not in ("py", "pyc"):
        return True
    own = {name.replace("-", "_") for name in names}
    return module not in own | image.imported_modules


# BM205: a distribution is installed twice, and only one copy is imported


_METADATA = ".dist-info"


def check_distribution_twice(image: ImageSubject) -> Iterator[Finding]:
    """Yield a finding per name: for shadowed copies, else for copies that a layer replaced."""
    reported: set[str] = set()
    for path, copies in _find_shadowed_copies(image):
        name = copies[0].name
        # Every Debian image has two copies of pip: a copy has to belong to a backend.
        if name not in reported and any(_match(image, name, copy.version) for copy in copies):
            reported.add(name)
            yield _shadowed(image, path, copies)
    for name, version, place in _find_replaced(image):
        if name not in reported:
            reported.add(name)
            yield from _find_exchanged_builds(image, name, version, place)


def _find_shadowed_copies(
    image: ImageSubject,
) -> Iterator[tuple[PythonPath | None, list[Distribution]]]:
    """Yield copies that one interpreter finds, the one that it imports first."""
    everything = image.inventory.distributions
    for python_path in image.inventory.python_paths:
        path = add_pythonpath(python_path, image.inventory.environment)
        first = find_visible_distributions(path, everything)
        for name, copies in _by_name(
            item for item in everything if posixpath.dirname(item.path) in path.folders
        ).items():
            if len(copies) > 1:
                yield path, sorted(copies, key=lambda copy: (copy != first[name], copy.path))
    # Which of several copies in one folder was unpacked last is unknown.
    folders: dict[str, list[Distribution]] = {}
    for item in everything:
        folders.setdefault(posixpath.dirname(item.path), []).append(item)
    for _, neighbors in sorted(folders.items()):
        for _, copies in sorted(_by_name(neighbors).items()):
            if len(copies) > 1:
                yield None, copies


def _by_name(distributions: Iterable[Distribution]) -> Mapping[str, list[Distribution]]:
    names: dict[str, list[Distribution]] = {}
    for item in sorted(distributions, key=lambda item: item.path):
        names.setdefault(item.name, []).append(item)
    return names


def _match(image: ImageSubject, name: str, version: str) -> DistributionMatch | None:
    match = distribution(name, version, image.catalogue)
    return match if match is not None and match.vendor is not None else None


def _shadowed(
    image: ImageSubject, path: PythonPath | None, copies: Sequence[Distribution]
) -> Finding:
    first, *others = copies
    matches = [_match(image, copy.name, copy.version) for copy in copies]
    known = [match for match in matches if match is not None]
    foreign = [match for match in known if image.is_foreign(match)]
    backends = {None if match is None else match.backend for match in matches}
    folders = {posixpath.dirname(copy.path) for copy in copies}
    mixed = len(folders) < len(copies)
    different = len({copy.version for copy in copies}) > 1
    places = listing(f"{copy.version} in {posixpath.dirname(copy.path)}" for copy in copies)
    if len(folders) == 1:
        message = (
            f"{first.name} is recorded as {' and '.join(copy.version for copy in copies)} in "
            f"{folders.pop()}: one was unpacked over the other, and it is unclear which files "
            "belong to which"
        )
    else:
        interpreter = "an interpreter" if path is None else path.interpreter
        hidden = sum(other.size for other in others)
        message = (
            f"{interpreter} finds {first.name} twice ({places}): it imports {first.version}"
            + (f", and {size(hidden)} are never used" if hidden else "")
        )
    return finding(
        "BM205",
        image,
        message,
        # Builds for different backends, or an unknown winner, are errors.
        severity="error" if len(backends) > 1 or (mixed and different) else "warning",
        # The vendor of the first copy that is foreign, else of the first that has one.
        vendor=next((match.vendor for match in (*foreign, *known)), None),
        owner=first.owner,
        path=first.path,
        chain=(*image.chain_to(first.name), *(copy.path for copy in copies)),
        fix=Fix(
            "remove",
            f"keep one {first.name}: install it into the environment that the image runs, take the "
            "other out of the base image or its requirements, and leave PYTHONPATH alone",
        ),
    )


# Files that a later layer replaced


def _find_replaced(image: ImageSubject) -> Iterator[tuple[str, str, str]]:
    """Name, version and place of distributions whose metadata a later layer deleted."""
    for buried in image.inventory.buried:
        last = buried.path.rpartition("/")[2]
        if last.endswith(_METADATA):
            name, dash, version = last.removesuffix(_METADATA).partition("-")
            if dash:
                yield name.replace("_", "-").replace(".", "-").lower(), version, buried.path


def _find_exchanged_builds(
    image: ImageSubject, name: str, version: str, place: str
) -> Iterator[Finding]:
    """Find a build for one backend that replaced one for another."""
    before = _match(image, name, version)
    for now in image.inventory.distributions:
        if now.name != name or now.version == version:
            continue
        after = _match(image, name, now.version)
        backends = [None if match is None else match.backend for match in (before, after)]
        if backends[0] == backends[1] or image.backend not in backends[:1]:
            continue
        yield finding(
            "BM205",
            image,
            f"{name} {version}, which an earlier layer had for {image.backend}, was replaced by "
            f"{now.version}: the base's build is gone, and its bytes still ship",
            severity="error",
            vendor=None if after is None else after.vendor,
            owner=f"{name}=={now.version}",
            path=now.path,
            chain=(*image.chain_to(name), place, now.path),
            fix=Fix(
                "pin",
                f"require the {name} that the base image has (`{name}=={version}`), or take a base "
                f"image without {name}",
            ),
        )
        return


# BM303: two toolkit lines of one vendor's runtime library are installed.
#
# Each keeps its own device state, and a process that loads both crashes without an explanation.
# Distributions for another line are BM103's; this rule looks at files.


def check_two_runtimes(image: ImageSubject) -> Iterator[Finding]:
    """At most one finding: this backend's runtime library in more than one line."""
    runtimes = [
        item
        for item in image.evidence
        if item.kind == "bundled"
        and item.role == "runtime"
        and item.weight == "strong"
        and item.backend == image.backend
        and item.toolkit is not None
    ]
    lines = sorted({item.toolkit for item in runtimes if item.toolkit is not None})
    if len(lines) < 2:
        return
    expected = toolkit_line(image.target.runtime) or lines[-1]
    odd = [item for item in runtimes if item.toolkit != expected]
    odd.sort(key=lambda item: (_is_private(item), item.path))
    first = odd[0]
    name, version = split_owner(first.distribution)
    yield finding(
        "BM303",
        image,
        f"{image.catalogue.title(image.backend)} lines {' and '.join(lines)} are in the image "
        "side by side: "
        f"{listing(item.path for item in odd)} beside line {expected}; a process that loads both "
        "crashes or computes on the wrong device",
        severity="warning" if _is_private(first) else "error",
        vendor=first.vendor,
        owner=first.distribution,
        path=first.path,
        evidence=tuple(sorted(runtimes, key=lambda item: (item.toolkit or "", item.path))),
        fix=line_fix(image, name, version, expected)
        if name is not None and version is not None
        else Fix("base", f"take a base image of line {expected}, or delete {first.path} in it"),
    )


def _is_private(item: Evidence) -> bool:
    """A copy under a name of its own, which no other file can be bound to."""
    name = item.path.rpartition("/")[2]
    return demangle(name) != name


# BM304: the base image and the wheels both ship the same libraries of the backend


def check_library_twice(image: ImageSubject) -> Iterator[Finding]:
    """At most one finding: all libraries of this backend that are there from both sides."""
    base: dict[str, list[Evidence]] = {}
    wheels: dict[str, list[Evidence]] = {}
    for item in image.evidence:
        if item.kind != "bundled" or item.weight != "strong" or item.backend != image.backend:
            continue
        if item.where == "host":
            continue  # A stub for the linker, or what BM202 is about.
        if item.distribution is not None:
            wheels.setdefault(_library_name(item), []).append(item)
        elif is_base(item):
            base.setdefault(_library_name(item), []).append(item)
    # Libraries of the base that wheels are led to, and that do not do, are BM305's and BM706's.
    bound = {item.present.path for item in find_overtaking(image)} | {
        path for item in image.linked.unbound for path in item.libraries
    }
    reported = {name for name, items in base.items() if any(item.path in bound for item in items)}
    twice = sorted((base.keys() & wheels.keys()) - reported)
    below = [item for name in twice for item in base[name]]
    above = [item for name in twice for item in wheels[name]]
    wasted_bytes = min(total(below), total(above))
    if wasted_bytes <= image.policy.bloat_threshold:
        return
    for items in (below, above):
        items.sort(key=lambda item: (-item.size, item.path))
    owners = listing((item.distribution or "").replace("==", " ") for item in above)
    yield finding(
        "BM304",
        image,
        f"{count(len(twice), 'library').replace('librarys', 'libraries')} of "
        f"{image.catalogue.title(image.backend)} are in the image twice: {size(total(below))} "
        "from the "
        f"base image ({listing(item.path for item in below)}) and {size(total(above))} from "
        f"{owners}; a process loads one of each, so {size(wasted_bytes)} are wasted",
        vendor=below[0].vendor,
        path=below[0].path,
        evidence=(*below, *above),
        chain=tuple(filter(None, (image.target.base.final, below[0].path, above[0].path))),
        fix=Fix(
            "base",
            "take a base image without the toolkit's libraries (the `base` flavor, or a plain "
            "Python image): the wheels bring what they need",
        ),
    )


def _library_name(item: Evidence) -> str:
    """Return the library without its version; two lines of it are also found by BM303."""
    name = demangle(item.path.rpartition("/")[2])
    return list(library_names(name))[-1]
