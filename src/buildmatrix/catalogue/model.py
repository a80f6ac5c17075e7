"""Catalogue entries, and evidence: a fact joined with an entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from buildmatrix.catalogue.names import matches_any, product_patterns, product_words

#: What a cache holds: packages, compiled kernels, or models.
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
    #: File that says it; the distribution's metadata for `declared`.
    #: Empty for the image's environment and for packages of its system.
    path: str
    #: What was seen, readable: `libcudart.so.12`, `.nv_fatbin: sm_75 sm_80`, `CUDA_VERSION=12.8`.
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
    #: Toolkit line that the fact belongs to (`11`, `12`, `13` for CUDA), where it says so.
    toolkit: str | None = None
    #: Bytes that this evidence stands for; 0 where the fact has no size of its own.
    size: int = 0
    #: `name==version` of the owning distribution.
    distribution: str | None = None
    #: GPU architectures, for device code.
    architectures: tuple[str, ...] = ()


#: What sort of thing a distribution is to the backend that its entry belongs to:
#: `native` holds the backend's libraries or needs them; `pure` is Python that reaches for them;
#: `meta` only requires others; `default-build` is what the default index serves, while builds for
#: other backends exist elsewhere; `embedded` holds device code and there is no other build;
#: `multi-backend` serves several backends with one wheel; `with-extra` only with an extra.
DistributionKind = Literal[
    "native", "pure", "meta", "default-build", "embedded", "multi-backend", "with-extra"
]

#: `use` another distribution, `remove` it, take the same name from another `index`, or `keep` it.
ReplacementAction = Literal["use", "remove", "index", "keep"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What to do about a distribution on another backend."""

    action: ReplacementAction
    #: For `use`: the requirement to write instead. For `index`: uv's `--torch-backend` name, or
    #: the start of it where the version is the user's choice (`cpu`, `rocm`, `xpu`).
    target: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class DistributionMatch:
    """What the catalogue says about one name and version.

    `weight` is `neutral` for what is no evidence of anything; such a match still names the
    backend that the build is for (`torch 2.9.0+cpu`) and the replacements.
    """

    #: None for what belongs to no vendor.
    vendor: str | None
    backend: str
    kind: DistributionKind
    weight: Weight
    #: Toolkit line (`11`, `12`, `13` for CUDA), where name or version say so.
    toolkit: str | None
    #: By backend that the distribution is not for.
    replace: Mapping[str, Replacement]
    #: The pattern that matched, as the data file has it: `nvidia-*-cu12`, `torch+rocm*`.
    entry: str
    confidence: Confidence
    #: Backends on which its presence is expected although its bytes belong to another one.
    tolerated_in: tuple[str, ...] = ()
    #: For a meta package that installs nothing but by its extras: extra -> distributions.
    extras: Mapping[str, tuple[str, ...]] | None = None
    #: Whether all that it is for fails without a device of the backend: an application of it, and
    #: no library for others.
    needs_device: bool = False
    #: The local version from the backend's name on: `cu121` of `pt21cu121`; empty for none.
    build: str = ""

    @property
    def is_build(self) -> bool:
        """True if it is about one build of a name that other builds have, too."""
        kinds = ("default-build", "with-extra", "embedded", "multi-backend")
        return "+" in self.entry or self.kind in kinds

    @property
    def is_routed(self) -> bool:
        """Whether each backend has a build of it, on an index of its own."""
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
    """One release of a family, and where builds of it for one backend are served."""

    family: str
    #: The first two numbers of its versions: `2.6`.
    version: str
    #: Names as in `IndexRoute.name`; older ones may have no route there any more.
    routes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """One backend that the data files know."""

    name: str
    #: None for the backend that belongs to no vendor.
    vendor: str | None
    title: str
    #: Other names that people use for it: `xpu`, `sycl` for `oneapi`.
    aliases: tuple[str, ...] = ()
    indexes: tuple[IndexRoute, ...] = ()
    #: Releases that have a build for this backend; nothing is known of what is not listed.
    releases: tuple[Release, ...] = ()
    #: Globs of image repositories that are made for it: `nvidia/cuda`, `rocm/*`.
    images: tuple[str, ...] = ()
    #: Names of its devices; globs.
    products: tuple[str, ...] = ()

    def has_product(self, name: str) -> bool:
        """Whether a device is called so, by its vendor's tools or by Kubernetes labels."""
        words = product_words(name)
        return any(matches_any(product_patterns(glob), words) for glob in self.products)
