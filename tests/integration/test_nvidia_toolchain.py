"""Device code of NVIDIA's compilers: what their own tools see in it, and on which GPUs it runs.

The files are drawn by a seed from all combinations of codes, compression and shapes: some 400 in
every test run, four times as many and all GPUs with `BUILDMATRIX_WEEKLY=1`.
"""

from __future__ import annotations

import itertools
import os
import platform
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from device_codes import read_codes, side_by_side
from nvidia_toolchain import Code, Recipe, Toolchain, unpack
from rulecases import of_image, target

from buildmatrix.catalogue.drivers import support
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.trees.archive import DirectoryTree

pytestmark = pytest.mark.network

WEEKLY = bool(os.environ.get("BUILDMATRIX_WEEKLY"))
ROUNDS = 4 if WEEKLY else 1
CONTENTS = ("sass", "ptx", "lto-ir", "sass ptx", "sass lto-ir", "sass ptx lto-ir")
COMPRESSIONS = (
    *(f"-compress-mode={mode}" for mode in ("none", "default", "size", "speed", "balance")),
    "-compress-all",
    "-compress-all -concat",
)
SHAPES = {"fatbin": "fatbin", "object": "o", "library": "so", "archive": "a"}
CUDART = ("", "libcudart_static.a", "libcudart.so.13")
#: Architectures of objects that are linked.
LINKED = ("75", "80", "90", "90a", "100f", "120")
#: GPUs of which verdicts are compared.
DEVICES = ("80", "90", "103", "120")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    if platform.machine() != "x86_64":
        pytest.skip("the wheels are for amd64")
    return unpack(tmp_path_factory.mktemp("toolchain"))


@pytest.fixture(scope="module")
def cubins(tools: Toolchain) -> list[Code]:
    """Machine code for a linker: of each toolkit for each GPU that it knows."""
    ptx = [tools.ptx(kit, arch) for kit, archs in tools.architectures.items() for arch in archs]
    return side_by_side(lambda code: tools.sass(code, "-c"), ptx)


@pytest.fixture(scope="module")
def portable(tools: Toolchain) -> list[Code]:
    """Code for the driver to compile: all of the newest toolkit, some of others."""
    return [
        tools.ptx(toolkit, arch)
        for toolkit, archs in tools.architectures.items()
        for arch in (archs if toolkit == "13.5" or WEEKLY else archs[::4])
    ]


@pytest.fixture(scope="module")
def files(
    tools: Toolchain, cubins: list[Code], portable: list[Code]
) -> dict[Path, tuple[Recipe, Counter[str]]]:
    """Files of all combinations, each with its recipe and with what it has to hold."""
    folder = tools.folder / "files"
    folder.mkdir()
    lto = [tools.lto(arch) for arch in ("75", "80", "90", "100", "120")]
    draw = random.Random(32)
    pools = {"sass": cubins, "ptx": portable, "lto-ir": lto}
    linkable = [
        {**pools, "sass": side_by_side(lambda ptx: tools.sass(ptx, "-c"), of_object)}
        for of_object in (
            [tools.ptx("13.5", arch, f"kernel{number}") for arch in LINKED] for number in range(3)
        )
    ]
    recipes = list(_recipes(draw, pools, linkable))
    paths = [folder / f"{n}.{SHAPES[recipe.shape]}" for n, recipe in enumerate(recipes)]
    made = side_by_side(lambda pair: tools.make(*pair), zip(recipes, paths, strict=True))
    return dict(zip(paths, zip(recipes, made, strict=True), strict=True))


def _recipes(
    draw: random.Random,
    pools: dict[str, list[Code]],
    linkable: list[dict[str, list[Code]]],
) -> Iterator[Recipe]:
    for _, content, compression in itertools.product(range(ROUNDS), CONTENTS, COMPRESSIONS):
        separate = tuple(_codes(draw, content, pools) for _ in range(draw.randint(1, 3)))
        # nvcc compiles all objects that it links for the same GPUs.
        same = draw.getrandbits(32)
        linked = tuple(
            _codes(random.Random(same), content, pool) for pool in linkable[: len(separate)]
        )
        yield Recipe("fatbin", separate[:1], compression)
        for objects, is_linked in ((separate, False), (linked, True)):
            yield Recipe("object", objects[:1], compression, is_linked)
            yield Recipe("archive", objects, compression, is_linked)
            yield Recipe("library", objects, compression, is_linked, draw.choice(CUDART))


def _codes(draw: random.Random, content: str, pools: dict[str, list[Code]]) -> tuple[Code, ...]:
    """One to three codes of each kind; a container has each architecture once."""
    codes = {
        str(code): code
        for kind in content.split()
        for code in draw.sample(pools[kind], draw.randint(1, 3))
    }
    return tuple(codes.values())


def test_codes_are_those_that_cuobjdump_sees(
    tools: Toolchain, files: dict[Path, tuple[Recipe, Counter[str]]]
) -> None:
    assert len(files) >= 290 * ROUNDS
    listed = dict(zip(files, side_by_side(tools.listed, files), strict=True))
    wrong = {
        recipe: (ours, unread, listed[path], made)
        for path, (recipe, made) in files.items()
        for ours, unread in [read_codes(path)]
        if unread or not ours == listed[path] == made
    }
    assert not wrong


def test_a_cubin_is_for_the_gpu_that_cuobjdump_names(tools: Toolchain, cubins: list[Code]) -> None:
    plain = [tools.ptx("13.5", arch) for arch in tools.architectures["13.5"]]
    cubins = [*cubins, *side_by_side(tools.sass, plain)]
    listed = side_by_side(lambda code: tools.run("cuobjdump", "-lelf", code.path), cubins)
    wrong = {}
    for code, line in zip(cubins, listed, strict=True):
        theirs = line.rsplit(".", 2)[1]
        ours = read_codes(code.path)
        # A cubin does not show that it may use what only a family of GPUs has.
        assert theirs in (f"sm_{code.arch}", f"sm_{code.arch.rstrip('f')}")
        if ours != ({f"sass {theirs}": 1}, []):
            wrong[code] = ours, theirs
    assert len(cubins) > 90
    assert not wrong


@pytest.mark.parametrize("name", ["libcudart.so.13", "libcudart_static.a", "libcudadevrt.a"])
def test_libraries_of_the_toolkit_hold_what_cuobjdump_sees(tools: Toolchain, name: str) -> None:
    path = tools.folder / "13.5" / name
    assert read_codes(path) == (tools.listed(path), [])


def test_code_runs_where_the_linker_or_the_compiler_takes_it(
    tools: Toolchain, cubins: list[Code], portable: list[Code]
) -> None:
    gpus = [arch for arch in tools.architectures["13.5"] if arch.isdecimal()]
    pairs = [
        (code, device) for code in [*cubins, *portable] for device in (gpus if WEEKLY else DEVICES)
    ]
    taken = side_by_side(lambda pair: tools.runs(*pair), pairs)
    wrong = [
        (str(code), device, is_taken)
        for (code, device), is_taken in zip(pairs, taken, strict=True)
        if (support(f"sm_{device}", [str(code).split()[1]]) != "none") != is_taken
    ]
    assert not wrong


def test_verdicts_are_those_of_the_linker_and_the_compiler(
    tools: Toolchain, files: dict[Path, tuple[Recipe, Counter[str]]]
) -> None:
    """Objects for features of exact GPUs alone are no gap in a library, so others are compared."""
    recipes = {
        path.name: recipe
        for path, (recipe, _) in files.items()
        if recipe.shape in ("fatbin", "library")
        and all(any(code.kind != "lto-ir" for code in codes) for codes in recipe.objects)
        and (len(recipe.objects) == 1 or not any(map(_is_bound, recipe.objects)))
    }
    assert len(recipes) >= 80 * ROUNDS
    inventory = collect(DirectoryTree(tools.folder / "files"))
    wrong = []
    for device in DEVICES:
        findings = of_image(target("cuda", "13.0", archs=[f"sm_{device}"]), inventory)
        said = {
            finding.path: _VERDICTS[finding.rule]
            for finding in findings
            if finding.rule in _VERDICTS
        }
        wrong += [
            (
                path,
                device,
                ours,
                theirs,
                [[str(code) for code in codes] for codes in recipe.objects],
            )
            for path, recipe in recipes.items()
            for ours in [said.get(path, "native")]
            for theirs in [_expected(tools, recipe, device)]
            if ours != theirs
        ]
    assert not wrong


_VERDICTS = {"BM402": "missing", "BM403": "jit", "BM404": "partly missing"}


def _is_bound(codes: tuple[Code, ...]) -> bool:
    return all(code.arch[-1] in "af" for code in codes if code.kind != "lto-ir")


def _expected(tools: Toolchain, recipe: Recipe, device: str) -> str:
    """How the objects of a file run, by the answers of the tools.

    The driver compiles objects of this size in no time, so that some need it is not said.
    """
    states = {_state(tools, codes, device) for codes in recipe.objects}
    if states == {"missing"} or states == {"jit"}:
        return states.pop()
    return "partly missing" if "missing" in states else "native"


def _state(tools: Toolchain, codes: Iterable[Code], device: str) -> str:
    kinds = {code.kind for code in codes if code.kind != "lto-ir" and tools.runs(code, device)}
    return "native" if "sass" in kinds else "jit" if kinds else "missing"
