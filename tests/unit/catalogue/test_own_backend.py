"""A backend that buildmatrix does not know: a data file, a template, and no code."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.base.errors import SpecError
from buildmatrix.catalogue.load import _load
from buildmatrix.catalogue.load import load as load_catalogue
from buildmatrix.facts.elf.model import Elf
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory
from buildmatrix.judge.judging import Judge
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec

DATA = """\
schema = 1
backend = "acme"
vendor = "acme"
title = "Acme Wave"
aliases = ["wave"]
checked = 2026-11-21
[sources]
manual = "Acme Wave manual 4.2, page 17"

[[libraries]]
names = ["libwave.so.*"]
role = "runtime"
source = ["manual"]
basis = "documented"

[[environment]]
names = ["WAVE_HOME"]
weight = "strong"
source = ["manual"]
basis = "documented"
"""
SPEC = """\
[project]
name = "demo"
version = "1.0"
[catalogue]
files = ["catalogue/acme.toml"]
[defaults]
python = "3.12"
requirements = ["base.in"]
[backend.acme]
runtime = "4.2"
base = "acme/wave:4.2@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
template = "images/acme.Dockerfile.j2"
[backend.cpu]
runtime = "any"
base = "python:3.12@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
"""
TEMPLATE = """\
{% extends "base.Dockerfile.j2" %}
{% block env %}
ENV WAVE_HOME=/opt/wave
{% endblock %}
"""
LOCK = """\
lock-version = "1.0"
created-by = "buildmatrix"
packages = []
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {
        "buildmatrix.toml": SPEC,
        "base.in": "",
        "catalogue/acme.toml": DATA,
        "images/acme.Dockerfile.j2": TEMPLATE,
        "locks/pylock.acme4.2-py312-default.toml": LOCK,
        "locks/pylock.cpu-py312-default.toml": LOCK,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    # A data file is read once per process, and tests have different ones of one relative name.
    _load.cache_clear()
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    return int(stop.value.code or 0)


def loaded(path: Path) -> Spec:
    return load_spec(path, backends=lambda files: load_catalogue(files).backends)


def refused(project: Path, old: str, new: str) -> tuple[str, str]:
    """The problem of a specification with `new` in the place of `old`: where it is, and what."""
    path = project / "buildmatrix.toml"
    path.write_text(SPEC.replace(old, new))
    with pytest.raises(SpecError) as caught:
        loaded(path)
    (problem,) = caught.value.problems
    return f"{Path(problem.file).name}:{problem.line}", problem.message


def image(library: str) -> Inventory:
    elf = Elf(64, True, "x86_64", "dyn", soname=library)
    return Inventory(
        distributions=(Distribution("demo", "1", "site/demo-1.dist-info"),),
        binaries=(Binary(f"site/demo/{library}", 9_000_000, elf, "demo==1"),),
    )


def test_its_targets_are_listed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("targets", "--format", "json") == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    assert [one["id"] for one in targets] == ["acme4.2-py312-default", "cpu-py312-default"]


def test_its_dockerfile_comes_from_its_own_template(project: Path) -> None:
    assert run("generate") == 0
    text = (project / ".buildmatrix/generated/acme4.2-py312-default/Dockerfile").read_text()
    assert "ENV WAVE_HOME=/opt/wave" in text
    assert re.search(r"^FROM \S*acme/wave:4\.2", text, re.MULTILINE)


def test_without_a_template_its_dockerfile_comes_from_its_data_file(project: Path) -> None:
    more = """
[[build]]
variables = { WAVE_VISIBLE = "all $HOME" }
groups = ["wave"]
packages = ["libnuma1"]
library-folders = ["/opt/wave/driver"]
note = "What the runtime should bring."
source = ["manual"]
basis = "documented"

[[runs]]
options = ["--device=/dev/wave0"]
note = "the first one"
source = ["manual"]
basis = "documented"
"""
    (project / "catalogue/acme.toml").write_text(DATA + more)
    path = project / "buildmatrix.toml"
    path.write_text(SPEC.replace('template = "images/acme.Dockerfile.j2"\n', ""))
    assert run("generate") == 0
    text = (project / ".buildmatrix/generated/acme4.2-py312-default/Dockerfile").read_text()
    assert '# What the runtime should bring.\nENV WAVE_VISIBLE="all \\$HOME"\n' in text
    assert "usermod --append --groups wave" in text
    assert 'wanted="libnuma1"' in text
    assert 'ENV LD_LIBRARY_PATH="/opt/wave/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' in text
    assert text.endswith("# docker run --device=/dev/wave0  (the first one)\n")
    other = (project / ".buildmatrix/generated/cpu-py312-default/Dockerfile").read_text()
    assert "WAVE" not in other and "wave" not in other


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ('variables = { WAVE = "a\\nRUN b" }', "has a line break"),
        ('variables = { "A B" = "c" }', "is not a variable name"),
        ('packages = ["a; b"]', "is not the name of a Debian package"),
        ('library-folders = ["/a\\nRUN b"]', "need a quoting filter"),
    ],
)
def test_nothing_of_a_data_file_becomes_an_instruction(
    project: Path, key: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = f'\n[[build]]\n{key}\nsource = ["manual"]\nbasis = "documented"\n'
    (project / "catalogue/acme.toml").write_text(DATA + entry)
    path = project / "buildmatrix.toml"
    path.write_text(SPEC.replace('template = "images/acme.Dockerfile.j2"\n', ""))
    assert run("generate") == 2
    assert said in capsys.readouterr().err


def test_its_libraries_are_its_own_and_foreign_elsewhere(project: Path) -> None:
    spec = loaded(project / "buildmatrix.toml")
    judge = Judge(spec, "error", date(2026, 11, 21))
    acme, cpu = spec.targets

    def found(target: int, library: str) -> set[tuple[str, str | None]]:
        findings = judge.image((acme, cpu)[target], image(library), None).findings
        return {(one.rule, one.vendor) for one in findings}

    assert found(0, "libwave.so.4") == set()
    assert ("BM201", "acme") in found(1, "libwave.so.4")
    assert ("BM201", "nvidia") in found(0, "libcudart.so.12")
    assert judge.has_device("acme")


def test_a_scan_without_a_target_knows_it_too(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "tree").mkdir()
    (project / "tree/libwave.so.4").write_bytes(b"\x7fELF" + bytes([2, 1, 1]) + bytes(57))
    assert run("scan", "dir:tree", "--backend", "acme", "--no-cache") == 0
    assert run("scan", "dir:tree", "--backend", "cpu", "--no-cache") == 1
    assert "Acme Wave" in capsys.readouterr().out


def test_the_catalogue_lists_it_by_its_other_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("rules", "--catalogue", "wave") == 0
    listed = capsys.readouterr().out
    assert "acme: Acme Wave (acme); also called wave" in listed
    assert "libwave.so.*  [runtime strong image documented]" in listed


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("acme.toml", "acne.toml", "buildmatrix.toml:5", "there is no file `catalogue/acne.toml`"),
        ("catalogue/acme", "../acme", "buildmatrix.toml:5", "leaves its folder"),
        ('"catalogue/acme.toml"', "7", "buildmatrix.toml:5", "must be a string"),
        (
            '["catalogue/acme.toml"]',
            '["catalogue/acme.toml", "./catalogue/acme.toml"]',
            "buildmatrix.toml:5",
            "is listed twice",
        ),
        ("files =", "file =", "buildmatrix.toml:5", "unknown key `file`"),
        ("[backend.acme]", "[backend.acne]", "buildmatrix.toml:9", "unknown backend `acne`"),
        ('[catalogue]\nfiles = ["catalogue/acme.toml"]\n', "", "buildmatrix.toml:7", "`acme`"),
    ],
    ids=["absent", "outside", "type", "twice", "key", "backend", "none"],
)
def test_a_mistake_is_told_with_its_line(
    project: Path, old: str, new: str, place: str, message: str
) -> None:
    where, what = refused(project, old, new)
    assert where == place
    assert message in what


def test_a_mistake_in_the_data_file_is_told_with_the_files_own_line(project: Path) -> None:
    path = project / "catalogue/acme.toml"
    path.write_text(DATA.replace('role = "runtime"', 'roll = "runtime"'))
    with pytest.raises(SpecError) as caught:
        loaded(project / "buildmatrix.toml")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(path), 12)


def test_a_link_out_of_the_folder_is_refused(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "acme.toml"
    outside.write_text(DATA)
    (project / "catalogue/acme.toml").unlink()
    (project / "catalogue/acme.toml").symlink_to(outside)
    with pytest.raises(SpecError, match=r"buildmatrix\.toml:5:\d+: .*a link that leads out"):
        loaded(project / "buildmatrix.toml")
