"""What LIBRARY means, and what is said when it means nothing, or too much."""

from __future__ import annotations

import json

import pytest
from graph_cases import SITE, binary, distribution, elf, flat, one, text_of, why

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import Section
from buildmatrix.facts.inventory.model import (
    Inventory,
    Layer,
    Link,
    ShadowedFiles,
    SystemPackage,
)
from buildmatrix.reports.formats import WHY, Destination, find_format
from buildmatrix.reports.why import Answer

CUDART = "nvidia/cuda_runtime/lib/libcudart.so.12"


def json_of(answer: Answer) -> str:
    return find_format(WHY, "json").render(answer, Destination())


def tree() -> Inventory:
    return Inventory(
        distributions=(
            distribution("acme", "nvidia-cuda-runtime-cu12"),
            distribution("nvidia-cuda-runtime-cu12"),
        ),
        binaries=(
            binary("acme/lib/libacme.so", elf(), "acme==1.0"),
            binary(CUDART, elf(soname="libcudart.so.12"), "nvidia-cuda-runtime-cu12==1.0"),
        ),
    )


@pytest.mark.parametrize(
    "word",
    [
        "libcudart",
        "cudart",
        "libcudart.so",
        "libcudart.so.12",
        "libcudart*",
        CUDART,
        f"/{SITE}/{CUDART}",
        "*/libcudart.so.12",
        "./cuda_runtime/lib/libcudart.so.12",
    ],
)
def test_a_library_is_found_by(word: str) -> None:
    assert one(why(tree(), word)).node.label == f"{SITE}/{CUDART}"


@pytest.mark.parametrize(
    "word", ["libcudar", "libcudart.so.1", "libcudart.so.13", "cudart.so.12.8"]
)
def test_a_library_is_not_taken_for(word: str) -> None:
    assert why(tree(), word).subjects == ()


@pytest.mark.parametrize(
    "word", ["nvidia-*", "nvidia_cuda_runtime_cu12", "NVIDIA.cuda-runtime-cu12"]
)
def test_a_distribution_is_found_by(word: str) -> None:
    assert one(why(tree(), word)).node.label == "nvidia-cuda-runtime-cu12 1.0"


def test_a_distribution_comes_before_a_library_that_is_called_like_it() -> None:
    answered = why(tree(), "acme")
    assert (answered.question.kind, one(answered).node.kind) == ("distribution", "distribution")


@pytest.mark.parametrize(
    ("word", "kind"), [("cuda", "backend"), ("CUDA", "backend"), ("nvidia", "backend")]
)
def test_a_backend_or_a_vendor_stands_for_all_that_is_its_own(word: str, kind: str) -> None:
    answered = why(tree(), word)
    assert answered.question.kind == kind
    assert {subject.node.label for subject in answered.subjects} == {
        f"{SITE}/{CUDART}",
        "nvidia-cuda-runtime-cu12 1.0",
    }


def test_another_backend_has_nothing_there() -> None:
    assert "Nothing in dir:/x belongs to rocm." in flat(why(tree(), "rocm"))


def test_a_mangled_copy_is_known_by_its_own_name() -> None:
    mangled = Inventory(
        distributions=(distribution("a"),),
        binaries=(binary("a.libs/libcudart-9335f6a2.so.12.8", elf(), "a==1.0"),),
    )
    assert one(why(mangled, "libcudart.so.12")).node.label.endswith("libcudart-9335f6a2.so.12.8")


def test_what_nearly_matches_is_told() -> None:
    told = flat(why(tree(), "libcudrt"))
    assert "Nothing in dir:/x is called libcudrt, and nothing links or opens it." in told
    assert "Nearly: " in told and "libcudart.so.12" in told


def test_a_pattern_that_means_thousands_tells_some_and_sums_up_the_rest() -> None:
    many = Inventory(
        distributions=(distribution("a"), distribution("b")),
        binaries=tuple(
            binary(f"{owner}/lib{n}.so", elf(), f"{owner}==1.0")
            for owner in "ab"
            for n in range(2500)
        ),
    )
    answered = why(many, "lib*.so")
    told = flat(answered)
    assert "5000 files" in told
    assert {subject.node.owner for subject in answered.subjects} >= {
        "distribution:a",
        "distribution:b",
    }
    assert "and 4994 more" in told
    assert len(told) < 5000
    assert '"matches": 5000' in json_of(answered)


def test_no_line_is_wider_than_the_terminal() -> None:
    lines = text_of(why(tree(), "cuda"), width=70).splitlines()
    assert max(map(len, lines)) <= 70


def test_control_characters_do_not_reach_the_terminal() -> None:
    hostile = Inventory(binaries=(binary("usr/lib/libx\x1b[2J\n.so", elf("\x1b]0;x\x07.so")),))
    for word in ("libx*", "*x*"):
        told = text_of(why(hostile, word))
        assert "\x1b" not in told and "\x07" not in told


def test_a_version_in_front_of_so_is_less_of_a_name_too() -> None:
    tree = Inventory(binaries=(binary("usr/lib/libyaml-0.so.2", elf()),))
    assert "usr/lib/libyaml-0.so.2" in flat(why(tree, "libyaml"))
    assert "Nothing in" in flat(why(tree, "libyam"))


def test_a_copy_that_two_wheel_builders_renamed_counts_as_what_it_was() -> None:
    """numpy takes the libgfortran of a wheel that has it bundled already."""
    path = "numpy.libs/libgfortran-040039e1-0352e75f.so.5.0.0"
    tree = Inventory(binaries=(binary(path, elf()),))
    assert path in flat(why(tree, "libgfortran"))


def test_a_hard_link_is_a_name_of_the_file_and_is_told() -> None:
    tree = Inventory(
        binaries=(binary("opt/libfast.so.1", elf()),),
        links=(Link("usr/lib/libcudart.so.12", "/opt/libfast.so.1", hard=True),),
    )
    told = flat(why(tree, "libcudart"))
    assert "opt/libfast.so.1" in told
    assert "it is also: libcudart.so.12" in told
    assert "it is also" not in flat(why(tree, "libfast"))


def test_a_word_that_nobody_reads_to_its_end_is_cut() -> None:
    name = f"libcudart{'a' * 10_000}.so.12"
    tree = Inventory(binaries=(binary("x.so", elf(name)),))
    answered = why(tree, "libcudart*")
    assert max(map(len, text_of(answered).splitlines())) < 300
    assert name in json_of(answered)


def hidden() -> Inventory:
    """The tree; its second layer deleted what its first one had brought."""
    return replace(
        tree(),
        layers=(Layer("sha256:1", "RUN pip install pillow", 10), Layer("sha256:2", "RUN rm", 1)),
        buried=(
            ShadowedFiles(f"{SITE}/pillow.libs", 18, 14_700_000, 0, 1, names=("libjpeg.so.8",)),
            ShadowedFiles(f"{SITE}/Pillow-12.0.dist-info", 9, 119_000, 0, 1),
            ShadowedFiles(f"{SITE}/PIL", 90, 200_000, 0, 1, replaced=True),
        ),
    )


@pytest.mark.parametrize(
    ("word", "number"), [("pillow", 2), ("libjpeg", 1), ("*/PIL", 1), ("PIL/", 1), ("acme", 0)]
)
def test_what_a_later_layer_hides_is_told_by_its_name(word: str, number: int) -> None:
    answered = why(hidden(), word)
    assert len(answered.question.buried) == number
    assert len(json.loads(json_of(answered))["hidden"]) == number


def test_who_brought_and_who_deleted_what_is_hidden_is_told() -> None:
    text = flat(why(hidden(), "libjpeg"))
    assert "is called libjpeg, and nothing links or opens it" in text
    assert (
        f"Hidden: {SITE}/pillow.libs (18 files, 14.7 MB) came with layer 1 of 2: RUN pip install "
        "pillow and was deleted by layer 2 of 2: RUN rm: no container sees it" in text
    )


def test_a_library_of_the_hosts_driver_is_not_told_as_missing() -> None:
    def linking(name: str) -> Inventory:
        return Inventory(binaries=(binary("acme/core.so", elf(name), "acme==1.0"),))

    driver = flat(why(linking("libcuda.so.1"), "libcuda.so.1"))
    assert "it is a part of the host's driver, which the container runtime mounts" in driver
    assert "searched:" not in driver
    assert "searched:" in flat(why(linking("libacme.so.1"), "libacme.so.1"))


def test_a_file_of_the_system_is_told_with_its_package() -> None:
    libz = "usr/lib/libz.so.1"
    system = Inventory(
        distributions=(distribution("acme"),),
        binaries=(
            binary("acme/core.so", elf("libz.so.1"), "acme==1.0"),
            binary(libz, elf(soname="libz.so.1")),
            binary("usr/lib/libalone.so", elf()),
        ),
        packaged={libz: "zlib1g 1.3", "usr/lib/libalone.so": "alone 2.0"},
        system_packages=(
            SystemPackage("alone", "2.0", "rpm", vendor="Acme Corp"),
            SystemPackage("tool", "1", "rpm", requires=("alone",)),
        ),
        layers=(Layer("sha256:1", "RUN dnf install -y alone", 10),),
        origins={"usr/lib/libalone.so": 0},
    )
    linked = flat(why(system, "libz.so.1"))
    assert "acme 1.0" in linked and "brought by: the system's package zlib1g 1.3" in linked
    alone = flat(why(system, "libalone.so"))
    package = "the system's package alone 2.0 of Acme Corp, required by tool"
    assert f"usr/lib/libalone.so (of {package})" in alone
    assert "put there by: layer 1 of 1: RUN dnf install -y alone" in alone
    assert "brought by" not in alone


def test_a_copy_is_told_with_its_section_and_the_layer_of_its_file() -> None:
    holder = replace(
        elf(marks=("cudart-shared-memory", "cudart-error-string")),
        sections=(Section(".text", 64, 1000), Section(".rodata", 4000, 500)),
    )
    found = Inventory(
        binaries=(binary("opt/libcopy.so", holder),),
        layers=(Layer("sha256:1", "COPY libcopy.so /opt", 10),),
        origins={"opt/libcopy.so": 0},
    )
    text = flat(why(found, "libcudart"))
    assert "copy: section .rodata, at byte 0x1000" in text
    assert "put there by: layer 1 of 1: COPY libcopy.so /opt" in text


def test_all_that_link_a_library_are_named() -> None:
    links = elf("libcudart.so.12", rpath=("$ORIGIN/../nvidia/cuda_runtime/lib",))
    users = tuple(binary(f"acme/{name}.so", links, "acme==1.0") for name in ("one", "two"))
    cudart = tree().binaries[1]
    text = flat(why(replace(tree(), binaries=(cudart, *users)), "libcudart"))
    assert "linked by 2 files" in text
    assert "acme/one.so └" in text
    assert "also linked by: two.so" in text
