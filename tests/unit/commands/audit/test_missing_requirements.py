"""BM111: what wheels require and their lock lacks, held against `uv pip check`."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
from datetime import date
from pathlib import Path

import pytest
from audit_index import Locked
from hasty import HASTY
from package_index import serve
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rulecases import only

from buildmatrix.base.progress import Silent
from buildmatrix.commands.audit import audit, judge_for
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.uv import find_uv
from buildmatrix.reports.run import Report
from buildmatrix.sources.resolved import resolve_sources

#: Name of a case → its wheels, each with what it requires; and what uv misses. `X` in a name is the
#: name of the case.
CASES: dict[str, tuple[dict[str, tuple[str, ...]], set[str]]] = {
    "whole": ({"X-torch 2": ("X-cudnn==9",), "X-cudnn 9": ()}, set()),
    "lacking": ({"X-torch 2": ("X-cudnn==9.10.2.21", "X-there"), "X-there 1": ()}, {"X-cudnn"}),
    "two": ({"X-a 1": ("X-b>1",), "X-c 1": ("X_B",)}, {"X-b"}),
    "older": ({"X-a 1": ("X-b>=2,<3",), "X-b 1.9": ()}, {"X-b"}),
    "local": ({"X-a 1": ("X-b==2.8.0",), "X-b 2.8.0+cu128": ()}, set()),
    "other-local": ({"X-a 1": ("X-b==2.8.0+cpu",), "X-b 2.8.0+cu128": ()}, {"X-b"}),
    "pre-release": ({"X-a 1": ("X-b>=2",), "X-b 3.0rc1": ()}, set()),
    "nobodys-extra": ({"X-a 1": ('X-b; extra == "gpu"', "X-c>1 ; extra=='all'")}, set()),
    "not-here": (
        {"X-a 1": ('X-b; sys_platform == "win32"', 'X-c; python_version < "3"')},
        set(),
    ),
    "here": ({"X-a 1": ('X-b; sys_platform == "linux" and python_version >= "3.9"',)}, {"X-b"}),
    "either": ({"X-a 1": ('X-b; extra == "x" or os_name == "posix"',)}, {"X-b"}),
    "address": ({"X-a 1": ("X-b @ https://example.com/b-1-py3-none-any.whl",)}, {"X-b"}),
    "itself": ({"X-a 1": ("X-a>=1", "X-a[more]")}, set()),
}


UV_LOCK = """version = 1
requires-python = ">=3.9"
{manifest}
[[package]]
name = "acme"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "app" }}]

[[package]]
name = "app"
version = "1"
source = {{ registry = "{index}" }}
wheels = [{{ url = "{url}", hash = "sha256:{sha256}", size = {size} }}]
"""


def _wheels(locked: Locked, case: str) -> None:
    wheels, _ = CASES[case]
    for line, requires in wheels.items():
        locked.add(line.replace("X", case), requires=[item.replace("X", case) for item in requires])


def _missing(report: Report) -> set[str]:
    """The names that the findings are about, with the number of findings checked."""
    found = [finding for finding in report.findings if finding.rule == "BM111"]
    names = [canonicalize_name(Requirement(finding.chain[-1]).name) for finding in found]
    assert len(names) == len(set(names))
    assert all(finding.severity == "error" for finding in found)
    return set(names)


def test_it_says_what_uv_says_of_an_environment(locked: Locked, tmp_path: Path) -> None:
    for case in CASES:
        _wheels(locked, case)
    expected = {name.replace("X", case) for case, (_, names) in CASES.items() for name in names}
    report = locked.audit("cpu")
    assert _missing(report) == expected

    def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_OFFLINE": "1"}
        command = [find_uv().path, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    place = str(tmp_path / "environment")
    assert uv("venv", "--python", sys.executable, place).returncode == 0
    files = [str(path) for path in sorted(locked.folder.glob("*.whl"))]
    installed = uv("pip", "install", "--no-deps", "--python", place, *files)
    assert installed.returncode == 0, installed.stderr
    told = uv("pip", "check", "--python", place).stderr
    assert set(re.findall(r"requires `([\w-]+)", told)) == expected


def test_one_finding_names_all_that_require_it(locked: Locked) -> None:
    locked.add("torch 2.8.0", requires=["nvidia-cudnn-cu12==9.10.2.21; sys_platform == 'linux'"])
    locked.add("other 1", via="torch", requires=["nvidia-cudnn-cu12"])
    finding = only(locked.audit("cuda12.8").findings, "BM111")
    assert finding.message == (
        "other 1 requires nvidia-cudnn-cu12; torch 2.8.0 requires nvidia-cudnn-cu12==9.10.2.21, "
        "and this lock lacks it"
    )


@pytest.mark.parametrize(
    ("asked", "missing"),
    [("tool", set()), ("tool[gpu]", {"cuda-part", "deep"}), ("tool[x]", set())],
)
def test_extras_count_where_a_wheel_asks_for_them(
    locked: Locked, asked: str, missing: set[str]
) -> None:
    """`uv pip check` does not look at extras; an installer that resolves does."""
    locked.add("app 1", requires=[asked])
    locked.add(
        "tool 1",
        via="app",
        requires=[
            'cuda-part>=1; extra == "gpu"',
            'tool[all]; extra == "gpu"',
            'deep; extra == "all"',
        ],
    )
    assert _missing(locked.audit("cpu")) == missing


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project]\nname = "Needed"\nversion = "1"\n'),
        ("pyproject.toml", '[tool.poetry]\nname = "needed"\n'),
        (
            "pyproject.toml",
            "[tool.uv]\noverride-dependencies = [\"needed==1; python_version<'3'\"]\n",
        ),
        ("pyproject.toml", '[tool.uv]\nexclude-dependencies = ["needed"]\n'),
        ("uv.toml", '[[dependency-metadata]]\nname = "app"\nrequires-dist = []\n'),
    ],
)
def test_what_a_project_decides_itself_is_not_missing(
    locked: Locked, tmp_path: Path, name: str, text: str
) -> None:
    locked.add("app 1", requires=["needed>1"])
    assert _missing(_of_file(locked, tmp_path)) == {"needed"}
    (tmp_path / name).write_text(text)
    assert _missing(_of_file(locked, tmp_path)) == set()


def _of_file(locked: Locked, folder: Path, name: str = "pylock.toml", manifest: str = "") -> Report:
    """The audit of a file that somebody committed."""
    (wheel,) = locked.packages[0].wheels
    texts = {
        "pylock.toml": locked.text(),
        "requirements.txt": f"--index-url {locked.server.url}\n"
        f"app==1 --hash=sha256:{wheel.sha256}\n",
        "uv.lock": UV_LOCK.format(
            index=locked.server.url,
            url=wheel.url,
            sha256=wheel.sha256,
            size=wheel.size,
            manifest=manifest,
        ),
    }
    (folder / name).write_text(texts[name])
    results = resolve_sources(
        (name,), None, backends=("cpu",), python="3.11", root=folder, progress=Silent()
    )
    judge = judge_for(None, (), "error", date(2026, 11, 21), ())
    with Client(patience=HASTY) as client:
        return audit(name, results, WheelReader(client), judge, Silent())


@pytest.mark.parametrize("name", ["pylock.toml", "requirements.txt", "uv.lock"])
def test_each_format_says_what_it_lacks(locked: Locked, tmp_path: Path, name: str) -> None:
    locked.add("app 1", requires=["needed>1", "acme", 'x; python_full_version < "3.11.3"'])
    expected = {"needed"} if name == "uv.lock" else {"needed", "acme"}
    assert _missing(_of_file(locked, tmp_path, name)) == expected


@pytest.mark.parametrize(
    "manifest",
    [
        'overrides = [{ name = "needed", specifier = "==1" }]',
        'excludes = ["needed"]',
        '[[manifest.dependency-metadata]]\nname = "app"\nversion = "1"',
    ],
)
def test_what_a_uv_lock_decides_itself_is_not_missing(
    locked: Locked, tmp_path: Path, manifest: str
) -> None:
    locked.add("app 1", requires=["needed>1"])
    manifest = manifest if manifest.startswith("[") else f"[manifest]\n{manifest}"
    assert _missing(_of_file(locked, tmp_path, "uv.lock", manifest)) == set()


def test_tools_that_leave_installers_out_and_pins_that_are_completed(locked: Locked) -> None:
    locked.add("app 1", requires=["setuptools", "pip>20", "later", "old>=2"])
    locked.add("old 1", via="app")
    assert _missing(locked.audit("cpu")) == {"later", "old"}
    locked.is_completed = True
    assert _missing(locked.audit("cpu")) == {"old"}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_a_source_distribution_says_what_it_requires(tmp_path: Path, version: str) -> None:
    text = (
        f"Metadata-Version: {version}\nName: acme\nVersion: 1\nRequires-Dist: numpy>=2\n".encode()
    )
    archive = tmp_path / "acme-1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("acme-1/PKG-INFO")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    (tmp_path / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "acme"\nversion = "1"\n'
        f'sdist = {{ path = "acme-1.tar.gz", hashes = {{ sha256 = "{sha256}" }} }}\n'
    )
    resolved = resolve_sources(
        [f"lock:{tmp_path / 'pylock.toml'}"], None, backends=["cpu"], python="3.11",
        progress=Silent(),
    )  # fmt: skip
    judge = judge_for(None, (), "warning", date(2026, 11, 27), ())
    report = audit("pylock.toml", resolved, WheelReader(None), judge, Silent())
    is_known = version == "2.2"
    assert _missing(report) == ({"numpy"} if is_known else set())
    # Where metadata leave it to the build, the lock's own tool has built it.
    assert "what it requires is not known" not in only(report.findings, "BM107").message


#: Locks that name nothing but a source distribution.
SOURCES = {
    "uv.lock": UV_LOCK.replace("wheels = [{{", "sdist = {{").replace("{size} }}]", "{size} }}"),
    "poetry.lock": """[[package]]
name = "app"
version = "1"
optional = false
python-versions = "*"
groups = ["main"]
files = [{{ file = "app-1.tar.gz", hash = "sha256:{sha256}" }}]
[metadata]
lock-version = "2.1"
python-versions = "*"
content-hash = "0"
""",
    "pylock.toml": """lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "app"
version = "1"
sdist = {{ url = "{url}", hashes = {{ sha256 = "{sha256}" }} }}
""",
    "requirements.txt": "app==1 --hash=sha256:{sha256}\n",
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_distribution_of_an_index_says_what_it_requires(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "built"
    with serve() as index, Client(patience=HASTY) as client:
        index.add_source("pypi", "app", "1", str(trap), "numpy>=2", "x; extra == 'y'")
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url("pypi"))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_PYTHON", sys.executable)
        url = index.url("pypi").replace("simple", "files/app-1.tar.gz")
        sha256 = index.sha256("pypi", "app-1.tar.gz")
        values = {"index": index.url("pypi"), "size": index.size("pypi", "app-1.tar.gz")}
        text = SOURCES[name].format(url=url, sha256=sha256, manifest="", **values)
        (tmp_path / name).write_text(text)
        resolved = resolve_sources(
            [name], None, backends=["cpu"], python="3.11", root=tmp_path, progress=Silent()
        )
        judge = judge_for(None, (), "warning", date(2026, 11, 27), ())
        report = audit(name, resolved, WheelReader(client), judge, Silent())
    assert _missing(report) == {"numpy"}
    assert not trap.exists()
