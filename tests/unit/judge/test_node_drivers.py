"""BM701 to BM704: what drivers and kernels of node classes make of an image."""

from __future__ import annotations

import pytest
from nodecases import compat, cudart, node, on
from rulecases import SITE, codes, elf, file, image, of_image, only, sass

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Binary, Inventory, Link, SystemPackage
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import NodeClass


def of_nodes(inventory: Inventory, *nodes: NodeClass, backend: str = "cuda") -> list[Finding]:
    findings = of_image(on(*nodes, backend=backend, runtime="any"), inventory)
    return [item for item in findings if "BM701" <= item.rule <= "BM705"]


# BM701


@pytest.mark.parametrize("driver", ["550.163.01", ">=550,<580", "570.195.03"])
def test_a_runtime_of_a_newer_line_is_refused(driver: str) -> None:
    (finding,) = of_nodes(image(cudart("13.0.96")), node(driver))
    assert (finding.rule, finding.severity) == ("BM701", "error")
    assert finding.distribution == "nvidia-cuda-runtime"
    assert "is of NVIDIA CUDA 13.0" in finding.message and "580" in finding.message
    assert f"node has driver {driver}" in finding.message


@pytest.mark.parametrize("driver", ["580.65.06", ">=580", "580", "999.1", "", "<600"])
def test_a_driver_that_has_it_or_is_not_known_is_quiet(driver: str) -> None:
    assert of_nodes(image(cudart("13.0.96")), node(driver)) == []


def test_the_runtime_counts_and_not_the_name_of_the_target() -> None:
    where = on(node("550.54.14"), runtime="12.4")
    assert "BM701 nvidia-cuda-runtime" in codes(of_image(where, image(cudart("13.0.96"))))
    assert "BM701" not in " ".join(codes(of_image(where, image(cudart("12.4.127")))))


def test_classes_with_the_same_fate_are_one_finding() -> None:
    (finding,) = of_nodes(
        image(cudart("13.0.96")), node("550.54.14", name="old"), node("535.54.03", name="older")
    )
    assert "old has driver 550.54.14; older has driver 535.54.03" in finding.message


def test_a_runtime_that_is_linked_in_has_the_version_of_the_ptx_beside_it() -> None:
    codes_ = tuple(replace(code, language="9.0") for code in sass("compute_90"))
    linked = elf(device_code=codes_, marks=["cudart-error-string"])
    held = image(file("acme/libacme.so", linked, "acme 1.0"))
    (finding,) = of_nodes(held, node("550.54.14"))
    assert finding.rule == "BM701" and "the runtime inside of libacme.so" in finding.message
    unknown = image(file("acme/libacme.so", elf(marks=["cudart-error-string"]), "acme 1.0"))
    assert of_nodes(unknown, node("550.54.14")) == []


def test_a_runtime_of_the_base_has_the_version_of_its_package_or_of_its_name() -> None:
    path = "usr/local/cuda-13.0/lib64/libcudart.so.13"
    packaged = replace(
        image(file(path, elf("libcudart.so.13"))), packaged={path: "cuda-cudart-13-0 13.0.96-1"}
    )
    named = image(file(f"{path}.0.96", elf("libcudart.so.13")))
    for inventory in (packaged, named):
        (finding,) = of_nodes(inventory, node("570.26"))
        assert "CUDA 13.0" in finding.message and finding.distribution is None


def test_a_runtime_of_a_line_counts_where_no_other_is_of_it() -> None:
    linked = file(
        "nvidia/cudnn/lib/libcudnn_graph.so.9",
        elf("libcudnn_graph.so.9", marks=["cudart-error-string"]),
        "nvidia-cudnn-cu12 9.10.2.21",
    )
    (finding,) = of_nodes(image(linked), node("570.26"))
    assert finding.rule == "BM702" and "CUDA 12:" in finding.message
    assert of_nodes(image(linked, cudart()), node("570.26")) == []
    (finding,) = of_nodes(image(linked, cudart()), node("520.61.05"))
    assert (finding.rule, finding.distribution) == ("BM701", "nvidia-cuda-runtime-cu12")


# BM702


def test_an_older_driver_of_the_line_is_a_note() -> None:
    (finding,) = of_nodes(image(cudart()), node("550.54.14"))
    assert (finding.rule, finding.severity) == ("BM702", "note")
    assert "from driver 570.26 on" in finding.message
    assert "minor-version compatibility" in finding.message


def library(*archs: str, language: str | None = "8.7") -> Binary:
    device = tuple(
        replace(code, language=language) if code.kind == "ptx" else code for code in sass(*archs)
    )
    return file("flash/lib.so", elf(device_code=device), "flash 1.0+cu128")


@pytest.mark.parametrize(
    ("files", "driver", "expected"),
    [
        ((library("compute_80"),), "550.54.14", ["BM702 flash"]),
        ((library("compute_80"),), "570.26", []),
        ((library("compute_80", language="8.4"),), "550.54.14", []),
        ((library("compute_80", language=None),), "550.54.14", []),
        ((library("compute_80", "sm_90"),), "550.54.14", []),
        ((library("compute_100"),), "550.54.14", []),
    ],
)
def test_ptx_of_a_newer_toolkit_is_not_compiled(
    files: tuple[Binary, ...], driver: str, expected: list[str]
) -> None:
    findings = of_nodes(image(*files), node(driver, "sm_90"))
    assert codes(findings, "error") == expected
    if expected:
        assert "PTX of toolkit 12.8 (driver 570.26)" in findings[0].message


# BM703


H100 = ("NVIDIA H100 80GB HBM3",)
GEFORCE = ("NVIDIA GeForce RTX 4090",)


@pytest.mark.parametrize(
    ("version", "driver", "products", "expected"),
    [
        # Made for it: it has the driver of CUDA 12.8.
        ("12.8.90", "550.54.14", H100, []),
        ("13.0.96", "550.54.14", H100, ["BM701 error"]),  # It has no CUDA 13.
        ("12.8.90", "550.54.14", GEFORCE, ["BM703 error"]),
        ("12.8.90", "550.54.14", (), ["BM703 warning"]),
        # Not needed: the container toolkit leaves it alone.
        ("12.8.90", "580.65.06", GEFORCE, []),
        ("12.8.90", "570.26", GEFORCE, []),
    ],
)
def test_the_package_of_a_base_image(
    version: str, driver: str, products: tuple[str, ...], expected: list[str]
) -> None:
    findings = of_nodes(image(cudart(version), compat()), node(driver, products=products))
    assert [f"{item.rule} {item.severity}" for item in findings] == expected


def test_a_package_for_a_newer_line_cures_what_the_driver_refuses() -> None:
    held = image(cudart("13.0.96"), compat("580.65.06"))
    assert of_nodes(held, node("550.54.14", products=H100)) == []
    (finding,) = of_nodes(held, node("550.54.14", products=GEFORCE))
    assert finding.rule == "BM701" and "refuse the forward-compatibility package" in finding.message
    (finding,) = of_nodes(held, node("550.54.14"))
    assert (finding.rule, finding.severity) == ("BM701", "warning")


def test_a_package_that_nothing_brings_into_reach() -> None:
    away = compat(folder="opt/conda/cuda-compat")
    held = image(cudart(), away)
    found = of_nodes(held, node("550.54.14", products=H100))
    assert [f"{item.rule} {item.severity}" for item in found] == ["BM702 note", "BM703 warning"]
    reached = image(cudart(), away, environment={"LD_LIBRARY_PATH": "/x:/opt/conda/cuda-compat"})
    assert of_nodes(reached, node("550.54.14", products=H100)) == []


def test_links_lead_to_the_package() -> None:
    links = [
        Link("usr/local/cuda", "/etc/alternatives/cuda"),
        Link("etc/alternatives/cuda", "../../usr/local/cuda-12.8"),
    ]
    held = image(cudart(), compat(folder="usr/local/cuda-12.8/compat"), links=links)
    assert of_nodes(held, node("550.54.14", products=H100)) == []
    circle = [Link("usr/local/cuda", "/usr/local/cuda")]
    assert of_nodes(image(cudart(), compat(), links=circle), node("580.65.06")) == []


def test_a_package_before_a_newer_driver() -> None:
    path = {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}
    held = image(cudart(), compat(), environment=path)
    finding = only(of_nodes(held, node("580.65.06", products=H100)), "BM703")
    assert finding.severity == "error" and "(803)" in finding.message


# BM704


def rocm(version: str) -> Inventory:
    return image(
        file("torch/lib/libamdhip64.so", elf("libamdhip64.so.6"), f"torch 2.8.0+rocm{version}")
    )


@pytest.mark.parametrize(
    ("version", "driver", "expected"),
    [
        ("6.4", "6.3.3", []),
        ("6.4", "30.30.1", []),
        ("6.4", "6.0.5", ["BM704 error"]),
        ("6.4", "30.10", ["BM704 error"]),
        ("6.4", "30.15.1", ["BM704 note"]),
        ("6.4", "", []),
        # Newer than the table, and judged by its newest row, which somebody inferred.
        ("6.4", "99.1", ["BM704 warning"]),
    ],
)
def test_rocm_against_the_kernel_driver(version: str, driver: str, expected: list[str]) -> None:
    findings = of_nodes(rocm(version), node(driver, backend="rocm"), backend="rocm")
    assert [f"{item.rule} {item.severity}" for item in findings] == expected


@pytest.mark.parametrize(
    ("kernel", "expected"), [("6.8.0-45-generic", ["warning"]), (">=6.12", []), ("", [])]
)
def test_a_kernel_that_does_not_know_the_device(kernel: str, expected: list[str]) -> None:
    nodes = node("", "bmg-g21", backend="oneapi", kernel=kernel)
    findings = of_nodes(image(), nodes, backend="oneapi")
    assert [item.severity for item in findings if item.rule == "BM704"] == expected


def test_a_runtime_that_asks_for_a_driver_of_its_line() -> None:
    path = "opt/aws/neuron/lib/libnrt.so.1"
    held = replace(
        image(
            file(path, elf("libnrt.so.1")),
            packages=[SystemPackage("aws-neuronx-runtime-lib", "2.35.1")],
        ),
        packaged={path: "aws-neuronx-runtime-lib 2.35.1"},
    )
    found = of_nodes(held, node("1.9", backend="neuron"), backend="neuron")
    assert [f"{item.rule} {item.severity}" for item in found] == ["BM704 error"]
    assert of_nodes(held, node("2.31", backend="neuron"), backend="neuron") == []


def test_no_node_class_no_finding() -> None:
    assert of_nodes(image(cudart("13.0.96"), compat())) == []
    assert SITE  # The files of distributions lie there.
