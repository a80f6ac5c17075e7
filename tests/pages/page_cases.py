"""Documents of every kind that has an HTML page: small ones, hostile ones, and the largest.

`PAGES` is what the browser tests open; `bench/html.py` measures `many`. Nothing in here depends on
a clock, a network or chance: the same bytes in every run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import fleet_cases
from preflight_cases import hostile_preflight, preflight

from buildmatrix.base.data import replace
from buildmatrix.catalogue.drivers import Support
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.inventory.model import Inventory, Stats, Unread
from buildmatrix.judge.composition import (
    Composition,
    DistributionBytes,
    FileBytes,
    LayerBytes,
    VendorBytes,
)
from buildmatrix.judge.model import (
    Acceptance,
    Advisory,
    AuditTotals,
    DeviceFit,
    Finding,
    FitReason,
    Fix,
    NodeFit,
    TargetResult,
    Verdict,
)
from buildmatrix.reports import formats
from buildmatrix.reports.diff import (
    ArchitectureChange,
    ChangedFinding,
    ComparedSide,
    Comparison,
    DistributionChange,
    DistributionChanges,
    Drift,
    Drifts,
    ExplainedDrift,
    FindingChanges,
    LayerChange,
    LayersChange,
    LibraryChange,
    Pinned,
    VariableChange,
    VendorChange,
    VerdictChange,
)
from buildmatrix.reports.formats import Destination, Format, find_format
from buildmatrix.reports.run import Difference, Report, TargetDifference, assemble

#: Names that would break out of an element, an attribute, a style or a script, or load something.
EVIL = (
    "</style></script><script>document.title='owned'</script>"
    "<img src=http://127.0.0.1:9/pixel onerror=\"document.title='owned'\">"
)
#: One word that no line can hold.
ENDLESS = "endless-" * 60

SITE = "opt/venv/lib/python3.12/site-packages"
#: What a default torch brings for CUDA: name, version, and bytes of its libraries.
_TOOLKIT = (
    ("nvidia-cublas-cu12", "12.8.4.1", 861_000_000),
    ("nvidia-cuda-cupti-cu12", "12.8.90", 19_600_000),
    ("nvidia-cuda-nvrtc-cu12", "12.8.93", 216_000_000),
    ("nvidia-cuda-runtime-cu12", "12.8.90", 8_900_000),
    ("nvidia-cudnn-cu12", "9.10.2.21", 1_030_000_000),
    ("nvidia-cufft-cu12", "11.3.3.83", 279_000_000),
    ("nvidia-cufile-cu12", "1.13.1.3", 5_600_000),
    ("nvidia-curand-cu12", "10.3.9.90", 167_000_000),
    ("nvidia-cusolver-cu12", "11.7.3.90", 343_000_000),
    ("nvidia-cusparse-cu12", "12.5.8.93", 412_000_000),
    ("nvidia-cusparselt-cu12", "0.7.1", 433_000_000),
    ("nvidia-nccl-cu12", "2.27.3", 430_000_000),
    ("nvidia-nvjitlink-cu12", "12.8.93", 92_000_000),
    ("nvidia-nvtx-cu12", "12.8.90", 300_000),
    ("triton", "3.4.0", 540_000_000),
)
_BACKENDS = {"cpu": "cpu", "rocm": "rocm7.0", "oneapi": "oneapi2025.2", "cuda": "cuda12.8"}
_PYTHONS = ("py310", "py311", "py312", "py313", "py314")


def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _foreign(target: str, backend: str, name: str, version: str, size: int) -> Finding:
    path = f"{SITE}/{name.replace('-', '_')}/lib/lib{name}.so"
    return Finding(
        rule="BM101",
        name="foreign-dependency",
        severity="error",
        target=target,
        backend=backend,
        vendor="nvidia",
        distribution=name,
        version=version,
        message=f"{name} {version} belongs to NVIDIA CUDA, not usable on {backend}",
        evidence=(
            Evidence(
                kind="bundled",
                path=path,
                detail=f"lib{name}.so",
                confidence="high",
                vendor="nvidia",
                backend="cuda",
                role="runtime",
                size=size,
                distribution=f"{name}=={version}",
            ),
        ),
        chain=("requirements.in:1", "torch 2.8.0", f"{name} {version}"),
        fix=Fix(
            "index",
            f'write `torch = "{backend}"` under [backend.{backend}]',
            f'[backend.{backend}]\ntorch = "{backend}"\n',
        ),
        fingerprint=_fingerprint(name, backend),
    )


def _vulnerable(target: str, backend: str) -> Finding:
    return Finding(
        rule="BM801",
        name="known-vulnerability",
        severity="warning",
        target=target,
        backend=backend,
        vendor=None,
        distribution="jinja2",
        version="3.1.2",
        message="jinja2 3.1.2 has 1 known vulnerability: CVE-2024-22195 (fixed in 3.1.3)",
        chain=("requirements.in:2", "jinja2 3.1.2"),
        fix=Fix("upgrade", "require `jinja2>=3.1.3` and lock again"),
        advisories=(
            Advisory(
                "CVE-2024-22195",
                ("GHSA-h5c8-rqwp-cp95",),
                ("3.1.3",),
                "HTML attributes from user input as keys of xmlattr",
            ),
        ),
        fingerprint=_fingerprint("jinja2", backend),
    )


def _missing(target: str) -> Finding:
    return Finding(
        rule="BM402",
        name="missing-device-code",
        severity="warning",
        target=target,
        backend="cuda",
        vendor="nvidia",
        distribution="xgboost",
        version="3.0.0",
        path=f"{SITE}/xgboost/lib/libxgboost.so",
        message="xgboost 3.0.0 has no device code for sm_120",
        chain=("requirements.in:3", "xgboost 3.0.0", f"{SITE}/xgboost/lib/libxgboost.so"),
        waived="the nodes come in spring (ml-platform)",
        acceptance=Acceptance(
            by="waiver",
            reason="the nodes come in spring",
            owner="ml-platform",
            expires="2027-03-31",
        ),
        fingerprint=_fingerprint("xgboost"),
    )


def _verdicts(target: str, backend: str) -> Iterator[Verdict]:
    for name, version, size in _TOOLKIT:
        verdict = "ok" if backend == "cuda" else "bloat"
        reason = "it is what it is for" if backend == "cuda" else "it belongs to NVIDIA CUDA"
        foreign = 0 if backend == "cuda" else size
        yield Verdict(
            name, version, backend, verdict, reason, foreign, ("nvidia",), targets=(target,)
        )
    for name in ("torch 2.8.0", "jinja2 3.1.2", "xgboost 3.0.0", "numpy 2.3.1"):
        yield Verdict(*name.split(), backend, "ok", "nothing foreign in it", targets=(target,))


def _composition(backend: str) -> Composition:
    """The bytes of a target: what torch brings, what it links, and the layers that hold it."""
    is_cuda = backend == "cuda"

    def part(
        name: str, version: str, line: str, asker: str, vendor: str, size: int, *links: str
    ) -> DistributionBytes:
        wasted = size if vendor == "nvidia" and not is_cuda else 0
        return DistributionBytes(
            name,
            version,
            line,
            asker,
            size,
            wasted,
            (VendorBytes(vendor, size, wasted),),
            (
                FileBytes(
                    f"{SITE}/{name}/lib/lib{name}.so",
                    size // 2,
                    vendor,
                    held=size // 2 if vendor else 0,
                    wasted=wasted // 2,
                ),
            ),
            links,
            (asker,) if asker != name else (),
        )

    torch, jinja, xgboost = "requirements.in:1", "requirements.in:2", "requirements.in:3"
    parts = [
        part(name, version, torch, "torch", "nvidia", size, *(["nvidia-nvjitlink-cu12"] * (n % 2)))
        for n, (name, version, size) in enumerate(_TOOLKIT)
    ]
    parts += [
        part("torch", "2.8.0", torch, "torch", "", 1_200_000_000, *(n for n, _, _ in _TOOLKIT[:9])),
        part("numpy", "2.3.1", torch, "torch", "", 71_000_000),
        part("xgboost", "3.0.0", xgboost, "xgboost", "nvidia", 230_000_000, "nvidia-nccl-cu12"),
        part("jinja2", "3.1.2", jinja, "jinja2", "", 600_000),
        part("", "", "", "", "amd", 54_000_000),
    ]
    layers = (
        LayerBytes("FROM debian:12", 120_000_000, 0, 0, True),
        LayerBytes("RUN apt-get install build-essential", 410_000_000, 380_000_000, 0),
        LayerBytes("RUN pip install -r requirements.txt", 6_300_000_000, 20_000_000, 0),
        LayerBytes("COPY . /srv", 4_000_000, 0, 0),
    )
    parts.sort(key=lambda item: -item.size)
    return Composition(tuple(parts), layers if is_cuda else ())


def _nodes() -> tuple[NodeFit, ...]:
    """Every state of device code that there is."""

    def on(arch: str, torch: Support, xgboost: Support, **code: Support) -> DeviceFit:
        archs = ("sm_75", "sm_80", "sm_86", "sm_90", "compute_90")
        codes: dict[str, Support] = dict.fromkeys(archs, "none")
        return DeviceFit(arch, codes | code, {"torch 2.8.0": torch, "xgboost 3.0.0": xgboost})

    late = "the code of torch 2.8.0 is compiled for sm_100 at the first start"
    lacks = FitReason("BM402", "xgboost 3.0.0 has no device code for sm_120", waived=True)
    return (
        NodeFit(
            "h100", "ok", (), (on("sm_90", "native", "native", sm_90="native", compute_90="jit"),)
        ),
        NodeFit(
            "l4-and-t4",
            "minor-version",
            (FitReason("BM702", "driver 550 is older than 570"),),
            (
                on("sm_89", "native", "native", sm_80="native", sm_86="native"),
                on("sm_75", "native", "native", sm_75="native"),
            ),
        ),
        NodeFit(
            "b200",
            "jit",
            (FitReason("BM403", late),),
            (on("sm_100", "jit", "native", compute_90="jit"),),
        ),
        NodeFit("rtx-5090", "refused", (lacks,), (on("sm_120", "jit", "none", compute_90="jit"),)),
        NodeFit(
            "lent", "undecided", (FitReason("", "lent names no `products` and no `archs`"),), ()
        ),
    )


def _result(target: str, backend: str) -> TargetResult:
    foreign = sum(size for _, _, size in _TOOLKIT)
    is_cuda = backend == "cuda"
    return TargetResult(
        target,
        backend,
        {
            "lock": "passed" if is_cuda else "failed",
            "build": "passed" if is_cuda else "not-run",
            "scan": "undecided" if target.endswith("py314") else "passed" if is_cuda else "not-run",
        },
        image=f"registry.example.com/demo:{target}",
        size=7_400_000_000 if is_cuda else None,
        seconds=75.2,
        error="no space left on device\n  | write /layer: no space" if "py314" in target else None,
        audit=AuditTotals(
            3_900_000_000,
            7_400_000_000,
            0 if is_cuda else foreign // 2,
            0 if is_cuda else foreign,
        ),
        nodes=_nodes() if is_cuda else None,
        composition=_composition(backend),
    )


def _target(backend: str, python: str) -> str:
    return f"{_BACKENDS[backend]}-{python}-server"


def matrix(pythons: tuple[str, ...]) -> Report:
    """Four backends and some versions of Python: one default torch is foreign on three of them."""
    targets = {_target(b, p): b for p in pythons for b in _BACKENDS}
    findings = [
        _foreign(target, backend, *item)
        for target, backend in targets.items()
        if backend != "cuda"
        for item in _TOOLKIT
    ]
    findings += [_vulnerable(target, backend) for target, backend in targets.items()]
    findings += [_missing(target) for target, backend in targets.items() if backend == "cuda"]
    return assemble(
        "buildmatrix.toml",
        "2026-11-20",
        targets=[_result(target, backend) for target, backend in targets.items()],
        findings=findings,
        verdicts=[v for target, backend in targets.items() for v in _verdicts(target, backend)],
        inventories=[
            Inventory(
                unread=(Unread("opt/models/weights.bin", "it ends early"),),
                stats=Stats(30_309, 438, 7_400_000_000, 1_200_000_000, 12.5),
            )
        ],
    )


def clean() -> Report:
    """Nothing was found."""
    return assemble(
        "wheel:demo-1.0-py3-none-any.whl",
        "2026-11-20",
        targets=[TargetResult("wheel:demo-1.0-py3-none-any.whl", "cpu", {"scan": "passed"})],
        verdicts=[Verdict("demo", "1.0", "cpu", "ok", "nothing foreign in it")],
        inventories=[Inventory(stats=Stats(12, 0, 40_000, 40_000, 0.1))],
    )


def change() -> Report:
    """What a pull request brings: new findings, and more bytes."""
    report = matrix(("py312",))
    target = report.targets[0]
    assert target.audit is not None
    return replace(
        report,
        findings=tuple(item for item in report.findings if item.target == target.id),
        targets=(target,),
        diff=Difference(
            "origin/main",
            "0" * 40,
            (
                TargetDifference(
                    target.id,
                    "cpu",
                    AuditTotals(300_000_000, 900_000_000),
                    target.audit,
                    comparison().findings,
                    comparison().distributions,
                    comparison().verdicts,
                ),
            ),
            ("1 target has no lock there",),
        ),
    )


def hostile() -> Report:
    """Every text is somebody's attack, or too long for any line."""

    def finding(severity, text: str, number: int, waived: str | None = None) -> Finding:
        return Finding(
            rule="BM401",
            name="foreign-device-code",
            severity=severity,
            target=EVIL,
            backend=EVIL,
            vendor=EVIL,
            message=text,
            distribution=text,
            version=text,
            path=text,
            evidence=(
                Evidence(
                    kind="bundled",
                    path=text,
                    detail=text,
                    confidence="high",
                    vendor=EVIL,
                    backend=EVIL,
                    role=EVIL,
                    size=48_000_000,
                    distribution=f"{text}=={text}",
                ),
            ),
            chain=("requirements.in:3", text, text),
            fix=Fix("replace", text, text),
            waived=waived,
            advisories=(Advisory(text, (text,), (text,), text),),
            fingerprint=f"{number:032x}",
        )

    return assemble(
        EVIL,
        "2026-11-20",
        targets=[
            TargetResult(
                EVIL,
                EVIL,
                {"lock": "passed", "build": "failed", "scan": "undecided"},
                image=EVIL,
                size=1,
                error=f"step failed\n  | {EVIL} {ENDLESS}",
                log=EVIL,
                audit=AuditTotals(100, 200, 50, 100),
                composition=Composition(
                    tuple(
                        DistributionBytes(
                            name,
                            EVIL,
                            EVIL,
                            EVIL,
                            size,
                            size // 2,
                            (VendorBytes(EVIL, size, size // 2),),
                            (
                                FileBytes(EVIL, size // 2, EVIL),
                                FileBytes(ENDLESS, 9, "nvidia", 9, 5),
                            ),
                            (EVIL, ENDLESS, "nobody"),
                            (EVIL, ENDLESS),
                        )
                        for name, size in ((EVIL, 10**9), (ENDLESS, 10**8), (")(" * 40, 10**6))
                    ),
                    (LayerBytes(EVIL, 9, 5, 2), LayerBytes(ENDLESS, 10**9, 0, 0, True)),
                ),
                nodes=(
                    NodeFit(
                        EVIL,
                        "refused",
                        (FitReason("", EVIL), FitReason("BM402", EVIL)),
                        (
                            DeviceFit(EVIL, {EVIL: "native", ENDLESS: "jit"}, {EVIL: "none"}),
                            DeviceFit(ENDLESS, {}, {}),
                        ),
                    ),
                ),
            ),
            TargetResult(ENDLESS, "cpu", {"lock": "passed"}),
        ],
        findings=[
            finding("error", EVIL, 1),
            finding("warning", ENDLESS, 2),
            finding("note", "\u202etxt.exe \x1b[31m&amp; ' \" `", 3),
            finding("error", "accepted by somebody", 4, EVIL),
        ],
        verdicts=[Verdict(EVIL, ENDLESS, "cpu", "bloat", EVIL, 10, (EVIL,), targets=(EVIL,))],
        inventories=[Inventory(unread=(Unread(EVIL, ENDLESS),))],
    )


def many(count: int = 10_000) -> Report:
    """As many findings, each with a cause of its own, on four targets."""
    targets = {_target(backend, "py312"): backend for backend in _BACKENDS}
    findings, verdicts = [], []
    for number in range(count):
        target, backend = list(targets.items())[number % len(targets)]
        name, path = f"distribution-{number}", f"{SITE}/package_{number}/_native.so"
        findings.append(
            Finding(
                rule="BM301" if number % 3 else "BM401",
                name="foreign-needed" if number % 3 else "foreign-device-code",
                severity=("error", "warning", "note")[number % 3],
                target=target,
                backend=backend,
                vendor="nvidia",
                distribution=name,
                version="1.0",
                path=path,
                message=f"finding number {number}: {path} links libcudart.so.12",
                evidence=(
                    Evidence(
                        kind="needed",
                        path=path,
                        detail="libcudart.so.12",
                        confidence="high",
                        vendor="nvidia",
                        backend="cuda",
                        role="runtime",
                        size=1000 + number,
                        distribution=f"{name}==1.0",
                    ),
                ),
                chain=("requirements.in:7", f"{name} 1.0", path),
                fix=Fix("replace", f"ask for {name}-{backend}"),
                fingerprint=_fingerprint(number),
            )
        )
        verdicts.append(
            Verdict(name, "1.0", backend, "bloat", "it links CUDA", 1000 + number, ("nvidia",),
                    targets=(target,))
        )  # fmt: skip
    return assemble(
        "buildmatrix.toml",
        "2026-11-20",
        targets=[_result(target, backend) for target, backend in targets.items()],
        findings=findings,
        verdicts=verdicts,
    )


def comparison() -> Comparison:
    """Two images of one service: everything that can differ does."""
    target = "docker:demo:2"
    new = tuple(_foreign(target, "cpu", *item) for item in _TOOLKIT[:3])
    size = sum(size for _, _, size in _TOOLKIT)
    return Comparison(
        before=ComparedSide(
            "docker:demo:1", "image", "", ("cpu",), 1_900_000_000, "debian:12", "sha256:1", 61
        ),
        after=ComparedSide(
            target, "image", "", ("cpu",), 1_900_000_000 + size, "debian:13", "sha256:2", 70,
            (Unread("etc/shadow", "no permission"),), True,
        ),
        distributions=DistributionChanges(
            52,
            (
                *(
                    DistributionChange("added", name, "", (), (version,), None, size)
                    for name, version, size in _TOOLKIT
                ),
                DistributionChange(
                    "changed", "torch", "", ("2.8.0+cpu",), ("2.8.0",), 600_000_000, 1_700_000_000,
                    "local", False, ("another index",), ("nvidia-nccl-cu12==2.27.3",), (),
                ),
                DistributionChange(
                    "changed", "numpy", "", ("2.3.1",), ("1.26.4",), 71_000_000, 62_000_000,
                    "major", True,
                ),
                DistributionChange("removed", "intel-openmp", "", ("2025.2",), (), 98_000_000),
            ),
        ),
        libraries=(
            LibraryChange(
                "changed", "libcudart", "nvidia", "cuda", "runtime", ("11.8.89",), ("12.8.90",),
                "distribution", ("nvidia-cuda-runtime-cu12",), "11 -> 12", 600_000, 728_000,
            ),
        ),
        architectures=(ArchitectureChange(None, "nvidia", ("sm_90", "sm_120"), ("sm_50",)),),
        vendors=(
            VendorChange("nvidia", "cuda", 12_000_000, size),
            VendorChange("intel", "oneapi", 98_000_000, 3_000_000),
        ),
        layers=LayersChange(
            8, 9, 5, 1_000_000, 40_000_000,
            (
                LayerChange("changed", 5, "RUN pip install -r requirements.txt", 900_000_000,
                            6_800_000_000),
                LayerChange("added", 6, "COPY models /srv/models", None, 120_000_000),
                LayerChange("removed", 7, "RUN apt-get clean", 4_000_000, None),
            ),
        ),
        environment=(
            VariableChange("added", "NVIDIA_VISIBLE_DEVICES", None, "all"),
            VariableChange("changed", "PATH", "/usr/bin", "/opt/venv/bin:/usr/bin"),
        ),
        findings=FindingChanges(
            17,
            new,
            (_vulnerable("docker:demo:1", "cpu"),),
            (ChangedFinding(_missing(target), replace(_missing(target), waived=None)),),
        ),
        verdicts=(VerdictChange("torch", "cpu", "ok", "bloat", "it is CUDA's", 0, 541_000_000),),
        notes=("labels are not compared",),
    )  # fmt: skip


def hostile_comparison() -> Comparison:
    """Every text of a comparison is somebody's attack."""
    report, evil = hostile(), EVIL
    side = ComparedSide(EVIL, "image", EVIL, (EVIL,), 100, EVIL, EVIL, 3, (Unread(EVIL, ENDLESS),))
    return replace(
        comparison(),
        before=side,
        after=replace(side, size=200),
        findings=FindingChanges(0, report.findings),
        distributions=DistributionChanges(
            0,
            (DistributionChange("added", evil, evil, (), (ENDLESS,), None, 5, "", False, (evil,)),),
        ),
        vendors=(VendorChange(evil, evil, 10, 20),),
        environment=(VariableChange("added", evil, None, ENDLESS),),
        notes=(EVIL, ENDLESS),
    )


def drift() -> Drifts:
    """A distribution that differs for no reason, and one that differs for one."""
    cpu, cuda = _target("cpu", "py312"), _target("cuda", "py312")
    chain = ("requirements.in:2", "demo 1.0", "numpy 2.3.1")
    pinned = (
        Pinned("2.3.1", None, (cpu,), chain),
        Pinned("1.26.4", None, (cuda, EVIL), (EVIL, ENDLESS)),
    )
    return Drifts(
        targets=(cpu, cuda, EVIL),
        same=41,
        drift=(Drift("numpy", pinned), Drift(EVIL, pinned)),
        explained=(ExplainedDrift("torch", pinned, "each backend has an index of its own"),),
        unresolved=(f"{EVIL}: {ENDLESS}",),
        stale=(EVIL,),
    )


@dataclass(frozen=True, slots=True)
class PageCase:
    """One page: a document, and the formats of its kind."""

    formats: tuple[Format, ...]
    document: Callable[[], object]

    def text(self) -> str:
        return find_format(self.formats, "html").render(self.document(), Destination())


PAGES: Mapping[str, PageCase] = {
    "run-clean": PageCase(formats.RUN, clean),
    "run-small": PageCase(formats.RUN, lambda: matrix(("py312",))),
    "run-twenty": PageCase(formats.RUN, lambda: matrix(_PYTHONS)),
    "run-change": PageCase(formats.RUN, change),
    "run-hostile": PageCase(formats.RUN, hostile),
    "run-many": PageCase(formats.RUN, many),
    "diff": PageCase(formats.DIFF, comparison),
    "diff-hostile": PageCase(formats.DIFF, hostile_comparison),
    "drift": PageCase(formats.DRIFT, drift),
    "fleet": PageCase(formats.FLEET, lambda: fleet_cases.later(40)),
    "fleet-hostile": PageCase(formats.FLEET, lambda: fleet_cases.hostile(EVIL, ENDLESS)),
    "fleet-many": PageCase(formats.FLEET, lambda: fleet_cases.fleet(10_000)),
    "preflight": PageCase(formats.PREFLIGHT, preflight),
    "preflight-hostile": PageCase(formats.PREFLIGHT, lambda: hostile_preflight(EVIL, ENDLESS)),
}


@cache
def page(name: str) -> str:
    """The page of that name in `PAGES`, rendered once."""
    return PAGES[name].text()
