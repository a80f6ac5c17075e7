"""The Python that builds what has to be built is looked for once, and not in each call of uv."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from lock_cases import target

from buildmatrix.base.errors import UndecidedError
from buildmatrix.locks import uv as module
from buildmatrix.locks.lookup import Pins, Recent, find_files
from buildmatrix.locks.model import Lock, Package
from buildmatrix.locks.uv import Uv

#: Stands for uv: notes what it is called with, and has the default Python alone.
PROGRAM = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$*" in
    "python find --no-project -- 3.11") echo {python} ;;
    "python find --no-project -- default") echo {default} ;;
    *) echo "error: no interpreter" >&2; exit 2 ;;
esac
"""


class Machine:
    """A machine with some Pythons, and a folder that is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.has()

    def has(self, python: str = "/bin/python3.11", default: str = "/bin/python3") -> None:
        path = self.folder / "uv"
        path.write_text(PROGRAM.format(python=python, default=default))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def uv(self) -> Uv:
        return Uv(self.folder / "uv", "0.13.8")

    def python(self, version: str) -> str | None:
        return self.uv.interpreter(version, self.project)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    module._interpreter.cache_clear()
    return Machine(tmp_path)


def test_the_version_itself_where_it_is_there(machine: Machine) -> None:
    assert machine.python("3.11") == "/bin/python3.11"
    assert len(machine.calls) == 1


def test_else_the_default(machine: Machine) -> None:
    assert machine.python("3.13") == "/bin/python3"
    assert [call.split()[-1] for call in machine.calls] == ["3.13", "default"]


def test_threads_that_need_the_same_wait_for_one_search(machine: Machine) -> None:
    found: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(machine.python("3.13"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["/bin/python3"] * 4
    assert len(machine.calls) == 2


def test_a_look_up_of_files_is_no_search_of_its_own(machine: Machine, tmp_path: Path) -> None:
    package = Package("numpy", "2.0", None, (), False, ())
    pins = Pins(Lock(tmp_path / "poetry.lock", (package,), "", ""), {})
    one = target(python="3.13")
    with pytest.raises(UndecidedError):
        find_files(machine.uv, one, pins, Recent(None), offline=True, jobs=1)
    (asked,) = [call for call in machine.calls if call.startswith("pip compile")]
    assert "--python=/bin/python3 -- pins.in" in asked


def test_uv_says_itself_that_there_is_none(machine: Machine) -> None:
    machine.has(python="", default="no path")
    assert machine.python("3.11") is None
    assert machine.python("3.13") is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("project/uv.toml", '[pip]\npython = "3.12"\n'),
        ("project/pyproject.toml", '[tool.uv.pip]\npython = "3.12"\n'),
        ("config/uv/uv.toml", '[pip]\npython = "3.12"\n'),
        ("system/uv/uv.toml", '[pip]\npython = "3.12"\n'),
    ],
)
def test_a_python_that_settings_name_stays(machine: Machine, name: str, text: str) -> None:
    path = machine.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert machine.python("3.11") is None
    assert machine.calls == []


def test_other_settings_change_nothing(machine: Machine) -> None:
    (machine.project / "uv.toml").write_text('prerelease = "allow"\n[pip]\nextra = ["a"]\n')
    assert machine.python("3.11") == "/bin/python3.11"
