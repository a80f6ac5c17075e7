"""Writes `src/buildmatrix/catalogue/data/<ecosystem>.toml` from the facts in `tools/facts`.

    python tools/refresh_catalogue.py           # write the files
    python tools/refresh_catalogue.py --check   # only show whether they are what the facts give

The facts are one TOML file per ecosystem, less regular than what the matcher needs. Everything that
does not go over is printed with the reason, and so is every correction made here. The files
`<ecosystem>.curated.toml` beside the generated ones are written by hand (tools, marks, exceptions,
containers of device code, environment).

The same facts give the same bytes. No address of a package index goes over: an index is called by
its name in uv.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FACTS = Path(__file__).resolve().parent / "facts"
DATA = FACTS.parent.parent / "src/buildmatrix/catalogue/data"

Fact = Mapping[str, Any]
Entry = dict[str, Any]


@dataclass(frozen=True)
class Ecosystem:
    """What the facts leave open about one ecosystem."""

    #: Our name for the backend, where the facts have another one.
    backend: str
    vendor: str | None


#: One data file each.
ECOSYSTEMS = {
    "amd-rocm": Ecosystem("rocm", "amd"),
    "aws-neuron": Ecosystem("neuron", "aws"),
    "cambricon": Ecosystem("mlu", "cambricon"),
    "cpu": Ecosystem("cpu", None),
    "directml": Ecosystem("directml", "microsoft"),
    "google-tpu": Ecosystem("tpu", "google"),
    "graphcore": Ecosystem("ipu", "graphcore"),
    "habana-gaudi": Ecosystem("hpu", "habana"),
    "huawei-ascend": Ecosystem("npu", "huawei"),
    "intel-oneapi": Ecosystem("oneapi", "intel"),
    "moore-threads-musa": Ecosystem("musa", "moore-threads"),
    "nvidia-cuda": Ecosystem("cuda", "nvidia"),
    "opencl": Ecosystem("opencl", "khronos"),
    "openvino": Ecosystem("openvino", "intel"),
    "qualcomm-qnn": Ecosystem("qnn", "qualcomm"),
    "tenstorrent": Ecosystem("tt", "tenstorrent"),
    "vulkan": Ecosystem("vulkan", "khronos"),
}
#: What is wrong or too wide in the facts: (ecosystem, name) -> changed fields, and why.
CORRECTIONS: Mapping[tuple[str, str], tuple[Mapping[str, Any], str]] = {
    ("nvidia-cuda", "libcaffe2_nvrtc.so"): (
        {"weight": "weak"},
        "ROCm builds of torch have it too, as the note says",
    ),
    **{
        ("nvidia-cuda", name): ({"kind": "pure"}, "bindings: they hold none of the libraries")
        for name in ("cuda-bindings", "cuda-core")
    },
    **{
        (ecosystem, name): ({"kind": "multi-backend"}, "holds the CPU's provider as well")
        for ecosystem, name in (
            ("nvidia-cuda", "onnxruntime-gpu"),
            ("amd-rocm", "onnxruntime-rocm"),
            ("amd-rocm", "onnxruntime-migraphx"),
            ("huawei-ascend", "onnxruntime-cann"),
            ("openvino", "onnxruntime-openvino"),
            ("qualcomm-qnn", "onnxruntime-qnn"),
            ("directml", "onnxruntime-directml"),
        )
    },
    **{
        ("nvidia-cuda", name): (
            {"platforms": ["linux/amd64"], **({"versions": versions} if versions else {})},
            "sizes of the index's files of 2026-11: those of arm64 and of older versions are for "
            "the CPU; nvidia-cuda.curated.toml has the arm64 builds for CUDA",
        )
        for name, versions in (
            ("torch", ""),
            ("torchvision", ">=0.3"),
            ("torchaudio", ">=2.1"),
            ("torchcodec", ">=0.16"),
            ("tensorflow", ">=2.1"),
            ("xgboost", ">=0.82"),
            ("catboost", ""),
            ("ctranslate2", ""),
            ("taichi", ""),
        )
    },
    ("nvidia-cuda", "xformers"): (
        {"kind": "default-build", "weight": "weak", "platforms": ["linux/amd64"]},
        "its own index has builds for other backends, and its import goes on without CUDA",
    ),
    ("nvidia-cuda", "paddlepaddle-gpu"): (
        {"toolkit": r"post(?P<toolkit>\d+)\d$"},
        "its own index calls builds 2.6.2.post112 and 2.6.2.post120",
    ),
    ("habana-gaudi", "habana-pyhlml"): (
        {"kind": "pure", "weight": "weak"},
        "bindings of what asks a driver for its devices, as nvidia-ml-py: files decide",
    ),
    ("nvidia-cuda", "libraft.so"): ({"weight": "weak"}, "also a consensus library of Debian"),
    ("nvidia-cuda", "apex"): ({"weight": "weak"}, "the index's apex is an unrelated package"),
    ("amd-rocm", "librocm_smi64.so.*"): (
        {"toolkits": {"1": "7", "5": "5", "6": "6", "7": ["6", "7"]}},
        "7.2.4 has version 1, and which one 7.0 and 7.1 have was not seen: 7 proves no older line",
    ),
    ("amd-rocm", "aiter"): ({"weight": "weak"}, "the index's aiter is an unrelated package"),
    ("huawei-ascend", "te"): ({"weight": "weak"}, "a short name that others use"),
    ("huawei-ascend", "hccl"): ({"weight": "weak"}, "a short name that others use"),
    ("huawei-ascend", "auto-tune"): ({"weight": "weak"}, "a common name"),
    ("huawei-ascend", "schedule-search"): ({"weight": "weak"}, "a common name"),
    **{
        (ecosystem, name): (
            {"weight": "weak"},
            "no backend's, but who looks for it does so for one: context, no proof",
        )
        for ecosystem, name in (
            ("opencl", "libOpenCL.so.1"),
            ("opencl", "libOpenCL.so"),
            ("vulkan", "libvulkan.so.1"),
            ("vulkan", "libvulkan.so"),
        )
    },
    ("vulkan", "libSPIRV-Tools-shared.so"): ({"weight": "neutral"}, "tooling, as the note says"),
    ("vulkan", "libshaderc_shared.so*"): ({"weight": "neutral"}, "tooling, as the note says"),
    **{
        ("huawei-ascend", name): (
            {"under": ["usr/local/Ascend/*"]},
            "a common name; counts only in the vendor's folder",
        )
        for name in (
            "libgraph.so",
            "libregister.so",
            "libruntime.so",
            "libplatform.so",
            "libshmem.so",
        )
    },
}
#: Libraries that another ecosystem's facts have better: (ecosystem, name) -> why.
LIBRARIES_LEFT_OUT = {
    ("amd-rocm", "libdxcore.so"): "WSL's, for several vendors",
    ("amd-rocm", "libmagma.so*"): "has builds for CUDA, HIP and SYCL: no vendor's",
    ("nvidia-cuda", "libdxcore.so"): "WSL's, for several vendors",
    ("intel-oneapi", "libOpenCL.so.1"): "a loader for all vendors; opencl has it",
    ("cpu", "libumf.so.1"): "of use on an accelerator only; intel-oneapi has it",
    **{
        ("cpu", name): "a vendor's driver answers it: opengl.curated.toml has it"
        for name in ("libGL.so.1", "libEGL.so.1")
    },
    ("directml", "libdxcore.so"): "drivers of several vendors look for it",
    **{
        ("hygon-dcu", name): "AMD's name too: only the vendor's folder tells"
        for name in ("libamdhip64.so*", "libhsa-runtime64.so*", "librocm_smi64.so*")
    },
    **{
        ("iluvatar", name): "NVIDIA's name: only the vendor's folder tells"
        for name in ("libcuda.so.1(corex)", "libcudart.so.10.2(corex)")
    },
    ("amd-xdna", "libonnxruntime_providers_vitisai.so"): "every onnxruntime may hold it",
    ("rockchip", "libonnxruntime_providers_rknpu.so"): "every onnxruntime may hold it",
}
#: Accelerators of which only names are known: entry of others.toml -> data file, our name for the
#: backend, its vendor, and folders where everything is the vendor's.
OTHERS: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "amd-xdna/vitis": ("amd-xdna", "xdna", "amd", ("opt/xilinx/xrt",)),
    "biren": ("biren", "biren", "biren", ()),
    "cerebras": ("cerebras", "cerebras", "cerebras", ()),
    "enflame": ("enflame", "gcu", "enflame", ("opt/tops",)),
    "furiosa": ("furiosa", "furiosa", "furiosa", ()),
    "groq": ("groq", "groq", "groq", ()),
    "hailo": ("hailo", "hailo", "hailo", ()),
    "hygon-dcu": ("hygon-dcu", "dcu", "hygon", ("opt/dtk", "opt/hyhal")),
    "iluvatar": ("iluvatar", "corex", "iluvatar", ("usr/local/corex",)),
    "kunlunxin": ("kunlunxin", "kunlun", "kunlunxin", ()),
    "metax": ("metax", "maca", "metax", ("opt/maca",)),
    "rebellions": ("rebellions", "rbln", "rebellions", ()),
    "rockchip-npu": ("rockchip", "rknpu", "rockchip", ()),
    "sambanova": ("sambanova", "sambanova", "sambanova", ()),
    "sophgo": ("sophgo", "sophon", "sophgo", ()),
    "vastai": ("vastai", "vastai", "vastai", ()),
}
OTHERS_LEFT_OUT = {
    "apple": "macOS only, as metal.toml",
    "edge-tpu": "google-tpu.toml has it",
}
TITLES = {
    "amd-xdna": "AMD XDNA / Vitis AI",
    "hygon-dcu": "Hygon DCU",
    "metax": "MetaX MACA",
    "rockchip": "Rockchip NPU",
    "vastai": "Vastai",
}
#: Names of theirs that prove nothing alone.
COMMON_NAMES = {
    "libmccl.so*": "MetaX's and Moore Threads' name",
    "libmcr.so*": "a short name",
    "libsail.so": "a common name",
    "libtpu_runtime.so": "reads like another vendor's",
    "mlx": "has builds for the CPU and for CUDA",
    "sophon": "a common name",
    "pycoral": "Python code; the library comes with the system",
}
#: Parts of an accelerator's stack that CPU packages bring: name -> why they are not neutral.
CPU_SAFE_LEFT_OUT = dict.fromkeys(
    ("libumf.so.1", "libur_loader.so.0", "libur_adapter_level_zero.so.0"),
    "of use on an accelerator only; weak, because the CPU package mkl brings it",
)
#: Distributions that another ecosystem's facts have better: (ecosystem, name) -> why.
DISTRIBUTIONS_LEFT_OUT = {
    **{
        ("nvidia-cuda", name): "not for CUDA alone: the curated file says what its project says"
        for name in ("deepspeed", "exllamav2", "flash-attn", "mamba-ssm", "sglang", "vllm")
    },
    ("intel-oneapi", "intel-extension-for-tensorflow"): (
        "has a build for the CPU: the curated file says what its metadata says"
    ),
    ("cpu", "openvino"): "its own file says which backend it is made for",
}
#: Repositories of images that do not tell their backend.
IMAGES_LEFT_OUT = {
    "public/*": "says nothing without its registry",
    "pytorch/manylinux2_28-builder": "one repository for all backends",
    "tensorflow/tensorflow": "CUDA only with -gpu in the tag",
    "intel/intel-extension-for-pytorch": "XPU only with -xpu in the tag",
}
KINDS = {
    "native": "native",
    "pure-python": "pure",
    "meta": "meta",
    "cuda-by-default": "default-build",
    "cuda-embedded": "embedded",
    "multi-backend": "multi-backend",
    "neutral-until-extra": "with-extra",
}
#: Regular expressions of the facts -> ours, which name the toolkit; None: another entry has it.
LOCAL_VERSIONS = {
    r"^cu(\d{2,3})$": r"cu(?P<toolkit>9|1\d)\d(?!\d)",
    r"^cu(\d{2,3})[._-]": r"cu(?P<toolkit>1\d)(?!\d)",
    r"^(cpu\.)?cxx11\.abi$": None,
    r"^cuda[.\d]+": r"cuda\.?(?P<toolkit>9|1\d)\d?(?!\d)",
    r"^rocm(\d+)\.(\d+)(\.\d+)?(\w+\d+)?$": r"rocm(?P<toolkit>\d+)\.\d",
    r"^rocm(\d{2,4})$": r"rocm(?P<toolkit>\d)\d{1,2}(?!\d)",
    r"^rocmsdk\d{8}": r"rocmsdk\d{8}",
    r"^rocm[\d.]+\.(lw|git)[\w.]*": None,
    r"^xpu$": r"xpu(?![a-z0-9])",
    r"^cpu(\.cxx11\.abi)?$": r"cpu(?![a-z0-9])",
    r"^(hpu[._-]?)?\d+\.\d+\.\d+[.-]git|gaudi": r"hpu[._-]|gaudi",
}
#: Replacements of the facts that are sentences -> ours. Plain names become `use NAME`.
REPLACEMENTS = {
    "--index-url whl/cpu": "index cpu",
    "CPU build from the vLLM project index": "remove; the project has a CPU build on its own index",
    "numpy (dpnp), remove (dpctl)": "use numpy",
    "numpy/scipy (cupy has no CPU build)": "use numpy; cupy has no CPU build, code changes too",
    "onnxruntime / torch / tensorflow-cpu": "use onnxruntime; or torch, tensorflow-cpu",
    "same name from whl/cpu": "index cpu",
    "torch (whl/cpu) / onnxruntime": "remove; use torch or onnxruntime",
    "torch from whl/cpu (+cpu)": "index cpu",
    "torch+cpu": "index cpu",
    "vllm:  CPU build; others: remove": "remove",
    "whl/cpu": "index cpu",
    "PyPI or whl/cuXXX": "index cu",
    "whl/cuXXX": "index cu",
    "cupy-cuda12x / cupy-cuda13x": "use cupy-cuda12x; cupy-cuda13x for CUDA 13",
    "jax-cuda13-plugin / torch": "use jax-cuda13-plugin; or torch",
    "torch / onnxruntime-gpu": "use torch; or onnxruntime-gpu",
    "whl/rocmX.Y": "index rocm",
    "jax-rocm7-plugin + jax-rocm7-pjrt": "use jax-rocm7-plugin; and jax-rocm7-pjrt",
    "onnxruntime-migraphx (onnxruntime-rocm up to ROCm 7.0-era)": (
        "use onnxruntime-migraphx; onnxruntime-rocm up to about ROCm 7.0"
    ),
    "rocm/vllm image or ROCm build": "remove; the project has ROCm images and builds",
    "triton-rocm / pytorch-triton-rocm": "use triton-rocm; pytorch-triton-rocm up to torch 2.9",
    "xformers from whl/rocmX.Y": "index rocm",
    "libtpu (jax[tpu])": "use libtpu; jax[tpu] requires it",
    "whl/xpu": "index xpu",
    "triton-xpu / pytorch-triton-xpu": "use triton-xpu; pytorch-triton-xpu up to torch 2.9",
}
#: Toolkit components whose own version is that of the toolkit, and those where it is not.
VERSION_IS_TOOLKIT = re.compile(
    r"cuda-(?:toolkit|bindings|python)|nvidia-(?:cublas|cuda-[a-z-]+|nvjitlink|nvtx|nvvm|nvjpeg|npp"
    r"|nvfatbin|nvml-dev|nvptxcompiler)"
)
SUFFIX_FREE_CUDA_13 = re.compile(r"nvidia-(?:cufft|cufile|curand|cusolver|cusparse)")
TOOLKIT_IN_NAME = re.compile(r"-cu(?:da)?(1\d)(?:x|-.*)?$|rocm-?(\d)\d?(?:-.*)?$")
#: A host that must not be in a file of this repository: indexes and their mirrors.
HOST = re.compile(
    r"https?://|\b(?:download|repo|repos|wheels|vault|nightlies|pip|pypi|files)\.[a-z-]+\.[a-z]"
    r"|pytorch-extension\.",
    re.IGNORECASE,
)


@dataclass
class Report:
    """What did not go over, and what was changed."""

    lines: list[str] = field(default_factory=list)

    def left_out(self, what: str, why: str) -> None:
        """Notes something that did not go over."""
        self.lines.append(f"left out: {what}: {why}")

    def corrected(self, what: str, why: str) -> None:
        """Notes something that goes over changed."""
        self.lines.append(f"corrected: {what}: {why}")


@dataclass
class Importer:
    """Turns the facts of one ecosystem into the tables of one data file."""

    name: str
    facts: Fact
    backends: Mapping[str, str]
    report: Report

    def tables(self) -> dict[str, list[Entry]]:
        """The tables of the data file."""
        readers = {
            "sonames": ("libraries", self.library),
            "driver_libs": ("libraries", self.driver),
            "cpu_safe": ("libraries", self.cpu_safe),
            "distributions": ("distributions", self.distribution),
            "local_versions": ("local-versions", self.local_version),
            "os_packages": ("system-packages", self.system_package),
            "paths": ("roots", self.root),
            "images": ("images", self.image),
            "env": ("environment", self.environment),
        }
        handled = {*readers, "indexes", "replacements"}
        result: dict[str, list[Entry]] = defaultdict(list)
        for table, facts in self.facts.items():
            if not (isinstance(facts, list) and facts and isinstance(facts[0], dict)):
                continue
            if table in readers:
                target, reader = readers[table]
                for fact in facts:
                    result[target] += reader(fact)
            elif table not in handled:
                why = "no table of the catalogue is like it"
                self.report.left_out(f"{self.name} [[{table}]], {len(facts)} facts", why)
        return result

    def common(self, fact: Fact) -> Entry:
        """What all entries have."""
        entry: Entry = {"source": fact["source"], "basis": fact["confidence"]}
        note = fact.get("note") or fact.get("means")
        if note:
            entry["note"] = note
        return entry

    def named(self, name: str, entry: Entry) -> Entry:
        """`entry` for one name, corrected where that is needed."""
        changes, why = CORRECTIONS.get((self.name, name), ({}, ""))
        if changes:
            self.report.corrected(f"{self.name} {name} {dict(changes)}", why)
        return {"names": [name], **entry, **changes}

    def library(self, fact: Fact) -> Iterator[Entry]:
        """`[[sonames]]`."""
        name = fact["glob"]
        if name.endswith((".dll", ".dylib")):
            self.report.left_out(f"{self.name} {name}", "not Linux")
            return
        if why := LIBRARIES_LEFT_OUT.get((self.name, name)):
            self.report.left_out(f"{self.name} {name}", why)
            return
        role = {"driver-user": "driver"}.get(fact["role"], fact["role"])
        entry = {"role": role, "where": fact["where"], "weight": fact["weight"]}
        toolkits = self.toolkits(name, fact.get("soname_by_toolkit", {}))
        if toolkits:
            entry["toolkits"] = toolkits
        yield self.named(name, entry | self.common(fact))

    def driver(self, fact: Fact) -> Iterator[Entry]:
        """`[[driver_libs]]`: their roles are classes of drivers."""
        yield from self.library({**fact, "role": "driver"})

    def cpu_safe(self, fact: Fact) -> Iterator[Entry]:
        """`[[cpu_safe]]`: parts of an accelerator's stack that CPU packages bring."""
        if why := CPU_SAFE_LEFT_OUT.get(fact["glob"]):
            self.report.left_out(f"{self.name} cpu_safe {fact['glob']}", why)
            return
        yield from self.library({**fact, "role": "util", "where": "image", "weight": "neutral"})

    def toolkits(self, name: str, by_toolkit: Mapping[str, str]) -> dict[str, str | list[str]]:
        """Version in the soname -> toolkit line, or the lines that share it."""
        lines: dict[str, set[str]] = defaultdict(set)
        for key, versions in by_toolkit.items():
            line = re.fullmatch(r"(?:cu|ROCm )?(\d+)(?:\.x|(?:\.\d+)+)?", key)
            if line is None:
                self.report.left_out(f"{self.name} {name} {key!r}", "not one line of the toolkit")
                continue
            for version in versions.split("/"):
                lines[version.removesuffix(".x")].add(line[1])
        return {
            version: several.pop() if len(several) == 1 else sorted(several, key=int)
            for version, several in sorted(lines.items())
        }

    def distribution(self, fact: Fact) -> Iterator[Entry]:
        """`[[distributions]]`."""
        name = fact["name"]
        if why := DISTRIBUTIONS_LEFT_OUT.get((self.name, name)):
            self.report.left_out(f"{self.name} {name}", why)
            return
        entry: Entry = {"kind": KINDS[fact["kind"]], "weight": fact["weight"]}
        toolkit = self.toolkit(name)
        if toolkit:
            entry["toolkit"] = toolkit
        replace = {
            self.backend(backend): order
            for backend, text in fact.get("replace", {}).items()
            if (order := self.replacement(name, text))
        }
        if replace:
            entry["replace"] = replace
        if "tolerate_in" in fact:
            entry["tolerated-in"] = [self.backend(backend) for backend in fact["tolerate_in"]]
        yield self.named(name, entry | self.common(fact))

    def toolkit(self, name: str) -> str | None:
        """The toolkit line that a distribution's name or version tells."""
        match = TOOLKIT_IN_NAME.search(name)
        if match:
            return match[1] or match[2]
        if self.name != "nvidia-cuda":
            return None
        if VERSION_IS_TOOLKIT.fullmatch(name):
            return "version"
        return "13" if SUFFIX_FREE_CUDA_13.fullmatch(name) else None

    def backend(self, alias: str) -> str:
        """Our name for a backend of the facts."""
        return self.backends.get(alias, alias)

    def replacement(self, name: str, text: str) -> str | None:
        """A replacement in the catalogue's words."""
        if text in REPLACEMENTS:
            return REPLACEMENTS[text]
        if text == "remove" or text.startswith(("remove;", "remove (")):
            note = text.removeprefix("remove").strip(" ;()")
            return f"remove; {note}" if note else "remove"
        if re.fullmatch(r"[a-z0-9-]+(?:\[[a-z-]+\])?", text):
            return f"use {text}"
        self.report.left_out(f"{self.name} {name} replacement {text!r}", "cannot be understood")
        return None

    def local_version(self, fact: Fact) -> Iterator[Entry]:
        """`[[local_versions]]`."""
        pattern = LOCAL_VERSIONS[fact["regex"]]
        if pattern is None:
            self.report.left_out(f"{self.name} local version {fact['regex']}", "another one has it")
            return
        weight = {"weight": "neutral"} if self.name == "cpu" else {}
        yield {"pattern": pattern, **weight, **self.common(fact)}

    def system_package(self, fact: Fact) -> Iterator[Entry]:
        """`[[os_packages]]`; some name several packages in one string."""
        driver = re.search("DRIVER|HOST", fact.get("note", ""))
        for name in itertools.chain(fact.get("globs", ()), fact.get("glob", "").split()):
            entry: Entry = {"where": "host"} if driver or name.endswith("(host)") else {}
            yield {"names": [name.removesuffix("(host)")], **entry, **self.common(fact)}

    def root(self, fact: Fact) -> Iterator[Entry]:
        """`[[paths]]`: only folders outside of Python's, where nothing else lies."""
        for path in itertools.chain.from_iterable(map(braces, fact["glob"].split())):
            folder = re.sub(r"<\w+>", "*", path.strip("/"))
            if not folder.startswith(("usr/local/", "opt/", "usr/lib/habanalabs")):
                self.report.left_out(f"{self.name} path {path}", "no folder of the vendor's own")
            elif "." in folder.rsplit("/", 1)[-1].replace(".*", "") and "-" not in folder:
                self.report.left_out(f"{self.name} path {path}", "a file, not a folder")
            else:
                yield {"paths": [f"{folder}/*"], **self.common(fact)}

    def environment(self, fact: Fact) -> Iterator[Entry]:
        """`[[env]]`: names only, so they are weak; where values count a curated file has them."""
        for text in fact["names"]:
            name, _, value = text.partition("=")
            values = {"values": [value]} if value else {}
            yield {"names": [name], **values, **self.common(fact)}

    def image(self, fact: Fact) -> Iterator[Entry]:
        """`[[images]]`, without the host of the registry: companies mirror them."""
        for text in re.split(r", (?![^{]*\})", fact["repo"]):
            for name in braces(text):
                first, _, rest = name.partition("/")
                name = rest if "." in first else name
                name = re.sub(r"<[^>]*>|…", "*", name)
                if name in IMAGES_LEFT_OUT:
                    self.report.left_out(f"{self.name} image {name}", IMAGES_LEFT_OUT[name])
                elif not name.strip("*/"):
                    self.report.left_out(f"{self.name} image {text}", "no repository is named")
                else:
                    yield {"names": [name], **self.common(fact)}


def others(facts: Fact) -> Iterator[tuple[str, Ecosystem, Fact]]:
    """The accelerators of others.toml in the form that other files of facts have."""
    for fact in facts["accelerators"]:
        if fact["name"] not in OTHERS:
            continue
        name, backend, vendor, folders = OTHERS[fact["name"]]
        origin = {"source": fact["source"], "confidence": "memory"}
        yield (
            name,
            Ecosystem(backend, vendor),
            {
                "title": TITLES.get(name, name.replace("-", " ").capitalize()),
                "date": facts["date"],
                "backend": backend,
                "sources": facts["sources"],
                "sonames": [
                    {
                        "glob": soname,
                        "role": "runtime",
                        "where": "image",
                        "weight": "weak" if soname in COMMON_NAMES else "strong",
                        **origin,
                    }
                    for soname in fact.get("sonames", ())
                ],
                "distributions": [
                    {
                        "name": distribution,
                        "kind": "native",
                        "weight": "weak" if distribution in COMMON_NAMES else "strong",
                        **origin,
                    }
                    for distribution in fact.get("distributions", ())
                ],
                "paths": [{"glob": f"/{folder}", **origin} for folder in folders],
            },
        )


def braces(text: str) -> list[str]:
    """`a/{b,c}/d` -> `a/b/d`, `a/c/d`."""
    match = re.search(r"\{([^{}]*)\}", text)
    if match is None:
        return [text]
    return [
        expanded
        for part in match[1].split(",")
        for expanded in braces(text[: match.start()] + part.strip() + text[match.end() :])
    ]


def grouped(entries: Iterable[Entry]) -> list[Entry]:
    """Entries that differ in their names only, as one entry each, in order of appearance."""
    groups: dict[str, Entry] = {}
    for entry in entries:
        plural = next((key for key in ("names", "paths") if key in entry), None)
        rest = {key: value for key, value in entry.items() if key != plural}
        key = json.dumps(rest, sort_keys=True)
        if plural is None or key not in groups:
            groups.setdefault(key, {**entry, **({plural: list(entry[plural])} if plural else {})})
        else:
            known = groups[key][plural]
            known += [name for name in entry[plural] if name not in known]
    return list(groups.values())


def add_replacements(
    facts: Fact, tables: Mapping[str, dict[str, list[Entry]]], report: Report
) -> None:
    """Adds cpu's own table of replacements to the distributions that have none for it."""
    for fact in facts["replacements"]:
        order = {
            "(remove)": "remove",
            "keep": "keep",
            "keep (multi-backend) or remove": "keep; or remove",
        }.get(fact["to"])
        for package in re.split(r", | / ", fact["package"]):
            entries = [
                entry
                for file in tables.values()
                for entry in file.get("distributions", ())
                if package in entry["names"]
            ]
            if not entries:
                report.left_out(f"cpu replacement of {package}", "no entry has that name")
            for entry in entries:
                if order is not None and entry["names"] == [package]:
                    entry.setdefault("replace", {}).setdefault("cpu", order)
                elif "cpu" not in entry.get("replace", {}):
                    report.left_out(f"cpu replacement of {package}", "its entry has other names")


def routes(facts: Mapping[str, Fact]) -> dict[str, list[Entry]]:
    """The index routes of torch-matrix.toml, by ecosystem."""
    result: dict[str, list[Entry]] = defaultdict(list)
    grouped_routes: dict[tuple[str, tuple[str, ...], str], dict[str, str]] = defaultdict(dict)
    for fact in facts["torch-matrix"]["indexes"]:
        name = fact["backend"]
        if match := re.fullmatch(r"cu(\d+)\d", name):
            ecosystem, toolkit = "nvidia-cuda", match[1]
        elif match := re.fullmatch(r"rocm(\d+)\..*", name):
            ecosystem, toolkit = "amd-rocm", match[1]
        else:
            ecosystem, toolkit = {"cpu": "cpu", "xpu": "intel-oneapi"}[name], ""
        key = (ecosystem, tuple(fact["source"]), fact["confidence"])
        grouped_routes[key][name] = toolkit
    for (ecosystem, source, basis), names in grouped_routes.items():
        result[ecosystem].append(
            {"family": "torch", "routes": names, "source": list(source), "basis": basis}
        )
    return result


def written(
    ecosystem: Ecosystem, facts: Fact, tables: Mapping[str, list[Entry]], sources: Fact
) -> str:
    """The text of one data file."""
    head: Entry = {"schema": 1, "backend": ecosystem.backend}
    if ecosystem.vendor:
        head["vendor"] = ecosystem.vendor
    head["title"] = facts["title"]
    head["aliases"] = [
        alias for alias in facts.get("backend_aliases", []) if alias != ecosystem.backend
    ]
    used = {key for entries in tables.values() for entry in entries for key in entry["source"]}
    lines = [
        f"# {facts['title']}. Written by tools/refresh_catalogue.py: do not edit.",
        "# Entries made by hand stand in *.curated.toml; docs/catalogue.md describes the format.",
        *(f"{key} = {toml(value)}" for key, value in head.items()),
        f"checked = {facts['date']}",
        "",
        "[sources]",
        *(f"{toml_key(key)} = {toml(sources[key])}" for key in sorted(used)),
    ]
    for table in sorted(tables):
        for entry in tables[table]:
            lines += ["", f"[[{table}]]"]
            lines += [f"{key} = {toml(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def toml(value: object) -> str:
    """A TOML value. JSON's strings are TOML's basic strings."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{toml_key(key)} = {toml(item)}" for key, item in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def toml_key(key: str) -> str:
    """A TOML key, quoted where it must be."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def generate(folder: Path, report: Report) -> dict[str, str]:
    """File name -> text, for all ecosystems."""
    facts = {path.stem: tomllib.loads(path.read_text()) for path in sorted(folder.glob("*.toml"))}
    ecosystems = dict(ECOSYSTEMS)
    for accelerator in facts["others"]["accelerators"]:
        name = accelerator["name"]
        if name not in OTHERS:
            report.left_out(f"others.toml {name}", OTHERS_LEFT_OUT.get(name, "unknown accelerator"))
    for name, ecosystem, fact in others(facts["others"]):
        ecosystems[name], facts[name] = ecosystem, fact
    backends = {
        alias: ecosystem.backend
        for name, ecosystem in ecosystems.items()
        for alias in (facts[name]["backend"], *facts[name].get("backend_aliases", ()))
    } | {"gpu": "gpu"}
    tables = {name: Importer(name, facts[name], backends, report).tables() for name in ecosystems}
    for name, entries in routes(facts).items():
        tables[name]["indexes"] = entries
    add_replacements(facts["cpu"], tables, report)
    files = {}
    for name, ecosystem in ecosystems.items():
        merged = {table: grouped(entries) for table, entries in tables[name].items()}
        sources = facts["torch-matrix"]["sources"] | facts[name]["sources"]
        files[f"{name}.toml"] = written(ecosystem, facts[name], merged, sources)
    return files


def main() -> int:
    """Writes or checks the data files; 1 when --check finds one that is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    report = Report()
    files = generate(FACTS, report)
    for name, text in files.items():
        if address := HOST.search(text):
            around = text[address.start() - 40 : address.end() + 40]
            sys.exit(f"{name} would hold the address of an index: {around!r}")
    stale = [name for name, text in files.items() if not _same(DATA / name, text)]
    if not arguments.check:
        for name in stale:
            (DATA / name).write_text(files[name])
    print("\n".join(dict.fromkeys(report.lines)))
    print(
        f"{len(files)} data files, {len(stale)} {'out of date' if arguments.check else 'written'}"
    )
    return 1 if arguments.check and stale else 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
