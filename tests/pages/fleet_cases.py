"""Fleets that no registry holds: results as a run would give them, the same in every process.

Images of a few stacks, thousands of variations, and layers that are shared as in real fleets: the
base of a popular stack is in thousands of images (Zipf), the last layer of each is its own.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from buildmatrix.base.data import replace
from buildmatrix.judge.composition import VendorBytes
from buildmatrix.reports.fleet import (
    FleetFinding,
    FleetFit,
    FleetLayer,
    FleetReport,
    FleetResult,
    FleetState,
    FleetWork,
)
from buildmatrix.reports.fleet_assembly import assemble

OWNERS = (
    "ml-platform", "search", "speech", "vision", "recommendations", "ads", "fraud", "research",
    "robotics", "maps", "translation", "billing",
)  # fmt: skip
NODES = {"cpu-large": "cpu", "a100": "cuda", "h100": "cuda", "b200": "cuda", "mi300x": "rocm"}
_BACKENDS = ("cpu", "cuda", "rocm", "oneapi")
_VENDORS = {"cuda": "nvidia", "rocm": "amd", "oneapi": "intel", "cpu": ""}
_APPLICATIONS = ("serve", "train", "embed", "rank", "batch", "notebook", "api", "etl", "eval")


@dataclass(frozen=True)
class _Stack:
    """What some images are built on, and for which backend its accelerator libraries are."""

    name: str
    vendor: str
    layers: tuple[tuple[str, int, int], ...]  # Digest, bytes of a pull, bytes of its files.
    #: Place of the layer that holds what belongs to the vendor.
    accelerated: int


def _digest(*parts: object) -> str:
    return "sha256:" + hashlib.sha256(repr(parts).encode()).hexdigest()


def _stacks(chance: random.Random, number: int) -> list[_Stack]:
    stacks = []
    for place in range(number):
        vendor = ("nvidia", "nvidia", "nvidia", "amd", "intel", "")[place % 6]
        layers = []
        for layer in range(chance.randint(9, 17)):
            installed = int(chance.lognormvariate(16.5, 1.6))
            layers.append((_digest(place, layer), installed * 2 // 5, installed))
        accelerated = len(layers) - 2
        if vendor:
            installed = chance.randint(2_000_000_000, 7_000_000_000)
            layers[accelerated] = (_digest(place, "v"), installed * 2 // 5, installed)
        stacks.append(_Stack(f"stack{place}", vendor, tuple(layers), accelerated))
    return stacks


def results(number: int, seed: int = 15) -> Iterator[FleetResult]:
    """As many results; of one seed, the first of them are always the same."""
    chance = random.Random(seed)
    stacks = _stacks(chance, 40)
    weights = [1 / (place + 1) for place in range(len(stacks))]
    for place in range(number):
        (stack,) = chance.choices(stacks, weights)
        yield _result(chance, place, stack)


def _result(chance: random.Random, place: int, stack: _Stack) -> FleetResult:
    own = next((name for name, vendor in _VENDORS.items() if vendor == stack.vendor), "cpu")
    backend = own if chance.random() < 0.7 else chance.choice(_BACKENDS)
    if stack.name in ("stack1", "stack9"):
        # Nobody has a use for what these bring.
        backend = "cpu"
    owner = chance.choices(OWNERS, range(len(OWNERS), 0, -1))[0] if chance.random() < 0.95 else ""
    repository = (
        f"registry.example.com/{owner or 'misc'}/{chance.choice(_APPLICATIONS)}-{place % 1700:04}"
    )
    about = {
        "repository": repository,
        "names": (f"{place // 1700 + 1}.{place % 9}.0",),
        "digest": _digest("image", place),
        "platform": "linux/amd64",
        "places": ("registry:registry.example.com/*",),
        "owner": owner,
        "created": f"2026-{place % 11 + 1:02}-{place % 28 + 1:02}T09:00:00Z",
    }
    if place % 100 == 41:
        why = ("the registry answered 429 three times", "layer 3 ends early", "it has no manifest")
        return FleetResult(**about, state="undecided", error=why[place // 100 % 3])
    is_wasted = bool(stack.vendor) and _VENDORS[backend] != stack.vendor
    layers = []
    for number, (digest, size, installed) in enumerate(stack.layers):
        unusable = installed if is_wasted and number == stack.accelerated else 0
        layers.append(FleetLayer(digest=digest, size=size, installed=installed, unusable=unusable))
    for number in range(chance.randint(1, 5)):
        # The application: nobody else has it.
        installed = chance.randint(10_000, 90_000_000)
        layers.append(
            FleetLayer(
                digest=_digest(place, number, "own"), size=installed // 3, installed=installed
            )
        )
    installed = sum(layer.installed for layer in layers)
    unusable = sum(layer.unusable for layer in layers)
    nodes = tuple(node for node, of in NODES.items() if of == backend)
    runs_on = (chance.choice(nodes),) if nodes and chance.random() < 0.6 else ()
    vendors = [VendorBytes("", installed - stack.layers[stack.accelerated][2])]
    if stack.vendor:
        size = stack.layers[stack.accelerated][2]
        vendors.append(VendorBytes(stack.vendor, size, size if is_wasted else 0))
    return FleetResult(
        **about,
        backend=backend,
        backend_by="node-class" if runs_on else chance.choice(("label", "name")),
        node_classes=runs_on,
        containers=int(chance.paretovariate(1.1)) if runs_on else 0,
        state="failed" if is_wasted else "passed",
        installed=installed,
        unusable=unusable,
        download=sum(layer.size for layer in layers),
        unusable_download=sum(layer.unusable_size for layer in layers),
        vendors=tuple(vendors),
        findings=tuple(_findings(stack, backend, is_wasted)),
        fits=tuple(_fits(stack, backend)),
        layers=tuple(layers),
    )


def _findings(stack: _Stack, backend: str, is_wasted: bool) -> Iterator[FleetFinding]:
    number = int(stack.name.removeprefix("stack"))
    if is_wasted:
        size = stack.layers[stack.accelerated][2]
        for part in range(6):
            name = f"{stack.vendor}-part{part}"
            version = f"{12 + number % 3}.{part}.{number}"
            yield FleetFinding(
                rule="BM101",
                severity="error",
                vendor=stack.vendor,
                distribution=name,
                version=version,
                message=f"{name} {version} belongs to {stack.vendor}, not usable on {backend}",
                fix=f'write `torch = "{backend}"` under [backend.{backend}]',
                size=size // 6,
            )
    if number % 4 == 0:
        yield FleetFinding(
            rule="BM601",
            severity="warning",
            message=f"the base image is of {stack.name}, which is older than its support",
            fix="build on a base that is supported",
            path="etc/os-release",
        )
    if number % 5 == 0:
        yield FleetFinding(
            rule="BM402",
            severity="note",
            distribution="xgboost",
            version="3.0.0",
            message="xgboost 3.0.0 has no device code for sm_120",
            waived="the nodes come in spring (ml-platform)",
        )


def _fits(stack: _Stack, backend: str) -> Iterator[FleetFit]:
    number = int(stack.name.removeprefix("stack"))
    if backend == "cpu":
        yield FleetFit(node="b200", state="ok")
        yield FleetFit(node="cpu-large", state="ok")
    elif backend != "cuda":
        reasons = (f"it is for {backend}, and the devices are of cuda",)
        yield FleetFit(node="b200", state="refused", reasons=reasons)
        if backend == "rocm":
            yield FleetFit(node="mi300x", state="ok")
    else:
        yield FleetFit(node="a100", state="ok")
        reason = f"driver 550.54 is older than 570.{number}, which CUDA 12.8 needs"
        yield FleetFit(node="h100", state="minor-version", reasons=(reason,))
        if number % 2:
            reasons = ("no device code for sm_100, and nothing to compile it from",)
            yield FleetFit(node="b200", state="refused", reasons=reasons)
        elif number % 7 == 0:
            yield FleetFit(node="b200", state="undecided", reasons=("a binary could not be read",))
        else:
            yield FleetFit(node="b200", state="jit", reasons=("compute_90 is compiled at start",))


def fleet(number: int, seed: int = 15) -> FleetReport:
    """The report of as many images."""
    made = list(results(number, seed))
    return assemble(
        "registry:registry.example.com/*",
        made,
        "2026-11-20",
        would_run_on=("b200",),
        missing=("registry.example.com/legacy: the catalog is closed to this login",),
        notes=("tags that match `*-dev` were left out",),
        work=FleetWork(
            subjects=number, layers=number, layers_read=number // 3, bytes_read=number * 9_000_000,
            workers=4, seconds=number / 50,
        ),
    )  # fmt: skip


def later(number: int, seed: int = 15) -> FleetReport:
    """The same a week later: some are new, gone, rebuilt, repaired or broken."""
    made = []
    for place, result in enumerate(results(number + number // 20, seed)):
        if place % 17 == 3:
            continue
        if place % 13 == 5 and result.state == "failed":
            result = replace(
                result, state="passed", digest=_digest("again", place), findings=(), unusable=0,
                unusable_download=0,
            )  # fmt: skip
        elif place % 11 == 7:
            result = replace(result, digest=_digest("again", place))
        made.append(result)
    return assemble(
        "registry:registry.example.com/*",
        reversed(made),
        "2026-11-27",
        would_run_on=("b200",),
        since=fleet(number, seed),
    )


def clean() -> FleetReport:
    """Nothing is wrong with any image."""
    every = (result for result in results(60) if result.state == "passed")
    made = [replace(result, findings=(), fits=(), node_classes=()) for result in every]
    return assemble("images.txt", made, "2026-11-20")


def hostile(evil: str, endless: str) -> FleetReport:
    """Every text is somebody's attack, or too long for any line."""

    def result(text: str, number: int, state: FleetState) -> FleetResult:
        finding = FleetFinding(
            rule="BM401", severity="error", vendor=text, distribution=text, version=text,
            path=text, message=text, fix=text, size=5,
        )  # fmt: skip
        return FleetResult(
            repository=text,
            names=(text, f"{text}2"),
            digest=f"{text}{number}",
            platform=text,
            backend=text,
            places=(text,),
            node_classes=(text,),
            containers=3,
            owner=text,
            created=text,
            state=state,
            error=text if state == "undecided" else None,
            installed=200,
            unusable=100,
            download=90,
            unusable_download=40,
            vendors=(VendorBytes(text, 200, 100),),
            findings=(finding, replace(finding, waived=text), replace(finding, fix=None)),
            fits=(
                FleetFit(node=text, state="refused", reasons=(text,)),
                FleetFit(node=f"{text}3", state="undecided", reasons=(text,)),
            ),
            layers=(FleetLayer(digest=text, size=90, installed=200, unusable=100),),
        )

    texts = (evil, endless, "\u202etxt.exe \x1b[31m&amp; ' \" `", "::error::x", "##[group]")
    before = assemble(evil, [result(text, 1, "failed") for text in texts[1:]], evil)
    return assemble(
        evil,
        [
            result(text, 2, "undecided" if place % 2 else "failed")
            for place, text in enumerate(texts)
        ],
        endless,
        would_run_on=texts[:2],
        missing=texts,
        notes=texts,
        since=before,
    )


def results_of(lines: Iterable[bytes]) -> tuple[FleetResult, ...]:
    """The results on lines that `--lines` wrote; each has to be one."""
    return tuple(map(msgspec.json.Decoder(FleetResult).decode, lines))
