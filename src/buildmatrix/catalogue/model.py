"""Catalogue entries, and evidence: a fact joined with an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from buildmatrix.catalogue.names import is_product

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
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

#: `use` another distribution, `remove` it, take the same name from another `index`, `keep` it,
#: or `set` a variable of the environment in which it is installed.
ReplacementAction = Literal["use", "remove", "index", "keep", "set"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Fix for a distribution on another backend."""

    action: ReplacementAction
    #: For `use`: the requirement to write instead. For `index`: uv's `--torch-backend` name, or
    #: the start of it where the version is the user's choice (`cpu`, `rocm`, `xpu`). For `set`:
    #: `NAME=VALUE`.
    target: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class DistributionMatch:
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


@dataclass(frozen=True, slots=True)
class IndexRoute:
    """One place that serves builds of a family of distributions; never a URL."""

    #: Family that it serves: `torch`.
    family: str
    #: uv's name for it (`--torch-backend`): `cu128`, `rocm6.4`, `xpu`, `cpu`.
    name: str
    toolkit: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a family, and the places that serve its builds for one backend."""

    family: str
    #: The first two numbers of its versions: `2.6`.
    version: str
    #: Names as in `IndexRoute.name`; older ones may no longer have a route there.
    routes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackendEntry:
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
