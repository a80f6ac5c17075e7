"""Catalogue entries, and evidence: a fact joined with an entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact that a catalogue entry gives a vendor to."""

    kind: EvidenceKind
    #: Vendor of the entry (`nvidia`, `amd`, `intel`, ...).
    vendor: str
    #: Backend that the entry belongs to (`cuda`, `rocm`, `oneapi`, ...).
    backend: str
    #: File that says it; the distribution's metadata for `declared`.
    path: str
    #: What was seen, readable: `libcudart.so.12`, `.nv_fatbin: sm_75 sm_80`, `CUDA_VERSION=12.8`.
    detail: str
    #: Role of the entry: `driver`, `runtime`, `math`, `dnn`, `comm`, `compiler`, ...
    role: str
    confidence: Confidence
    where: Where = "image"
    weight: Weight = "strong"
    #: Toolkit line that the fact belongs to (`11`, `12`, `13` for CUDA), where it says so.
    toolkit: str | None = None
    offset: int | None = None
    #: Bytes that this evidence stands for; 0 where the fact has no size of its own.
    size: int = 0
    #: `name==version` of the owning distribution.
    distribution: str | None = None
    #: GPU architectures, for device code.
    architectures: tuple[str, ...] = ()
