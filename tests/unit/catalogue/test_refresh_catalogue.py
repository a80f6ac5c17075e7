"""The tool that writes the data files from the researched facts, on the parts that decide."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from buildmatrix.catalogue.datafile import replacement

TOOL = Path(__file__).resolve().parents[3] / "tools" / "refresh_catalogue.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refresh_catalogue", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def importer(tool: ModuleType, **facts: object) -> object:
    return tool.Importer("nvidia-cuda", facts, {"xpu": "oneapi"}, tool.Report())


FACT = {"source": ["wheel"], "confidence": "verified"}


def test_versions_that_several_toolkits_share_go_over_with_all_of_them(tool: ModuleType) -> None:
    subject = importer(tool)
    said = {"cu11": "11", "cu12": "11", "cu13": "12", "all": "9"}
    assert subject.toolkits("libx.so.*", said) == {"11": ["11", "12"], "12": "13"}
    assert subject.report.lines == [
        "left out: nvidia-cuda libx.so.* 'all': not one line of the toolkit"
    ]


def test_addresses_of_indexes_do_not_go_over(tool: ModuleType) -> None:
    subject = importer(tool)
    assert subject.replacement("torch", "https://wheels.example.com/whl/rocmX.Y") == "index rocm"
    entry = subject.common({**FACT, "note": "from https://wheels.example.com/x"})
    assert "note" not in entry
    assert "address of an index" in subject.report.lines[0]


def test_every_replacement_is_one_that_the_catalogue_can_read(tool: ModuleType) -> None:
    assert all(replacement(order) for order in tool.REPLACEMENTS.values())


def test_images_lose_their_registry_because_companies_mirror_them(tool: ModuleType) -> None:
    entries = list(importer(tool).image({**FACT, "repo": "nvcr.io/nvidia/{cuda,pytorch}, a/b"}))
    assert [entry["names"] for entry in entries] == [["nvidia/cuda"], ["nvidia/pytorch"], ["a/b"]]


def test_a_table_that_nobody_reads_is_reported(tool: ModuleType) -> None:
    subject = importer(tool, devices=[{"path": "/dev/x"}])
    assert subject.tables() == {}
    assert subject.report.lines == ["left out: nvidia-cuda [[devices]], 1 facts: for smoke tests"]


def test_an_accelerator_of_which_only_names_are_known_becomes_a_backend(tool: ModuleType) -> None:
    facts = {
        "date": "2026-11-20",
        "sources": {"hami": "device plugins"},
        "accelerators": [
            {
                "name": "hygon-dcu",
                "sonames": ["libgalaxyhip.so*", "libamdhip64.so*"],
                "distributions": ["torch+das*"],
                "source": ["hami"],
            },
            {"name": "apple", "distributions": ["mlx"], "source": ["hami"]},
        ],
    }
    ((name, ecosystem, fact),) = tool.others(facts)
    assert (name, ecosystem.backend, ecosystem.vendor) == ("hygon-dcu", "dcu", "hygon")
    report = tool.Report()
    tables = tool.Importer(name, fact, {}, report).tables()
    assert [entry["names"] for entry in tables["libraries"]] == [["libgalaxyhip.so*"]]
    assert [entry["paths"] for entry in tables["roots"]] == [["opt/dtk/*"], ["opt/hyhal/*"]]
    assert any("libamdhip64" in line for line in report.lines)
