"""Catalogue entries, and evidence: a fact joined with an entry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Generic, Literal, TypeVar

from msgspec import Struct

T = TypeVar("T")

_WILDCARD = re.compile(r"[*?\[]")
#: auditwheel (`repair.py`): `name.split(".", 1)`, then `base-<8 hex digits>.ext`.
_DASH = re.compile(r"(?P<stem>.+)-[0-9a-f]{8}(?P<rest>(?:\.\w+)*?\.so(?:\..+)?)")
#: torchvision's own bundling: `libcudart.faf08d9a.so.13`.
_DOT = re.compile(r"(?P<stem>.+)\.[0-9a-f]{8}(?P<rest>\.so(?:\..+)?)")


def demangle(name: str) -> str:
    """Return the file name of a library without the hash that a wheel builder put into it.

    `libcudart-9335f6a2.so.12` and `libcudart.782fcab0.so.12` are both `libcudart.so.12`. Other
    names come back unchanged.
    """
    if ".so" not in name:
        return name
    match = _DASH.fullmatch(name) or _DOT.fullmatch(name)
    return match["stem"] + match["rest"] if match else name


def library_names(name: str) -> Iterator[str]:
    """Yield `name` without a wheel builder's hash, then with one version component less each time.

    The last one ends in `.so`. A name that is not a shared library's is yielded once.
    """
    name = demangle(name)
    yield name
    stem, separator, version = name.rpartition(".so.")
    if separator:
        components = version.split(".")
        for count in range(len(components) - 1, 0, -1):
            yield f"{stem}.so.{'.'.join(components[:count])}"
        yield f"{stem}.so"


def library_patterns(glob: str) -> tuple[str, ...]:
    """Return a library's glob in the forms that match `library_names`.

    A glob with a version also matches the library without one, so that the next version is
    recognized too; the longer form comes first in `library_names` and is the more exact one.
    """
    for any_version in (".so.*", ".so*"):
        if glob.endswith(any_version):
            return (glob.removesuffix(any_version) + ".so",)
    stem, separator, _ = glob.rpartition(".so.")
    return (glob, f"{stem}.so") if separator else (glob,)


def version_of(name: str) -> str:
    """Return the version in the name of a library (`12.8` of `libcudart.so.12.8`), or nothing."""
    return demangle(name).rpartition(".so.")[2] if ".so." in name else ""


#: Separators and marks in product names: `Intel(R) Arc(TM)`.
_BETWEEN = re.compile(r"(?:[\s_/-]|\((?:R|TM)\))+", re.IGNORECASE)


@lru_cache(maxsize=4096)
def product_words(name: str) -> str:
    """Return the normal form of a product's name.

    NVIDIA's tools say `NVIDIA H100 PCIe`, Kubernetes labels `NVIDIA-H100-PCIe`; AMD's labels have
    `AMD_Instinct_MI300X_OAM`.
    """
    return _BETWEEN.sub("-", name.casefold()).strip("-")


@lru_cache(maxsize=4096)
def product_patterns(glob: str) -> tuple[str, ...]:
    """Return a product's glob in the form of `product_words`, also with more words behind it."""
    words = product_words(glob)
    return (words,) if words.endswith("*") else (words, f"{words}-*")


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


#: Calls in Python that look for a library by its bare name: `cuda` for `libcuda.so`.
_BARE_NAMES = ("find_library", "load_nvidia_dynamic_lib")


def opened_library(call: str, text: str) -> str | None:
    """Return the file name of the library that a call in Python opens; None for anything else.

    `call` and `text` as in `facts.inventory.model.PythonLoad`: `cudart` in
    `load_nvidia_dynamic_lib` is `libcudart.so`, and `torchvision::nms` is an operator.
    """
    if "::" in text:
        return None
    name = demangle(text.rpartition("/")[2])
    return f"lib{name}.so" if call in _BARE_NAMES and ".so" not in name else name


def matches(glob: str, text: str) -> bool:
    """Return True if the whole of `text` matches `glob`; case matters."""
    return glob == "*" or glob == text or _compiled(glob).match(text) is not None


def matches_any(globs: Iterable[str], text: str) -> bool:
    """Return True if `text` matches one of `globs`."""
    return any(matches(glob, text) for glob in globs)


def is_product(globs: Iterable[str], name: str) -> bool:
    """Return True if one of `globs` matches the name of a device."""
    words = product_words(name)
    return any(matches_any(product_patterns(glob), words) for glob in globs)


#: Texts with cached results per index.
_REMEMBERED = 10_000


class GlobIndex(Generic[T]):
    """Values by glob. A lookup costs a few dictionary accesses for any number of globs.

    Globs without a wildcard are keys of one dictionary. The others are stored under their literal
    prefix, so that only those with a prefix of the text are tried.
    """

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        self._exact: dict[str, list[T]] = {}
        self._beginnings: dict[str, list[tuple[str, T]]] = {}
        for glob, value in items:
            wildcard = _WILDCARD.search(glob)
            if wildcard is None:
                self._exact.setdefault(glob, []).append(value)
            else:
                beginning = glob[: wildcard.start()]
                self._beginnings.setdefault(beginning, []).append((glob, value))
        self._lengths = sorted({len(beginning) for beginning in self._beginnings}, reverse=True)
        self._remembered: dict[str, Sequence[T]] = {}

    def find(self, text: str) -> Sequence[T]:
        """Return the values of all globs that match `text`, the most exact glob first."""
        values = self._remembered.get(text)
        if values is None:
            # The same names recur in every binary of every target. Others may be made up by the
            # thousand, so the cache is bounded.
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            values = self._remembered[text] = self._find(text)
        return values

    def _find(self, text: str) -> Sequence[T]:
        values = list(self._exact.get(text, ()))
        for length in self._lengths:
            fitting = [
                (glob, value)
                for glob, value in self._beginnings.get(text[:length], ())
                if len(text) >= length and _compiled(glob).match(text)
            ]
            fitting.sort(key=lambda item: -len(item[0]))
            values += [value for _, value in fitting]
        return values


#: Content of a cache: packages, compiled kernels, or models.
LeftoverKind = Literal["packages", "kernels", "models"]
Where = Literal["image", "image-user-driver", "host"]
Weight = Literal["strong", "weak", "neutral"]
Confidence = Literal["high", "medium", "low"]
EvidenceKind = Literal[
    "declared",
    "bundled",
    "needed",
    "static",
    "device-code",
    "dlopen",
    "python-dlopen",
    "tool",
    "environment",
]


class Evidence(Struct, frozen=True, kw_only=True):
    """A fact that a catalogue entry gives a vendor to."""

    kind: EvidenceKind
    #: Source file; the distribution's metadata for `declared`. Empty for the image's environment
    #: and for packages of its system.
    path: str
    #: Readable observation: `libcudart.so.12`, `.nv_fatbin: sm_75 sm_80`, `CUDA_VERSION=12.8`.
    detail: str
    offset: int | None = None
    confidence: Confidence
    #: Vendor of the entry (`nvidia`, `amd`, `intel`, ...).
    vendor: str
    #: Backend that the entry belongs to (`cuda`, `rocm`, `oneapi`, ...).
    backend: str
    #: Role of the entry: `driver`, `runtime`, `math`, `dnn`, `comm`, `compiler`, ...
    role: str
    where: Where = "image"
    weight: Weight = "strong"
    #: Toolkit line (`11`, `12`, `13` for CUDA), if known.
    toolkit: str | None = None
    #: Bytes of this evidence; 0 if the fact has no size of its own.
    size: int = 0
    #: `name==version` of the owning distribution.
    distribution: str | None = None
    #: GPU architectures, for device code.
    architectures: tuple[str, ...] = ()


#: Relation of a distribution to the backend of its entry: `native` has the backend's libraries or
#: needs them; `pure` is Python that loads them; `meta` only requires others; `default-build` is
#: served by the default index, while builds for other backends exist elsewhere; `embedded` has
#: device code and no other build; `multi-backend` serves several backends with one wheel;
#: `with-extra` only with an extra.
DistributionKind = Literal[
    "native", "pure", "meta", "default-build", "embedded", "multi-backend", "with-extra"
]
#: Kinds of distributions of which every build is for the backend of their entry.
WHOLE: tuple[DistributionKind, ...] = ("native", "pure", "meta")

#: `use` another distribution, `remove` it, take the same name from another `index`, `keep` it,
#: or `set` a variable of the environment in which it is installed.
ReplacementAction = Literal["use", "remove", "index", "keep", "set"]


class Replacement(Struct, frozen=True):
    """Fix for a distribution on another backend."""

    action: ReplacementAction
    #: For `use`: the requirement to write instead. For `index`: uv's `--torch-backend` name, or
    #: the start of it where the version is the user's choice (`cpu`, `rocm`, `xpu`). For `set`:
    #: `NAME=VALUE`.
    target: str | None = None
    note: str | None = None


class DistributionMatch(Struct, frozen=True):
    """The catalogue's statement about one name and version.

    `weight` is `neutral` if it is no evidence; such a match still has the backend of the build
    (`torch 2.9.0+cpu`) and the replacements.
    """

    #: None if it belongs to no vendor.
    vendor: str | None
    backend: str
    kind: DistributionKind
    weight: Weight
    #: Toolkit line (`11`, `12`, `13` for CUDA), if name or version show it.
    toolkit: str | None
    #: Other backend → replacement there.
    replace: Mapping[str, Replacement]
    #: The pattern that matched, as in the data file: `nvidia-*-cu12`, `torch+rocm*`.
    entry: str
    confidence: Confidence
    #: Backends on which its presence is expected although its bytes belong to another one.
    tolerated_in: tuple[str, ...] = ()
    #: For a meta package that installs nothing but by its extras: extra -> distributions.
    extras: Mapping[str, tuple[str, ...]] | None = None
    #: True if all of its uses fail without a device of the backend: an application, not a library.
    needs_device: bool = False
    #: The local version from the backend's name on: `cu121` of `pt21cu121`; empty for none.
    build: str = ""

    @property
    def is_build(self) -> bool:
        """True if it is about one build of a name that has other builds, too."""
        kinds = ("default-build", "with-extra", "embedded", "multi-backend")
        return "+" in self.entry or self.kind in kinds

    @property
    def is_routed(self) -> bool:
        """True if each backend has a build of it, on an index of its own."""
        return any(replacement.action == "index" for replacement in self.replace.values())


class IndexRoute(Struct, frozen=True):
    """One place that serves builds of a family of distributions; never a URL."""

    #: Family that it serves: `torch`.
    family: str
    #: uv's name for it (`--torch-backend`): `cu128`, `rocm6.4`, `xpu`, `cpu`.
    name: str
    toolkit: str | None = None


class Release(Struct, frozen=True):
    """One release of a family, and the places that serve its builds for one backend."""

    family: str
    #: The first two numbers of its versions: `2.6`.
    version: str
    #: Names as in `IndexRoute.name`; older ones may no longer have a route there.
    routes: tuple[str, ...]


class BackendEntry(Struct, frozen=True):
    """One backend of the data files."""

    name: str
    #: None for the backend that belongs to no vendor.
    vendor: str | None
    title: str
    #: Other names that people use for it: `xpu`, `sycl` for `oneapi`.
    aliases: tuple[str, ...] = ()
    indexes: tuple[IndexRoute, ...] = ()
    #: Releases that have a build for this backend; others are unknown.
    releases: tuple[Release, ...] = ()
    #: Globs of image repositories that are made for it: `nvidia/cuda`, `rocm/*`.
    images: tuple[str, ...] = ()
    #: Names of its devices; globs.
    products: tuple[str, ...] = ()

    def has_product(self, name: str) -> bool:
        """Return True if a device has this name in its vendor's tools or Kubernetes labels."""
        return is_product(self.products, name)
