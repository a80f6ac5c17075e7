"""NVIDIA's compilers, from wheels: pieces of device code, and files of every shape that hold them.

`nvcc` runs the steps of a build one after the other, with its front end for each architecture. Here
PTX is written as text and each step is called by itself, with nvcc's options (`nvcc -dryrun`): a
file takes milliseconds. ptxas comes in the versions 11.8, 12.9 and 13.5, the other tools in the
last, which read the objects of all.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from corpus_fetch import fetch, wheel_folder
from corpus_truth import TrueWheel

#: Its newest version in this file, and the newest PTX that each ptxas reads.
TOOLKITS = {"11.8": "7.8", "12.9": "8.8", "13.5": "9.4"}
#: cuobjdump 13.5 refuses older ones.
_OLDEST = 50
_KINDS = {"elf": "sass", "ptx": "ptx", "nvvm": "lto-ir"}
_PREFIXES = {"sass": "sm", "ptx": "compute", "lto-ir": "compute"}
_LISTED = re.compile(r"^\t?Fatbin (elf|ptx|nvvm) code:\n\t?=+\n\t?arch = sm_(\S+)$", re.MULTILINE)
PTX = """\
.version {version}
.target sm_{arch}
.address_size 64
.visible .entry {kernel}(.param .u64 p) {{
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [p]; mov.u32 %v, %tid.x; st.global.u32 [%a], %v; ret;
}}
"""
LLVM_IR = """\
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
define void @kernel(i32* %p) {
  store i32 2, i32* %p, align 4
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{void (i32*)* @kernel, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0}
"""  # noqa: E501


CUOBJDUMP = TrueWheel(
    "nvidia-cuda-cuobjdump",
    "13.5.37",
    "nvidia_cuda_cuobjdump-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    290354,
    "38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58",
)
#: Wheels, and the files that are taken from each: 110 MB.
_WHEELS = (
    (CUOBJDUMP, "cuobjdump"),
    (
        TrueWheel(
            "nvidia-cuda-nvcc",
            "13.5.37",
            "nvidia_cuda_nvcc-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
            47028279,
            "f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7",
        ),
        "ptxas fatbinary nvlink fatbinary_section.h",
    ),
    (
        TrueWheel(
            "nvidia-cuda-runtime",
            "13.5.37",
            "nvidia_cuda_runtime-13.5.37-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
            2504024,
            "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d",
        ),
        "libcudart.so.13 libcudart_static.a libcudadevrt.a",
    ),
    (
        TrueWheel(
            "nvidia-cuda-nvcc-cu12",
            "12.9.86",
            "nvidia_cuda_nvcc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
            40546229,
            "5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0",
        ),
        "ptxas libnvvm.so",
    ),
    (
        TrueWheel(
            "nvidia-cuda-nvcc-cu11",
            "11.8.89",
            "nvidia_cuda_nvcc_cu11-11.8.89-py3-none-manylinux2014_x86_64.whl",
            19516527,
            "f8e1e995166c884f2f5bf94975d7abb89175363b8712f7f81cd38d0df1b2cd85",
        ),
        "ptxas",
    ),
)


@dataclass(frozen=True, order=True)
class Code:
    """A piece of device code, as `fatbinary` puts it into a container."""

    kind: str
    #: `90a`.
    arch: str
    toolkit: str
    path: Path

    def __str__(self) -> str:
        return f"{self.kind} {_PREFIXES[self.kind]}_{self.arch}"


@dataclass(frozen=True)
class Recipe:
    """How one file is made."""

    shape: str
    #: Codes of each object.
    objects: tuple[tuple[Code, ...], ...]
    #: Options of fatbinary.
    compression: str
    #: Objects that nvlink links (`nvcc -rdc=true`).
    is_linked: bool = False
    #: Library that a shared one is linked with.
    cudart: str = ""


class Toolchain:
    """The tools, and the folder that they work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._objects: dict[tuple[object, ...], Path] = {}
        self._numbers = itertools.count()
        self.architectures = {toolkit: self._architectures(toolkit) for toolkit in TOOLKITS}

    def run(self, program: str, *arguments: str | Path, toolkit: str = "13.5") -> str:
        """Run a tool, which has to succeed; return what it prints."""
        path = self.folder / toolkit / program
        command = [path if path.exists() else program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        is_empty = done.stderr.rstrip().endswith("does not contain device code")
        assert done.returncode == 0 or is_empty, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _architectures(self, toolkit: str) -> list[str]:
        """Architectures that a ptxas makes machine code for."""
        listed = re.findall(r"'sm_(\d+)([af]?)'", self.run("ptxas", "--help", toolkit=toolkit))
        numbers = sorted((int(number), suffix) for number, suffix in set(listed))
        return [f"{number}{suffix}" for number, suffix in numbers if number >= _OLDEST]

    def ptx(self, toolkit: str, arch: str, kernel: str = "kernel") -> Code:
        """Portable code."""
        path = self.folder / f"{toolkit}-{arch}-{kernel}.ptx"
        path.write_text(PTX.format(version=TOOLKITS[toolkit], arch=arch, kernel=kernel))
        return Code("ptx", arch, toolkit, path)

    def sass(self, ptx: Code, *options: str) -> Code:
        """Machine code for the architecture of portable code; `-c` for a linker."""
        path = ptx.path.with_name(f"{ptx.path.stem}{''.join(options)}.cubin")
        target = f"-arch=sm_{ptx.arch}"
        self.run("ptxas", *options, target, ptx.path, "-o", path, toolkit=ptx.toolkit)
        return Code("sass", ptx.arch, ptx.toolkit, path)

    def lto(self, arch: str) -> Code:
        """Code that a linker compiles, from libnvvm 12.9."""
        library = ctypes.CDLL(str(self.folder / "12.9/libnvvm.so"))
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        source = LLVM_IR.encode()
        options = (ctypes.c_char_p * 2)(f"-arch=compute_{arch}".encode(), b"-gen-lto")
        library.nvvmCreateProgram(ctypes.byref(program))
        library.nvvmAddModuleToProgram(program, source, ctypes.c_size_t(len(source)), b"kernel")
        assert library.nvvmCompileProgram(program, 2, options) == 0
        library.nvvmGetCompiledResultSize(program, ctypes.byref(size))
        result = ctypes.create_string_buffer(size.value)
        library.nvvmGetCompiledResult(program, result)
        library.nvvmDestroyProgram(ctypes.byref(program))
        path = self.folder / f"{arch}.ltoir"
        path.write_bytes(result.raw)
        return Code("lto-ir", arch, "12.9", path)

    def make(self, recipe: Recipe, path: Path) -> Counter[str]:
        """Make a file; return how often it has to have each code."""
        made = Counter(str(code) for codes in recipe.objects for code in codes)
        if recipe.shape == "fatbin":
            self._fatbinary(recipe.objects[0], recipe.compression, "--create", path)
            return made
        section = ["--device-c"] if recipe.is_linked else []
        objects = [
            self._object(codes, recipe.compression, *section, number=number)
            for number, codes in enumerate(recipe.objects)
        ]
        if recipe.shape == "object":
            path.write_bytes(objects[0].read_bytes())
        elif recipe.shape == "archive":
            self.run("ar", "rcsD", path, *objects)
        else:
            linked = self._link(recipe, objects) if recipe.is_linked else []
            if recipe.is_linked:
                objects.append(self._object(tuple(linked), recipe.compression, "-link"))
            if recipe.cudart:
                objects += [Path("--undefined=cudaGetLastError"), Path("--defsym=__dso_handle=0")]
                objects.append(self.folder / "13.5" / recipe.cudart)
            self.run("ld", "-shared", "-o", path, *objects)
            made.update(map(str, linked))
        return made

    def _fatbinary(self, codes: Iterable[Code], compression: str, *options: str | Path) -> None:
        words = {kind: word for word, kind in _KINDS.items()}
        images = [f"--image3=kind={words[c.kind]},sm={c.arch},file={c.path}" for c in codes]
        self.run("fatbinary", "-64", *compression.split(), *images, *options)

    def _object(
        self, codes: tuple[Code, ...], compression: str, *options: str, number: int = 0
    ) -> Path:
        """An object of the host with one container in it, made once for each of its `number`."""
        key = (codes, compression, options, number)
        if key not in self._objects:
            path = self.folder / f"object{next(self._numbers)}.o"
            source = path.with_suffix(".fatbin.c")
            self._fatbinary(codes, compression, *options, f"--embedded-fatbin={source}")
            names = [f"-D__NV_MODULE_ID=_{path.stem}", "-D__cudaPrelinkedFatbins=0"]
            names.append(f"-I{self.folder / '13.5'}")
            self.run("gcc", "-w", "-c", "-fPIC", *names, source, "-o", path)
            self._objects[key] = path
        return self._objects[key]

    def _link(self, recipe: Recipe, objects: Sequence[Path]) -> list[Code]:
        """Return the code that nvlink makes of the objects of a library."""
        linked = []
        for code in recipe.objects[0]:
            if code.kind == "sass":
                path = objects[0].with_suffix(f".{next(self._numbers)}.cubin")
                options = ["-m64", "--shared", f"--arch=sm_{code.arch}", "-o", path]
                register = f"--register-link-binaries={path.with_suffix('.reg.c')}"
                self.run("nvlink", *options, register, *objects)
                linked.append(Code("sass", code.arch, code.toolkit, path))
        return linked

    def listed(self, path: Path) -> Counter[str]:
        """How often cuobjdump sees each code in a file."""
        found = _LISTED.findall(self.run("cuobjdump", "-all", path))
        kinds = [(_KINDS[word], arch) for word, arch in found]
        return Counter(f"{kind} {_PREFIXES[kind]}_{arch}" for kind, arch in kinds)

    @functools.cache  # noqa: B019
    def runs(self, code: Code, device: str) -> bool:
        """True if nvlink links machine code, or ptxas compiles portable code, for a GPU (`90`)."""
        name = next(n for n in (f"{device}a", device) if n in self.architectures["13.5"])
        # nvlink 13.5 wants code of CUDA 12 for sm_90.
        path = code.path.with_name(code.path.name.replace("11.8", "12.9"))
        out = self.folder / f"{path.name}-{device}.out"
        tool = self.folder / "13.5" / ("nvlink" if code.kind == "sass" else "ptxas")
        done = subprocess.run(
            [tool, f"-arch=sm_{name}", path, "-o", out], capture_output=True, timeout=120
        )
        return done.returncode == 0


def unpack(folder: Path) -> Toolchain:
    """The tools, unpacked from their wheels."""
    with ThreadPoolExecutor(len(_WHEELS)) as pool:
        paths = pool.map(lambda item: fetch(item[0], wheel_folder()), _WHEELS)
    for path, (wheel, names) in zip(paths, _WHEELS, strict=True):
        place = folder / wheel.version.rpartition(".")[0]
        place.mkdir(exist_ok=True)
        with zipfile.ZipFile(path) as archive:
            for member, name in itertools.product(archive.namelist(), names.split()):
                if member.rpartition("/")[2] == name:
                    (place / name).write_bytes(archive.read(member))
                    (place / name).chmod(0o755)
    return Toolchain(folder)
