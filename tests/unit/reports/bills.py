"""Reports with a composition, advisories and hostile texts, for the tests of bills of materials."""

from __future__ import annotations

from hypothesis import strategies as st
from test_report_formats import finding, report, result

from buildmatrix.base.data import replace
from buildmatrix.judge.composition import (
    Composition,
    DistributionBytes,
    NativeComponent,
    SbomComponent,
    SystemComponent,
)
from buildmatrix.judge.model import Advisory, Finding, TargetResult, Verdict
from buildmatrix.reports.run import Report

XMLATTR = Advisory("GHSA-h5c8-rqwp-cp95", ("CVE-2024-22195",), ("3.1.3",), "xmlattr filter")
CUDART = NativeComponent(
    "demo.libs/libcudart-9335f6a2.so.12.8.57",
    "nvidia",
    "runtime",
    ("bundled",),
    "high",
    700_000,
    "libcudart-9335f6a2.so.12",
    "12.8.57",
    in_sbom=False,
)
SBOM = (
    SbomComponent("pkg:rpm/almalinux/libgomp@8.5.0-26.el8", False),
    SbomComponent("pkg:cargo/serde@1.0.1", None),
)
CUDART_RPM = SystemComponent(
    "cuda-cudart-12-8",
    "1:12.8.90-1",
    "pkg:rpm/rhel/cuda-cudart-12-8@12.8.90-1?arch=x86_64&distro=rhel-9.4&epoch=1",
    "NVIDIA Corporation",
    "NVIDIA EULA",
)

hostile = st.text(alphabet=st.characters(codec=None), max_size=40)
#: What terminals, CI runners and XML have trouble with, and a name of 10 kB.
WORST = "\x1b]0;x\x07\n::error::x\u202e\ufffe\x00\ud800 ##[error] [](%2f)#?@" + "a" * 10_000


def part(name: str, *required_by: str, **more) -> DistributionBytes:
    more = {"asker": "" if required_by else f"{name} 1.0", "line": "base.in:1"} | more
    return DistributionBytes(
        name, "1.0", size=1, wasted=0, vendors=(), required_by=required_by, **more
    )


def target(*parts: DistributionBytes, **changes) -> TargetResult:
    return replace(result(), composition=Composition(parts), **changes)


def vulnerable(**changes) -> Finding:
    one = finding("BM801", "known-vulnerability", distribution="jinja2", fingerprint="1" * 32)
    return replace(one, **{"version": "3.1.2", "advisories": (XMLATTR,), **changes})


def bill(*findings: Finding, targets: tuple[TargetResult, ...] = ()) -> Report:
    usual = target(
        part("demo", libraries=(CUDART,), sbom=SBOM), part("numpy", "demo"), part("six", "numpy")
    )
    verdict = Verdict("demo", "1.0", "cpu", "bloat", "48 MB of CUDA", sha256="ab" * 32)
    return replace(
        report(*findings, targets=targets or (usual,)),
        distributions=(replace(verdict, targets=("cpu-py311-server",)),),
    )


def hostile_bill(text: str) -> Report:
    """A report of which every text is `text`."""
    library = NativeComponent(
        text, text, text, ("bundled", "tool"), "low", 1, text, text, (text,), (text,), False
    )
    sbom = (SbomComponent(text, None), SbomComponent(f"pkg:{text}/{text}@{text}", False))
    inside = replace(
        part(text, text, libraries=(library,), sbom=sbom), version=text, line=text, asker=text
    )
    one = replace(
        vulnerable(waived=text, message=text, chain=(text,)),
        target=text,
        distribution=text,
        version=text,
        advisories=(Advisory(text, (text, f"CVE-{text}"), (text,), text),),
    )
    where = target(inside, part(""), id=text, backend=text, image=text, digest=text, error=text)
    assert where.composition is not None
    system = (SystemComponent(text, text, text, text, text), SystemComponent(text, "", "pkg:rpm/"))
    where = replace(where, composition=replace(where.composition, system=system))
    verdict = Verdict(text, text, text, "ok", text, sha256=text, targets=(text,))
    made = report(one, targets=(where,))
    return replace(made, subject=text, distributions=(verdict,))
