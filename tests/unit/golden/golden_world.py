"""The fixed inputs of the golden tests: one folder with wheels, trees, images and a specification.

Names of distributions and libraries are real; their contents are as small as they can be.
"""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import clusters
from elf_images import Image, Part, fat_binary, fat_entry
from golden_archives import install, oci_layout, saved_image, wheel

KEYS = Path(__file__).parents[1] / "signing/vectors"
SITE = "opt/venv/lib/python3.11/site-packages"
LINUX = "cp311-cp311-manylinux_2_28_x86_64"
SONAME, RUNPATH = 14, 29
#: A message of the CUDA runtime, by which its static copy is known.
CUDART = b"CUDA driver version is insufficient for CUDA runtime version\0"

SPEC = """\
# The matrix of the golden tests.
schema = 1

[project]
name = "inferno"
version = "1.4.0"
image = "registry.example.com/acme/{project}"

[defaults]
python = ["3.11"]
variant = ["server"]
requirements = ["requirements/base.in"]
command = ["python", "-m", "inferno"]

[backend.cuda]
runtime = "12.8"
base = "nvidia/cuda:12.8.1-base-ubuntu22.04"
archs = ["sm_80", "sm_90"]
requirements = ["requirements/cuda.in"]

[backend.cpu]
runtime = "any"
base = "python:{python}-slim-bookworm"
requirements = ["requirements/cpu.in"]

[tags]
templates = ["{version}-{id}"]

[subset.release]
select = ["cpu*"]

[[smoke]]
name = "import"
level = "import"
command = ["python", "-c", "import inferno"]

[[smoke]]
name = "warmup"
level = "device"
command = ["python", "-m", "inferno.warmup"]
"""

#: The same with machines to run on.
FLEET = (
    SPEC
    + """
[node-class.hopper]
backend = "cuda"
driver = ">=570.26,<571"
products = ["NVIDIA-H100-80GB-HBM3"]

[node-class.sliced]
backend = "cuda"
driver = "550.54.14"
archs = ["sm_90"]
partition = "1g.10gb+me"

[node-class.mixed]
backend = "cuda"
driver = ">=550"

[node-class.plain]
backend = "cpu"
cpu = "x86-64-v3"
"""
)

REQUIREMENTS = {
    "requirements/base.in": "# what every target needs\nh11>=0.16\nnumpy\n",
    "requirements/cpu.in": "xgboost-cpu\n",
    "requirements/cuda.in": "xgboost\n",
    "requirements.in": "# the service\nh11\nnumpy\nxgboost  # boosting\nacme-kernels\n",
    "clean.in": "h11\n",
    "missing.in": "no-such-distribution\n",
    "broken.in": "numpy=2\n",
}

#: A project that uv has locked, with extras that exclude one another.
LOCKED = {
    "locked/pyproject.toml": """\
[project]
name = "inferno"
version = "1.4.0"
requires-python = ">=3.11"
dependencies = ["h11"]
[project.optional-dependencies]
cpu = ["xgboost-cpu"]
gpu = ["xgboost"]
qnn = ["acme-kernels"]
[project.scripts]
inferno = "inferno:main"
[dependency-groups]
serve = ["numpy"]
[tool.uv]
conflicts = [[{ extra = "cpu" }, { extra = "gpu" }, { extra = "qnn" }]]
[build-system]
requires = ["uv_build"]
build-backend = "uv_build"
""",
    "locked/uv.lock": """\
version = 1
revision = 3
requires-python = ">=3.11"
conflicts = [[
    { package = "inferno", extra = "cpu" },
    { package = "inferno", extra = "gpu" },
    { package = "inferno", extra = "qnn" },
]]
[[package]]
name = "inferno"
version = "1.4.0"
source = { editable = "." }
dependencies = [{ name = "h11" }]
[package.optional-dependencies]
cpu = [{ name = "xgboost-cpu" }]
gpu = [{ name = "xgboost" }]
qnn = [{ name = "acme-kernels" }]
[package.dev-dependencies]
serve = [{ name = "numpy" }]
[package.metadata]
requires-dist = [
    { name = "acme-kernels", marker = "extra == 'qnn'" },
    { name = "h11" },
    { name = "xgboost", marker = "extra == 'gpu'" },
    { name = "xgboost-cpu", marker = "extra == 'cpu'" },
]
provides-extras = ["cpu", "gpu", "qnn"]
[package.metadata.requires-dev]
serve = [{ name = "numpy" }]
"""
    + "".join(
        f"""\
[[package]]
name = "{name}"
version = "1.0"
source = {{ registry = "https://pypi.org/simple" }}
dependencies = [{requires}]
[[package.wheels]]
url = "https://files.example.com/{name.replace("-", "_")}-1.0-{tag}.whl"
hash = "sha256:{"0" * 64}"
"""
        for name, tag, requires in (
            ("acme-kernels", "cp310-cp310-manylinux_2_28_x86_64", ""),
            ("h11", "py3-none-any", ""),
            ("numpy", "py3-none-any", ""),
            ("nvidia-nccl-cu12", "py3-none-any", ""),
            ("xgboost", "py3-none-any", '{ name = "nvidia-nccl-cu12" }'),
            ("xgboost-cpu", "py3-none-any", ""),
        )
    ),
}

WAIVERS = """\
[[waive]]
rule = "BM301"
distribution = "acme-kernels"
reason = "measured: it is never imported"
owner = "team@example.com"
expires = 2999-01-31

[[waive]]
rule = "BM301"
distribution = "gone"
reason = "it was there once"
owner = "team@example.com"
expires = 2020-01-31
"""


def _library(
    *needed: str, soname: str | None = None, runpath: str | None = None, size: int = 1000
) -> bytes:
    strings = {SONAME: soname} if soname else {}
    strings |= {RUNPATH: runpath} if runpath else {}
    text = random.Random(size).randbytes(size)
    return Image(needed=needed, strings=strings, parts=(Part(".text", text, flags=6),)).build()


def _boosting() -> bytes:
    code = fat_binary(fat_entry(2, 80), fat_entry(2, 90), fat_entry(1, 90))
    return Image(
        needed=("libm.so.6", "libc.so.6"),
        parts=(Part(".rodata", CUDART), Part(".nv_fatbin", code), Part(".nvFatBinSegment", code)),
    ).build()


def wheels(folder: Path) -> None:
    """Write all wheels."""
    folder.mkdir(parents=True)
    nccl = "nvidia/nccl/lib/libnccl.so.2"
    cudart = "nvidia/cuda_runtime/lib/libcudart.so.12"
    kernels = "$ORIGIN/../nvidia/cuda_runtime/lib"
    python = b"from . import _core\n"
    for name, data in (
        wheel("h11", "0.16.0", {"h11/__init__.py": b"import sys\n"}),
        wheel(
            "numpy",
            "2.3.0",
            {"numpy/__init__.py": python, "numpy/_core.so": _library("libm.so.6", "libc.so.6")},
            tag=LINUX,
        ),
        wheel(
            "xgboost",
            "3.4.1",
            {
                "xgboost/__init__.py": b"import ctypes\nctypes.CDLL('lib/libxgboost.so')\n",
                "xgboost/lib/libxgboost.so": _boosting(),
            },
            ["numpy", "nvidia-nccl-cu12; platform_system == 'Linux'"],
            "py3-none-manylinux_2_28_x86_64",
        ),
        wheel(
            "xgboost-cpu",
            "3.4.1",
            {
                "xgboost/__init__.py": b"import ctypes\nctypes.CDLL('lib/libxgboost.so')\n",
                "xgboost/lib/libxgboost.so": _library("libm.so.6", "libc.so.6", size=2000),
            },
            ["numpy"],
            "py3-none-manylinux_2_28_x86_64",
        ),
        wheel(
            "nvidia-nccl-cu12",
            "2.28.3",
            {nccl: _library("libc.so.6", soname="libnccl.so.2", size=300_000)},
            tag="py3-none-manylinux_2_18_x86_64",
        ),
        wheel(
            "nvidia-cuda-runtime-cu12",
            "12.8.90",
            {cudart: _library("libc.so.6", soname="libcudart.so.12", size=5000)},
            tag="py3-none-manylinux_2_17_x86_64",
        ),
        wheel(
            "acme-kernels",
            "1.0",
            {
                "acme_kernels/__init__.py": python,
                "acme_kernels/_core.so": _library("libcudart.so.12", "libc.so.6", runpath=kernels),
            },
            tag=LINUX,
        ),
        wheel(
            "acme-kernels",
            "1.1",
            {
                "acme_kernels/__init__.py": python,
                "acme_kernels/_core.so": _library(
                    "libcudart.so.12", "libcublas.so.12", "libc.so.6", runpath=kernels
                ),
            },
            ["nvidia-cuda-runtime-cu12"],
            tag=LINUX,
        ),
    ):
        (folder / name).write_bytes(data)


def _installed(world: Path, site: str, *names: str) -> None:
    for name in names:
        (path,) = (world / "wheels").glob(f"{name}-*.whl")
        install(path, world / site)


def _system(root: Path) -> None:
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    libraries = root / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libc.so.6", "libm.so.6"):
        (libraries / name).write_bytes(_library(soname=name, size=500))


def _local_lock(world: Path, name: str, *wheels: str) -> None:
    """A lock of wheels that lie here."""
    lines = ['lock-version = "1.0"', 'created-by = "a test"', 'requires-python = "==3.11.*"']
    for filename in wheels:
        (path,) = (world / "wheels").glob(f"{filename}-*.whl")
        distribution, version = path.name.split("-")[:2]
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines += [
            "[[packages]]",
            f'name = "{distribution.replace("_", "-")}"',
            f'version = "{version}"',
            f'wheels = [{{ name = "{path.name}", path = "wheels/{path.name}", '
            f'size = {path.stat().st_size}, hashes = {{ sha256 = "{digest}" }} }}]',
        ]
    (world / name).write_text("\n".join(lines) + "\n")


def write(world: Path) -> None:
    """Everything but the locks of the specification, which `buildmatrix lock` writes."""
    wheels(world / "wheels")
    for name, text in {
        "buildmatrix.toml": SPEC,
        "fleet.toml": FLEET,
        "waivers.toml": WAIVERS,
        "wrong.toml": SPEC.replace("archs", "arch").replace('runtime = "any"', "runtime = 7"),
        **REQUIREMENTS,
        **LOCKED,
    }.items():
        (world / name).parent.mkdir(parents=True, exist_ok=True)
        (world / name).write_text(text)
    for root, names in {
        "roots/cpu-py311-server": ("h11", "numpy", "xgboost_cpu"),
        "roots/cuda12.8-py311-server": ("h11", "numpy", "xgboost", "nvidia_nccl_cu12"),
        "roots/smuggled": ("h11", "numpy", "xgboost", "nvidia_nccl_cu12"),
        "roots/linked": ("h11", "acme_kernels-1.0", "nvidia_cuda_runtime_cu12"),
    }.items():
        _system(world / root)
        _installed(world, f"{root}/{SITE}", *names)
    _installed(world, "site", "h11", "numpy", "xgboost", "nvidia_nccl_cu12", "acme_kernels-1.0")
    _installed(world, "site-clean", "h11", "numpy", "xgboost_cpu")
    gpu = ["PATH=/opt/venv/bin", "NVIDIA_VISIBLE_DEVICES=all"]
    (world / "smuggled.tar").write_bytes(saved_image(world / "roots/smuggled", gpu)[0])
    oci_layout(world / "roots/linked", world / "layout", gpu)
    _local_lock(world, "pylock.old.toml", "h11", "numpy", "acme_kernels-1.0")
    _local_lock(
        world, "pylock.new.toml", "h11", "numpy", "acme_kernels-1.1", "nvidia_cuda_runtime_cu12"
    )
    _cluster(world)
    # A pair of keys, made by OpenSSL.
    for name in ("openssl.pem", "openssl.pub"):
        (world / name).write_bytes((KEYS / name).read_bytes())
    (world / "damaged.whl").write_bytes(b"PK\x03\x04 this is no archive")
    for name in ("dev", "etc", "sys"):
        (world / "machine" / name).mkdir(parents=True)
    (world / ".git").mkdir()


def _cluster(world: Path) -> None:
    """Lists of machines: `cluster.json`, and what is none."""
    driver = {"driver": "570.86.10"}
    strange = {"nvidia.com/gpu.quantum": "true"}
    nodes = [
        *(clusters.h100(f"gpu-{number:02}") for number in range(12)),
        clusters.h100("gpu-99", **driver, **strange),
        clusters.node("mi300-1", clusters.AMD, {"amd.com/gpu": "8"}, kernel="6.8.0-51-generic"),
        clusters.node("plain-1", {}, {}),
    ]
    clusters.written(world / "cluster.json", clusters.listed(*nodes))
    clusters.written(world / "pods.json", clusters.listed({"kind": "Pod", "metadata": {}}))
    (world / "half.json").write_text((world / "cluster.json").read_text()[:3000])
