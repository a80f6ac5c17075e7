"""Where packages are on a machine, as its uv and pip are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buildmatrix.index.where import PYPI, configured, default_indexes

A, B, C, D = (f"https://{host}.example.com/simple" for host in "abcd")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with nothing but a home folder."""
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}


@pytest.fixture(autouse=True)
def no_files_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exists = Path.read_text

    def read_text(path: Path, *arguments: object, **options: object) -> str:
        if not path.is_relative_to(tmp_path):
            raise FileNotFoundError(path)
        return exists(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", read_text)


def _write(home: dict[str, str], name: str, text: str) -> Path:
    path = Path(home["HOME"]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_machine_that_was_told_nothing_uses_pypi(home: dict[str, str]) -> None:
    assert default_indexes(home) == (PYPI,)


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"])
def test_each_variable_for_the_index_counts(home: dict[str, str], name: str) -> None:
    assert default_indexes({**home, name: A}) == (A,)


def test_further_indexes_are_asked_first_by_uv(home: dict[str, str]) -> None:
    said = {"UV_INDEX": f"one={A} {B}", "UV_EXTRA_INDEX_URL": C}
    assert default_indexes({**home, **said}) == (A, B, C, PYPI)
    assert default_indexes({**home, **said, "UV_DEFAULT_INDEX": D}) == (A, B, C, D)
    assert configured({**home, **said})[0].name == "one"


def test_further_indexes_of_pip_come_after_its_own(home: dict[str, str]) -> None:
    assert default_indexes({**home, "PIP_EXTRA_INDEX_URL": f"{A}\n{B}"}) == (PYPI, A, B)


def test_uv_resolves_so_its_settings_win(home: dict[str, str]) -> None:
    assert default_indexes({**home, "UV_INDEX_URL": A, "PIP_INDEX_URL": B}) == (A,)


def test_the_newer_variable_of_uv_wins(home: dict[str, str]) -> None:
    assert default_indexes({**home, "UV_INDEX_URL": A, "UV_DEFAULT_INDEX": B}) == (B,)


def test_settings_files_of_uv_count(home: dict[str, str]) -> None:
    _write(
        home,
        ".config/uv/uv.toml",
        f'[[index]]\nname = "a"\nurl = "{A}"\n'
        f'[[index]]\nname = "b"\nurl = "{B}"\nexplicit = true\n'
        f'[[index]]\nurl = "{C}"\ndefault = true\n',
    )
    assert default_indexes(home) == (A, C)
    assert [index.name for index in configured(home)] == ["a", "b", None]
    assert default_indexes({**home, "UV_DEFAULT_INDEX": D}) == (A, D)
    assert default_indexes({**home, "UV_NO_CONFIG": "1"}) == (PYPI,)
    named = _write(home, "mine.toml", f'index-url = "{D}"\nextra-index-url = ["{B}"]\n')
    assert default_indexes({**home, "UV_CONFIG_FILE": str(named)}) == (B, D)


def test_settings_files_of_pip_count_the_nearest_one_most(
    home: dict[str, str],
) -> None:
    system = Path(home["XDG_CONFIG_DIRS"]) / "pip" / "pip.conf"
    system.parent.mkdir(parents=True)
    system.write_text(f"[global]\nindex-url = {A}\nextra-index-url =\n  {B}\n  {C}\n")
    assert default_indexes(home) == (A, B, C)
    _write(home, ".config/pip/pip.conf", f"[global]\nindex_url = {C}\n[install]\nindex-url = {D}\n")
    assert default_indexes(home) == (D, B, C)
    named = _write(home, "mine.conf", f"[global]\nextra-index-url = {A}\n")
    assert default_indexes({**home, "PIP_CONFIG_FILE": str(named)}) == (D, A)
    assert default_indexes({**home, "PIP_CONFIG_FILE": os.devnull}) == (PYPI,)
    assert default_indexes({**home, "PIP_INDEX_URL": B}) == (B, C)


@pytest.mark.parametrize("broken", ["[global\n", "index-url = x\n", "[global]\nx\n", "\0"])
def test_a_broken_settings_file_is_for_its_own_tool_to_complain_about(
    home: dict[str, str], broken: str
) -> None:
    for name in (".config/pip/pip.conf", ".config/uv/uv.toml"):
        _write(home, name, broken)
    assert default_indexes(home) == (PYPI,)


def test_settings_that_are_no_settings_are_left_out(home: dict[str, str]) -> None:
    text = 'index = "x"\nindex-url = 1\nextra-index-url = [2]\npip = 3\n'
    _write(home, ".config/uv/uv.toml", text)
    assert default_indexes(home) == (PYPI,)


def test_pip_itself_agrees(home: dict[str, str]) -> None:
    _write(home, ".config/pip/pip.conf", f"[global]\nindex-url = {A}\n")
    _write(home, ".pip/pip.conf", f"[global]\nindex-url = {B}\nextra-index-url = {C} {D}\n")
    environment = {**home, "PATH": os.environ["PATH"]}
    said = {
        key: subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", f"global.{key}"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for key in ("index-url", "extra-index-url")
    }
    assert default_indexes(home) == (*said["index-url"], *said["extra-index-url"])
