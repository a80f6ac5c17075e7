"""The specification in an editor: the language server that Even Better TOML bundles."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import npm
import pytest
from click.testing import CliRunner

from buildmatrix.cli.reference import schema_command as schema

CLIENT = Path(__file__).parents[1] / "servers/taplo"

pytestmark = pytest.mark.network


@pytest.fixture(scope="session")
def packages() -> Path:
    """The server's packages."""
    return npm.installed("taplo")


class LanguageServer:
    """One server, which is shown a file of this folder by each test."""

    def __init__(self, packages: Path, folder: Path) -> None:
        self.process = subprocess.Popen(
            ["node", CLIENT / "client.cjs"],
            env={**os.environ, "NODE_PATH": str(packages / "node_modules")},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # A server that says nothing more ends, and so does whoever waits for it.
        self.watchdog = threading.Timer(600, self.process.kill)
        self.watchdog.start()
        self.folder, self.uri = folder, ""
        self.number = 0
        self.marks: list[dict[str, Any]] = []
        self.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities={},
                 workspaceFolders=[{"uri": folder.as_uri(), "name": "inferno"}])  # fmt: skip
        self.send(method="initialized", params={})

    def open(self, name: str, text: str) -> None:
        self.uri, self.marks = (self.folder / name).as_uri(), []
        document = {"uri": self.uri, "languageId": "toml", "version": 1, "text": text}
        self.send(method="textDocument/didOpen", params={"textDocument": document})
        # The schema is read beside other work, and completions come without it until then.
        while not self.completions(0, 0):
            pass

    def completions(self, line: int, character: int) -> dict[str, str]:
        """What is offered there, and what is said of it."""
        position = {"line": line, "character": character}
        answer = self.ask(
            "textDocument/completion", textDocument={"uri": self.uri}, position=position
        )
        items = answer["items"] if isinstance(answer, dict) else answer
        return {item["label"]: item.get("documentation", {}).get("value", "") for item in items}

    def hover(self, line: int, character: int) -> str:
        position = {"line": line, "character": character}
        answer = self.ask("textDocument/hover", textDocument={"uri": self.uri}, position=position)
        return str(answer["contents"]["value"])

    def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        while (message := self.receive()).get("id") != self.number:
            pass
        return message["result"]

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps({"jsonrpc": "2.0", **message}), file=self.process.stdin, flush=True)

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the language server has ended"
        message: dict[str, Any] = json.loads(line)
        is_told = message.get("method") == "textDocument/publishDiagnostics"
        if is_told and message["params"]["uri"] == self.uri:
            self.marks = message["params"]["diagnostics"]
        return message


@pytest.fixture(scope="module")
def server(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    folder = tmp_path_factory.mktemp("editor")
    printed = CliRunner().invoke(schema, ["spec"])
    (folder / "buildmatrix.schema.json").write_text(printed.output)
    server = LanguageServer(packages, folder)
    try:
        yield server
    finally:
        server.watchdog.cancel()
        server.process.kill()
        server.process.communicate()


HEAD = '#:schema ./buildmatrix.schema.json\nschema = 1\n[project]\nname = "inferno"\n'


def test_keys_are_completed_with_what_they_mean_and_their_defaults(server: LanguageServer) -> None:
    server.open("keys.toml", f'{HEAD}version = "1"\n[backend.cuda]\nruntime = "12.8"\nto')
    offered = server.completions(7, 2)
    assert "uv's name of the torch build" in offered["torch"]
    assert offered["platforms"].endswith("Default: what `[defaults]` says.")
    assert offered["base"].startswith("Base images: one reference")
    assert "runtime" not in offered


def test_values_are_completed(server: LanguageServer) -> None:
    server.open(
        "values.toml", f'{HEAD}version = "1"\n[[smoke]]\nlevel = ""\n[policy]\npinned-bases = ""\n'
    )
    assert set(server.completions(6, 9)) == {'"import"', '"device"', '"batch"'}
    assert set(server.completions(8, 16)) == {'"digest"', '"tag"', '"none"'}


def test_a_key_is_explained_where_it_stands(server: LanguageServer) -> None:
    server.open("hover.toml", f'{HEAD}version = "1"\n[policy]\nbloat-threshold = "9MB"\n')
    assert server.hover(6, 3) == (
        "Foreign bytes up to which a distribution is not called bloat. Default: `5MB`."
    )


def test_a_mistake_is_marked_where_it_stands(server: LanguageServer) -> None:
    server.open(
        "mistake.toml", f'{HEAD}version = "1"\n[backend.cuda]\nruntime = "12.8"\ntorhc = "cu128"\n'
    )
    while not server.marks:
        server.completions(0, 0)
    assert [mark["range"]["start"]["line"] for mark in server.marks] == [5]
    assert "torhc" in server.marks[0]["message"]
