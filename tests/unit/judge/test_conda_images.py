"""Findings in images of conda environments lead to the lines of the manifest."""

from __future__ import annotations

from pathlib import Path

from rulecases import elf, file, image, of_image, only, target

from buildmatrix.locks.model import CondaPackage, Lock, LockedFile


def package(name: str, via: str, *provides: str) -> CondaPackage:
    return CondaPackage(
        name=f"conda:{name}",
        version="1.0+0",
        index="conda.anaconda.org/conda-forge",
        wheels=(),
        source_only=False,
        via=(via,),
        file=LockedFile(f"{name}-1.0-0.conda", "", "0" * 64),
        provides=provides,
    )


CONDA = (
    package("pytorch", "pixi.toml:7", "pytorch", "torch"),
    package("libcublas", "conda:pytorch"),
)
LOCK = Lock(Path("pylock.toml"), (), "", "sha256:0", conda=CONDA)


def test_a_library_of_a_conda_package_is_blamed_on_the_line_that_asked_for_it() -> None:
    tree = image(file("lib/libcublas.so.12", elf("libcublas.so.12"), "libcublas 12.9", 9_000_000))
    finding = only(of_image(target("cpu"), tree, locked=LOCK), "BM201")
    assert finding.chain[:3] == ("pixi.toml:7", "conda:pytorch 1.0+0", "conda:libcublas 1.0+0")


def test_a_package_has_the_name_of_its_python_distribution_in_an_image() -> None:
    tree = image(file("torch/libcudart.so.12", elf("libcudart.so.12"), "torch 2.8", 9_000_000))
    finding = only(of_image(target("cpu"), tree, locked=LOCK), "BM201")
    assert finding.chain[:2] == ("pixi.toml:7", "conda:pytorch 1.0+0")
