"""What each installed distribution is on one backend: ok, optional, bloat or broken.

- `broken`: an import loads, and fails without, a foreign library that exists nowhere in the tree.
- `bloat`: it belongs to another backend, requires what does, or holds foreign bytes above the
  policy's threshold.
- `optional`: it reaches for foreign libraries only when asked to or where they happen to be, or
  holds few foreign bytes.
- `ok`: nothing foreign, or it belongs to this backend and what is foreign beside that is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.match import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.catalogue.names import demangle, opened_library
from buildmatrix.catalogue.requirements import requirements
from buildmatrix.inventory.loader import Resolution, resolve
from buildmatrix.inventory.model import Distribution, Inventory, PythonLoad, Reach
from buildmatrix.rules.belonging import is_foreign, title
from buildmatrix.rules.carried import device_code_bytes
from buildmatrix.rules.findings import total
from buildmatrix.rules.imports import Imported, carried, imported, runtimes
from buildmatrix.rules.model import Verdict, VerdictName
from buildmatrix.rules.reach import hopeless, reach
from buildmatrix.rules.text import listing, size
from buildmatrix.spec.model import Policy

#: Calls in Python that fail when the library is not there.
_LOADING = (
    "CDLL",
    "PyDLL",
    "LoadLibrary",
    "dlopen",
    "load_library",
    "load_op_library",
    "load_nvidia_dynamic_lib",
    "_dlopen",
    "find_library",
)
#: Libraries that draw windows; no accelerator is meant by them.
_GRAPHICS = "graphics"
#: Libraries that look for the drivers of several vendors.
_LOADER = "loader"


def verdicts(
    backend: str,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    policy: Policy,
    catalogue: Catalogue | None = None,
    resolution: Resolution | None = None,
) -> tuple[Verdict, ...]:
    """One verdict per installed distribution, sorted by name.

    `resolution` is that of the inventory, for a caller that has it already.
    """
    catalogue = catalogue or load()
    resolution = resolution or resolve(inventory)
    loads: dict[str, list[PythonLoad]] = {}
    for call in inventory.python_loads:
        if call.owner is not None and call.reach == "import" and call.call in _LOADING:
            loads.setdefault(call.owner, []).append(call)
    installed = {item.name: item.version for item in inventory.distributions}
    missing = frozenset((one.binary, one.name) for one in resolution.missing)
    tree = _Tree(
        backend=backend,
        catalogue=catalogue,
        installed=installed,
        missing=missing,
        libraries=frozenset(_names(inventory)),
        reach=reach(inventory, resolution.needed, hopeless(evidence, missing)),
        loads=loads,
        imports=imported(inventory.python_imports, installed, catalogue),
        runtimes=runtimes(evidence),
        carried=device_code_bytes(inventory),
        unread={
            binary.path: binary.size - binary.elf.read
            for binary in inventory.binaries
            if binary.elf.read is not None
        },
        threshold=policy.bloat_threshold,
    )
    by_owner: dict[str, list[Evidence]] = {}
    for item in evidence:
        if item.distribution is not None:
            by_owner.setdefault(item.distribution, []).append(item)
    alone = [
        _verdict(tree, item, by_owner.get(f"{item.name}=={item.version}", []))
        for item in sorted(inventory.distributions, key=lambda item: (item.name, item.path))
    ]
    return tuple(carried(alone, inventory.python_imports))


def _names(inventory: Inventory) -> Iterator[str]:
    """Names that a loader would find something under, somewhere in the tree."""
    for binary in inventory.binaries:
        yield demangle(binary.path.rpartition("/")[2])
        if binary.elf.soname:
            yield demangle(binary.elf.soname)
    for link in inventory.links:
        yield link.path.rpartition("/")[2]
    for file in inventory.closed:
        yield demangle(file.path.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class _Tree:
    """What all verdicts of one tree have in common."""

    backend: str
    catalogue: Catalogue
    installed: Mapping[str, str]
    #: Path of a binary, and a library that it links and that is nowhere.
    missing: frozenset[tuple[str, str]]
    #: File names and sonames of all libraries in the tree.
    libraries: frozenset[str]
    reach: Mapping[str, Reach]
    #: What imports load by a name in Python, and fail without; by `name==version`.
    loads: Mapping[str, Sequence[PythonLoad]]
    #: What Python code imports from other distributions; by `name==version`.
    imports: Mapping[str, Sequence[Imported]]
    #: Backends whose runtime library is in the tree.
    runtimes: frozenset[str]
    #: Path of a binary, and the bytes of a wheel or a layer that carry its device code.
    carried: Mapping[str, int]
    #: Path of a binary that was read in part, and the bytes that were not.
    unread: Mapping[str, int]
    threshold: int

    @property
    def is_single(self) -> bool:
        """Whether the tree is one wheel: what that requires comes when it is installed."""
        return len(self.installed) == 1

    def is_foreign(self, thing: Evidence | DistributionMatch) -> bool:
        return is_foreign(thing, self.backend, self.catalogue)

    def holds(self, names: Iterable[str | None]) -> bool:
        """Whether one of `names` is that of a library in the tree; `libx.so*` is any version."""
        begins = tuple(one[:-1] for one in names if one is not None and one.endswith(".so*"))
        return not self.libraries.isdisjoint(names) or (
            bool(begins) and any(one.startswith(begins) for one in self.libraries)
        )


@dataclass(frozen=True, slots=True)
class _Foreign:
    """What is foreign about one distribution."""

    evidence: Sequence[Evidence]
    #: Its own names say that it is made for another backend, and for that one alone.
    belongs: Sequence[Evidence]
    #: Bytes of files and device code that are useless here, on disk.
    size: int
    #: The same as a wheel or a layer carries it: what the threshold is about.
    weight: int
    #: What it requires without condition, and what that is.
    required: Sequence[tuple[str, DistributionMatch]]

    def supplied(self, backend: str) -> bool:
        """Whether something required brings the libraries of `backend`."""
        return any(match.backend == backend and match.kind != "pure" for _, match in self.required)


def _verdict(tree: _Tree, item: Distribution, evidence: Sequence[Evidence]) -> Verdict:
    match = distribution(item.name, item.version, tree.catalogue)
    strong = [one for one in evidence if one.weight == "strong" and tree.is_foreign(one)]
    welcome = match is not None and (
        match.kind == "multi-backend" or tree.backend in match.tolerated_in
    )
    belongs = [] if welcome else [one for one in strong if one.kind == "declared"]
    held = [one for one in strong if one.kind in ("bundled", "tool", "device-code", "static")]
    foreign = _Foreign(
        evidence=strong,
        belongs=belongs,
        size=item.size if belongs else total(held),
        weight=total(replace(one, size=_packed(tree, one)) for one in held),
        required=tuple(_foreign_requirements(tree, item)),
    )
    verdict, reason = (
        _broken(tree, item, foreign, [one for one in evidence if tree.is_foreign(one)])
        or _bloat(tree, foreign)
        or _own(tree, match)
        or _optional(tree, item, match, evidence, foreign)
        or ("ok", "nothing foreign is loaded, shipped or required")
    )
    vendors = {one.vendor for one in strong} | {one.vendor for _, one in foreign.required}
    return Verdict(
        name=item.name,
        version=item.version,
        backend=tree.backend,
        verdict=verdict,
        reason=reason,
        foreign_bytes=foreign.size,
        vendors=tuple(sorted(vendor for vendor in vendors if vendor is not None)),
        architectures=_architectures(evidence),
    )


def _packed(tree: _Tree, one: Evidence) -> int:
    if one.kind != "device-code":
        return one.size
    return min(one.size, tree.carried.get(one.path, one.size))


_Judgement = tuple[VerdictName, str]


def _broken(
    tree: _Tree, item: Distribution, foreign: _Foreign, everything: Sequence[Evidence]
) -> _Judgement | None:
    """A foreign library that an import loads, and that neither is there nor will be installed.

    `everything` is all foreign evidence: Python code also fails without what several vendors share,
    such as the loader of Vulkan.
    """
    for one in foreign.evidence:
        if tree.is_single and foreign.supplied(one.backend):
            continue
        if (
            one.kind == "needed"
            and (one.path, one.detail) in tree.missing
            and tree.reach.get(one.path) == "import"
        ):
            return "broken", f"{one.path} links {one.detail}, which is nowhere in the tree"
    for call in tree.loads.get(f"{item.name}=={item.version}", ()):
        names = {opened_library(call.call, text) for text in call.names}
        tried = [
            one
            for one in everything
            if one.kind == "python-dlopen"
            and one.path == call.path
            and one.detail in names
            and (one.weight == "strong" or one.role == _LOADER)
        ]
        others = {name for name in names if name is not None and ".so" in name} - {
            one.detail for one in tried
        }
        if not tried or tree.holds(names) or (others and len(names) > 1):
            continue
        if not (tree.is_single and foreign.supplied(tried[0].backend)):
            where = f"{call.path}:{call.line}"
            return "broken", f"its import loads {tried[0].detail} ({where}), which is nowhere"
    for used in tree.imports.get(f"{item.name}=={item.version}", ()):
        if used.statement.how != "called" or not _needs_library(tree, used.match):
            continue
        backend = used.match.backend
        if backend in tree.runtimes or (tree.is_single and foreign.supplied(backend)):
            continue
        return "broken", (
            f"its import calls {used.statement.module} ({used.place}), and nothing brings the "
            f"libraries of {title(backend, tree.catalogue)}"
        )
    return None


def _needs_library(tree: _Tree, match: DistributionMatch) -> bool:
    """Whether a call of the distribution needs a foreign library for sure."""
    return (
        tree.is_foreign(match)
        and tree.backend not in match.tolerated_in
        and match.weight == "strong"
        and match.kind in ("pure", "native")
    )


def _bloat(tree: _Tree, foreign: _Foreign) -> _Judgement | None:
    if foreign.belongs:
        return "bloat", f"it belongs to {title(foreign.belongs[0].backend, tree.catalogue)}"
    useless = [
        name
        for name, match in foreign.required
        # A wheel alone does not say which build of a family would be installed.
        if match.kind != "multi-backend" and not (match.kind == "default-build" and tree.is_single)
    ]
    if useless:
        return "bloat", f"it requires {listing(useless)}"
    if foreign.weight > tree.threshold:
        backend = max(foreign.evidence, key=lambda one: one.size).backend
        return "bloat", f"{size(foreign.size)} of it are for {title(backend, tree.catalogue)}"
    # Device code comes in runs of some hundred pieces: where the first were seen and much was not,
    # "little" would be a guess, and the harmless one.
    coded = {one.path: one for one in foreign.evidence if one.kind == "device-code"}
    hidden = sum(tree.unread.get(path, 0) for path in coded)
    if hidden > tree.threshold:
        backend = next(iter(coded.values())).backend
        return "bloat", (
            f"at least {size(foreign.size)} of it are for {title(backend, tree.catalogue)}; "
            f"{size(hidden)} behind them were not read"
        )
    return None


def _own(tree: _Tree, match: DistributionMatch | None) -> _Judgement | None:
    """Made for this backend, or expected on it; what only holds some device code is for all."""
    if match is None or match.vendor is None or match.kind == "embedded":
        return None
    if not tree.is_foreign(match):
        return "ok", f"it is made for {title(match.backend, tree.catalogue)}"
    if tree.backend in match.tolerated_in:
        return "ok", f"packages for {tree.backend} bring it"
    return None


def _optional(
    tree: _Tree,
    item: Distribution,
    match: DistributionMatch | None,
    evidence: Sequence[Evidence],
    foreign: _Foreign,
) -> _Judgement | None:
    # Builds for the CPU have the Python code of the builds for accelerators; there it is dormant.
    dormant = "python-dlopen" if match is not None and match.vendor is None else None
    if foreign.size:
        return "optional", f"only {size(foreign.size)} of it are foreign"
    asked = [
        one.detail
        for one in evidence
        if tree.is_foreign(one)
        and one.kind not in ("declared", dormant)
        and one.role != _GRAPHICS
        and (one.weight == "strong" or one.confidence == "high")
    ]
    if asked:
        return "optional", f"it reaches for {listing(asked)} when asked to"
    for used in tree.imports.get(f"{item.name}=={item.version}", ()) if dormant is None else ():
        # What the catalogue calls harmless may look for other parts of its own vendor.
        own = match is not None and match.vendor == used.match.vendor
        if used.statement.how == "tried" and not own and _needs_library(tree, used.match):
            name = used.statement.module.partition(".")[0]
            return "optional", f"it uses {name} where that is installed ({used.place})"
    several = [name for name, match in foreign.required if match.kind == "multi-backend"]
    if several:
        names = listing(several)
        return "optional", f"it requires {names}, which can use other backends too"
    return None


def _foreign_requirements(
    tree: _Tree, item: Distribution
) -> Iterator[tuple[str, DistributionMatch]]:
    """Distributions that it requires without condition and that belong to another backend.

    What is installed says what it is. For a wheel alone, the default index would be asked.
    """
    for required in requirements(item, tree.catalogue):
        if not required.active:
            continue
        for name in required.brings:
            if name not in tree.installed and not tree.is_single:
                continue
            match = distribution(name, tree.installed.get(name, ""), tree.catalogue)
            if match is None or not tree.is_foreign(match) or tree.backend in match.tolerated_in:
                continue
            if match.weight == "strong" or match.kind in ("default-build", "multi-backend"):
                yield name, match


def _architectures(evidence: Sequence[Evidence]) -> Mapping[str, tuple[str, ...]]:
    """GPU architectures by vendor, of this backend's code and of others'."""
    found: dict[str, set[str]] = {}
    for one in evidence:
        if one.architectures:
            found.setdefault(one.vendor, set()).update(one.architectures)
    return {vendor: tuple(sorted(archs)) for vendor, archs in sorted(found.items())}
