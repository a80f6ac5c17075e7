"""`wheel:URL` in every command, with a password and a token: both are used, and shown nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_index import Locked, embedded
from index import IndexServer

from buildmatrix import cli

USER, PASSWORD, ENCODED = "ci-robot", "hunter2/Sesame", "hunter2%2FSesame"
TOKEN = "s3cr3t-token"
SECRETS = ("hunter2", "Sesame", TOKEN)

COMMANDS = [
    *(["scan", "URL", "--backend", "cpu", "--format", name] for name in
      ("table", "json", "sarif", "junit", "markdown", "html", "cyclonedx")),
    *(["why", "URL", "*", "--backend", "cpu", "--format", name] for name in
      ("text", "json", "dot", "mermaid")),
    *(["inspect", "URL", "--backend", "cpu", "--format", name] for name in
      ("table", "json", "dot", "mermaid")),
    *(["diff", "URL", "URL", "--backend", "cpu", "--format", name] for name in
      ("table", "json", "markdown")),
    ["audit", "URL", "--backend", "cpu", "--no-vulnerabilities", "-v"],
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for wheels, with settings and caches of its own."""
    for name in os.environ:
        if name.upper().endswith("_PROXY") or name.startswith(("UV_", "PIP_", "BUILDMATRIX_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "packages"
    folder.mkdir()
    return folder


@pytest.fixture
def address(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with IndexServer(place, login=(USER, PASSWORD)) as server:
        Locked(place, server).add("demo 1.0")
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        url = server.file_url("demo-1.0-py3-none-any.whl")
        yield url.replace("://", f"://{USER}:{ENCODED}@") + f"?X-Amz-Signature={TOKEN}"


@pytest.mark.parametrize(
    ("arguments", "scheme"),
    [
        *((one, "http") for one in COMMANDS),
        # One format in words and one in JSON are enough.
        *((one, "HTTP") for one in COMMANDS if one[-1] in ("table", "text", "json")),
    ],
    ids=lambda one: one if isinstance(one, str) else f"{one[0]}-{one[-1]}",
)
def test_a_wheel_at_an_address_is_read_and_no_secret_is_shown(
    arguments: list[str], scheme: str, address: str, capsys, tmp_path
) -> None:
    url = f"wheel:{address}".replace("http://", f"{scheme}://")
    with pytest.raises(SystemExit) as stop:
        cli.main([url if part == "URL" else part for part in arguments])
    said = capsys.readouterr()
    assert stop.value.code in (0, None), said.err
    assert "demo" in said.out or arguments[-1] in ("sarif", "-v")
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    everything = said.out + said.err + "".join(path.read_text(errors="replace") for path in kept)
    for secret in SECRETS:
        assert secret not in everything


def test_what_the_beginnings_of_a_wheel_do_not_show_is_not_denied(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"demo/_C.so": embedded(8_000_000, section_headers=False)}

    def why(*more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["why", f"wheel:{url}", "libcudart", "--backend", "cpu", *more])
        return int(stop.value.code or 0), " ".join(capsys.readouterr().out.split())

    with IndexServer(place) as server:
        Locked(place, server).add("demo 1.0", files=files)
        url = server.file_url("demo-1.0-py3-none-any.whl")
        code, out = why()
        assert code == 3
        assert "Nothing in what was read of wheel:" in out and "(--deep reads everything)" in out
        code, out = why("--deep")
        assert code == 0 and "cudart, linked statically" in out
