"""`wheel:URL` in every command, with a password and a token: both are used, and shown nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_index import Locked
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
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in os.environ:
        if name.upper().endswith("_PROXY") or name.startswith(("UV_", "PIP_", "BUILDMATRIX_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "packages"
    folder.mkdir()
    with IndexServer(folder, login=(USER, PASSWORD)) as server:
        Locked(folder, server).add("demo 1.0")
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
