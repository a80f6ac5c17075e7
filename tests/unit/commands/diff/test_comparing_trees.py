"""What differs between two trees: distributions, libraries, architectures, layers, environment."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from comparison_cases import difference, installed, library, pin, side, tree
from comparison_cases import lock as locked

from buildmatrix.base.data import replace
from buildmatrix.commands.diff import HIDDEN, compare
from buildmatrix.commands.diff_contents import HeldDistribution, Side
from buildmatrix.commands.diff_sources import add_lock
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import ClosedFile, Inventory, Layer
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.reports.diff import DistributionChanges


def changes(before: Inventory, after: Inventory) -> list[tuple[str, str, tuple, tuple]]:
    found = difference(before, after)
    return [(one.change, one.name, one.before, one.after) for one in found.distributions.changes]


# Distributions


def test_distributions_that_came_went_and_changed_are_told_by_name() -> None:
    before = tree(installed("gone 1.0"), installed("numpy 2.1.0"), installed("same 3.0"))
    after = tree(installed("numpy 2.3.1"), installed("new 0.1"), installed("same 3.0"))
    assert changes(before, after) == [
        ("removed", "gone", ("1.0",), ()),
        ("added", "new", (), ("0.1",)),
        ("changed", "numpy", ("2.1.0",), ("2.3.1",)),
    ]
    assert difference(before, after).distributions.same == 1


def test_a_tree_and_itself_do_not_differ() -> None:
    one = tree(
        installed("torch 2.9.0", record="a" * 64),
        files=[library("torch/libtorch.so", "torch 2.9.0", archs=["sm_90"])],
        layers=[Layer("sha256:1", "RUN x", 5)],
        environment={"PATH": "/bin"},
        size=5,
    )
    found = difference(one, one)
    assert found.distributions == DistributionChanges(1)
    assert (found.libraries, found.architectures, found.environment) == ((), (), ())
    assert found.layers is not None and (found.layers.changes, found.layers.same) == ((), 1)
    assert all(one.before == one.after for one in found.vendors or ())


@pytest.mark.parametrize(
    ("before", "after", "step", "older"),
    [
        ("1.9.3", "2.0", "major", False),
        ("2.1", "2.2.0", "minor", False),
        ("2.1.3", "2.1.4", "patch", False),
        ("2.1.3", "2.1.3.1", "patch", False),
        ("2.1.3", "2.1.3.post1", "patch", False),
        ("2.9.0+cu126", "2.9.0+cu128", "local", False),
        ("3.0", "2.9", "major", True),
        ("2.9.0", "2.9.0rc1", "patch", True),
        ("1!1.0", "2!1.0", "major", False),
        ("not a version".replace(" ", "-"), "1.0", "", False),
    ],
)
def test_how_far_two_versions_are_apart_is_told(
    before: str, after: str, step: str, older: bool
) -> None:
    (change,) = difference(
        tree(installed(f"x {before}")), tree(installed(f"x {after}"))
    ).distributions.changes
    assert (change.step, change.is_downgrade) == (step, older)


def test_the_same_version_with_other_binaries_is_told_with_the_files() -> None:
    def of(size: int, build_id: str) -> Inventory:
        return tree(
            installed("x 1.0"),
            files=[
                library("x/a.so", "x 1.0", size=size),
                library("x/b.so", "x 1.0", build_id=build_id),
            ],
        )

    (change,) = difference(of(1000, "aa"), of(3500, "bb")).distributions.changes
    assert change.step == "bytes"
    assert change.details == ("other bytes: x/a.so +2.5 kB, x/b.so has another build id",)


def test_the_same_version_with_other_python_files_is_told() -> None:
    one, other = (tree(installed("x 1.0", record=letter * 64)) for letter in "ab")
    (change,) = difference(one, other).distributions.changes
    assert change.details == ("other bytes: the hashes in its RECORD differ, those of no binary",)


def placed(root: Path, folder: str, module: str, installer: str) -> Inventory:
    """An environment with one distribution, as an installer leaves it."""
    site = root / folder
    metadata = site / "x-1.0.dist-info"
    metadata.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin/x").write_text(f"#!{root}/bin/python\n")
    (site / "x.py").write_text(module)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    (metadata / "INSTALLER").write_text(installer)
    script = "../" * len(Path(folder).parts) + "bin/x"
    lines = [
        f"x.py,sha256={hashlib.sha256(module.encode()).hexdigest()},{len(module)}",
        f"x-1.0.dist-info/INSTALLER,sha256={installer},{len(installer)}",
        f"{script},sha256={hashlib.sha256(str(root).encode()).hexdigest()},9",
        "__pycache__/x.cpython-311.pyc,,",
    ]
    (metadata / "RECORD").write_text("\n".join(lines))
    with DirectoryTree(root) as tree:
        return collect(tree)


def test_who_installed_it_and_where_changes_no_distribution_but_a_module_does(
    tmp_path: Path,
) -> None:
    old = placed(tmp_path / "a", "lib/python3.11/site-packages", "one = 1\n", "pip")
    moved = placed(tmp_path / "b", "lib/python3.12/site-packages", "one = 1\n", "uv")
    patched = placed(tmp_path / "c", "lib/python3.11/site-packages", "one = 2\n", "pip")
    assert difference(old, moved, "tree").distributions.changes == ()
    (change,) = difference(old, patched, "tree").distributions.changes
    assert change.step == "bytes"


def test_another_python_moves_files_and_changes_no_distribution() -> None:
    before = tree(installed("x 1.0"), files=[library("x/a.so", "x 1.0")])
    moved = before.binaries[0]
    after = replace(
        before, binaries=(replace(moved, path=moved.path.replace("python3.11", "python3.12")),)
    )
    assert difference(before, after).distributions.changes == ()


def test_a_distribution_that_is_there_twice_now_is_a_change() -> None:
    before = tree(installed("x 1.0"))
    after = tree(installed("x 1.0"), installed("x 2.0"))
    assert changes(before, after) == [("changed", "x", ("1.0",), ("1.0", "2.0"))]


def test_locks_are_compared_by_hash_wheel_and_index() -> None:
    def of(sha256: str, wheel: str, index: str) -> Side:
        held = HeldDistribution("x", "1.0", wheel=wheel, sha256=sha256, index=index)
        return Side("lock:a", "lock", held=(held,))

    plain = of("a" * 64, "x-1.0-py3-none-any.whl", "https://one.example.com")
    rebuilt = of("b" * 64, "x-1.0-py3-none-any.whl", "https://one.example.com")
    other = of("b" * 64, "x-1.0-cp312-cp312-linux_x86_64.whl", "https://two.example.com")
    mirrored = of("a" * 64, "x-1.0-py3-none-any.whl", "https://mirror.example.com")
    assert compare(plain, mirrored).distributions.changes == (), "the same file from elsewhere"
    (change,) = compare(plain, rebuilt).distributions.changes
    assert change.details == ("other bytes: sha256 bbbbbbbbbbbb in place of aaaaaaaaaaaa",)
    (change,) = compare(plain, other).distributions.changes
    assert change.details == (
        "from https://two.example.com in place of https://one.example.com",
        "another wheel: cp312-cp312-linux_x86_64 in place of py3-none-any",
    )


def test_what_a_lock_holds_and_nobody_could_read_is_compared_too() -> None:
    def of(*lines: str) -> Side:
        packages = locked(*(pin(line) for line in lines))
        return add_lock(Side("lock:a", "lock"), packages, lambda one: one.wheels[0])

    found = compare(of("numpy 2.1.0", "scipy 1.0"), of("numpy 2.3.0", "scipy 1.0"))
    assert [one.name for one in found.distributions.changes] == ["numpy"]
    assert found.distributions.same == 1


def test_requirements_are_compared_where_one_wheel_is_compared_with_another() -> None:
    before = tree(replace(installed("x 1.0"), requires=("numpy", "six")))
    after = tree(replace(installed("x 2.0"), requires=("numpy", "nvidia-nccl-cu12")))
    sides = [replace(side(one, "wheel"), is_wheel=True) for one in (before, after)]
    (change,) = compare(*sides).distributions.changes
    assert (change.requires_added, change.requires_removed) == (("nvidia-nccl-cu12",), ("six",))


# Libraries


def test_a_cudnn_major_is_marked_with_the_distribution_that_brought_it() -> None:
    def of(distribution: str, version: str, soname: str) -> Inventory:
        line = f"{distribution} {version}"
        path = f"nvidia/cudnn/lib/{soname}"
        return tree(installed(line), files=[library(path, line, soname=soname)])

    before = of("nvidia-cudnn-cu12", "8.9.7.29", "libcudnn.so.8")
    after = of("nvidia-cudnn-cu12", "9.1.0.70", "libcudnn.so.9")
    (change,) = difference(before, after).libraries or ()
    assert (change.name, change.before, change.after) == ("libcudnn", ("8.9.7.29",), ("9.1.0.70",))
    assert (change.major, change.version_of) == ("8 -> 9", "distribution")
    assert change.distributions == ("nvidia-cudnn-cu12",)


def test_a_newer_nccl_of_the_same_major_is_told_and_not_marked() -> None:
    def of(version: str) -> Inventory:
        return tree(files=[library(f"usr/lib/libnccl.so.{version}", soname="libnccl.so.2")])

    (change,) = difference(of("2.27.3"), of("2.30.1")).libraries or ()
    assert (change.before, change.after, change.major) == (("2.27.3",), ("2.30.1",), "")
    assert change.version_of == "file name"


def test_a_second_copy_of_another_major_is_marked() -> None:
    one = library("usr/lib/libcudart.so.12", soname="libcudart.so.12")
    other = library("opt/x/libcudart-9335f6a2.so.13", soname="libcudart-9335f6a2.so.13")
    (change,) = difference(tree(files=[one]), tree(files=[one, other])).libraries or ()
    assert (change.name, change.major) == ("libcudart", "12 -> 12/13")
    (change,) = difference(tree(files=[one, other]), tree(files=[one])).libraries or ()
    assert (change.before, change.after, change.major) == (("12", "13"), ("12",), "")


def test_a_wheel_builders_hash_in_the_name_changes_no_library() -> None:
    before = tree(files=[library("x.libs/libcudart-9335f6a2.so.12.8.90")])
    after = tree(files=[library("x.libs/libcudart-0011aabb.so.12.8.90")])
    assert difference(before, after).libraries == ()


@pytest.mark.parametrize("line", ["torchvision 0.28.0", "torch 2.9.1+cu128"])
def test_a_build_for_a_vendor_does_not_lend_its_version_to_what_it_bundles(line: str) -> None:
    def of(line: str) -> Inventory:
        path = "x.libs/libcudart.3eda8113.so.13"
        return tree(installed(line), files=[library(path, line, soname="libcudart.so.13")])

    name, version = line.split()
    newer = f"{name} {version.replace('2', '3', 1)}"
    assert difference(of(line), of(newer)).libraries == ()


# Architectures


def test_architectures_gained_and_lost_are_told_for_all_and_for_each_distribution() -> None:
    def of(*archs: str) -> Inventory:
        return tree(
            installed("torch 2.9.0"),
            installed("other 1.0"),
            files=[
                library("torch/libtorch_cuda.so", "torch 2.9.0", archs=archs),
                library("other/k.so", "other 1.0", archs=["sm_90"]),
            ],
        )

    found = difference(of("sm_70", "sm_90"), of("sm_90", "sm_100", "sm_120"))
    assert [
        (one.distribution, one.vendor, one.gained, one.lost) for one in found.architectures or ()
    ] == [
        (None, "nvidia", ("sm_100", "sm_120"), ("sm_70",)),
        ("torch", "nvidia", ("sm_100", "sm_120"), ("sm_70",)),
    ]


def test_architectures_of_a_wheel_that_was_read_in_part_are_not_guessed() -> None:
    def of(read: int | None, *archs: str) -> Inventory:
        files = [library("torch/t.so", "torch 2.9.0", archs=archs, read=read)]
        return tree(installed("torch 2.9.0"), files=files)

    found = difference(of(None, "sm_70", "sm_90"), of(4096, "sm_90"))
    assert found.architectures == ()
    assert any("architectures of torch are not compared" in note for note in found.notes)


def test_a_file_that_was_left_closed_makes_its_distribution_partial() -> None:
    before = tree(
        installed("torch 2.9.0"),
        files=[library("torch/t.so", "torch 2.9.0", archs=["sm_90"])],
    )
    after = replace(
        tree(installed("torch 2.9.0")),
        closed=(ClosedFile(f"{before.binaries[0].path}", 1000, "torch==2.9.0"),),
    )
    assert difference(before, after).architectures == ()


# Layers and environment


def test_the_lowest_layers_are_the_same_and_a_rebuilt_one_is_matched_by_its_instruction() -> None:
    base = [Layer("sha256:1", "ADD root", 100), Layer("sha256:2", "RUN base", 10)]
    before = [
        *base,
        Layer("sha256:3", "RUN /bin/sh -c uv pip install # buildkit", 5000, hidden=7),
        Layer("sha256:4", "COPY app /app # buildkit", 1),
    ]
    after = [
        *base,
        Layer("sha256:5", "RUN /bin/sh -c uv pip install # buildkit", 9000),
        Layer("sha256:6", "RUN /bin/sh -c rm -r /tmp/x # buildkit", 0),
        Layer("sha256:7", "COPY app /app # buildkit", 1),
    ]
    found = difference(tree(layers=before), tree(layers=after)).layers
    assert found is not None
    assert (found.before, found.after, found.same, found.hidden_before) == (4, 5, 2, 7)
    assert [(one.change, one.index, one.instruction, one.size_after) for one in found.changes] == [
        ("changed", 2, "RUN uv pip install", 9000),
        ("added", 3, "RUN rm -r /tmp/x", 0),
        ("changed", 4, "COPY app /app", 1),
    ]


def test_layers_that_were_not_read_are_said_to_be_not_compared() -> None:
    found = difference(tree(installed("x 1.0")), tree(installed("x 1.0")))
    assert found.layers is None
    assert "layers are not compared" in " ".join(found.notes)


def test_variables_are_compared_and_secrets_are_not_shown() -> None:
    before = tree(environment={"CUDA_VERSION": "12.8", "PATH": "/bin", "API_TOKEN": "one"})
    after = tree(environment={"CUDA_VERSION": "13.0", "PATH": "/bin", "API_TOKEN": "two", "N": "1"})
    found = difference(before, after).environment or ()
    assert [(one.change, one.name, one.before, one.after) for one in found] == [
        ("changed", "API_TOKEN", HIDDEN, HIDDEN),
        ("changed", "CUDA_VERSION", "12.8", "13.0"),
        ("added", "N", None, "1"),
    ]


def test_the_order_of_what_was_read_does_not_change_the_result() -> None:
    distributions = [installed(f"d{n} 1.0") for n in range(9)]
    files = [library(f"usr/lib/libcublas{n}.so", soname="libcublas.so.12") for n in range(5)]
    one = tree(*distributions, files=files)
    other = tree(*reversed(distributions), files=files[::-1])
    empty = tree()
    assert difference(empty, one) == difference(empty, other)
    assert difference(one, empty) == difference(other, empty)
