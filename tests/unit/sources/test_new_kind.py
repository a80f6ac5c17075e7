"""A new kind of SOURCE is one class and one line in a table; no command knows any kind."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from elf_images import Image

import buildmatrix
from buildmatrix import cli
from buildmatrix.engines.model import OpenTree
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.sources import parse
from buildmatrix.sources.model import Facts, Installed, ReadingOptions

PACKAGE = Path(buildmatrix.__file__).parent
#: What may not know which kinds there are.
COMMANDS = ("cli", "api", "commands", "fleet", "explore", "preflight", "judge/judging.py")

STRICT = ("--fail-on", "note")


class Drawer(Installed):
    """A folder of the drawers of this test: `drawer:NAME`."""

    prefix = "drawer"

    def read(self, options: ReadingOptions) -> Facts:
        """See `Installed.read`."""
        with DirectoryTree(Path("drawers") / self.name) as tree:
            return Facts(str(self), collect(tree))

    def open(self, options: ReadingOptions) -> OpenTree:
        """See `Source.open`."""
        return lambda: DirectoryTree(Path("drawers") / self.name)


@pytest.fixture
def drawers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(parse, "SOURCES", (*parse.SOURCES, Drawer))
    for name, needed in (("old", "libm.so.6"), ("new", "libcudart.so.12")):
        site = tmp_path / "drawers" / name / "lib/python3.12/site-packages"
        (site / "acme-1.0.dist-info").mkdir(parents=True)
        (site / "acme-1.0.dist-info/METADATA").write_text("Name: acme\nVersion: 1.0\n")
        (site / "acme-1.0.dist-info/RECORD").write_text("acme/core.so,,\n")
        (site / "acme").mkdir()
        (site / "acme/core.so").write_bytes(Image(needed=(needed,)).build())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--quiet", *arguments])
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out + printed.err


@pytest.mark.usefixtures("drawers")
def test_every_command_that_reads_takes_a_new_kind(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "scan", "drawer:new", "--backend", "cpu", *STRICT, "--format", "json")
    assert (code, json.loads(out)["subject"]) == (1, "drawer:new")
    code, out = run(capsys, "why", "drawer:new", "libcudart")
    assert code == 0
    assert "libcudart.so.12" in out and "drawer:new" in out
    code, out = run(capsys, "inspect", "drawer:new", "--format", "json")
    assert (code, "drawer:new" in out, "acme" in out) == (0, True, True)
    code, out = run(capsys, "diff", "drawer:old", "drawer:new", "--backend", "cpu", *STRICT)
    assert (code, "drawer:old" in out) == (1, True)


@pytest.mark.usefixtures("drawers")
def test_who_does_not_read_it_says_who_does(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "audit", "drawer:new", "--backend", "cpu")
    assert (code, "run `buildmatrix scan drawer:new`" in out) == (2, True)
    code, out = run(capsys, "scan", "lock:uv.lock", "--backend", "cpu")
    assert (code, "drawer:" in out) == (2, True)


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that a condition compares something with."""
    for node in ast.walk(ast.parse(path.read_text())):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = node.args if node.func.attr in ("startswith", "removeprefix") else []
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        for part in parts:
            for constant in ast.walk(part):
                if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                    yield constant.lineno, constant.value


def test_no_command_asks_for_a_kind() -> None:
    prefixes = {kind.prefix for kind in parse.SOURCES if kind.prefix}
    words = re.compile(rf"({'|'.join(prefixes)}):|docker|pypi|pyproject|oci")
    asked = [
        f"{path.relative_to(PACKAGE)}:{line}: {text!r}"
        for name in COMMANDS
        for path in sorted((PACKAGE / name).rglob("*.py") if "." not in name else [PACKAGE / name])
        for line, text in _strings(path)
        if words.fullmatch(text)
    ]
    assert asked == []
