"""Device code of LLVM's tools from Debian: objects for AMD's GPUs, SPIR-V, and files of them.

Architectures and kinds are held against `llvm-readelf`, `clang-offload-bundler -list` and
`llvm-objdump --offloading`.
"""

from __future__ import annotations

import os
import platform
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from components import missing
from corpus_fetch import wheel_folder
from device_codes import read_codes, side_by_side

pytestmark = pytest.mark.network

ROUNDS = 40 if os.environ.get("BUILDMATRIX_WEEKLY") else 10
#: Debian's packages, 70 MB, and the files taken from them: tools, and their libraries.
PACKAGES = ("libllvm19", "libclang-cpp19", "clang-tools-19", "llvm-19", "spirv-tools")
TOOLS = (
    *("llc", "llvm-readobj", "llvm-readelf", "llvm-objcopy", "llvm-objdump"),
    *("clang-offload-bundler", "clang-offload-packager", "spirv-as"),
)
KERNEL = """\
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) {
  store i32 2, ptr addrspace(1) %p
  ret void
}
"""
MODULE = """\
OpCapability Kernel
OpCapability Addresses
OpMemoryModel Physical64 OpenCL
OpEntryPoint Kernel %main "kernel"
%void = OpTypeVoid
%type = OpTypeFunction %void
%main = OpFunction %void None %type
%label = OpLabel
OpReturn
OpFunctionEnd
"""
HOST = "host-x86_64-unknown-linux-gnu-"
#: Objects with features: those that have both, one or none of them.
FEATURES = {
    "gfx90a": ":sramecc+:xnack-",
    "gfx942": ":xnack+",
    "gfx908": ":sramecc-",
    "gfx1010": ":xnack-",
}


class Toolchain:
    """The tools, and the folder that they work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, program: str, *arguments: str | Path) -> str:
        """Run a tool, which has to succeed; return what it prints, help included."""
        path = self.folder / program
        command = [path if path.exists() else program, *arguments]
        variables = None
        if path.exists():
            # Tools start each other by their names.
            search = f"{self.folder}:{os.environ['PATH']}"
            variables = {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "PATH": search}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    if platform.machine() != "x86_64" or shutil.which("apt-get") is None:
        missing("LLVM 19", "its packages are Debian's, for amd64")
    folder = tmp_path_factory.mktemp("llvm")
    debs = wheel_folder()
    debs.mkdir(parents=True, exist_ok=True)
    absent = [name for name in PACKAGES if not list(debs.glob(f"{name}_*.deb"))]
    if absent:
        arriving = debs / folder.name
        arriving.mkdir()
        subprocess.run(["apt-get", "download", "-qq", *absent], cwd=arriving, check=True)
        for path in arriving.iterdir():
            path.replace(debs / path.name)
        arriving.rmdir()
    wanted = [
        *(f"*/bin/{name}" for name in TOOLS),
        "*-linux-gnu/libLLVM.so.*",
        "*-linux-gnu/libclang-cpp.so.*",
    ]

    def unpack(name: str) -> None:
        (path,) = debs.glob(f"{name}_*.deb")
        with subprocess.Popen(["dpkg", "--fsys-tarfile", path], stdout=subprocess.PIPE) as archive:
            # Patterns that nothing fits are an error to tar.
            command = ["tar", "-x", "--wildcards", "--transform=s,.*/,,", *wanted]
            subprocess.run(command, stdin=archive.stdout, cwd=folder, stderr=subprocess.DEVNULL)

    side_by_side(unpack, PACKAGES)
    libraries = subprocess.run(["ldd", folder / "llvm-objdump"], capture_output=True, text=True)
    if "libcurl.so.4 => not found" in libraries.stdout:
        missing("libcurl.so.4, which llvm-objdump loads", "install the package libcurl4")
    return Toolchain(folder)


@pytest.fixture(scope="module")
def objects(tools: Toolchain) -> dict[str, Path]:
    """An object for each of AMD's GPUs, by architecture: `gfx942:xnack+`."""
    source = tools.folder / "kernel.ll"
    source.write_text(KERNEL)
    listed = tools.run("llc", "-march=amdgcn", "-mcpu=help", source, "-o", "-")
    processors = listed.partition("Available features")[0]
    names = re.findall(r"^ +(gfx\S+) ", processors, re.MULTILINE)
    archs = [*names, *(f"{name}{features}" for name, features in FEATURES.items())]

    def compile_for(arch: str) -> Path:
        path = tools.folder / f"{arch.replace(':', '.')}.o"
        processor, *features = arch.split(":")
        settings = ",".join(f"{feature[-1]}{feature[:-1]}" for feature in features)
        # Generic processors need version 6.
        version = 6 if "generic" in arch else 4 + len(arch) % 3
        options = [f"-mcpu={processor}", f"-mattr={settings}", "-filetype=obj"]
        tools.run("llc", *options, f"-amdhsa-code-object-version={version}", source, "-o", path)
        return path

    return dict(zip(archs, side_by_side(compile_for, archs), strict=True))


@pytest.fixture(scope="module")
def module(tools: Toolchain) -> Path:
    """A module of SPIR-V."""
    source = tools.folder / "module.spvasm"
    source.write_text(MODULE)
    tools.run("spirv-as", source, "-o", source.with_suffix(".spv"))
    return source.with_suffix(".spv")


def test_objects_are_for_the_gpus_that_readelf_names(
    tools: Toolchain, objects: dict[str, Path]
) -> None:
    flags = re.findall(r"Flags: +0x\w+, (.+)", tools.run("llvm-readelf", "-h", *objects.values()))
    assert len(flags) == len(objects) > 50
    wrong = {}
    for (arch, path), named in zip(objects.items(), flags, strict=True):
        # `xnack` alone is "any", which a target leaves out.
        processor, *features = named.split(", ")
        theirs = ":".join([processor, *sorted(name for name in features if name[-1] in "+-")])
        ours = read_codes(path)
        if ours != ({f"amdgcn {theirs}": 1}, []) or theirs != arch:
            wrong[arch] = ours, theirs
    assert not wrong


def test_the_module_is_for_the_addresses_that_it_declares(module: Path) -> None:
    assert read_codes(module) == ({"spirv spirv64": 1}, [])


def shapes(tools: Toolchain, content: Path, section: str) -> Iterator[Path]:
    """Files that hold a container: itself, an object, a library and an archive of two objects."""
    yield content
    source = content.with_suffix(".s")
    source.write_text(f'.section {section},"a"\n.balign 4096\n.incbin "{content}"\n')
    paths = [content.with_suffix(suffix) for suffix in (".o", ".so", ".a")]
    tools.run("as", source, "-o", paths[0])
    tools.run("ld", "-shared", paths[0], "-o", paths[1])
    tools.run("ar", "rcsD", paths[2], paths[0])
    yield from paths


def draw_targets(draw: random.Random, archs: list[str]) -> list[str]:
    """One to six architectures of different processors."""
    chosen = draw.sample(archs, draw.randint(1, 6))
    return list({arch.partition(":")[0]: arch for arch in chosen}.values())


@pytest.mark.parametrize("options", [(), ("-compress",)], ids=["plain", "compressed"])
def test_bundles_hold_what_the_bundler_lists(
    tools: Toolchain, objects: dict[str, Path], module: Path, options: tuple[str, ...]
) -> None:
    """HIP's and OpenMP's: for AMD's GPUs, and SPIR-V that the driver compiles for any of them."""

    def compare(number: int) -> list[object]:
        draw = random.Random(number)
        model = draw.choice(["hip", "hipv4", "openmp"])
        archs = draw_targets(draw, list(objects))
        inputs = {f"{model}-amdgcn-amd-amdhsa--{arch}": objects[arch] for arch in archs}
        if draw.random() < 0.3:
            inputs["hip-spirv64-amd-amdhsa--amdgcnspirv"] = module
        path = tools.folder / f"bundle{number}{''.join(options)}.hipfb"
        files = [f"-input={name}" for name in (os.devnull, *inputs.values())]
        targets = f"-targets={','.join((HOST, *inputs))}"
        align = "-bundle-align=4096"
        tools.run(
            "clang-offload-bundler", "-type=o", align, *options, targets, *files, f"-output={path}"
        )
        listed = tools.run("clang-offload-bundler", "-list", "-type=o", f"-input={path}").split()
        theirs = Counter(
            f"{'spirv' if '-spirv64-' in name else 'amdgcn'} {name.rpartition('--')[2]}"
            for name in listed
            if not name.startswith("host-")
        )
        assert theirs.total() == len(inputs)
        return [
            (file.name, ours, theirs)
            for file in shapes(tools, path, ".hip_fatbin")
            for ours in [read_codes(file)]
            if ours != (theirs, [])
        ]

    wrong = side_by_side(compare, range(ROUNDS))
    assert not any(wrong)


def test_offload_binaries_hold_what_objdump_lists(
    tools: Toolchain, objects: dict[str, Path], module: Path
) -> None:
    def compare(number: int) -> list[object]:
        draw = random.Random(number)
        images = {
            f"triple=amdgcn-amd-amdhsa,arch={arch},kind={draw.choice(['hip', 'openmp'])}": objects[
                arch
            ]
            for arch in draw_targets(draw, list(objects))
        }
        if draw.random() < 0.3:
            images["triple=spirv64-intel-unknown,arch=spirv64,kind=sycl"] = module
        path = tools.folder / f"package{number}.bin"
        options = [f"--image=file={file},{rest}" for rest, file in images.items()]
        tools.run("clang-offload-packager", *options, "-o", path)
        listed = tools.run("llvm-objdump", "--offloading", path)
        archs = re.findall(r"^arch +(\S+)\ntriple +(\w+)", listed, re.MULTILINE)
        theirs = Counter(
            f"{'spirv' if triple == 'spirv64' else triple} {arch}" for arch, triple in archs
        )
        assert theirs.total() == len(images)
        return [
            (file.name, ours, theirs)
            for file in shapes(tools, path, ".llvm.offloading")
            for ours in [read_codes(file)]
            if ours != (theirs, [])
        ]

    wrong = side_by_side(compare, range(ROUNDS))
    assert not any(wrong)
