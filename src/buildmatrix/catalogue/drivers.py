"""Drivers: the oldest one for a toolkit, the newest toolkit for a driver, and images' conditions.

The tables are data (`*.compat.toml`). A driver is a range (`matrix.kinds`) and judged by its
lowest end: what runs there runs on all of it, as drivers run what older ones ran. `570` alone
stands for the releases of that branch that the tables name. A driver that is newer than every row
of a table is judged by the newest.

Names are those that the tools use: `sm_90`, `compute_90`, `gfx942:xnack-`, `spir64`. Code that runs
unchanged was made for the GPU or an older one of its line (`native`), for its family (`sm_100f`),
or for a generic processor (`gfx11-generic`). `jit` code is compiled by the driver when the program
starts, which can take minutes. `unknown` code runs on some devices of the vendor, and its name does
not say which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar, get_args

from msgspec import Struct, field

from buildmatrix.catalogue.entries import CatalogueEntry
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.model import product_words
from buildmatrix.catalogue.tables import DriverFloor, DriverPair, Product, ToolkitDriver
from buildmatrix.matrix.kinds import Numbers, VersionRange, compare, numbers
from buildmatrix.matrix.model import NodeClass

# Conditions of images. Source: NVIDIA/libnvidia-container, src/cli/dsl.c and configure.c. Blanks
# separate alternatives, commas separate conditions that all must hold; `cuda`, `driver` and `arch`
# are compared as versions, `brand` as text without case. A condition on an unknown property is
# undecided.


#: In the parser's order; it takes the first that matches.
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_PART = re.compile(r"([^<>=!]+)([<>=!]+)(.+)", re.DOTALL)
_VERSION = re.compile(r"[0-9.]+")
#: Characters to evaluate; conditions of NVIDIA's images have 4000.
LONGEST = 32_768


class InvalidConditionError(ValueError):
    """A condition that the container runtime cannot read; it does not start the container."""


class NodeFacts(Struct, frozen=True):
    """Known properties of a node; None or empty for unknown ones."""

    versions: Mapping[str, Numbers | None] = field(default_factory=dict)
    #: Names that the driver may give its devices.
    brands: frozenset[str] = frozenset()


def is_met(condition: str, node: NodeFacts) -> bool | None:
    """Return True if a node meets a condition; None if that is unknown.

    Raises `InvalidConditionError`. Alternatives after the first that holds are not read.
    """
    if len(condition) > LONGEST:
        raise InvalidConditionError(f"the condition has more than {LONGEST} characters")
    alternatives = [text for text in condition.split(" ") if text]
    is_open = False
    for alternative in alternatives:
        outcome = _all_met(alternative, node)
        if outcome is True:
            return True
        is_open |= outcome is None
    if not alternatives:
        return True
    return None if is_open else False


def _all_met(alternative: str, node: NodeFacts) -> bool | None:
    outcome: bool | None = True
    for text in filter(None, alternative.split(",")):
        part = _met(text, node)
        if part is False:
            return False
        outcome = None if part is None else outcome
    return outcome


def _met(text: str, node: NodeFacts) -> bool | None:
    match = _PART.fullmatch(text)
    operator = match and next((item for item in _OPERATORS if item.startswith(match[2])), None)
    if match is None or operator is None:
        raise InvalidConditionError(f"`{text[:80]}` is not a condition")
    name, value = match[1].lower(), match[3]
    if name == "brand":
        if operator not in ("=", "!="):
            raise InvalidConditionError(f"`{text[:80]}` compares names")
        outcomes = {(brand == value.lower()) == (operator == "=") for brand in node.brands}
        return outcomes.pop() if len(outcomes) == 1 else None
    if name not in ("cuda", "driver", "arch") or not _VERSION.fullmatch(value):
        raise InvalidConditionError(f"`{text[:80]}` is not a condition")
    present, wanted = node.versions.get(name), numbers(value)
    if wanted is None:
        raise InvalidConditionError(f"`{text[:80]}` has no version")
    if present is None:
        return None
    order = compare(present, wanted)
    return {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[operator]


# Tables


#: `full`: the driver runs everything of the toolkit. `line`: by minor-version compatibility,
#: without features of newer drivers. `refused`: nothing runs. `unknown`: the driver is not known
#: well enough, or the table lacks the toolkit.
DriverVerdict = Literal["full", "line", "refused", "unknown"]

EntryT = TypeVar("EntryT", bound=CatalogueEntry)


def select_entries(items: Iterable[Owned[EntryT]], backend: str) -> tuple[EntryT, ...]:
    """Return the entries of one backend."""
    return tuple(owned.entry for owned in items if owned.backend == backend)


def meets(present: Numbers, least: str) -> bool:
    """Return True if a version is not older than `least`, as far as its numbers go."""
    return compare(present, _numbers(least)[: len(present)]) >= 0


def minimum(toolkit: str, backend: str, catalogue: Catalogue) -> ToolkitDriver | None:
    """Return the oldest driver of a toolkit's (`12.8`) first release; None if no table has it."""
    rows = [
        row
        for row in select_entries(catalogue.toolkit_drivers, backend)
        if _numbers(row.toolkit) == _numbers(toolkit)[:2]
    ]
    return min(rows, key=lambda row: _numbers(row.driver), default=None)


def floor(toolkit: str, backend: str, catalogue: Catalogue) -> DriverFloor | None:
    """Return the oldest driver that runs anything of a toolkit's line: of `12` for `12.8`."""
    for row in select_entries(catalogue.driver_floors, backend):
        if _numbers(row.line) == _numbers(toolkit)[:1]:
            return row
    return None


def toolkit_of(driver: Numbers, backend: str, catalogue: Catalogue) -> str | None:
    """Return the newest toolkit that a driver has completely: `12.8` for 570.26."""
    rows = [
        row
        for row in select_entries(catalogue.toolkit_drivers, backend)
        if meets(driver, row.driver)
    ]
    return max((row.toolkit for row in rows), key=_numbers, default=None)


def newest_driver(backend: str, catalogue: Catalogue) -> str | None:
    """Return the newest driver of the tables."""
    drivers = (
        *(row.driver for row in select_entries(catalogue.toolkit_drivers, backend)),
        *(row.driver for row in select_entries(catalogue.driver_pairs, backend)),
    )
    return max(drivers, key=_numbers, default=None)


def has_tables(backend: str, catalogue: Catalogue) -> bool:
    """Return True if a table has the drivers of a backend's runtimes."""
    return any(
        select_entries(table, backend)
        for table in (
            catalogue.toolkit_drivers,
            catalogue.driver_pairs,
            catalogue.driver_floors,
            catalogue.driver_releases,
        )
    )


def is_beyond(driver: VersionRange, backend: str, catalogue: Catalogue) -> bool:
    """Return True if a driver is of a newer branch than every row of the tables."""
    newest = newest_driver(backend, catalogue)
    return (
        newest is not None
        and driver.lowest is not None
        and compare(driver.lowest[:1], _numbers(newest)[:1]) > 0
    )


def runs(toolkit: str, driver: VersionRange, backend: str, catalogue: Catalogue) -> DriverVerdict:
    """Return the driver's verdict on a toolkit, or on a whole line (`12`).

    A line is refused if its oldest release is, and full if its newest release is.
    """
    if driver.lowest is None or driver.is_empty:
        return "unknown"
    line_floor = floor(toolkit, backend, catalogue)
    is_line = len(_numbers(toolkit)) < 2
    row = _newest_of_line(toolkit, backend, catalogue) if is_line else None
    row = row or minimum(toolkit, backend, catalogue)
    if row is not None and meets(driver.lowest, row.driver):
        return "full"
    if line_floor is not None:
        if not meets(driver.lowest, line_floor.driver):
            return "refused"
        return "line" if row is not None else "unknown"
    if row is None or is_line:
        return "unknown"
    return "refused"


def _newest_of_line(toolkit: str, backend: str, catalogue: Catalogue) -> ToolkitDriver | None:
    rows = [
        row
        for row in select_entries(catalogue.toolkit_drivers, backend)
        if _numbers(row.toolkit)[:1] == _numbers(toolkit)[:1] and not row.update
    ]
    return max(rows, key=lambda row: _numbers(row.driver), default=None)


def compiles(kind: str, language: str, backend: str, catalogue: Catalogue) -> str | None:
    """Return the first toolkit whose driver compiles code of a kind; None if no table has it.

    None as well for a version that is newer than every row.
    """
    for row in select_entries(catalogue.code_versions, backend):
        if row.kind == kind and language in row.toolkits:
            return row.toolkits[language]
    return None


def pair_of(driver: VersionRange, backend: str, catalogue: Catalogue) -> DriverPair | None:
    """Return the row with the first numbers of a driver; the newest row for a driver beyond all."""
    if driver.lowest is None or driver.is_empty:
        return None
    rows: Sequence[DriverPair] = select_entries(catalogue.driver_pairs, backend)
    for row in rows:
        first = _numbers(row.driver)
        if (*driver.lowest, *(0,) * len(first))[: len(first)] == first:
            return row
    newest = max(rows, key=lambda row: _numbers(row.driver), default=None)
    beyond = newest is not None and compare(driver.lowest, _numbers(newest.driver)) > 0
    return newest if beyond else None


def _numbers(version: str) -> Numbers:
    """Parse a version of a checked data file, or one that was parsed before."""
    return numbers(version) or (0,)


#: From best to worst; `unknown` code may be any of those before it.
Grade = Literal["native", "family", "generic", "jit", "unknown", "none"]
#: Coarse grade, where it does not matter by which name code runs unchanged.
Support = Literal["native", "jit", "unknown", "none"]

GRADES: tuple[Grade, ...] = ("native", "family", "generic", "jit", "unknown", "none")
SUPPORTS: tuple[Support, ...] = get_args(Support)
#: Grades of code that runs unchanged.
READY: tuple[Grade, ...] = ("native", "family", "generic")
_SUPPORT: dict[Grade, Support] = {
    **dict.fromkeys(READY, "native"),
    "jit": "jit",
    "unknown": "unknown",
    "none": "none",
}

#: CUDA C++ Programming Guide, "Compute Capabilities": number, and `a` or `f` for feature sets.
_CUDA = re.compile(r"(?P<space>sm|compute|lto)_(?P<number>\d{1,9})(?P<features>[af]?)")
#: CUDA 13 renamed a GPU.
_RENAMED = {101: 110}
#: GPUs of boards whose machine code runs on no other one of their major version, nor that of others
#: on them: nvJitLink 12.9, and nvlink 13.5 for those that it knows. PTX runs as by the numbers.
_ALONE = frozenset({53, 62, 72, 101})
_GFX = re.compile(r"gfx[0-9a-f-]+(?:generic)?")
#: LLVM, "User Guide for AMDGPU Backend", section "Generic processors".
_GENERIC_GFX = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx940", "gfx941", "gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": (
        *("gfx1030", "gfx1031", "gfx1032", "gfx1033"),
        *("gfx1034", "gfx1035", "gfx1036"),
    ),
    "gfx11-generic": (
        *("gfx1100", "gfx1101", "gfx1102", "gfx1103"),
        *("gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    ),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}
#: SPIR-V is portable: the driver compiles it for whatever GPU of the vendor is there.
_PORTABLE = re.compile(r"spir64|spirv64|spirv|spirv64_intel.*")
_PORTABLE_GFX = "amdgcnspirv"
#: clang's ClangOffloadBundler: made for devices that were chosen at compile time and that the
#: bundle's name does not show.
_FOR_SOME = re.compile(r"(?:spir64|spirv64)_gen")
#: `-fsycl-targets=intel_gpu_bmg_g21` is `bmg-g21` in the words of ocloc.
_INTEL_TARGET = "intel_gpu_"
#: ocloc, "ocloc compile --help": acronyms for several devices, beside prefixes of names (`bmg` for
#: `bmg-g21`).
_INTEL_FAMILIES = {"dg2": ("acm-", "ats-m")}


def grade(device: str, codes: Iterable[str]) -> Grade:
    """Grade how well the best of `codes` serves a GPU of architecture `device`."""
    return min((_grade(device, code) for code in codes), key=GRADES.index, default="none")


def support(device: str, codes: Iterable[str]) -> Support:
    """Return the coarse grade of the best of `codes` for a GPU of architecture `device`."""
    return support_of(grade(device, codes))


def support_of(graded: Grade) -> Support:
    """Return the coarse form of a grade."""
    return _SUPPORT[graded]


def is_portable(code: str) -> bool:
    """Return True for SPIR-V, the usual form of programs where it is the portable one.

    PTX does not count: it ships beside binaries, for GPUs to come.
    """
    return _PORTABLE.fullmatch(code) is not None


def is_bound(codes: Iterable[str]) -> bool:
    """Return True if all code uses features of exact GPUs, and so is for no others on purpose."""
    entries = [_CUDA.fullmatch(code) for code in codes]
    return bool(entries) and all(entry is not None and entry["features"] for entry in entries)


def _grade(device: str, code: str) -> Grade:
    gpu, entry = _CUDA.fullmatch(device), _CUDA.fullmatch(code)
    if gpu is not None and entry is not None:
        return _cuda(gpu, entry)
    if device == code:
        return "native"
    if _GFX.match(device):
        return _gfx(device, code)
    if gpu is not None or entry is not None or _GFX.match(code):
        return "none"
    return _intel(device, code)


def _cuda(gpu: re.Match[str], code: re.Match[str]) -> Grade:
    """Grade CUDA code: binaries run on the same major and newer minors, PTX on everything newer.

    Code with suffix `a` runs on exactly its architecture, with `f` on its family only.
    """
    gpu_number, number = int(gpu["number"]), int(code["number"])
    is_same = _RENAMED.get(gpu_number, gpu_number) == _RENAMED.get(number, number)
    if code["features"] == "a":
        fits = is_same
    elif code["features"] == "f" or code["space"] == "sm":
        is_alone = not _ALONE.isdisjoint((gpu_number, number))
        fits = is_same or (
            gpu_number // 10 == number // 10 and gpu_number >= number and not is_alone
        )
    else:
        fits = is_same or gpu_number >= number
    if not fits:
        return "none"
    if code["space"] != "sm":
        return "jit"
    return "native" if is_same or not code["features"] else "family"


def _gfx(device: str, code: str) -> Grade:
    """The processor must be the same or in the generic one; feature settings must not disagree.

    A feature that one side leaves out is "any" there (LLVM, "Target ID").
    """
    if code == _PORTABLE_GFX:
        return "jit"
    gpu, *wanted = device.split(":")
    processor, *settings = code.split(":")
    is_generic = gpu in _GENERIC_GFX.get(processor, ())
    has = {setting[:-1]: setting[-1] for setting in wanted}
    agree = all(has.get(setting[:-1], setting[-1]) == setting[-1] for setting in settings)
    if not agree or (gpu != processor and not is_generic):
        return "none"
    return "generic" if is_generic else "native"


def _intel(device: str, code: str) -> Grade:
    if _PORTABLE.fullmatch(code):
        return "jit"
    if _FOR_SOME.fullmatch(code):
        return "unknown"
    made_for = code.removeprefix(_INTEL_TARGET).replace("_", "-")
    if made_for == device:
        return "native"
    families = (f"{made_for}-", *_INTEL_FAMILIES.get(made_for, ()))
    return "family" if device.startswith(families) else "none"


#: 80 GB in a vendor's words are 80 GiB (7 % more), less up to 8 % that the driver and ECC take.
_MEMORY_TOLERANCE = 0.08
#: Spellings of one architecture: `compute_90`, `sm_90a`, `gfx942:xnack-`.
_CUDA_NUMBER = re.compile(r"(?:sm|compute)_([0-9]+)[af]?")


def product(name: str, backend: str, catalogue: Catalogue) -> Owned[Product] | None:
    """Return the product of a device; `name` as its vendor's tools or a label spell it.

    If two backends have such a device (`cuda` and `vulkan`), the one of `backend` is preferred.
    """
    entries = catalogue.products.find(product_words(name))
    own = (owned for owned in entries if owned.backend == backend)
    return next(own, entries[0] if entries else None)


def architectures(node: NodeClass, catalogue: Catalogue) -> tuple[str, ...]:
    """Return the GPU architectures of a node class: its `archs`, then those of its `products`.

    An unknown product adds none; such a specification is not loaded (`matrix.load`).
    """
    products = (product(name, node.backend, catalogue) for name in node.products)
    return tuple(
        dict.fromkeys(
            (
                *node.archs,
                *(arch for owned in products if owned for arch in owned.entry.architectures),
            )
        )
    )


def vendors(node: NodeClass, catalogue: Catalogue) -> frozenset[str]:
    """Return the vendors of a node class's devices, for a backend of several vendors.

    Empty if neither products nor architectures show it.
    """
    named = {
        owned.vendor
        for name in node.products
        for owned in catalogue.products.find(product_words(name))
        if owned.vendor is not None
    }
    wanted = {bare_architecture(arch) for arch in node.archs}
    by_architecture = {
        file.vendor
        for file in catalogue.files.values()
        for entry in file.products
        if file.vendor is not None and wanted.intersection(entry.architectures)
    }
    return frozenset(named | by_architecture)


def bare_architecture(arch: str) -> str:
    """Return the architecture of a device that runs `arch`, without its feature suffixes."""
    match = _CUDA_NUMBER.fullmatch(arch)
    return f"sm_{match[1]}" if match else arch.partition(":")[0]


def same_memory(stated: int, seen: int) -> bool:
    """Return True if two amounts of memory may be those of one device."""
    return abs(seen / stated - 1) <= _MEMORY_TOLERANCE
