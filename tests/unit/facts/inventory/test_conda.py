"""Conda environments, built after the documented format: no real package could be fetched here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from test_collect import ELF, Image

from buildmatrix.facts.inventory.conda import LARGEST_RECORD
from buildmatrix.facts.inventory.model import Distribution, Inventory

PREFIX = "opt/conda"
SITE = f"{PREFIX}/lib/python3.12/site-packages"


class Environment(Image):
    """A root file system with a conda environment in it."""

    def package(
        self,
        name: str,
        version: str,
        content: dict[str, bytes],
        *,
        depends: tuple[str, ...] = (),
        requested: bool = False,
        prefix: str = PREFIX,
        **more: object,
    ) -> str:
        """Link `content` into the environment, and write their record as conda does."""
        record = {
            "build": "h0_0",
            "build_number": 0,
            "channel": "https://conda.example.com/main/linux-64",
            "depends": list(depends),
            "files": list(content),
            "name": name,
            "paths_data": {
                "paths": [
                    {
                        "_path": path,
                        "path_type": "hardlink",
                        "sha256": hashlib.sha256(data).hexdigest(),
                        "sha256_in_prefix": hashlib.sha256(data).hexdigest(),
                        "size_in_bytes": len(data),
                    }
                    for path, data in content.items()
                ],
                "paths_version": 1,
            },
            "requested_spec": name if requested else "",
            "version": version,
            **more,
        }
        for path, data in content.items():
            self.file(f"{prefix}/{path}", data)
        path = f"{prefix}/conda-meta/{name}-{version}-h0_0.json"
        self.file(path, json.dumps(record))
        self.file(f"{prefix}/conda-meta/history", "==> 2026-11-20 <==\n")
        return path


@pytest.fixture
def image(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def one(inventory: Inventory, name: str) -> Distribution:
    (found,) = [item for item in inventory.distributions if item.name == name]
    return found


def owners(inventory: Inventory) -> dict[str, str | None]:
    return {item.path: item.owner for item in inventory.binaries}


def test_a_library_that_conda_installed_has_an_owner(image: Environment) -> None:
    path = image.package("cuda-cudart", "12.4.127", {"lib/libcudart.so.12.4.127": ELF})
    found = image.inventory()
    assert owners(found) == {f"{PREFIX}/lib/libcudart.so.12.4.127": "cuda-cudart==12.4.127"}
    assert one(found, "cuda-cudart") == Distribution(
        name="cuda-cudart",
        version="12.4.127",
        path=path,
        installer="conda",
        files=1,
        size=len(ELF),
    )
    assert found.unread == ()


def test_a_python_distribution_from_conda_is_there_once_with_all_files_of_its_package(
    image: Environment,
) -> None:
    folder = image.distribution(
        "torch", "2.9.0", {"torch/_C.so": ELF}, site=SITE, requires=("sympy",)
    )
    inside = folder.removeprefix(f"{PREFIX}/")
    image.package(
        "pytorch",
        "2.9.0",
        {
            f"{inside}/METADATA": (image.root / folder / "METADATA").read_bytes(),
            f"{inside}/RECORD": (image.root / folder / "RECORD").read_bytes(),
            "lib/python3.12/site-packages/torch/_C.so": ELF,
            "lib/libtorch_cpu.so": ELF + b"cpu",
        },
        requested=True,
    )
    found = image.inventory()
    torch = one(found, "torch")
    assert [item.name for item in found.distributions] == ["torch"]
    assert (torch.installer, torch.requested, torch.requires) == ("conda", True, ("sympy",))
    assert set(owners(found).values()) == {"torch==2.9.0"}
    assert found.shared_paths == ()


def test_packages_require_those_of_their_environment_by_the_names_that_these_have(
    image: Environment,
) -> None:
    folder = image.distribution("torch", "2.9.0", {}, site=SITE)
    inside = folder.removeprefix(f"{PREFIX}/")
    metadata = (image.root / folder / "METADATA").read_bytes()
    image.package("pytorch", "2.9.0", {f"{inside}/METADATA": metadata})
    image.package("libcublas", "12.4.5.8", {"lib/libcublas.so.12": ELF})
    image.package(
        "serving",
        "1.0",
        {"bin/serve": b"#!"},
        depends=("pytorch >=2", "conda-forge::libcublas >=12.4,<13.0a0", "__glibc >=2.17", "gone"),
    )
    image.package("libcublas", "11", {"lib/libcublas.so.11": ELF + b"1"}, prefix="opt/other")
    assert one(image.inventory(), "serving").requires == ("torch", "libcublas")


def test_an_environment_may_be_the_tree_itself(image: Environment) -> None:
    image.package("zlib", "1.3.1", {"lib/libz.so.1": ELF}, prefix=".")
    assert owners(image.inventory()) == {"lib/libz.so.1": "zlib==1.3.1"}


def test_what_pip_put_over_a_conda_package_is_claimed_by_both_and_the_bytes_decide(
    image: Environment,
) -> None:
    image.package("numpy", "1.26.0", {"lib/python3.12/site-packages/numpy/_core.so": ELF + b"old"})
    image.distribution("numpy", "2.3.0", {"numpy/_core.so": ELF}, site=SITE)
    found = image.inventory()
    (shared,) = found.shared_paths
    assert (shared.owners, shared.matches) == (
        ("numpy==1.26.0", "numpy==2.3.0"),
        ("numpy==2.3.0",),
    )
    assert set(owners(found).values()) == {"numpy==2.3.0"}


def test_a_record_without_paths_data_is_read_by_its_list_of_files(image: Environment) -> None:
    image.package("old", "1.0", {"lib/libold.so": ELF}, paths_data=None)
    assert owners(image.inventory()) == {f"{PREFIX}/lib/libold.so": "old==1.0"}


@pytest.mark.parametrize(
    "path", ["/etc/shadow.so", "../../etc/shadow.so", "lib/../../../etc/shadow.so", "lib/out.so"]
)
def test_a_record_owns_nothing_outside_of_its_environment(image: Environment, path: str) -> None:
    image.file("etc/shadow.so", ELF)
    image.link(f"{PREFIX}/lib/out.so", "/etc/shadow.so")
    image.package("evil", "1.0", {}, files=[path], paths_data={"paths": [{"_path": path}]})
    assert owners(image.inventory()) == {"etc/shadow.so": None}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no readable JSON: JSONDecodeError"),
        ("[" * 100_000, "no readable JSON: RecursionError"),
        ("[]", "no record of a conda package: it has no name or no version"),
        ('{"name": 1, "version": "1"}', "it has no name or no version"),
        (b"\xff\xfe", "no readable JSON: "),
    ],
)
def test_what_is_no_record_is_told(image: Environment, text: str, why: str) -> None:
    path = f"{PREFIX}/conda-meta/x-1-0.json"
    image.file(path, text)
    (unread,) = image.inventory().unread
    assert unread.path == path
    assert why in unread.why


@pytest.mark.parametrize(
    "more",
    [
        {"depends": "python", "files": 7, "paths_data": {"paths": 7}},
        {"depends": [1, "", None, "::"], "files": [1, ""], "paths_data": []},
        {"paths_data": {"paths": [1, {"_path": 1}, {"_path": "a", "sha256": 7}]}},
        {"requested_specs": {"a": 1}, "requested_spec": []},
    ],
)
def test_fields_of_another_kind_count_as_empty(image: Environment, more: dict[str, object]) -> None:
    image.package("odd", "1.0", {}, **more)
    assert one(image.inventory(), "odd").files == 0


def test_a_record_that_is_too_long_is_told_and_not_read(image: Environment) -> None:
    path = f"{PREFIX}/conda-meta/x-1-0.json"
    image.file(path, b"")
    with (image.root / path).open("wb") as file:
        file.truncate(LARGEST_RECORD + 1)
    assert [item.path for item in image.inventory().unread] == [path]
