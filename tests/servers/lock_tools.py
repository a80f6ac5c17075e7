"""Run Poetry, pdm or pipenv many times in one process of their own Python.

Most of the cost of one run is its start. Reads requests from standard input and writes answers,
one JSON object per line: `code`, `text`, and the files that the tool installs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

#: `manylinux` tags of Debian 12.
GLIBC = range(36, 16, -1)


class Poetry:
    """Poetry 1.8 and 2.x, for a machine that need not be this one."""

    def __init__(self) -> None:
        from poetry.installation.executor import Executor
        from poetry.utils.env import EnvManager

        self.installs: list[Mapping[str, str]] = []
        self.environment: Any = None

        def execute(executor: Any, operations: Sequence[Any]) -> int:
            for package in (one.package for one in operations if not one.skipped):
                link = executor._chooser.choose_for(package)
                digest = link.url.partition("#sha256=")[2]
                row = _row(package.name, str(package.version), link.filename, digest)
                self.installs.append(row)
            return 0

        Executor.execute = execute
        EnvManager.create_venv = lambda *_, **__: self.environment

    def run(self, arguments: Sequence[str], python: Sequence[int], machine: str) -> Any:
        from cleo.io.inputs.argv_input import ArgvInput
        from cleo.io.outputs.buffered_output import BufferedOutput
        from packaging.tags import compatible_tags, cpython_tags
        from poetry.console.application import Application
        from poetry.utils.env import MockEnv

        platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC]
        tags = [
            *cpython_tags(python[:2], platforms=platforms),
            *compatible_tags(python[:2], f"cp{python[0]}{python[1]}", platforms),
        ]
        self.environment = MockEnv(
            tuple(python),
            platform="linux",
            platform_machine=machine,
            sys_path=[],
            supported_tags=tags,
        )
        markers = {**self.environment.get_marker_env(), "platform_system": "Linux"}
        self.environment.get_marker_env = lambda: markers
        self.installs = []
        output = BufferedOutput()
        application = Application()
        application.auto_exits(False)
        command = ArgvInput(["poetry", *arguments, "--no-interaction"])
        return application.run(command, output, output), output.fetch(), self.installs


class Pdm:
    """Pdm, for the Python that it runs with."""

    def __init__(self) -> None:
        from pdm.signals import pre_install

        self.installs: list[Mapping[str, str]] = []
        os.environ["PDM_PYTHON"] = sys.executable
        pre_install.connect(self._note)

    def _note(self, project: Any, packages: Sequence[Any], **_: object) -> None:
        for candidate in (package.candidate for package in packages):
            if candidate.req.extras:
                continue
            candidate.prepare(project.environment)._obtain(allow_all=False, unpack=False)
            file = candidate.link.filename
            (digest,) = {one["hash"] for one in candidate.hashes if one["file"] == file}
            digest = digest.removeprefix("sha256:")
            self.installs.append(_row(candidate.req.key, candidate.version, file, digest))

    def run(self, arguments: Sequence[str], *_: object) -> Any:
        from pdm.core import Core

        self.installs = []
        code: Any = 0
        with io.StringIO() as output, contextlib.redirect_stdout(output):
            with contextlib.redirect_stderr(output):
                try:
                    core = Core()
                    with core.exit_stack:
                        core.main(list(arguments))
                except SystemExit as error:
                    code = error.code or 0
                except Exception as error:
                    code = repr(error)
            return code, output.getvalue(), self.installs


class Pipenv:
    """Pipenv, for the Python that it runs with; pip says which files it takes."""

    def run(self, arguments: Sequence[str], *_: object) -> Any:
        if arguments[0] == "lock":
            return *self._python("pipenv", "lock"), []
        sections = " ".join(arguments[1:])
        code, text = self._python("pipenv", "requirements", "--hash", "--categories", sections)
        Path("all.txt").write_text(text)
        options = ("--dry-run", "--no-deps", "--ignore-installed", "--report=report.json")
        code, text = self._python("pip", "install", "-q", *options, "-r", "all.txt")
        installs = [] if code else json.loads(Path("report.json").read_text())["install"]
        return code, text, [self._installed(one) for one in installs]

    def _python(self, module: str, *arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", module, *arguments]
        environment = {**os.environ, "VIRTUAL_ENV": sys.prefix}
        ended = subprocess.run(command, env=environment, stdout=-1, stderr=-1, text=True)
        return ended.returncode, ended.stdout if not ended.returncode else ended.stderr

    def _installed(self, item: Mapping[str, Any]) -> Mapping[str, str]:
        download = item["download_info"]
        file = unquote(download["url"].rpartition("/")[2])
        digest = download["archive_info"]["hashes"]["sha256"]
        return _row(item["metadata"]["name"], item["metadata"]["version"], file, digest)


def _row(name: str, version: str, file: str, sha256: str) -> Mapping[str, str]:
    return {"name": name, "version": version, "file": file, "sha256": sha256}


def main() -> None:
    tool: Any = {"poetry": Poetry, "pdm": Pdm, "pipenv": Pipenv}[sys.argv[1]]()
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        os.chdir(request["folder"])
        code, text, installs = tool.run(request["arguments"], request["python"], request["machine"])
        answer = {"code": code, "text": text, "installs": installs}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
