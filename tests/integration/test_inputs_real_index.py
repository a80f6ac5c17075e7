"""Inputs of projects as uv and pip read them, with the machine's real package index."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from buildmatrix.base.progress import Silent
from buildmatrix.cli import main
from buildmatrix.locks.selection import marker_environment
from buildmatrix.locks.uv import find_uv
from buildmatrix.sources.resolved import Resolved, resolve_sources

pytestmark = pytest.mark.network

#: Extras as in `unstructured` (nested, through the project's own name) and `invokeai` (exclusive).
PROJECT = """\
[project]
name = "Inferno_Engine"
version = "1"
requires-python = ">=3.11"
dependencies = ["six==1.17.0"]

[project.optional-dependencies]
md = ["h11==0.16.0 ; python_version < '3.13'"]
docs = ["inferno-engine[md]", "idna==3.10"]
all = ["inferno.engine[docs]", "inferno-engine[md] ; sys_platform == 'linux'"]
all-docs = ["Inferno-Engine[all]"]
cpu = ["packaging==24.2"]
cuda = ["packaging==25.0", "inferno-engine[md]"]

[dependency-groups]
dev = ["iniconfig==2.1.0"]
serve = ["inferno-engine[docs]", "sniffio==1.3.1"]

[tool.uv]
package = false
conflicts = [[{ extra = "cpu" }, { extra = "cuda" }]]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text(PROJECT)
    uv("lock", folder)
    return folder


def uv(command: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(find_uv().path), command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def resolved(folder: Path, source: str, python: str = "3.12") -> Resolved:
    (one,) = resolve_sources(
        [source], None, backends=["cpu"], python=python, root=folder, progress=Silent()
    )
    assert isinstance(one, Resolved), one
    return one


@pytest.mark.parametrize(
    ("parts", "options"),
    [
        ("", ()),
        (":-dev", ("--no-default-groups",)),
        ("[all-docs]", ("--extra=all-docs",)),
        ("[cpu]:serve", ("--extra=cpu", "--group=serve")),
        ("[cuda,docs]:-dev", ("--extra=cuda", "--extra=docs", "--no-dev")),
    ],
)
@pytest.mark.parametrize("python", ["3.11", "3.13"])
def test_a_uv_lock_comes_to_what_uv_itself_exports(
    project: Path, parts: str, options: tuple[str, ...], python: str
) -> None:
    one = resolved(project, f"uv.lock{parts}", python)
    assert one.stale is None
    mine = {f"{package.name}=={package.version}" for package in one.lock.packages}
    exported = uv(
        "export", project, "--frozen", "--no-hashes", "--no-header", "--no-annotate", *options
    )
    environment = marker_environment(one.target)
    asked = [Requirement(line) for line in exported.splitlines()]
    assert mine == {
        f"{canonicalize_name(line.name)}{line.specifier}"
        for line in asked
        if line.marker is None or line.marker.evaluate(environment)
    }
    places = {via for package in one.lock.packages for via in package.via}
    assert all(place.startswith("pyproject.toml:") for place in places)


def test_own_extras_are_never_asked_of_the_index(project: Path) -> None:
    one = resolved(project, "pyproject.toml[all-docs]")
    assert {package.name: package.via for package in one.lock.packages} == {
        "h11": ("pyproject.toml:8",),
        "idna": ("pyproject.toml:9",),
        "six": ("pyproject.toml:5",),
    }


def test_an_address_with_a_marker_right_behind_it_is_taken(tmp_path: Path) -> None:
    url = resolved(tmp_path, "pypi:six==1.17.0").lock.packages[0].wheels[0].url
    (tmp_path / "requirements.in").write_text(
        f"six @ {url}; sys_platform == 'linux'\nh11@{url};sys_platform=='win32'\n"
    )
    (package,) = resolved(tmp_path, "requirements.in").lock.packages
    assert (package.name, package.version, package.via) == ("six", "1.17.0", ("requirements.in:1",))


def test_audit_and_why_blame_the_line_of_the_pipfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Pipfile").write_text('[packages]\n# GPUs\npynvml = "*"\n')
    default = {
        "nvidia-ml-py": {"version": "==12.575.51"},
        "pynvml": {"version": "==12.0.0"},
    }
    lock = {"_meta": {"hash": {}, "sources": []}, "default": default, "develop": {}}
    (tmp_path / "Pipfile.lock").write_text(json.dumps(lock, indent=4))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main(["--no-progress", *arguments])
        return capsys.readouterr().out

    report = json.loads(
        run(
            *("audit", "Pipfile.lock", "--backend", "cpu", "--python", "3.12"),
            *("--no-vulnerabilities", "--format", "json"),
        )
    )
    chains = {one["distribution"]: one["chain"] for one in report["findings"]}
    chain = ["Pipfile:3", "pynvml 12.0.0", "nvidia-ml-py 12.575.51"]
    assert chains["nvidia-ml-py"] == chain
    told = run("why", "lock:Pipfile.lock", "nvidia-ml-py", "--backend", "cpu")
    assert 'Pipfile:3: pynvml = "*"' in told
    assert told.index("pynvml 12.0.0") < told.index("nvidia-ml-py 12.575.51  (requires")
