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


def test_the_data_files_are_what_the_facts_of_the_repository_give(tool: ModuleType) -> None:
    mark = "Written by tools/refresh_catalogue.py"
    written = {
        path.name: path.read_text()
        for path in tool.DATA.glob("*.toml")
        if mark in path.read_text().partition("\n")[0]
    }
    assert tool.generate(tool.FACTS, tool.Report()) == written
    assert len(written) == 33


def test_no_fact_has_the_address_of_an_index(tool: ModuleType) -> None:
    texts = {path.name: path.read_text() for path in tool.FACTS.glob("*.toml")}
    assert [name for name, text in texts.items() if tool.HOST.search(text)] == []


def test_every_replacement_is_one_that_the_catalogue_can_read(tool: ModuleType) -> None:
    assert all(replacement(order) for order in tool.REPLACEMENTS.values())


def test_images_lose_their_registry_because_companies_mirror_them(tool: ModuleType) -> None:
    entries = list(importer(tool).image({**FACT, "repo": "nvcr.io/nvidia/{cuda,pytorch}, a/b"}))
    assert [entry["names"] for entry in entries] == [["nvidia/cuda"], ["nvidia/pytorch"], ["a/b"]]


def test_a_table_that_nobody_reads_is_reported(tool: ModuleType) -> None:
    subject = importer(tool, devices=[{"path": "/dev/x"}])
    assert subject.tables() == {}
    (line,) = subject.report.lines
    assert line.startswith("left out: nvidia-cuda [[devices]], 1 facts: ")


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
