"""BM2xx to BM6xx and BM902: what lies in an image. Letters are rows of docs/incidents.md."""

from __future__ import annotations

import tomllib

import pytest
from rulecases import (
    SITE,
    codes,
    elf,
    file,
    hip,
    image,
    lock,
    of_image,
    only,
    pin,
    sass,
    target,
    verdict,
)

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import DeviceCode, Literal, Mark
from buildmatrix.facts.inventory.model import (
    Artefact,
    Binary,
    CachedLibrary,
    Distribution,
    Link,
    RequirementLine,
    SharedPath,
    Stats,
    SystemPackage,
    Unread,
)
from buildmatrix.facts.python_imports import Reach
from buildmatrix.matrix.model import Policy

CPU = target("cpu")
ROCM = target("rocm", "6.4")
CUDA = target("cuda", "12.8")
ONEAPI = target("oneapi", "2025.0")


# BM201


@pytest.mark.parametrize(("size", "severity"), [(700_000, "warning"), (7_000_000, "error")])
def test_a_grafted_copy_of_cudart_is_found_under_its_mangled_name_c(
    size: int, severity: str
) -> None:
    one = file(
        "demo.libs/libcudart-9335f6a2.so.12.8.90", elf("libcudart-9335f6a2.so.12"), "demo 1", size
    )
    two = file("vision.libs/libcudart.782fcab0.so.11.0", elf("libcudart.so.11.0"), "vision 1", size)
    tree = image(one, two)
    assert codes(of_image(ROCM, tree), severity) == ["BM201 demo", "BM201 vision"]


@pytest.mark.parametrize("name", ["libours.a", "libcudart_static.a"])
@pytest.mark.parametrize(("folder", "rule"), [("usr/local/lib", "BM601"), ("app/lib", "BM201")])
def test_a_static_archive_of_a_runtime_is_one_whatever_its_name(
    name: str, folder: str, rule: str
) -> None:
    marks = (Mark("cudart-error-string", 9),)
    archive = Artefact(f"{folder}/{name}", 1_547_020, "a", marks=marks)
    one = only(of_image(CPU, replace(image(), artefacts=(archive,))), rule)
    assert (one.vendor, one.path) == ("nvidia", archive.path)


def test_a_statically_linked_runtime_is_a_bundled_one() -> None:
    tree = image(file("demo/_C.abi3.so", elf(marks=["cudart-error-string"]), "demo 1"))
    one = only(of_image(CPU, tree), "BM201")
    assert "static cudart" in one.message
    assert one.path == f"{SITE}/demo/_C.abi3.so"


def test_all_libraries_of_one_vendor_in_one_distribution_are_one_finding() -> None:
    tree = image(
        file("demo.libs/libcudart.so.12", elf("libcudart.so.12"), "demo 1", size=5_000_000),
        file("demo.libs/libcublas.so.12", elf("libcublas.so.12"), "demo 1", size=90_000_000),
    )
    one = only(of_image(CPU, tree), "BM201")
    assert len(one.evidence) == 2
    assert one.path == f"{SITE}/demo.libs/libcublas.so.12"
    assert "95.0 MB" in one.message


def test_names_that_only_look_like_cuda_stay_quiet_c_tilelang() -> None:
    names = ["libstub_cudart.so", "libicudata.so.72", "libcups.so.2", "libcurl.so.4"]
    tree = image(*(file(f"demo.libs/{name}", elf(name), "demo 1") for name in names))
    assert of_image(ROCM, tree) == ()


def test_the_backends_own_libraries_stay_quiet() -> None:
    tree = image(file("demo.libs/libcublas.so.12", elf("libcublas.so.12"), "demo 1"))
    assert of_image(CUDA, tree) == ()


# BM202


def test_a_driver_library_is_an_error_even_in_its_own_vendors_image() -> None:
    tree = image(file("usr/lib/x86_64-linux-gnu/libcuda.so.1", elf("libcuda.so.1")))
    for where in (CUDA, CPU):
        one = only(of_image(where, tree), "BM202")
        assert one.severity == "error"
        assert one.path == "usr/lib/x86_64-linux-gnu/libcuda.so.1"


@pytest.mark.parametrize(
    "path", ["usr/local/cuda-12.8/compat/libcuda.so.1", "usr/local/cuda/lib64/stubs/libcuda.so"]
)
def test_forward_compatibility_copies_and_stubs_stay_quiet(path: str) -> None:
    assert of_image(CUDA, image(file(path, elf("libcuda.so.1")))) == ()


STUBS = "usr/local/cuda/lib64/stubs"
STUB = file(f"{STUBS}/libcuda.so", elf("libcuda.so.1"))
LINKED = Link(f"{STUBS}/libcuda.so.1", "libcuda.so")
CACHED = CachedLibrary("libcuda.so.1", f"/{STUBS}/libcuda.so.1", 0x0303)


@pytest.mark.parametrize(
    ("parts", "expected", "way"),
    [
        ({"environment": {"LD_LIBRARY_PATH": f"/{STUBS}"}}, "error", "LD_LIBRARY_PATH leads"),
        ({"loader_cache": (CACHED,)}, "error", "ld.so.cache leads"),
        ({"library_folders": (STUBS,)}, "error", "ld.so.cache leads"),
        # Before ldconfig has made its links.
        ({"links": (), "library_folders": (STUBS,)}, "error", "ld.so.conf names its folder"),
        # Only those that ask for the linker's name get it.
        (
            {"links": (), "environment": {"LD_LIBRARY_PATH": f"/{STUBS}"}},
            "warning",
            "looks for libcuda.so:",
        ),
        ({"environment": {"LIBRARY_PATH": f"/{STUBS}"}}, None, ""),
        ({"library_folders": ("usr/local/cuda/lib64",)}, None, ""),
    ],
)
def test_a_stub_that_the_loader_finds_stands_in_for_the_driver(
    parts: dict[str, object], expected: str | None, way: str
) -> None:
    tree = replace(image(STUB, links=(LINKED,)), **parts)  # type: ignore[arg-type]
    found = [item for item in of_image(CUDA, tree) if item.rule == "BM202"]
    assert [item.severity for item in found] == ([expected] if expected else [])
    for item in found:
        assert way in item.message and item.path == STUB.path


def test_a_stub_that_a_search_path_of_a_file_leads_to() -> None:
    facts = replace(elf(None, ["libcuda.so.1"]), runpath=(f"/{STUBS}",))
    one = file("demo/_c.so", facts, "demo 1")
    found = only(of_image(CUDA, image(STUB, one, links=(LINKED,))), "BM202")
    assert (found.severity, "demo/_c.so is led to it" in found.message) == ("error", True)
    # Without it nothing leads there.
    assert codes(of_image(CUDA, image(STUB, replace(one, elf=replace(facts, runpath=()))))) == []


def test_amds_user_space_driver_belongs_into_a_rocm_image() -> None:
    tree = image(
        file("opt/rocm/lib/libamdhip64.so.6", elf("libamdhip64.so.6")),
        file("opt/rocm/lib/libhsa-runtime64.so.1", elf("libhsa-runtime64.so.1")),
    )
    assert of_image(ROCM, tree) == ()


# BM203


def test_nvidia_tools_inside_triton_are_found_in_a_cpu_image_a8() -> None:
    ptxas = file("triton/backends/nvidia/bin/ptxas", elf(), "triton 3.9.0", size=30_000_000)
    one = only(of_image(CPU, image(ptxas)), "BM203")
    assert (one.severity, one.distribution) == ("error", "triton")


def test_the_backends_own_tools_stay_quiet() -> None:
    tree = image(file("triton/backends/nvidia/bin/ptxas", elf(), "triton 3.9.0"))
    assert codes(of_image(CUDA, tree)) == []


# BM204


def test_two_distributions_that_spliced_one_tree_are_found_a2_b11() -> None:
    path = f"{SITE}/onnxruntime/capi/_pybind.so"
    tree = image(
        file("onnxruntime/capi/_pybind.so", elf(), "onnxruntime-gpu 1.31.1"),
        installed=["onnxruntime 1.31.1"],
        shared=[
            SharedPath(
                path,
                ("onnxruntime-gpu==1.31.1", "onnxruntime==1.31.1"),
                ("onnxruntime-gpu==1.31.1",),
            )
        ],
    )
    one = only(of_image(CUDA, tree), "BM204")
    assert (one.severity, one.path) == ("error", path)
    assert "onnxruntime-gpu 1.31.1 and onnxruntime 1.31.1" in one.message


def test_a_namespace_package_that_all_owners_installed_alike_stays_quiet() -> None:
    owners = ("nvidia-cublas-cu12==12.8", "nvidia-cudnn-cu12==9.1")
    tree = image(
        installed=["nvidia-cublas-cu12 12.8", "nvidia-cudnn-cu12 9.1"],
        shared=[SharedPath(f"{SITE}/nvidia/__init__.py", owners, owners)],
    )
    assert of_image(CUDA, tree) == ()


def test_two_careless_test_packages_are_a_warning_only() -> None:
    owners = ("one==1", "two==1")
    tree = image(
        installed=["one 1", "two 1"],
        shared=[SharedPath(f"{SITE}/tests/__init__.py", owners, ("two==1",))],
    )
    assert only(of_image(CPU, tree), "BM204").severity == "warning"


# BM301


def test_a_wheel_that_links_cuda_in_a_rocm_image_cannot_be_loaded_a6() -> None:
    tree = image(
        file("lmcache/c_ops.abi3.so", elf(needed=["libcudart.so.13", "libc.so.6"]), "lmcache 0.5.6")
    )
    locked = lock(pin("lmcache 0.5.6", "rocm.in:7"))
    one = only(of_image(ROCM, tree, locked=locked), "BM301")
    assert one.severity == "error"
    assert "cannot be loaded" in one.message
    assert one.chain == (
        "rocm.in:7",
        "lmcache 0.5.6",
        f"{SITE}/lmcache/c_ops.abi3.so",
        "libcudart.so.13",
    )


def test_a_plugin_of_another_vendor_that_cannot_load_and_nobody_imports_is_a_warning() -> None:
    plugin = file("demo/vendors/libplugin.so", elf(needed=["libcudart.so.13"]), "demo 1")
    one = only(of_image(CPU, image(plugin)), "BM301")
    assert one.severity == "warning"
    assert "libplugin.so cannot be loaded, and no import needs it" in one.message
    assert one.fix is not None and one.fix.kind == "waive"
    # What is there is loaded by it; and what no distribution owns is a program of somebody's.
    there = file("usr/lib/libcudart.so.13", elf("libcudart.so.13"))
    assert only(of_image(CPU, image(plugin, there)), "BM301").severity == "error"
    alone = file("app/serve", elf(needed=["libcudart.so.13"]))
    assert only(of_image(CPU, image(alone)), "BM301").severity == "error"


def test_one_file_that_an_import_needs_makes_it_an_error() -> None:
    tree = image(
        file("demo/vendors/libplugin.so", elf(needed=["libcudart.so.13"]), "demo 1"),
        file("demo/_C.abi3.so", elf(needed=["libcublas.so.13"]), "demo 1"),
    )
    one = only(of_image(CPU, tree), "BM301")
    assert (one.severity, one.path) == ("error", f"{SITE}/demo/_C.abi3.so")


def test_a_foreign_library_that_is_there_is_foreign_all_the_same() -> None:
    tree = image(
        file("demo/_C.abi3.so", elf(needed=["libcudart.so.12"]), "demo 1"),
        file("usr/lib/libcudart.so.12", elf("libcudart.so.12")),
    )
    one = only(of_image(CPU, tree), "BM301")
    assert "cannot be loaded" not in one.message


def test_neutral_libraries_of_torch_stay_quiet() -> None:
    tree = image(
        file("demo/_C.abi3.so", elf(needed=["libc10.so", "libtorch_cpu.so"]), "demo 1"),
        file("torch/lib/libc10.so", elf("libc10.so"), "torch 2.9.0+cpu"),
        file("torch/lib/libtorch_cpu.so", elf("libtorch_cpu.so"), "torch 2.9.0+cpu"),
    )
    assert of_image(CPU, tree) == ()


# BM302


def test_an_extension_that_links_the_runtime_of_another_line_is_unresolved_b2() -> None:
    tree = image(
        file("flash/_C.abi3.so", elf(needed=["libcudart.so.12"]), "flash 2"),
        file("usr/local/cuda/lib64/libcudart.so.13", elf("libcudart.so.13")),
    )
    one = only(of_image(target("cuda", "13.0"), tree), "BM302")
    assert one.severity == "error"
    assert "libcudart.so.12" in one.message


def test_a_library_behind_an_extension_counts_as_imported() -> None:
    tree = image(
        file("demo/_C.abi3.so", elf(needed=["libdemo.so"]), "demo 1"),
        file("demo/libdemo.so", elf("libdemo.so", needed=["libcufft.so.11"]), "demo 1"),
    )
    assert only(of_image(CUDA, tree), "BM302").severity == "error"


@pytest.mark.parametrize(
    ("libc", "reach", "severity"),
    [("lib/ld-musl-x86_64.so.1", "import", "error"),
     ("lib/ld-musl-x86_64.so.1", "lazy", "warning"),
     ("usr/lib/libc.so.6", "import", "warning")],
)  # fmt: skip
def test_an_extension_for_glibc_on_musl_is_an_error_if_an_import_loads_it(
    libc: str, reach: Reach, severity: str
) -> None:
    name = "ld-linux-x86-64.so.2"
    extension = file("demo/_C.so", elf(needed=["libc.so.6", name]), "demo 1")
    tree = image(replace(extension, reach=reach), file(libc, elf("libc.so")), root=False)
    one = only(of_image(CPU, tree), "BM302")
    assert (one.severity, name in one.message) == (severity, True)
    assert ("this image has musl" in one.message) == ("musl" in libc)
    assert one.fix is not None and ("musllinux" in one.fix.text) == ("musl" in libc)


def test_the_loader_of_gcompat_serves_it() -> None:
    extension = file("demo/_C.so", elf(needed=["ld-linux-x86-64.so.2"]), "demo 1")
    tree = image(
        replace(extension, reach="import"),
        file("lib/ld-musl-x86_64.so.1", elf("libc.so")),
        file("lib/ld-linux-x86-64.so.2", elf("ld-linux-x86-64.so.2")),
        root=False,
    )
    assert codes(of_image(CPU, tree)) == []


def test_a_package_of_npm_has_a_chain_and_a_fix() -> None:
    """Clean without what its script downloads; as deep in the chain as npm lays it out."""
    place = "srv/app/package.json:5"
    folder = "srv/node_modules/onnxruntime-node"
    provider = Binary(
        f"{folder}/bin/libonnxruntime_providers_cuda.so",
        400_000_000,
        elf("libonnxruntime_providers_cuda.so"),
        "npm:onnxruntime-node==1.21.0",
    )
    line = RequirementLine(place, "transformers ^3")
    packages = (
        Distribution(
            "npm:transformers", "3.8.1", "srv/node_modules/transformers/package.json",
            requires=("npm:onnxruntime-node",), installer="npm", lines=(line,),
        ),
        Distribution(
            "npm:onnxruntime-node", "1.21.0", f"{folder}/package.json", installer="npm",
            size=420_000_000,
        ),
        Distribution("npm:torch", "2.9.0+cu128", "srv/node_modules/torch/package.json"),
    )  # fmt: skip
    clean = replace(image(), distributions=packages)
    assert of_image(CPU, clean) == of_image(CUDA, replace(clean, binaries=(provider,))) == ()
    one = only(of_image(CPU, replace(clean, binaries=(provider,))), "BM201")
    assert (one.severity, one.distribution) == ("error", "npm:onnxruntime-node")
    chain = (place, "npm:transformers 3.8.1", "npm:onnxruntime-node 1.21.0", provider.path)
    assert one.chain == chain
    assert one.fix is not None and "ONNXRUNTIME_NODE_INSTALL_CUDA=skip" in one.fix.text


@pytest.mark.parametrize(
    ("lines", "cure"),
    [
        (
            (RequirementLine("srv/package.json:5", "a ^3"),),
            "remove it from srv/package.json, delete",
        ),
        ((), "remove it from package.json, delete"),
    ],
)
def test_a_package_of_npm_that_the_catalogue_does_not_know(
    lines: tuple[RequirementLine, ...], cure: str
) -> None:
    place = "srv/node_modules/a"
    provider = Binary(f"{place}/libcudart.so.12", 4 << 20, elf("libcudart.so.12"), "npm:a==1")
    package = Distribution("npm:a", "1", f"{place}/package.json", installer="npm", lines=lines)
    tree = replace(image(), distributions=(package,), binaries=(provider,))
    one = only(of_image(CPU, tree), "BM201")
    assert one.fix is not None and cure in one.fix.text


def test_a_plugin_that_nothing_imports_is_a_warning() -> None:
    plugin = "onnxruntime/capi/libonnxruntime_providers_tensorrt.so"
    tree = image(file(plugin, elf(needed=["libnvinfer.so.10"]), "onnxruntime-gpu 1.31.1"))
    assert only(of_image(CUDA, tree), "BM302").severity == "warning"
    allowed = Policy(allow_unresolved={"cuda": ("libnvinfer.so.*",)})
    assert of_image(CUDA, tree, allowed) == ()


def test_a_library_for_windows_on_a_screen_is_missed_like_any_other() -> None:
    """`import cv2` fails in a slim image without libGL, which no other rule speaks of."""
    tree = image(file("cv2/_C.abi3.so", elf(needed=["libGL.so.1"]), "opencv-python 4"))
    one = only(of_image(CPU, tree), "BM302")
    assert "libGL.so.1" in one.message and one.severity == "error"


OPENCV = "opencv-python 4.14.0.94"


def of_opencv(path: str, needed: list[str], reach: Reach = "unknown") -> Binary:
    folders = ("$ORIGIN", "$ORIGIN/../opencv_python.libs")
    name = path.rpartition("/")[2]
    facts = replace(elf(None if "cv2" in name else name, needed), runpath=folders)
    place = "cv2/__init__.py:5" if reach == "import" else None
    return replace(file(path, facts, OPENCV), reach=reach, reached_from=place)


@pytest.mark.parametrize(
    ("reach", "screen", "severity", "way", "cure"),
    [
        ("import", "libGL.so.1", "error", "libavdevice.so.62", ["libxcb1", "libgl1"]),
        # The system's library that the import fails on is as bad alone.
        ("import", "libc.so.6", "error", "libavdevice.so.62", ["libxcb1"]),
        # cv2 imports its module by a name that only a run shows.
        ("unknown", "libGL.so.1", "warning", "libavdevice.so.62", ["libxcb1", "libgl1"]),
    ],
)
def test_the_library_that_an_import_fails_on_is_named_with_its_package(
    reach: Reach, screen: str, severity: str, way: str, cure: list[str]
) -> None:
    """ld.so loads breadth first: libavdevice links libxcb before Qt links libGL."""
    tree = image(
        of_opencv("cv2/cv2.abi3.so", ["libavdevice.so.62", "libQt5Widgets.so.5"], reach),
        of_opencv("opencv_python.libs/libQt5Widgets.so.5", ["libQt5Gui.so.5", screen]),
        of_opencv("opencv_python.libs/libQt5Gui.so.5", [screen]),
        of_opencv("opencv_python.libs/libavdevice.so.62", ["libxcb.so.1"]),
        replace(of_opencv("cv2/other.so", []), reach="lazy"),
        of_opencv("cv2/qt/plugins/platforms/libqxcb.so", ["libX11.so.6", "libICE.so.6"]),
    )
    one = only(of_image(CPU, tree), "BM302")
    assert one.severity == severity and one.path is not None and one.path.endswith(way)
    assert one.fix is not None and one.fix.patch is not None
    patch = tomllib.loads(one.fix.patch)
    assert [part.rpartition("/")[2] for part in one.chain] == [
        OPENCV,
        "cv2.abi3.so",
        way,
        "libxcb.so.1",
    ]
    assert ("cv2/__init__.py:5" in one.message) == (reach == "import")
    assert patch == {"backend": {"cpu": {"system-packages": cure}}}
    assert "of RPMs install libxcb" in one.fix.text and "on Alpine libxcb" in one.fix.text
    assert one.fix.text.endswith("; if its plugins are used, add libice6, libx11-6")


def test_an_image_of_rpms_gets_names_of_rpms() -> None:
    tree = replace(
        image(
            of_opencv("cv2/cv2.abi3.so", ["libGL.so.1", "libSM.so.6"]),
            of_opencv("cv2/qt/plugins/platforms/libqxcb.so", ["libICE.so.6"]),
        ),
        system_packages=(SystemPackage("bash", "5.1.8-9.el9", "rpm"),),
    )
    fix = only(of_image(CPU, tree), "BM302").fix
    assert fix is not None and fix.patch is not None
    patch = tomllib.loads(fix.patch)
    assert patch == {"backend": {"cpu": {"system-packages": ["libglvnd-glx", "libSM"]}}}
    assert "(RPMs); on Debian install libgl1, libsm6, on Alpine" in fix.text
    assert fix.text.endswith("; if its plugins are used, add libICE")


def test_packages_are_named_where_only_plugins_lack_libraries() -> None:
    plugin = of_opencv("cv2/qt/plugins/platforms/libqxcb.so", ["libSM.so.6", "libICE.so.6"])
    one = only(of_image(CPU, image(of_opencv("cv2/cv2.abi3.so", []), plugin)), "BM302")
    assert one.severity == "warning" and one.fix is not None and one.fix.patch is not None
    packages = tomllib.loads(one.fix.patch)["backend"]["cpu"]["system-packages"]
    assert sorted(packages) == ["libice6", "libsm6"]


def test_what_the_host_injects_stays_quiet() -> None:
    tree = image(file("demo/_C.abi3.so", elf(needed=["libcuda.so.1"]), "demo 1"))
    assert of_image(CUDA, tree) == ()


def test_a_library_that_is_loaded_from_elsewhere_in_the_image_stays_quiet() -> None:
    tree = image(
        file("demo/_C.abi3.so", elf(needed=["libcudart.so.12"]), "demo 1"),
        file("nvidia/cuda_runtime/lib/libcudart.so.12", elf("libcudart.so.12"), "rt 1"),
    )
    assert "BM302" not in {one.rule for one in of_image(CUDA, tree)}


def test_a_link_is_a_name_of_its_library() -> None:
    tree = image(
        file("demo/_C.abi3.so", elf(needed=["libssl.so.3"]), "demo 1"),
        file("usr/lib/libssl.so.3.0.1", elf()),
        links=[Link("usr/lib/libssl.so.3", "libssl.so.3.0.1")],
    )
    assert of_image(CPU, tree) == ()


def test_tkinter_in_a_slim_image_is_a_note() -> None:
    tree = image(
        file("usr/local/lib/python3.11/lib-dynload/_tkinter.so", elf(needed=["libtk8.6.so"]))
    )
    assert only(of_image(CPU, tree), "BM302").severity == "note"


def test_a_folder_that_is_no_root_file_system_proves_nothing() -> None:
    tree = image(file("demo/_C.abi3.so", elf(needed=["libc.so.6"]), "demo 1"), root=False)
    assert of_image(CPU, tree) == ()


# BM303


def test_cudart_12_and_13_in_reach_are_found_b4_b5() -> None:
    tree = image(
        file("usr/local/cuda/lib64/libcudart.so.12", elf("libcudart.so.12")),
        file("demo/lib/libcudart.so.13", elf("libcudart.so.13"), "demo 1"),
    )
    one = only(of_image(CUDA, tree), "BM303")
    assert (one.severity, one.distribution) == ("error", "demo")
    assert "12 and 13" in one.message


def test_a_private_copy_of_another_line_is_a_warning() -> None:
    tree = image(
        file("usr/local/cuda/lib64/libcudart.so.12", elf("libcudart.so.12")),
        file("d.libs/libcudart-9335f6a2.so.11.0", elf("libcudart-9335f6a2.so.11.0"), "demo 1"),
    )
    assert only(of_image(CUDA, tree), "BM303").severity == "warning"


def test_two_copies_of_one_line_stay_quiet_b6() -> None:
    tree = image(
        file("usr/local/cuda/lib64/libcudart.so.12", elf("libcudart.so.12")),
        file("demo/lib/libcudart.so.12", elf("libcudart.so.12"), "demo 1"),
    )
    assert of_image(CUDA, tree) == ()


def test_two_lines_of_cupti_in_triton_are_no_runtimes() -> None:
    tree = image(
        file("triton/lib/libcupti.so.12", elf("libcupti.so.12"), "triton 3.9.0"),
        file("triton/lib/libcupti.so.13", elf("libcupti.so.13"), "triton 3.9.0"),
    )
    assert of_image(CUDA, tree) == ()


def test_a_file_that_gives_several_pieces_of_evidence_is_counted_once() -> None:
    library = elf("libcublas.so.12", device_code=sass("sm_90", size=80_000_000))
    tree = image(file("demo/libcublas.so.12", library, "demo 1", size=90_000_000))
    assert verdict("cpu", tree, "demo").foreign_bytes == 90_000_000


# BM401


def test_device_code_is_found_where_nothing_else_shows_it_c_ctranslate2() -> None:
    tree = image(
        file(
            "ctranslate2.libs/libctranslate2-a7a60d30.so.4.8.5",
            elf("libctranslate2-a7a60d30.so", device_code=sass("sm_80", "sm_90", size=15_200_000)),
            "ctranslate2 4.8.5",
        )
    )
    one = only(of_image(ONEAPI, tree), "BM401")
    assert (one.severity, one.distribution) == ("error", "ctranslate2")
    assert "15.2 MB" in one.message and "sm_80, sm_90" in one.message


def test_one_wheel_for_four_backends_gives_one_finding_per_foreign_vendor_c_bitsandbytes() -> None:
    owner = "bitsandbytes 0.50.2"
    tree = image(
        file("bitsandbytes/libbitsandbytes_cuda128.so", elf(device_code=sass("sm_90")), owner),
        file("bitsandbytes/libbitsandbytes_cuda130.so", elf(device_code=sass("sm_120")), owner),
        file("bitsandbytes/libbitsandbytes_rocm64.so", elf(device_code=hip("gfx942")), owner),
    )
    (one,) = [f for f in of_image(ROCM, tree) if f.rule == "BM401"]
    assert one.vendor == "nvidia"
    assert {item.path for item in one.evidence} == {
        f"{SITE}/bitsandbytes/libbitsandbytes_cuda128.so",
        f"{SITE}/bitsandbytes/libbitsandbytes_cuda130.so",
    }


def test_the_fix_for_a_foreign_library_inside_xgboost_is_its_twin() -> None:
    tree = image(file("xgboost/lib/libxgboost.so", elf(device_code=sass("sm_75")), "xgboost 3.4.1"))
    one = only(of_image(CPU, tree, locked=lock(pin("xgboost 3.4.1", "base.in:3"))), "BM401")
    assert one.chain[0] == "base.in:3"
    assert one.fix is not None and 'replace = { xgboost = "xgboost-cpu" }' in one.fix.text


def test_the_backends_own_device_code_stays_quiet() -> None:
    tree = image(file("demo/_C.abi3.so", elf(device_code=sass("sm_90")), "demo 1"))
    assert of_image(CUDA, tree) == ()


@pytest.mark.parametrize(
    ("kind", "code", "backend", "vendor"),
    [
        ("cubin", sass("sm_90"), "cpu", "nvidia"),
        ("fatbin", sass("sm_90"), "rocm", "nvidia"),
        ("ptx", sass("compute_90"), "oneapi", "nvidia"),
        ("a", sass("sm_90"), "rocm", "nvidia"),
        ("hsaco", hip("gfx942"), "cuda", "amd"),
        ("kpack", hip("gfx942"), "cpu", "amd"),
    ],
)
def test_a_file_of_device_code_is_foreign_like_code_in_a_library(
    kind: str, code: tuple[DeviceCode, ...], backend: str, vendor: str
) -> None:
    kernel = Artefact(f"{SITE}/demo/kernel.{kind}", 9000, kind, "demo==1", code)
    tree = replace(image(installed=["demo 1"]), artefacts=(kernel,))
    one = only(of_image(target(backend), tree), "BM401")
    assert (one.vendor, one.distribution, one.path) == (vendor, "demo", kernel.path)
    assert code[0].arch is not None and code[0].arch in one.message


def test_bitcode_for_a_device_is_a_foreign_tool_whatever_its_name() -> None:
    code = (DeviceCode("bitcode", "bitcode", "nvptx64", 1, 9000, 0),)
    library = Artefact(f"{SITE}/demo/slim.bc", 9000, "bc", "demo==1", code)
    tree = replace(image(installed=["demo 1"]), artefacts=(library,))
    assert "slim.bc" in only(of_image(ROCM, tree), "BM203").message
    assert of_image(CUDA, tree) == ()


# BM402


def test_files_of_device_code_count_for_the_gpus_and_archives_do_not() -> None:
    where = target("cuda", "12.8", archs=["sm_120"])

    def found(kind: str, *parts: DeviceCode) -> list[str]:
        kernel = Artefact(f"{SITE}/demo/kernel.{kind}", 9000, kind, "demo==1", parts)
        return codes(of_image(where, replace(image(installed=["demo 1"]), artefacts=(kernel,))))

    assert found("cubin", *sass("sm_90")) == ["BM402 demo"]
    assert found("cubin", *sass("sm_120")) == []
    assert found("a", *sass("sm_90")) == []


def test_a_small_program_as_text_does_not_stand_in_for_missing_kernels() -> None:
    where = target("cuda", "12.8", archs=["sm_120"])
    text = DeviceCode("ptx-text", "ptx", "compute_50", 1, 400, 0, ".rodata")
    library = elf(device_code=(*sass("sm_90"), text))
    one = only(of_image(where, image(file("demo/_C.abi3.so", library, "demo 1"))), "BM402")
    assert one.severity == "warning"


def test_a_gpu_newer_than_all_device_code_is_missing_b8() -> None:
    where = target("cuda", "12.8", archs=["sm_90", "sm_120"])
    tree = image(file("demo/_C.abi3.so", elf(device_code=sass("sm_80", "sm_90")), "demo 1"))
    one = only(of_image(where, tree), "BM402")
    assert one.severity == "warning"
    assert "no device code for sm_120" in one.message


def test_a_consumer_gpu_that_rocm_wheels_leave_out_is_missing_b9() -> None:
    where = target("rocm", "6.4", archs=["gfx1102"])
    tree = image(file("demo/_C.abi3.so", elf(device_code=hip("gfx1100", "gfx942")), "demo 1"))
    assert only(of_image(where, tree), "BM402").severity == "warning"


def test_portable_code_is_not_missing_and_has_to_be_compiled() -> None:
    where = target("cuda", "12.8", archs=["sm_120"])
    tree = image(file("demo/_C.abi3.so", elf(device_code=sass("sm_80", "compute_90")), "demo 1"))
    assert codes(of_image(where, tree)) == ["BM403 demo", "BM405 demo"]
    assert only(of_image(where, tree), "BM403").severity == "note"


def test_code_spread_over_several_files_of_a_distribution_counts_together() -> None:
    where = target("cuda", "12.8", archs=["sm_80", "sm_90"])
    tree = image(
        file("demo/_a.abi3.so", elf(device_code=sass("sm_80")), "demo 1"),
        file("demo/_b.abi3.so", elf(device_code=sass("sm_90")), "demo 1"),
    )
    assert of_image(where, tree) == ()


def test_a_target_that_declares_no_architecture_asks_for_none() -> None:
    tree = image(file("demo/_C.abi3.so", elf(device_code=sass("sm_50")), "demo 1"))
    assert of_image(CUDA, tree) == ()


# BM501


def test_a_name_for_dlopen_is_a_note() -> None:
    tree = image(file("demo/_C.abi3.so", elf(literals=["libcublas.so.12"]), "demo 1"))
    assert only(of_image(ROCM, tree), "BM501").severity == "note"


def test_the_provider_names_in_every_onnxruntime_stay_quiet() -> None:
    tree = image(
        file(
            "onnxruntime/capi/_pybind.so",
            elf(literals=["libonnxruntime_providers_cuda.so"]),
            "onnxruntime 1.31.1",
        )
    )
    assert of_image(CPU, tree) == ()


def test_a_name_in_the_middle_of_other_text_stays_quiet() -> None:
    content = replace(elf(), literals=(Literal("libcublas.so.12", 64, ".text", exact=False),))
    assert of_image(ROCM, image(file("demo/_C.abi3.so", content, "demo 1"))) == ()


# BM601


def test_a_cuda_toolkit_below_a_rocm_application_is_one_finding() -> None:
    tree = image(
        file("usr/local/cuda-12.8/lib64/libcublas.so.12", elf("libcublas.so.12")),
        file("usr/local/cuda-12.8/bin/ptxas", elf()),
        packages=[SystemPackage("cuda-cudart-12-8", "12.8.90-1")],
    )
    one = only(of_image(ROCM, tree), "BM601")
    assert one.severity == "error"
    assert len(one.evidence) == 3
    assert "base:final" in one.message


def test_mesas_helpers_for_other_vendors_stay_quiet() -> None:
    names = ["libdrm_amdgpu.so.1", "libdrm_nouveau.so.2", "libdrm_intel.so.1"]
    tree = image(*(file(f"usr/lib/{name}", elf(name)) for name in names))
    assert of_image(CPU, tree) == ()


def test_a_library_in_the_applications_folder_is_not_the_base_images() -> None:
    tree = image(file("app/lib/libcudart.so.12", elf("libcudart.so.12")))
    assert codes(of_image(CPU, tree)) == ["BM201"]


def test_a_file_in_site_packages_that_no_record_lists_is_not_the_base_images() -> None:
    tree = image(file(f"{SITE}/demo/libcudart.so.12", elf("libcudart.so.12")))
    assert codes(of_image(CPU, tree)) == ["BM201"]


# BM602


def test_nvidia_variables_in_a_rocm_image_are_found_a16() -> None:
    tree = image(
        environment={"NVIDIA_VISIBLE_DEVICES": "all", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib"}
    )
    one = only(of_image(ROCM, tree), "BM602")
    assert one.severity == "error"
    assert len(one.evidence) == 2


def test_a_variable_that_switches_the_vendor_off_stays_quiet() -> None:
    assert of_image(ROCM, image(environment={"NVIDIA_VISIBLE_DEVICES": "void"})) == ()


def test_forbidden_variables_are_named_without_their_values() -> None:
    policy = Policy(forbid_env={"*": ("*_TOKEN",)})
    tree = image(environment={"HUB_TOKEN": "s3cret", "HOME": "/root"})
    one = only(of_image(CPU, tree, policy), "BM602")
    assert "HUB_TOKEN" in one.message
    assert "s3cret" not in repr(one)


# BM603


def test_an_image_over_its_budget_names_its_largest_distributions() -> None:
    tree = image(
        installed=["torch 2.9.0+cpu", "numpy 2.2"],
        sizes={"torch": 700_000_000, "numpy": 60_000_000},
        stats=Stats(bytes_total=3_400_000_000),
    )
    one = only(of_image(CPU, tree, Policy(max_size={"*": 1_000_000_000})), "BM603")
    assert "3.4 GB" in one.message and "torch 700.0 MB" in one.message


def test_the_budget_of_the_backend_comes_before_the_common_one() -> None:
    tree = image(stats=Stats(bytes_total=2_000_000_000))
    policy = Policy(max_size={"*": 1_000_000_000, "cuda": 3_000_000_000})
    assert of_image(CUDA, tree, policy) == ()
    assert codes(of_image(CPU, tree, policy)) == ["BM603"]


# BM902


def test_each_unread_file_is_a_finding_of_its_own() -> None:
    tree = image(unread=[Unread("opt/a.so", "it ends early"), Unread("opt/b.so", "it ends early")])
    findings = of_image(CPU, tree)
    assert codes(findings) == ["BM902", "BM902"]
    assert findings[0].fingerprint != findings[1].fingerprint


# All of them


def test_a_clean_image_of_each_backend_is_clean() -> None:
    for where in (CPU, CUDA, ROCM, ONEAPI):
        tree = image(
            file("numpy/core.abi3.so", elf(needed=["libc.so.6"]), "numpy 2.2.0"),
            installed=["onnxruntime 1.31.1", "mkl 2026.2.0"],
        )
        assert of_image(where, tree) == ()


def test_findings_come_in_the_same_order_whatever_the_order_of_the_files() -> None:
    files = [
        file("b/_C.abi3.so", elf(device_code=sass("sm_90")), "b 1"),
        file("a/_C.abi3.so", elf(needed=["libcudart.so.12"]), "a 1"),
        file("a/_D.abi3.so", elf(needed=["libcublas.so.12"]), "a 1"),
    ]
    assert of_image(CPU, image(*files)) == of_image(CPU, image(*reversed(files)))
