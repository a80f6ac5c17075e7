"""The file half: who links and opens a file, and how the loader finds it."""

from __future__ import annotations

from graph_cases import SITE, binary, distribution, elf, flat, labels, lock, one, text_of, why

from buildmatrix.base.data import replace
from buildmatrix.facts.elf.model import DeviceCode, DlopenNote
from buildmatrix.facts.inventory.model import (
    Artefact,
    Inventory,
    Layer,
    Link,
    PythonLoad,
    SharedPath,
)


def torch_like() -> Inventory:
    """acme → torch, whose library links a CUDA runtime that lies in another distribution."""
    runpath = ["$ORIGIN/../../nvidia/lib"]
    return Inventory(
        distributions=(
            distribution("acme", "torch"),
            distribution("torch", "nvidia-cuda-runtime-cu12"),
            distribution("nvidia-cuda-runtime-cu12"),
        ),
        binaries=(
            binary("torch/lib/libtorch.so", elf("libcudart.so.12", runpath=runpath), "torch==1.0"),
            binary(
                "nvidia/lib/libcudart.so.12",
                elf(soname="libcudart.so.12"),
                "nvidia-cuda-runtime-cu12==1.0",
            ),
        ),
    )


def test_the_chain_to_a_linked_library_names_the_search_rule_and_its_folder() -> None:
    answered = why(torch_like(), "libcudart")
    assert labels(one(answered), answered.graph) == [
        "acme 1.0", "torch 1.0", "torch/lib/libtorch.so", "nvidia/lib/libcudart.so.12",
    ]  # fmt: skip
    told = flat(answered)
    assert "NEEDED libcudart.so.12, found by its RUNPATH in …/nvidia/lib" in told
    assert "brought by: acme 1.0 → torch 1.0 → nvidia-cuda-runtime-cu12 1.0" in told


def test_an_inherited_rpath_is_told_with_the_binary_that_has_it() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(
            binary("a/core.so", elf("libone.so", rpath=["$ORIGIN/lib"]), "a==1.0"),
            binary("a/lib/libone.so", elf("libtwo.so"), "a==1.0"),
            binary("a/lib/libtwo.so", elf(), "a==1.0"),
        ),
    )
    assert "found by inherited RPATH of …/a/core.so in …/a/lib" in flat(why(tree, "libtwo.so"))


def test_the_environment_and_the_cache_are_search_rules_too() -> None:
    libc = binary("lib/x86_64-linux-gnu/libc.so.6", elf(soname="libc.so.6"))
    tree = Inventory(
        binaries=(
            libc,
            binary("opt/app", elf("libone.so", "libtwo.so", interpreter="/lib64/ld.so")),
            binary("opt/env/libone.so", elf()),
            binary("opt/conf/libtwo.so", elf()),
        ),
        library_folders=("opt/conf",),
        environment={"LD_LIBRARY_PATH": "/opt/env"},
    )
    assert "found by LD_LIBRARY_PATH in /opt/env" in flat(why(tree, "libone.so"))
    assert "found by ld.so.cache in /opt/conf" in flat(why(tree, "libtwo.so"))


def test_a_library_that_python_loads_before_it_is_needed_is_told_as_that() -> None:
    tree = torch_like()
    tree = replace(
        tree,
        binaries=(
            replace(tree.binaries[0], elf=elf("libcudart.so.12")),
            tree.binaries[1],
        ),
        python_loads=(
            PythonLoad(
                f"{SITE}/torch/__init__.py", 7, "CDLL", ("*/nvidia/lib/libcudart.so.12",),
                "import", "torch==1.0",
            ),
        ),
    )  # fmt: skip
    answered = why(tree, "libcudart.so.12", every=True)
    assert one(answered).state == "unfound"
    told = flat(answered)
    assert "not found by the loader, but loaded before by …/torch/__init__.py:7" in told
    assert "searched:" in told


def test_a_library_that_is_nowhere_is_told_with_what_was_searched() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(binary("a/core.so", elf("libnone.so.3", runpath=["/opt/none"]), "a==1.0"),),
    )
    told = flat(why(tree, "libnone"))
    assert "linked by 1 file, and not found by the loader" in told
    assert "the system may have it" in told
    assert "searched: /opt/none, /lib/x86_64-linux-gnu" in told


def test_a_root_file_system_does_not_hope_for_another_one() -> None:
    tree = Inventory(
        binaries=(
            binary("lib/x86_64-linux-gnu/libc.so.6", elf(soname="libc.so.6")),
            binary("opt/app", elf("libnone.so.3")),
        )
    )
    assert "the system may have it" not in flat(why(tree, "libnone.so.3"))


def test_a_bundled_copy_of_somebody_else_is_not_taken_for_the_system_s() -> None:
    tree = Inventory(
        distributions=(distribution("numpy"), distribution("vision")),
        binaries=(
            binary("numpy/core.so", elf("libz.so.1"), "numpy==1.0"),
            binary("vision.libs/libz-12345678.so.1", elf(soname="libz.so.1"), "vision==1.0"),
        ),
    )
    states = {subject.node.label: subject.state for subject in why(tree, "libz.so.1").subjects}
    assert states == {f"{SITE}/vision.libs/libz-12345678.so.1": "present", "libz.so.1": "missing"}


def test_when_nothing_links_it_what_would_open_it_is_listed() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(
            binary("a/core.so", elf(literals=["libcudart.so.12"]), "a==1.0"),
            binary("usr/lib/libcudart.so.12", elf(soname="libcudart.so.12")),
        ),
    )
    answered = why(tree, "libcudart.so.12")
    assert one(answered).state == "opened"
    told = flat(answered)
    assert "nothing links it; 1 file may open it by its name" in told
    assert "names libcudart.so.12 in its data at byte 0x10" in told


def test_a_name_that_only_stands_in_data_is_told_as_that() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(binary("a/core.so", elf(literals=["libcudart.so.12"]), "a==1.0"),),
    )
    assert "no file has this name, nothing links it; 1 file may open it" in flat(
        why(tree, "libcudart.so.12")
    )


def test_a_note_about_dlopen_is_told_with_its_priority() -> None:
    note = DlopenNote(("libzstd.so.1",), priority="suggested")
    tree = Inventory(binaries=(binary("usr/bin/tool", elf(dlopen_notes=(note,))),))
    assert ".note.dlopen says libzstd.so.1 (suggested)" in flat(why(tree, "libzstd"))


def test_a_call_of_ctypes_is_told_with_its_line() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        python_loads=(PythonLoad(f"{SITE}/a/x.py", 31, "CDLL", ("libcuda.so.1",), owner="a==1.0"),),
    )
    told = flat(why(tree, "libcuda"))
    assert "CDLL(libcuda.so.1) at …/a/x.py:31 (only when something calls it)" in told


def test_libraries_that_need_each_other_are_no_endless_chain() -> None:
    folder = ["$ORIGIN"]
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(
            binary("a/core.so", elf("libone.so", runpath=folder), "a==1.0"),
            binary("a/libone.so", elf("libtwo.so", runpath=folder), "a==1.0"),
            binary("a/libtwo.so", elf("libone.so", runpath=folder), "a==1.0"),
        ),
    )
    answered = why(tree, "libtwo.so", every=True)
    chains = [labels(one(answered), answered.graph, n) for n in range(len(one(answered).chains))]
    assert chains == [
        ["a 1.0", "a/libone.so", "a/libtwo.so"],
        ["a 1.0", "a/core.so", "a/libone.so", "a/libtwo.so"],
    ]


def many_ways(width: int, depth: int) -> Inventory:
    """Layers of libraries, each of which needs all of the next layer: width ** depth chains."""
    names = [[f"lib{level}_{n}.so" for n in range(width)] for level in range(depth)]
    names.append(["libend.so"])
    return Inventory(
        distributions=(distribution("a"),),
        binaries=tuple(
            binary(f"a/{name}", elf(*further, runpath=["$ORIGIN"]), "a==1.0")
            for row, further in zip(names, [*names[1:], []], strict=True)
            for name in row
        ),
    )


def test_more_chains_than_one_can_read_are_counted_and_bounded() -> None:
    answered = why(many_ways(8, 6), "libend.so", every=True, most=20)
    subject = one(answered)
    assert len(subject.chains) == 20
    assert subject.more
    assert [len(chain.edges) for chain in subject.chains[:9]] == [2] * 8 + [3]
    assert "and more than 980 other chains" in flat(answered)


def test_all_chains_are_different_and_the_shortest_comes_first() -> None:
    subject = one(why(many_ways(2, 3), "libend.so", every=True))
    ways = [chain.ids for chain in subject.chains]
    assert len(ways) == len(set(ways)) == 2 + 4 + 8
    assert [len(way) for way in ways] == sorted(len(way) for way in ways)
    assert not subject.more


def test_a_path_of_two_distributions_names_both() -> None:
    path = f"{SITE}/nvidia/lib/libnccl.so.2"
    tree = Inventory(
        distributions=(distribution("one"), distribution("two")),
        binaries=(binary("nvidia/lib/libnccl.so.2", elf(), "two==1.0"),),
        shared_paths=(SharedPath(path, ("one==1.0", "two==1.0")),),
    )
    told = flat(why(tree, "libnccl.so.2"))
    assert "also listed by: one 1.0" in told


def test_the_layer_that_put_a_file_there_is_told_with_its_instruction() -> None:
    tree = replace(
        torch_like(),
        layers=(
            Layer("sha256:1", "ADD rootfs /", 5),
            Layer("sha256:2", "RUN  pip install   torch", 6),
        ),
        origins={f"{SITE}/nvidia/lib/libcudart.so.12": 1},
    )
    assert "put there by: layer 2 of 2: RUN pip install torch" in flat(why(tree, "libcudart"))


def test_a_static_copy_is_told_with_its_offset_and_marks() -> None:
    what = elf(marks=["cudart-error-string"])
    tree = Inventory(
        distributions=(distribution("a"),), binaries=(binary("a/core.so", what, "a==1.0"),)
    )
    answered = why(tree, "libcudart")
    assert one(answered).state == "embedded"
    assert "at byte 0x1000" in flat(answered)
    assert "proved by cudart-error-string" in flat(answered)


def test_device_code_is_told_with_section_offset_and_architectures() -> None:
    code = tuple(
        DeviceCode("nv-fatbin", "sass", arch, 1, 500, 8192, ".nv_fatbin")
        for arch in ("sm_80", "sm_90")
    )
    tree = Inventory(
        distributions=(distribution("a"),),
        binaries=(binary("a/core.so", elf(device_code=code), "a==1.0"),),
    )
    told = flat(why(tree, "cuda"))
    assert "section .nv_fatbin, at byte 0x2000" in told
    assert "for sm_80 sm_90" in told


def test_a_link_is_another_name_of_its_file() -> None:
    tree = Inventory(
        binaries=(binary("usr/lib/libblas.so.3.1", elf()),),
        links=(Link("usr/lib/libblas.so.3", "libblas.so.3.1"),),
    )
    assert one(why(tree, "libblas.so.3")).node.label == "usr/lib/libblas.so.3.1"


def test_a_preloaded_library_is_told_as_that() -> None:
    tree = Inventory(
        binaries=(
            binary("usr/bin/tool", elf(interpreter="/lib64/ld.so")),
            binary("opt/libhook.so", elf()),
        ),
        environment={"LD_PRELOAD": "/opt/libhook.so"},
    )
    assert "LD_PRELOAD or ld.so.preload: /opt/libhook.so" in flat(why(tree, "libhook.so"))


def test_a_chain_of_distributions_is_preferred_to_a_name_in_data() -> None:
    tree = torch_like()
    loud = binary("acme/core.so", elf(literals=["libtorch.so"]), "acme==1.0")
    answered = why(replace(tree, binaries=(*tree.binaries, loud)), "libcudart.so.12")
    assert "torch 1.0" in labels(one(answered), answered.graph)


def test_files_that_were_not_read_are_told_as_that() -> None:
    tree = Inventory(
        distributions=(distribution("a"),),
        artefacts=(Artefact(f"{SITE}/a/kernel.ptx", 10, "ptx", "a==1.0"),),
    )
    assert "it is present; nothing links or names it" in flat(why(tree, "kernel.ptx"))


def test_the_same_tree_gives_the_same_answer() -> None:
    first, second = (text_of(why(many_ways(5, 3), "libend.so", every=True)) for _ in range(2))
    assert first == second


def test_the_requirement_line_stands_first_in_the_chain_of_a_file() -> None:
    answered = why(
        torch_like(),
        "libcudart",
        lock(acme=["a.in:2"], torch=["acme"], nvidia_cuda_runtime_cu12=["torch"]),
    )
    assert labels(one(answered), answered.graph)[0] == "a.in:2"
