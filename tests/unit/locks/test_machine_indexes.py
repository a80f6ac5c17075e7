"""Where packages are on a machine, as its uv and pip are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.text import PYPI
from buildmatrix.net.machine_indexes import (
    ForUv,
    configured,
    default_indexes,
    pip_settings,
    pip_settings_for_uv,
    trusted_hosts,
)

CONF = ".config/pip/pip.conf"
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
    # It replaces those of the user.
    assert default_indexes({**home, "PIP_CONFIG_FILE": str(named)}) == (A,)
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


# What uv is told of it


def told(home: dict[str, str], project: dict[str, object] | None = None, *options: str) -> ForUv:
    return pip_settings_for_uv(home, project or {}, options)


def test_uv_is_told_of_pips_indexes_in_their_order(home: dict[str, str]) -> None:
    assert told(home).variables == {}
    assert told({**home, "PIP_INDEX_URL": A}).variables == {"UV_DEFAULT_INDEX": A}
    assert told({**home, "PIP_EXTRA_INDEX_URL": f"{A} {B}"}).variables == {
        "UV_INDEX": f"{PYPI} {A}",
        "UV_DEFAULT_INDEX": B,
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert default_indexes({**home, "PIP_EXTRA_INDEX_URL": f"{A} {B}"}) == (PYPI, A, B)
    assert told({**home, "PIP_NO_INDEX": "1", "PIP_INDEX_URL": A}) == ForUv({}, ("--no-index",))
    assert default_indexes({**home, "PIP_NO_INDEX": "1", "PIP_INDEX_URL": A}) == ()


@pytest.mark.parametrize(
    ("variables", "project"),
    [
        ({"UV_INDEX": B}, {}),
        ({"UV_DEFAULT_INDEX": B}, {}),
        ({}, {"index": [{"url": B}]}),
        ({}, {"index-url": B}),
        ({}, {"pip": {"extra-index-url": [B]}}),
        ({}, {"no-index": True}),
    ],
)
def test_what_uv_was_told_itself_wins(
    home: dict[str, str], variables: dict[str, str], project: dict[str, object]
) -> None:
    pip = {"PIP_INDEX_URL": A, "PIP_FIND_LINKS": home["HOME"], "PIP_TRUSTED_HOST": "a"}
    assert told({**home, **pip, **variables}, project) == ForUv()


def test_an_index_for_pinned_packages_does_not_say_where_the_others_are(
    home: dict[str, str],
) -> None:
    project: dict[str, object] = {"index": [{"url": B, "explicit": True}]}
    assert told({**home, "PIP_INDEX_URL": A}, project).variables == {"UV_DEFAULT_INDEX": A}
    _write(home, ".config/uv/uv.toml", f'[[index]]\nurl = "{B}"\nexplicit = true\n')
    assert default_indexes({**home, "PIP_INDEX_URL": A}) == (A,)


@pytest.mark.parametrize("option", [f"--index-url {B}", "--no-index"])
def test_an_index_in_a_requirements_file_replaces_those_of_pip(
    home: dict[str, str], option: str, tmp_path: Path
) -> None:
    pip = {"PIP_INDEX_URL": A, "PIP_EXTRA_INDEX_URL": C, "PIP_FIND_LINKS": str(tmp_path)}
    found = told({**home, **pip}, None, option)
    assert found == ForUv({"UV_FIND_LINKS": tmp_path.as_uri()})
    assert told({**home, **pip}, None, f"--extra-index-url {B}").variables["UV_INDEX"] == A


def test_folders_that_are_not_there_are_none(home: dict[str, str], tmp_path: Path) -> None:
    there = tmp_path / "a,b c"
    there.mkdir()
    links = f"/nowhere {tmp_path}/no https://example.com/links"
    pip = {"PIP_FIND_LINKS": links, "PIP_EXTRA_INDEX_URL": "file:///nowhere/simple"}
    assert told({**home, **pip}).variables == {"UV_FIND_LINKS": "https://example.com/links"}
    pip = {"PIP_FIND_LINKS": there.as_uri()}
    assert told({**home, **pip}).variables == {"UV_FIND_LINKS": f"{tmp_path.as_uri()}/a%2Cb%20c"}


def test_what_cannot_be_followed_is_undecided(home: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "links.html"
    page.write_text("<a href='x.whl'>x</a>")
    with pytest.raises(
        UndecidedError, match=r"find-links has .*links\.html, but uv reads only folders"
    ):
        told({**home, "PIP_FIND_LINKS": str(page)})
    _write(home, CONF, "[global\nindex-url = x\n")
    with pytest.raises(UndecidedError, match=r"pip\.conf is not a valid settings file of pip"):
        told(home)
    assert told({**home, "UV_INDEX": A}) == ForUv()


def test_whom_to_trust_is_told_too(home: dict[str, str], tmp_path: Path) -> None:
    pip = {"PIP_TRUSTED_HOST": "a b:8", "PIP_CERT": "/c.pem"}
    assert told({**home, **pip}).variables == {
        "UV_INSECURE_HOST": "a b:8",
        "SSL_CERT_FILE": "/c.pem",
    }
    assert trusted_hosts({**home, **pip}) == {"a", "b:8"}
    own = {"UV_INSECURE_HOST": "c", "SSL_CERT_FILE": "/d.pem"}
    assert told({**home, **pip, **own}).variables == {}
    assert trusted_hosts({**home, **pip, **own}) == {"c"}
    assert told({**home, "PIP_CERT": str(tmp_path)}).variables == {"SSL_CERT_DIR": str(tmp_path)}


def test_no_password_shows_in_what_is_told(home: dict[str, str]) -> None:
    url = "https://robot:secret@a.example.com/simple"
    assert "secret" not in repr(told({**home, "PIP_INDEX_URL": url}))
    assert "secret" not in repr(pip_settings({**home, "PIP_INDEX_URL": url}))
