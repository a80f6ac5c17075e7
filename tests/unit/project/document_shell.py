"""A real shell for what documents show, in which `buildmatrix` is the code of this process.

`buildmatrix` is a small program that hands its arguments and streams to the test that waits for
it: substitutions, pipes and redirections are the shell's, and no interpreter loads the tool anew.
Other programs are those of the folder `.bin` of a world, and those of this machine.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path

import pytest

from buildmatrix import cli

_CLIENT = """\
#!{python} -SIE
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect("\\0" + os.environ["DOCUMENT_SHELL"])
    own = {name: os.environ[name] for name in os.environ if name.startswith("BUILDMATRIX_")}
    text = json.dumps([os.getcwd(), own, *sys.argv[1:]]).encode()
    streams = array.array("i", (0, 1, 2))
    server.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    sys.exit(int(server.recv(16)))
"""
#: Writes down how each part of each pipeline ended.
_WATCH = """\
trap 'printf "%s\\n" "${PIPESTATUS[@]}" >>"$DOCUMENT_ENDS"' DEBUG EXIT
"""
_LONGEST_S = 300


@dataclass
class Played:
    """What came of a script."""

    out: str
    err: str
    #: That of each command of buildmatrix, in order.
    codes: list[int] = field(default_factory=list)
    #: Exit codes other than 0 of what else ran.
    failures: list[int] = field(default_factory=list)


def play(script: str, folder: Path, scratch: Path) -> Played:
    """Run lines of a shell in a folder; `scratch` takes what the shell itself needs."""
    scratch.mkdir(exist_ok=True)
    client, ends = scratch / "buildmatrix", scratch / "ends"
    if not client.exists():
        client.write_text(_CLIENT.replace("{python}", sys.executable))
        client.chmod(0o755)
    ends.unlink(missing_ok=True)
    # An abstract name (unix(7)): paths of temporary folders may be too long for a socket.
    address = f"buildmatrix-documents-{os.getpid()}"
    played = Played("", "")
    environment = {
        **os.environ,
        "DOCUMENT_SHELL": address,
        "DOCUMENT_ENDS": str(ends),
        "PATH": f"{folder / '.bin'}:{scratch}:{os.environ['PATH']}:{os.defpath}",
    }
    with (
        socket.socket(socket.AF_UNIX) as server,
        selectors.DefaultSelector() as waiting,
        (scratch / "out").open("w+") as out,
        (scratch / "err").open("w+") as err,
    ):
        server.bind(f"\0{address}")
        server.listen()
        with subprocess.Popen(
            ["/bin/bash", "-u", "-o", "pipefail", "-c", _WATCH + script],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        ) as shell:  # fmt: skip
            try:
                ended = os.pidfd_open(shell.pid)
                waiting.register(server, selectors.EVENT_READ, "call")
                waiting.register(ended, selectors.EVENT_READ, "end")
                while "end" not in (events := [key.data for key, _ in waiting.select(_LONGEST_S)]):
                    assert events, f"nothing happens for {_LONGEST_S} s: {script}"
                    played.codes.append(_serve(server))
                os.close(ended)
            finally:
                shell.kill()
        for file in (out, err):
            file.seek(0)
        played.out, played.err = out.read(), err.read()
    played.failures = sorted({int(code) for code in ends.read_text().split()} - {0, *played.codes})
    return played


def _serve(server: socket.socket) -> int:
    """Run one command of buildmatrix with the streams of whoever asks; its exit code."""
    connection, _ = server.accept()
    with connection:
        text, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        folder, variables, *arguments = json.loads(text)
        before, saved = Path.cwd(), (sys.stdin, sys.stdout, sys.stderr, sys.argv)
        sys.stdin, sys.stdout, sys.stderr = (
            TextIOWrapper(os.fdopen(stream, mode), encoding="utf-8")
            for stream, mode in zip(streams, ("rb", "wb", "wb"), strict=True)
        )
        mine = (sys.stdin, sys.stdout, sys.stderr)
        sys.argv = ["buildmatrix", *arguments]
        os.chdir(folder)
        code = 0
        try:
            with pytest.MonkeyPatch.context() as monkeypatch:
                for name, value in variables.items():
                    monkeypatch.setenv(name, value)
                cli.main(arguments)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        finally:
            os.chdir(before)
            sys.stdin, sys.stdout, sys.stderr, sys.argv = saved
            for stream in mine:
                stream.close()
        connection.sendall(str(code).encode())
    return code


def commands(text: str) -> str:
    """The lines of a block as a script: without the prompt."""
    return "".join(f"{line.removeprefix('$ ')}\n" for line in text.splitlines())
