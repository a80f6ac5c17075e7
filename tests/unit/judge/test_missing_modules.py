"""Modules that an import needs and nothing has: of vendors' software, and any others."""

from __future__ import annotations

from typing import Any

import pytest
from auditcases import subject
from rulecases import codes, image, of_image, only, pin, target, verdict

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import (
    Artefact,
    Distribution,
    Inventory,
    PythonImport,
    PythonLoad,
    Unread,
)
from buildmatrix.facts.trees.wheel import Member
from buildmatrix.judge.judging import judge_wheels
from buildmatrix.sources.wheels_on_index import merge


def importing(module: str, *others: str) -> Inventory:
    """A tree with `demo`, which imports a module that the tree does not have."""
    tree = image(installed=["demo 1", *others])
    statement = PythonImport("demo/__init__.py", 3, module, "missing", "demo==1")
    return replace(tree, python_imports=(statement,))


@pytest.mark.parametrize(
    ("module", "backend", "vendor"),
    [
        ("migraphx", "rocm", "amd"),
        ("rocm_smi", "rocm", "amd"),
        ("amdsmi.amdsmi_interface", "rocm", "amd"),
        ("hip", "rocm", "amd"),
        ("acl", "npu", "huawei"),
        ("torch_musa", "musa", "moore-threads"),
    ],
)
def test_a_module_of_another_vendors_software_breaks_an_import(
    module: str, backend: str, vendor: str
) -> None:
    # A wheel alone is enough; the vendor's own images have it.
    for tree in (importing(module), importing(module, "other 1")):
        for other in ("cpu", "cuda"):
            said = verdict(other, tree, "demo")
            assert (said.verdict, said.vendors) == ("broken", (vendor,))
            assert "demo/__init__.py:3" in said.reason
            finding = only(of_image(target(other), tree), "BM502")
            assert (finding.severity, finding.vendor) == ("error", vendor)
        assert verdict(backend, tree, "demo").verdict == "ok"
        assert codes(of_image(target(backend), importing(module)), "error") == []


def test_a_module_that_nothing_has_is_a_warning() -> None:
    tree = importing("absent.deep", "other 1")
    for backend in ("cpu", "cuda", "rocm"):
        finding = only(of_image(target(backend), tree), "BM502")
        assert (finding.severity, finding.distribution) == ("warning", "demo")
        assert "it imports absent (demo/__init__.py:3), which" in finding.message
        assert verdict(backend, tree, "demo").verdict == "ok"
    # What of the system or of the interpreter may have, and a wheel alone, which is no environment.
    assert of_image(target("cpu"), importing("gi", "other 1")) == ()
    assert of_image(target("cpu"), importing("pkg_resources", "other 1")) == ()
    assert of_image(target("cpu"), importing("absent")) == ()


def test_a_lock_that_was_not_read_whole_may_have_any_module() -> None:
    tree = importing("absent")
    read = subject(target("cpu"), pin("demo 1"), pin("other 1"))
    for inventory, without, expected in (
        (tree, {}, ["BM502 demo"]),
        (tree, {"other": "there is only its source code"}, []),
        (replace(tree, unread=(Unread("other-1-py3-none-any.whl", "gone"),)), {}, []),
    ):
        changed = replace(read, inventory=inventory, without_wheel=without)
        assert [one for one in codes(judge_wheels(changed).findings) if "BM502" in one] == expected


def test_wheels_side_by_side_have_the_modules_of_each() -> None:
    site = "demo-1.dist-info"
    statement = PythonImport("demo/__init__.py", 3, "yaml", "missing", "demo==1")
    space = PythonImport("demo/__init__.py", 4, "google.cloud", "missing", "demo==1")
    gone = PythonImport("demo/__init__.py", 5, "absent", "missing", "demo==1")
    demo = Inventory(
        distributions=(Distribution("demo", "1", site),), python_imports=(statement, space, gone)
    )
    paths = {"pyyaml": "yaml/__init__.py", "google-auth": "google/auth/__init__.py"}
    others = [
        Inventory(distributions=(Distribution(name, "1", f"{name}-1.dist-info"),)) for name in paths
    ]
    members = [[], *([Member(path, 1, 1, 0)] for path in paths.values())]
    merged = merge([demo, *others], members)
    assert merged.python_imports == (
        replace(statement, how="imported", provider="pyyaml==1"),
        gone,
    )


@pytest.mark.parametrize(
    ("kind", "links", "vendor"),
    [("pe", ("KERNEL32.dll", "nvcuda.dll", "torch_cuda.dll"), "nvidia"),
     ("pe", ("KERNEL32.dll", "python311.dll"), ""), ("macho", (), "")],
)  # fmt: skip
def test_a_module_for_another_system_breaks_an_import(
    kind: str, links: tuple[str, ...], vendor: str
) -> None:
    path = "usr/lib/python3.11/site-packages/demo/_c.cp311-win_amd64.pyd"
    statement = PythonImport("demo/__init__.py", 3, "demo._c", "missing", "demo==1", "demo==1")
    tree = replace(
        image(installed=["demo 1", "other 1"]),
        python_imports=(statement,),
        artefacts=(Artefact(path, 9_000_000, kind, "demo==1", links=links),),
    )
    for backend in ("cpu", "cuda"):
        said = verdict(backend, tree, "demo")
        assert (said.verdict, said.vendors) == ("broken", (vendor,) if vendor else ())
        assert ("links nvcuda.dll, torch_cuda.dll" in said.reason) == bool(vendor)
        finding = only(of_image(target(backend), tree), "BM502")
        assert (finding.severity, finding.vendor) == ("error", vendor or None)
    alone = replace(tree, python_imports=())
    assert verdict("cpu", alone, "demo").verdict == "ok"


@pytest.mark.parametrize(
    ("names", "change", "said"),
    [(("/usr/lib/python3.11/site-packages/demo/tide.dll",), {}, "broken"),
     (("tide.dll",), {}, "broken"),
     (("tide.dll", "libtide.so"), {}, "ok"), ((), {}, "ok"),
     (("tide.dll",), {"reach": "guarded"}, "ok"), (("tide.dll",), {"reach": "lazy"}, "ok"),
     (("tide.dll",), {"call": "find_library"}, "ok"),
     (("tide.dll",), {"owner": "other==1"}, "ok")],
)  # fmt: skip
def test_a_load_of_a_library_for_another_system_breaks_an_import(
    names: tuple[str, ...], change: dict[str, Any], said: str
) -> None:
    path = "usr/lib/python3.11/site-packages/demo/tide.dll"
    load = PythonLoad("demo/__init__.py", 3, "CDLL", names, "import", "demo==1")
    tree = replace(
        image(installed=["demo 1", "other 1"]),
        python_loads=(replace(load, **change),),
        artefacts=(Artefact(path, 9_000_000, "pe", "demo==1", links=("nvcuda.dll",)),),
    )
    judged = verdict("cpu", tree, "demo")
    assert judged.verdict == said
    if said == "broken":
        assert judged.vendors == ("nvidia",)
        assert "loads tide.dll" in judged.reason
        assert "links nvcuda.dll" in judged.reason
