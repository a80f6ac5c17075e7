"""Data files: what comes with buildmatrix, and what a user adds."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.catalogue.datafile import read, replacement
from buildmatrix.catalogue.load import SEQUENCES, Catalogue, Owned, load
from buildmatrix.catalogue.lookup import distribution, library
from buildmatrix.catalogue.tables import DataFile, iter_entries
from buildmatrix.facts.elf.search import MARKS

HEAD = """
schema = 1
backend = "wave"
vendor = "acme"
title = "Acme Wave"
checked = 2026-11-20
[sources]
site = "the vendor's manual, page 3"
"""
ENTRY = HEAD + '[[libraries]]\nnames = ["libwave.so.*"]\nrole = "runtime"\n'
GOOD = ENTRY + 'source = ["site"]\nbasis = "documented"\n'


def test_sequences_of_the_catalogue_hold_the_entries_of_the_tables_of_their_names() -> None:
    kinds, tables = get_type_hints(Catalogue), get_type_hints(DataFile)
    assert len(SEQUENCES) > 20
    for name in SEQUENCES:
        (entry, _) = get_args(tables[name])
        assert kinds[name] == Sequence[Owned[entry]], name


def data_files() -> list[tuple[str, DataFile]]:
    folder = resources.files("buildmatrix.catalogue") / "data"
    return [(item.name, read(item.name, item.read_bytes())) for item in folder.iterdir()]


def test_the_four_backends_are_known_with_their_vendors() -> None:
    backends = load().backends
    vendors = {name: backends[name].vendor for name in ("cuda", "rocm", "oneapi", "cpu")}
    assert vendors == {"cuda": "nvidia", "rocm": "amd", "oneapi": "intel", "cpu": None}


def test_the_catalogue_tells_when_it_was_checked() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", load().date)


def test_indexes_are_known_by_uvs_names_and_never_by_address() -> None:
    routes = {route.name: route.toolkit for route in load().backends["cuda"].indexes}
    assert routes["cu128"] == "12"
    assert routes["cu130"] == "13"
    folder = resources.files("buildmatrix.catalogue") / "data"
    for item in folder.iterdir():
        assert "http" not in item.read_text(), item.name


def test_every_entry_names_sources_and_every_source_is_named() -> None:
    for name, file in data_files():
        found = [entry for _, _, entry in iter_entries(file)]
        assert found and all(entry.source for entry in found), name
        assert {source for entry in found for source in entry.source} == set(file.sources), name


def test_roles_come_from_one_vocabulary() -> None:
    roles = {entry.role for _, file in data_files() for entry in file.libraries}
    roles |= {entry.role for _, file in data_files() for entry in file.tools}
    assert roles <= {
        *("driver", "runtime", "math", "dnn", "comm", "compiler", "profiler", "inference"),
        *("codec", "framework", "loader", "icd", "opencl", "io", "util", "graphics"),
    }


def test_a_users_file_adds_a_backend(tmp_path: Path) -> None:
    path = tmp_path / "wave.toml"
    path.write_text(GOOD)
    catalogue = load([path])
    assert catalogue.backends["wave"].vendor == "acme"
    assert [match.owned.vendor for match in library("libwave.so.3", None, catalogue)] == ["acme"]
    assert not library("libwave.so.3", None, load())


def test_a_users_file_adds_to_a_backend_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "house.toml"
    path.write_text(
        GOOD.replace('"wave"', '"cuda"').replace('"acme"', '"nvidia"')
        + '[[distributions]]\nnames = ["house-kernels"]\nkind = "native"\n'
        + 'source = ["site"]\nbasis = "verified"\n'
    )
    match = distribution("house_kernels", "1.0", load([path]))
    assert match is not None
    assert (match.vendor, match.backend) == ("nvidia", "cuda")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = [", r"broken\.toml:1:11: this is not TOML"),
        (HEAD.replace("schema = 1", "schema = 9"), "`schema` must be 1"),
        (GOOD.replace("role", "roll"), "roll"),
        (GOOD.replace('"runtime"', "7"), r"libraries\[0\].role"),
        (GOOD + 'weight = "heavy"\n', "heavy"),
        (GOOD.replace('["site"]', '["sight"]'), "'sight', which is missing in \\[sources\\]"),
        (
            HEAD + '[[local-versions]]\npattern = "("\nsource = []\nbasis = "memory"\n',
            "invalid regular expression",
        ),
        (
            HEAD
            + "[[variant-features]]\nnamespace = 'w'\nfeatures = ['a']\nmeans = 'device-code'\n"
            + "values = { 'v(1)' = 'w\\2' }\nsource = []\nbasis = 'memory'\n",
            "has the meaning",
        ),
        (
            HEAD
            + '[[distributions]]\nnames = ["w"]\nkind = "native"\nreplace = { cpu = "drop it" }\n'
            + 'source = []\nbasis = "memory"\n',
            "'drop it'; write `use NAME`",
        ),
    ],
)
def test_a_broken_file_is_one_clear_error_that_names_it(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        load([path])
    assert all(problem.file == str(path) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("old", "new", "line", "column"),
    [
        ('role = "runtime"', "role = 7", 11, 1),
        ('role = "runtime"', 'roll = "runtime"', 11, 1),
        ('names = ["libwave.so.*"]', 'names = ["libwave.so.*", 3]', 10, 26),
        ("schema = 1", "schema = 2", 2, 1),
        ('source = ["site"]', 'source = ["sight"]', 12, 1),
        ('title = "Acme Wave"', "", None, None),
    ],
)
def test_a_mistake_in_a_users_file_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, column: int | None
) -> None:
    path = tmp_path / "wave.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load([path])
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.column) == (str(path), line, column)


def test_a_mark_that_no_reader_looks_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wave.toml"
    path.write_text(
        GOOD + '[[static]]\nname = "wave"\nrole = "runtime"\nshared = []\nmarks = ["wave"]\n'
        'source = ["site"]\nbasis = "verified"\n'
    )
    with pytest.raises(SpecError, match=r"wave\.toml:18:1: .*the mark 'wave'; there are cudart"):
        load([path])


def test_every_mark_that_is_looked_for_belongs_to_somebody() -> None:
    assert {mark for owned in load().static for mark in owned.entry.marks} == set(MARKS)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.toml: there is no such file"):
        load([tmp_path / "absent.toml"])


def test_two_vendors_for_one_backend_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "house.toml"
    path.write_text(GOOD.replace('"wave"', '"cuda"'))
    with pytest.raises(SpecError, match=r"house\.toml: the backend 'cuda' has the vendor 'nvidia'"):
        load([path])


@pytest.mark.parametrize("text", ["use", "remove torch", "index", "", "install x"])
def test_an_order_that_says_too_little_or_too_much_is_none(text: str) -> None:
    assert replacement(text) is None


def test_the_page_of_the_catalogue_lists_every_backend() -> None:
    page = (Path(__file__).parents[3] / "docs/catalogue.md").read_text(encoding="utf-8")
    for backend in load().backends.values():
        assert f"| `{backend.name}` | {backend.vendor or ''} | {backend.title} |" in page
