"""Hostile trees, files and circumstances: nothing ends in a traceback or costs a whole scan."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from buildmatrix.cli import main
from buildmatrix.facts.inventory import file_facts
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.trees.archive import DirectoryTree
from buildmatrix.reports.formats import RUN, names

DIGITS = "9" * 5000
OBEYED = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A file system with one good distribution, and others that nobody would publish."""
    site = tmp_path / "root/usr/lib/python3.11/site-packages"

    def write(name: str, text: str) -> None:
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    nested = "(" * 3000 + "'a' == 'a'" + ")" * 3000
    write(
        "good-1.0.dist-info/METADATA",
        f"Name: good\nVersion: 1.0\nRequires-Dist: bad1>={DIGITS}\n"
        f"Requires-Dist: bad2; python_version > '{DIGITS}'\nRequires-Dist: bad1; {nested}\n"
        "Requires-Dist: bad2; sys_platform ~= 'x'\n",
    )
    write("good-1.0.dist-info/RECORD", "good/__init__.py,,\n")
    write(
        "good/__init__.py",
        f"import ctypes\nx = 0x{'f' * 5000}\ntry:\n    ctypes.CDLL(f'lib{{x}}.so')\n"
        "    ctypes.CDLL('libcuda.so.1')\nexcept OSError:\n    pass\n",
    )
    write("bad1-1.dist-info/METADATA", f"Name: bad1\nVersion: 1.{DIGITS}\n")
    write("bad2-1.dist-info/METADATA", f"Name: bad2\nVersion: 1!{DIGITS}\n")
    write("bad2-1.dist-info/direct_url.json", '{"url": "http://[x/"}')
    write("bad3-1.dist-info/METADATA", "Name: ::stop-commands::x\nVersion: 1\u202e\x9b2J\n")
    write("bad3-1.dist-info/direct_url.json", '{"a": ' + DIGITS + "}")
    write("bad4-1.dist-info/METADATA", "Name: ##vso[task.x]\nVersion: 1\x1b[2J\n")
    write("bad4-1.dist-info/sboms/a.json", '{"a": ' + "[" * 100_000)
    write("::add-mask::x.so", "\x7fELF")
    write("a\n::error::b.so", "\x7fELF")
    write("\u202e##[group].so", "\x7fELF")
    return tmp_path / "root"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(part) for part in arguments])
    code = stop.value.code
    return code if isinstance(code, int) else 0


def check(text: str) -> None:
    assert not OBEYED.search(text)
    assert not HIDDEN.search(text)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["scan", "--backend", "cpu", "--format", name] for name in
          names(RUN)),
        *(["why", "libcuda.so.1", "--format", name] for name in
          ("text", "json", "dot", "mermaid")),
        *(["why", "*", "--all", "--format", name] for name in ("text", "json", "mermaid")),
        *(["inspect", "--format", name] for name in ("table", "json", "dot", "mermaid")),
    ],
    ids="-".join,
)  # fmt: skip
def test_a_hostile_tree_is_read_and_told_about(tree: Path, arguments: list[str], capsys) -> None:
    name, *rest = arguments
    question = [rest.pop(0)] if name == "why" else []
    assert run(name, f"dir:{tree}", *question, *rest, "--no-cache") in (0, 1, 3)
    said = capsys.readouterr()
    check(said.out)
    check(said.err)
    # Some formats have no document where nothing is to be told.
    assert said.out or "nothing is written: " in said.err
    # The name with a line break in it stays on one line.
    assert not re.search(r"(?m)^\s*(\\x3a|&#58;|::*):error", said.out)


def test_what_one_file_makes_a_reader_raise_costs_that_file(tree: Path, monkeypatch) -> None:
    look = file_facts.inspect_source

    def stumbling(source, path, size, **more):
        if path.endswith("add-mask::x.so"):
            raise ValueError("\x1b[2J what nobody foresaw")
        return look(source, path, size, **more)

    monkeypatch.setattr(file_facts, "inspect_source", stumbling)
    with DirectoryTree(tree) as opened:
        found = collect(opened)
    assert [one.name for one in found.distributions if one.name == "good"]
    assert any(
        one.path.endswith("::add-mask::x.so") and "a defect of the reader" in one.why
        for one in found.unread
    )
    assert any(one.path.endswith("b.so") for one in found.unread)


def test_what_one_distribution_makes_a_reader_raise_costs_that_one(tree, monkeypatch) -> None:
    from buildmatrix.facts.inventory import distributions

    entry_points = distributions._parse_entry_points
    seen = []

    def stumbling(text):
        seen.append(text)
        if len(seen) == 1:
            raise KeyError("what nobody foresaw")
        return entry_points(text)

    monkeypatch.setattr(distributions, "_parse_entry_points", stumbling)
    with DirectoryTree(tree) as opened:
        found = collect(opened)
    assert len(found.distributions) == 4
    assert any("KeyError" in one.why for one in found.unread)


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan", "dir:\x1b[2J\x9b/::add-mask::x\n::error::y"],
        ["scan", "wheel:\x1b[2J\n##[x].whl"],
        ["inspect", "\x1b]8;;x\x07\n::error::y"],
        ["why", "dir:\u202e\n::error::y", "x"],
        ["diff", "dir:\x1b\n::x", "dir:\x1b\n::y"],
        ["report", "\x1b[2J\n::error::y.json"],
        ["audit", "requirements:\x1b[2J\n::error::y.txt"],
        ["--bogus\x1b[2J\n::error::y"],
        ["\x1b[2J\n::error::y"],
        ["audit", "wheel:http://[x/"],
        ["why", "wheel:http://[x/", "y"],
        ["scan", "wheel:http://[x/"],
        ["inspect", "http://[x/"],
        ["diff", "wheel:http://[x/", "wheel:http://[x/"],
        ["audit", f"pypi:demo=={DIGITS}", "--offline"],
        ["audit", f"wheel:demo-{DIGITS}-py3-none-any.whl", "--offline"],
        ["audit", f"wheel:https://host.invalid/demo-{DIGITS}-py3-none-any.whl", "--offline"],
    ],
)
def test_no_error_message_holds_what_is_obeyed(arguments, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    assert run(*arguments) in (2, 3, 5)
    said = capsys.readouterr()
    check(said.err)
    check(said.out)
    assert "\nFORGED" not in said.err


NESTED = "(" * 3000 + "'a' == 'a'" + ")" * 3000
INPUTS = {
    "requirements.txt": [
        f"demo=={DIGITS}", f"demo>={DIGITS}", f"demo; python_version >= '{DIGITS}'",
        f"demo; {NESTED}", f"demo @ https://host.invalid/demo-{DIGITS}-py3-none-any.whl",
        "demo @ http://[x/", "\x1b[2J\x9b ::error::x", "::error::x", f"demo[{'a,' * 5000}]==1",
        "demo @ https://host.invalid/x.whl ; sys_platform ~= 'x'", f"-c {DIGITS}.txt",
        "-e git+https://[x/", f"https://host.invalid/{DIGITS}.whl",
    ],
    "pyproject.toml": [
        f'[project]\nname = "x"\nversion = {DIGITS}\ndependencies = []',
        f'[project]\nname = "x"\nversion = "1"\nrequires-python = ">={DIGITS}"\ndependencies = []',
        f'[project]\nname = "x"\nversion = "{DIGITS}"\ndependencies = ["demo; {NESTED}"]',
        f'[project]\nname = "x"\nversion = "1"\ndependencies = ["demo>={DIGITS}"]\n'
        f"[tool.uv]\nx = 0x{'f' * 5000}",
        '[project]\nname = "\\u001b[2J"\nversion = "1"\ndependencies = ["\\u009b\\n::error::x"]',
        '[project]\nname = "x"\nversion = "1"\ndependencies = []\na = ' + "[" * 50_000,
    ],
    "pylock.toml": [
        f'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "d"\nversion = "{DIGITS}"',
        f'lock-version = "1.0"\ncreated-by = "x"\na = {DIGITS}\n[[packages]]\nname = "demo"',
        f'lock-version = "{DIGITS}"\ncreated-by = "x"\npackages = []',
        'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "demo"\nversion = "1"\n'
        f'marker = "{NESTED}"\n[packages.sdist]\nurl = "http://[x/"\nhashes = {{}}',
        'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "demo"\nversion = "1"\n'
        f'wheels = [{{ url = "http://[x/demo-{DIGITS}-py3-none-any.whl", size = 0x{"f" * 5000}, '
        'hashes = { sha256 = "00" } }]',
        f'lock-version = "1.0"\ncreated-by = "x"\nrequires-python = ">={DIGITS}"\npackages = []',
        f'lock-version = "1.0"\ncreated-by = "x"\nenvironments = ["{NESTED}"]\npackages = []',
    ],
    "uv.lock": [
        f"version = {DIGITS}", f"version = 1\nrevision = 0x{'f' * 5000}",
        f'version = 1\nrequires-python = ">={DIGITS}"\n[[package]]\nname = "demo"\n'
        f'version = "{DIGITS}"\nsource = {{ registry = "http://[x/" }}',
        f'version = 0x{"f" * 5000}',
    ],
    "poetry.lock": [
        f'[[package]]\nname = "demo"\nversion = "{DIGITS}"\noptional = false\n'
        f'python-versions = ">={DIGITS}"\nfiles = []\n[metadata]\nlock-version = "2.1"\n'
        f'python-versions = "^{DIGITS}"\ncontent-hash = "00"',
        f'package = []\n[metadata]\nlock-version = "{DIGITS}"\npython-versions = "*"',
        f'[[package]]\nname = "demo"\nversion = "1"\nmarkers = "{NESTED}"\noptional = false\n'
        'python-versions = "*"\nfiles = []\ngroups = ["main"]\n[metadata]\nlock-version = "2.1"\n'
        'python-versions = "*"\ncontent-hash = "00"',
    ],
    "Pipfile.lock": [
        '{"_meta": {"pipfile-spec": ' + DIGITS + '}, "default": {}}',
        json.dumps({"_meta": {"x": 6}, "default": {"demo": {"version": f"=={DIGITS}"}}}),
        json.dumps({"_meta": {"x": 6}, "default": {"demo": {"version": "==1", "markers": NESTED}}}),
        "[" * 50_000,
    ],
    "buildmatrix.toml": [
        f"schema = {DIGITS}", f"schema = 0x{'f' * 5000}", "a = " + "[" * 50_000,
        f'schema = 1\nproject = "x"\nversion = "{DIGITS}"\n[axes]\npython = ["3.{DIGITS}"]',
        '"\\u001b[2J" = 1', '"\\n::error::x" = 1',
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name, texts in INPUTS.items() for n in range(len(texts))]
)
def test_hostile_inputs_are_refused_in_a_sentence(
    name: str, number: int, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "cache"))
    Path(name).write_text(INPUTS[name][number])
    arguments = ["targets"] if name == "buildmatrix.toml" else ["audit", name, "--offline"]
    assert run(*arguments, *(["--backend", "cpu"] if len(arguments) == 3 else [])) in (0, 1, 2, 3)
    said = capsys.readouterr()
    check(said.err)
    check(said.out)


@pytest.mark.parametrize("field", ["size", "line", "seconds"])
def test_a_report_with_numbers_that_nobody_has_is_refused(field: str, tmp_path, capsys) -> None:
    report = {
        "schema": "buildmatrix/report/1", "tool": {"name": "x", "version": "1", "catalogue": ""},
        "subject": "x", "targets": [], "distributions": [], "unread": [],
        "findings": [{
            "rule": "BM101", "name": "x", "severity": "error", "target": "t", "backend": "cpu",
            "vendor": None, "message": "m", "chain": [f"a.txt:{DIGITS}"], "evidence": [],
        }],
        "stats": {"files": 0},
    }  # fmt: skip
    text = json.dumps(report)
    if field == "size":
        text = text.replace('"files": 0', f'"files": {DIGITS}')
    if field == "seconds":
        text = text.replace('"files": 0', '"seconds": 1e999')
    path = tmp_path / "report.json"
    path.write_text(text)
    for format_ in ("table", "sarif", "junit"):
        assert run("report", path, "--format", format_) in (1, 2)
    check(capsys.readouterr().err)


# Circumstances


def start(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "buildmatrix", *arguments],
        capture_output=True, text=True, timeout=300, **more,
    )  # fmt: skip


def test_a_working_folder_that_was_deleted_is_said(tmp_path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    shell = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m buildmatrix targets"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "was deleted" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["rules", "targets"])
def test_closed_streams_give_no_traceback_and_no_success(closing, command, tmp_path) -> None:
    log = tmp_path / "log"
    both = f"{sys.executable} -m buildmatrix {command} {closing}"
    open_ends = "" if "2>&-" in closing else f"2>{log}"
    shell = f"{both} {open_ends}" if ">&-" in closing.split() else f"{both} >{log}"
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, timeout=300)
    # Nothing is wrong with rules but that nobody gets them; there is no specification here.
    lost = ">&-" in closing.split()
    assert done.returncode == (2 if command == "targets" else 3 if lost else 0)
    assert not log.exists() or "Traceback" not in log.read_text()


def test_nobody_has_to_read_what_is_complained_about(tmp_path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "buildmatrix", "targets"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=writing, timeout=300,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 2


def test_an_exception_that_nobody_expects_has_a_code_of_its_own(monkeypatch, capsys) -> None:
    from buildmatrix.matrix import load

    def broken(*arguments, **more):
        raise ZeroDivisionError("\x1b[2J\n::error::x http://u:SECRET@h/x")

    monkeypatch.setattr(load, "load_spec", broken)
    assert run("targets") == 70
    said = capsys.readouterr().err
    check(said)
    assert len(said.splitlines()) == 1
    assert "ZeroDivisionError" in said
    assert "SECRET" not in said
    assert run("-v", "targets") == 70
    said = capsys.readouterr().err
    check(said)
    assert "Traceback" in said
    assert "SECRET" not in said


def test_text_that_a_stream_cannot_encode_is_escaped(tmp_path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = start("scan", "dir:/nowhere/\u2192", cwd=tmp_path, env=environment)
    assert done.returncode in (2, 3)
    assert r"\u2192" in done.stderr
