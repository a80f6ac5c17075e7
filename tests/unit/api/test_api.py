"""`import buildmatrix`: the functions of the commands, for programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from users_code import chains, codes, is_worse, markdown

import buildmatrix
from buildmatrix import cli
from buildmatrix.base.progress import Progress, Silent


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))


def install(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n")


@pytest.fixture
def pure(tmp_path: Path) -> Path:
    install(tmp_path / "pure", "acme", "1.0")
    return tmp_path / "pure"


@pytest.fixture
def smuggled(tmp_path: Path) -> Path:
    install(tmp_path / "smuggled", "acme", "1.0")
    install(tmp_path / "smuggled", "nvidia-cublas-cu12", "12.8.4.1")
    return tmp_path / "smuggled"


def test_the_code_of_a_user_gets_answers(pure: Path, smuggled: Path) -> None:
    assert codes(pure, "cpu") == []
    assert codes(smuggled, "cpu") == ["BM101"]
    assert codes(smuggled, "cuda") == []
    assert chains(smuggled, "cuda") == ["nvidia-cublas-cu12 12.8.4.1"]
    assert is_worse(pure, smuggled) and not is_worse(smuggled, pure)
    assert "nvidia-cublas-cu12" in markdown(smuggled)


def test_a_function_and_its_command_say_the_same(
    smuggled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = buildmatrix.scan(smuggled, backend="cpu")
    with pytest.raises(SystemExit) as stop:
        cli.main(["scan", str(smuggled), "--backend", "cpu", "--format", "json"])
    printed = json.loads(capsys.readouterr().out)
    said = json.loads(result.render("json"))
    for document in (printed, said):
        del document["stats"], document["targets"][0]["seconds"]
    assert (said, result.exit_code, result.ok) == (printed, stop.value.code, False)


def test_a_call_raises_what_the_command_would_say(pure: Path) -> None:
    with pytest.raises(buildmatrix.BuildmatrixError, match="there is no backend 'cuad'") as caught:
        buildmatrix.scan(pure, backend="cuad")
    assert caught.value.exit_code == 2


def test_a_format_that_a_document_lacks_names_those_that_it_has(pure: Path) -> None:
    with pytest.raises(
        buildmatrix.BuildmatrixError, match="there is no format 'svg'; use table, json"
    ):
        buildmatrix.scan(pure, backend="cpu").render("svg")


def test_rendered_text_of_strangers_is_not_obeyed(tmp_path: Path) -> None:
    install(tmp_path / "tree", "nvidia-cublas-cu12", "12.8\x1b[31m")
    text = buildmatrix.scan(tmp_path / "tree", backend="cpu").render("table")
    assert "cublas" in text and "\x1b" not in text


def test_nothing_is_printed_and_progress_goes_to_whoever_asks(
    smuggled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = []

    @contextmanager
    def display() -> Iterator[Progress]:
        opened.append(True)
        yield Silent()

    requirements = smuggled.parent / "requirements.txt"
    requirements.write_text("")
    workspace = buildmatrix.Workspace(smuggled / "none.toml", offline=True, progress=display)
    result = buildmatrix.audit(requirements, backends=["cpu"], python="3.12", workspace=workspace)
    assert (result.exit_code, opened) == (0, [True])
    assert capsys.readouterr() == ("", "")


def test_a_folder_that_takes_long_is_counted(
    smuggled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int | None, str]] = []

    class Display(Silent):
        def part(self, target: str, done: int, total: int | None, unit: str) -> None:
            told.append((target, done, total, unit))

    def scanned(patience: float) -> None:
        monkeypatch.setattr("buildmatrix.commands.workspace._PATIENCE", patience)
        here = buildmatrix.Workspace(cache=False, progress=lambda: nullcontext(Display()))
        buildmatrix.scan(smuggled, backend="cpu", workspace=here)

    scanned(3600)
    assert told == []
    scanned(0)
    label, done, total, unit = told[-1]
    assert label.startswith("dir:") and done == total and unit == "files"


@pytest.mark.parametrize("name", sorted(set(buildmatrix.__all__) - {"__version__"}))
def test_each_name_is_there_documented_and_typed(name: str) -> None:
    value = getattr(buildmatrix, name)
    assert value.__doc__ and name in dir(buildmatrix)
    if not isinstance(value, type):
        assert "return" in value.__annotations__
        for parameter in value.__annotations__.keys() - {"return"}:
            # Python 3.13 takes the indentation away.
            assert re.search(rf"^ +{parameter}: ", value.__doc__, re.MULTILINE), parameter


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = (
        "import buildmatrix, sys; print([m for m in sys.modules if m.startswith('buildmatrix.')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'scna'"):
        getattr(buildmatrix, "sc" + "na")
