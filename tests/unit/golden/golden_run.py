"""Runs the command lines of a case file, and writes what came of them as a case file again.

A case file holds lines `$ COMMAND`. Below each stands what it gave: standard output (indented),
standard error (`! `) and the exit code (`= 0`). `$ buildmatrix ...` runs in this process, anything
else in a shell. Lines that begin with `#` are comments.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import golden_inside
import pytest

from buildmatrix.cli import main

#: What depends on place, time or release → what stands for it.
_CLOCK = re.compile(r"^ +\d+\.\d (?=\S)")
_RULES = (
    # Which Python runs the tool, where that chooses what is looked at.
    (re.compile(r"(?<=with Python )\d\.\d+(?=; --python chooses)"), "RUNNING"),
    (re.compile(r"(?<=127\.0\.0\.1):\d+"), ":PORT"),
    (re.compile(r'(?<="seconds": )[\d.e-]+'), "SECONDS"),
    (re.compile(r'(?<="seconds":)[\d.e-]+'), "SECONDS"),
    # What reading costs depends on how old files are: the cache trusts no file of this second.
    (re.compile(r'(?<="bytes_read": )\d+'), "BYTES"),
    (re.compile(r'(?<="cached": )\d+'), "FILES"),
    (re.compile(r'(?<= time=")\d+\.\d+'), "SECONDS"),
    (re.compile(r'(?<= timestamp=")[^"]+'), "TIME"),
    # Pages of rules have tests of their own, as has the list of them in SARIF.
    (re.compile(r'^( *)"rules": \[\n.*?^\1\]', re.DOTALL | re.MULTILINE), r'\1"rules": RULES'),
    (re.compile(r'(?<=": ")# BM\d{3}: (?:[^"\\]|\\.)*'), "PAGE"),
    # It follows from the contents, and these have the index's port.
    (re.compile(r"(?<=urn:uuid:)[0-9a-f-]{36}"), "SERIAL"),
    (re.compile(r'(?<=lock-digest="sha256:)[0-9a-f]{64}'), "DIGEST"),
    (re.compile(r'(?<="lock": "sha256:)[0-9a-f]{64}'), "DIGEST"),
    (re.compile(r"(?<= lock sha256:)[0-9a-f]{64}"), "DIGEST"),
    # A signature is another one each time.
    (re.compile(r"(?<=attestation sha256:)[0-9a-f]{64}"), "DIGEST"),
    (re.compile(r'(?<="attestation": "sha256:)[0-9a-f]{64}'), "DIGEST"),
    (re.compile(r"(?:\d{4}-\d\d-\d\d|CATALOGUE)T\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"(?<=fake_engine\.py:)\d+"), "LINE"),
    (re.compile(r"buildmatrix-staged:[0-9a-f]{12}"), "buildmatrix-staged:PROJECT"),
    (re.compile(r"\w+ +disk: .*"), "STATE    disk: SPACE"),
    (re.compile(r"\buv \d+\.\d+\.\d+"), "uv VERSION"),
    # uv says it in words of its own, which differ between its releases.
    (re.compile(r"Because no-such-distribution[^']*?unsatisfiable\."), "REASON."),
    (re.compile(r"[\d.]+ k?B read so far"), "AMOUNT read so far"),
    # Also `1:37 m`, on a machine that is busy.
    (re.compile(r" *\b(?:\d+\.\d+ s|\d+:\d\d m)\b"), " SECONDS s"),
    # Files of ours that every page has, and their digests, which tests/unit/reports checks.
    (re.compile(r"(?<=<style>)/\* Colors:.*?(?=</style>)", re.DOTALL), "STYLE"),
    (re.compile(r'(?<=<script>)"use strict";\n.*?(?=</script>)', re.DOTALL), "SCRIPT"),
    (re.compile(r"(?<=-src &#39;sha256-)[\w+/]{43}=(?=&#39;)"), "DIGEST"),
)


class Terminal:
    """Runs commands in a folder and tells what came of them, without place and time."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], shell: dict[str, str]
    ) -> None:
        self._folder, self._capsys, self._shell = folder, capsys, shell
        version, catalogue = golden_inside.VERSION, golden_inside.catalogue_date()
        self._words = (
            (str(folder.resolve()), "/HERE"),
            (str(folder), "/HERE"),
            (str(folder.resolve()).lstrip("/"), "HERE"),
            (f'"version": "{version}"', '"version": "VERSION"'),
            (f'"tool": "{version}"', '"tool": "VERSION"'),
            (f"buildmatrix {version}", "buildmatrix VERSION"),
            (f"buildmatrix, version {version}", "buildmatrix, version VERSION"),
            (catalogue, "CATALOGUE"),
        )

    def run(self, command: str) -> tuple[str, str, int]:
        """Standard output, standard error, exit code."""
        program, *arguments = shlex.split(command)
        if program != "buildmatrix":
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=self._folder,
                env=self._shell,
                capture_output=True,
                text=True,
            )
            return self._plain(done.stdout), self._plain(done.stderr), done.returncode
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        # A job in the background of a shell ignores Ctrl-C; these commands are in the foreground.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(SystemExit) as stop:
                main(arguments)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        printed = self._capsys.readouterr()
        return self._plain(printed.out), self._plain(printed.err), int(stop.value.code or 0)

    def _plain(self, text: str) -> str:
        for word, instead in self._words:
            text = text.replace(word, instead)
        for pattern, instead in _RULES:
            text = pattern.sub(instead, text)
        return "\n".join(_in_order(text.split("\n")))


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _in_order(lines: list[str]) -> Iterator[str]:
    """Lines with a clock before them come from several threads: they are sorted, and timeless."""
    waiting: list[str] = []
    for line in lines:
        if _CLOCK.match(line):
            waiting.append(_CLOCK.sub("  CLOCK ", line))
        else:
            yield from sorted(waiting)
            waiting.clear()
            yield line
    yield from sorted(waiting)


def transcript(case: str, run: Callable[[str], tuple[str, str, int]]) -> str:
    """The case file `case` with what its commands give now."""
    lines: list[str] = []
    for line in case.splitlines():
        if line.startswith("#"):
            if lines and not lines[-1].startswith("#"):
                lines.append("")
            lines.append(line)
        elif line.startswith("$ "):
            if lines and lines[-1].startswith("= "):
                lines.append("")
            lines.append(line)
            out, err, code = run(line[2:])
            lines += [f"  {text}".rstrip() for text in out.splitlines()]
            lines += [f"! {text}".rstrip() for text in err.splitlines()]
            lines.append(f"= {code}")
    return "\n".join(lines) + "\n"


def clean(monkeypatch: pytest.MonkeyPatch, home: Path, index: str) -> dict[str, str]:
    """Take this machine out of the environment; what the shell of a case gets."""
    for name in list(os.environ):
        if name not in _KEPT:
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(home),
        "PATH": str(home / "bin"),
        "COLUMNS": "100",
        # Rates of this machine are no part of an answer.
        "BUILDMATRIX_INTERVAL": "0",
        # Cases that climb the ladder say so; how far a build does by itself, the machine says.
        "BUILDMATRIX_PREFLIGHT": "none",
        "LC_ALL": "C.UTF-8",
        "PIP_CONFIG_FILE": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "UV_DEFAULT_INDEX": index,
        "UV_CACHE_DIR": str(home / "uv"),
        "UV_HTTP_RETRIES": "0",
        "UV_PYTHON_DOWNLOADS": "never",
    }.items():
        monkeypatch.setenv(name, value)
    now = "2026-01-02T03:04:05+0000"
    person = {"NAME": "A", "EMAIL": "a@example.com", "DATE": now}
    who = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in person.items()
    }
    return {**os.environ, **who, "PATH": os.defpath}


#: What the tests' own machinery needs.
_KEPT = frozenset({"TMPDIR", "TZ", "PYTEST_CURRENT_TEST", "PYTHONPATH", "PYTHONHASHSEED"})
