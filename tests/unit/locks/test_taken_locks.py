"""Locks that a project has: the files of a target are taken from them, and nothing is resolved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from lock_cases import CPU, spec_of
from package_index import PackageIndex
from test_uv_oracle import Workspace

from buildmatrix.base.data import replace
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.base.progress import Silent
from buildmatrix.base.toml import loads
from buildmatrix.locks.model import Lock
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.locks.status import leftovers, staleness
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec, Target

PROJECT = """\
[project]
name = "acme"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["numpy==2.0"]
[project.optional-dependencies]
cpu = ["xgboost-cpu==3.4.1"]
gpu = ["nvidia-cublas==13.0"]
[dependency-groups]
dev = ["triton"]
[tool.uv]
conflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]
"""


def taking(committed: str, **changes: object) -> Target:
    own = f".buildmatrix/locks/pylock.{CPU.id}.toml"
    values = {"requirements": (), "lock": own, "committed_lock": committed, **changes}
    return replace(CPU, **values)  # type: ignore[arg-type]


def outcome(root: Path, target: Target, *, offline: bool = False) -> Lock | BuildmatrixError:
    answers = lock_targets(
        spec_of(root, target), [target], upgrade=False, offline=offline, progress=Silent(), jobs=1
    )
    return answers[target.id]


def taken(root: Path, target: Target, *, offline: bool = False) -> dict[str, str]:
    lock = outcome(root, target, offline=offline)
    assert isinstance(lock, Lock), lock
    assert lock.inputs == ""  # Rules hold it against what its wheels require.
    return {package.name: package.version for package in lock.packages}


def refused(root: Path, target: Target) -> str:
    error = outcome(root, target)
    assert isinstance(error, BuildmatrixError)
    assert staleness(spec_of(root, target), target) is not None
    return f"{error.exit_code} {error.message}"


@pytest.fixture
def project(tmp_path: Path, index: PackageIndex) -> Path:
    """A folder with a project that the real uv has locked."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    run_uv(folder, "lock", "--quiet")
    index.requests = 0
    return folder


def run_uv(folder: Path, *arguments: str) -> str:
    answer = Workspace(folder, os.environ).uv(*arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize(
    ("parts", "options", "names"),
    [
        ({"extras": ("cpu",)}, ["--extra=cpu", "--no-dev"], {"numpy", "xgboost-cpu"}),
        ({"extras": ("GPU",)}, ["--extra=gpu", "--no-dev"], {"numpy", "nvidia-cublas"}),
        ({"groups": ("dev",)}, [], {"numpy", "triton"}),
        ({"only_groups": ("dev",)}, ["--only-dev"], {"triton"}),
    ],
)
def test_what_is_taken_of_a_uv_lock_is_what_uv_exports(
    project: Path,
    index: PackageIndex,
    parts: dict[str, tuple[str, ...]],
    options: list[str],
    names: set[str],
) -> None:
    target = taking("uv.lock", **parts)
    assert staleness(spec_of(project, target), target) is None
    assert set(taken(project, target)) == names
    assert index.requests == 0
    exported = run_uv(
        project, "export", "--frozen", "--no-emit-project", "--format=pylock.toml", *options
    )
    mine = loads((project / target.lock).read_text())["packages"]
    theirs = loads(exported)["packages"]
    assert [files(package) for package in mine] == [files(package) for package in theirs]


def files(package: dict[str, object]) -> tuple[object, ...]:
    wheels = package.get("wheels", [])
    assert isinstance(wheels, list)
    return (
        package["name"],
        package["version"],
        [(wheel["url"], wheel["hashes"]) for wheel in wheels],
    )


def test_the_same_files_make_the_same_lock_wherever_the_lines_are(project: Path) -> None:
    target = taking("uv.lock", extras=("cpu",))
    taken(project, target)
    before = (project / target.lock).read_bytes()
    (project / "pyproject.toml").write_text("# A comment.\n" + PROJECT)
    lock = outcome(project, target)
    assert isinstance(lock, Lock)
    assert (project / target.lock).read_bytes() == before
    assert {package.via for package in lock.packages} == {
        ("pyproject.toml:6", "xgboost-cpu"), ("pyproject.toml:8",),
    }  # fmt: skip
    assert leftovers(spec_of(project, target)) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"numpy==2.0"',
            '"numpy==2.0", "booster"',
            "1 cpu-py311-server: uv.lock does not fit its inputs: pyproject.toml asks for booster, "
            "and uv.lock was made without it; run `uv lock`",
        ),
        # Only uv knows what follows from this.
        (
            "[tool.uv]\n",
            '[tool.uv]\nconstraint-dependencies = ["numpy<3"]\n',
            "1 cpu-py311-server: uv.lock does not fit its inputs: `uv lock --check` says that "
            "uv.lock needs to be updated; run `uv lock`",
        ),
    ],
)
def test_a_lock_that_does_not_fit_its_project_is_not_installed(
    project: Path, old: str, new: str, said: str
) -> None:
    (project / "pyproject.toml").write_text(PROJECT.replace(old, new))
    error = outcome(project, taking("uv.lock"))
    assert isinstance(error, BuildmatrixError)
    assert f"{error.exit_code} {error.message}" == said


def test_a_lock_for_another_python_or_without_a_wheel_for_the_platform_is_refused(
    project: Path, index: PackageIndex
) -> None:
    old = taking("uv.lock", python="3.10")
    assert refused(project, old) == (
        "2 uv.lock: the lock is for Python >=3.11, and cpu-py311-server has 3.10"
    )
    index.add_wheel("pypi", "acme-native", "1.0", "cp311-cp311-manylinux_2_28_x86_64")
    pyproject = PROJECT.replace('"numpy==2.0"', '"acme-native"')
    (project / "pyproject.toml").write_text(pyproject)
    run_uv(project, "lock", "--quiet")
    assert set(taken(project, taking("uv.lock"))) == {"acme-native"}
    said = refused(project, taking("uv.lock", platform="linux/arm64"))
    assert "acme-native 1.0 cannot be installed: it has no wheel for linux/arm64" in said


def test_dropped_distributions_are_not_taken(project: Path) -> None:
    target = taking("uv.lock", extras=("gpu",), drop=("Nvidia_cublas",))
    assert set(taken(project, target)) == {"numpy"}


def test_a_source_distribution_is_taken_where_there_is_no_wheel(
    project: Path, index: PackageIndex
) -> None:
    index.add_source("pypi", "oldstyle", "1.0", str(project / "trap"))
    digest = index.sha256("pypi", "oldstyle-1.0.tar.gz")
    (project / "pylock.cpu.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "me"\n[[packages]]\nname = "oldstyle"\n'
        f'version = "1.0"\nsdist = {{ url = "{index.url("pypi").removesuffix("simple")}files/'
        f'oldstyle-1.0.tar.gz", hashes = {{ sha256 = "{digest}" }} }}\n'
    )
    target = taking("pylock.cpu.toml")
    lock = outcome(project, target)
    assert isinstance(lock, Lock)
    assert lock.packages[0].source_only
    assert lock.packages[0].sdist is not None
    assert lock.packages[0].sdist.sha256 == digest


HASHED = "numpy==2.0 --hash=sha256:{numpy}\n"


def test_pinned_requirements_with_hashes_are_taken_and_looked_up_once(
    tmp_path: Path, index: PackageIndex
) -> None:
    digest = index.sha256("pypi", "numpy-2.0-py3-none-any.whl")
    (tmp_path / "requirements.txt").write_text(HASHED.format(numpy=digest))
    target = taking("requirements.txt")
    assert taken(tmp_path, target) == {"numpy": "2.0"}
    asked = index.requests
    assert asked > 0
    assert taken(tmp_path, target) == {"numpy": "2.0"}
    assert index.requests == asked
    # Somebody changed the file that was taken: it is taken again.
    path = tmp_path / target.lock
    path.write_text(path.read_text().replace(digest, "0" * 64))
    assert taken(tmp_path, target) == {"numpy": "2.0"}
    assert digest in path.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numpy==2.0\n", "2 requirements.txt:1: cpu-py311-server: numpy 2.0 has no hash; lock it"),
        ("numpy>=2\n", "2 requirements.txt:1: `numpy>=2` names no version"),
        (
            f"numpy @ ./numpy-2.0-py3-none-any.whl --hash=sha256:{'0' * 64}\n",
            "2 requirements.txt:1: cpu-py311-server: numpy 2.0 is locked as a file on this machine",
        ),
    ],
)
def test_requirements_that_allow_any_file_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "requirements.txt").write_text(text)
    (tmp_path / "numpy-2.0-py3-none-any.whl").write_bytes(b"")
    assert refused(tmp_path, taking("requirements.txt")).startswith(said)


def test_a_file_with_another_hash_is_refused(tmp_path: Path, index: PackageIndex) -> None:
    (tmp_path / "requirements.txt").write_text(HASHED.format(numpy="0" * 64))
    error = outcome(tmp_path, taking("requirements.txt"))
    assert isinstance(error, BuildmatrixError)
    assert "the index has numpy 2.0 with other hashes than the lock" in error.message


def test_a_repository_is_no_file_with_a_hash(tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "me"\n[[packages]]\nname = "kernels"\nversion = "1.0"\n'
        'vcs = { type = "git", url = "https://git.example.com/k", commit-id = "abc" }\n'
    )
    said = refused(tmp_path, taking("pylock.toml"))
    assert "kernels 1.0 is locked as git+https://git.example.com/k@abc, which is not a file" in said
    assert 'drop = ["kernels"]' in said


def test_poetry_and_pipenv_locks_are_taken_with_the_files_of_the_index(
    tmp_path: Path, index: PackageIndex
) -> None:
    digest = index.sha256("pypi", "numpy-2.0-py3-none-any.whl")
    (tmp_path / "poetry.lock").write_text(
        '[[package]]\nname = "numpy"\nversion = "2.0"\noptional = false\n'
        'python-versions = ">=3.9"\ngroups = ["main"]\n'
        f'files = [{{file = "numpy-2.0-py3-none-any.whl", hash = "sha256:{digest}"}}]\n'
        '[metadata]\nlock-version = "2.1"\npython-versions = ">=3.9"\ncontent-hash = "a"\n'
    )
    (tmp_path / "Pipfile.lock").write_text(
        '{"_meta": {"hash": {"sha256": "a"}, "sources": []}, "default": {"numpy": '
        f'{{"hashes": ["sha256:{digest}"], "version": "==2.0"}}}}, "develop": {{"triton": '
        '{"hashes": ["sha256:' + "0" * 64 + '"], "version": "==3.9.0"}}}'
    )
    for name in ("poetry.lock", "Pipfile.lock"):
        assert taken(tmp_path, taking(name)) == {"numpy": "2.0"}
        shutil.rmtree(tmp_path / ".buildmatrix")


class Notes(Silent):
    """A `Progress` that keeps notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


POETRY_SAYS = "Error: pyproject.toml changed significantly since poetry.lock was last generated."
PIPENV_SAYS = "Pipfile.lock is out-of-date. Run $ pipenv lock to update."
POETRY_COMMAND = "--no-plugins --no-interaction check --lock"


@pytest.mark.parametrize(
    ("lock", "command", "said", "code", "expected"),
    [
        ("poetry.lock", POETRY_COMMAND, "All set!", 0, "fits"),
        ("poetry.lock", POETRY_COMMAND, POETRY_SAYS, 1, "stale"),
        ("poetry.lock", POETRY_COMMAND, "Error: [project.name] is missing", 1, "unchecked"),
        ("poetry.lock", None, "", 0, "unchecked"),
        ("Pipfile.lock", "verify", "Pipfile.lock is up-to-date.", 0, "fits"),
        ("Pipfile.lock", "verify", PIPENV_SAYS, 1, "stale"),
        ("Pipfile.lock", None, "", 0, "unchecked"),
    ],
)
def test_the_tool_of_a_lock_is_asked_if_it_fits_its_inputs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lock: str,
    command: str | None,
    said: str,
    code: int,
    expected: str,
) -> None:
    tool, inputs, check = (
        ("poetry", "pyproject.toml", "poetry check --lock")
        if lock == "poetry.lock"
        else ("pipenv", "Pipfile", "pipenv verify")
    )
    empty = {
        "poetry.lock": '[metadata]\nlock-version = "2.1"\npython-versions = "*"\n',
        "Pipfile.lock": '{"_meta": {"sources": []}, "default": {}, "develop": {}}',
    }
    project, programs = tmp_path / "project", tmp_path / "bin"
    project.mkdir()
    programs.mkdir()
    (project / lock).write_text(empty[lock])
    (project / inputs).write_text("")
    # The project's own program of that name is never run, and neither is what it puts into `.env`.
    trap = project / tool
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/trap\n")
    trap.chmod(0o755)
    if command is not None:
        program = programs / tool
        program.write_text(
            f'#!/bin/sh\ntest "$*" = "{command}" && test "$PIPENV_DONT_LOAD_ENV" = 1 || exit 9\n'
            f"echo '{said}' >&2\nexit {code}\n"
        )
        program.chmod(0o755)
    monkeypatch.chdir(project)
    kept = os.environ["PATH"].split(":")
    kept = [folder for folder in kept if not (Path(folder) / tool).exists()]
    monkeypatch.setenv("PATH", ":".join([str(programs), ".", *kept]))
    progress, one = Notes(), taking(lock)
    answer = lock_targets(
        spec_of(project, one), [one], upgrade=False, offline=True, progress=progress, jobs=1
    )[one.id]
    if expected == "stale":
        assert isinstance(answer, BuildmatrixError)
        assert f"{lock} does not fit its inputs: `{check}` says that" in answer.message
    else:
        assert isinstance(answer, Lock)
    unchecked = f"{one.id}: {lock} was not checked against {inputs}; `{check}` decides"
    assert progress.notes == ([unchecked] if expected == "unchecked" else [])
    assert not (tmp_path / "trap").exists()


# The specification

SPEC = """\
[project]
name = "inferno"
version = "1.4.0"
[defaults]
python = "3.11"
base = "python:{python}-slim-bookworm"
lock = "locks/pylock.{backend}.toml"
%s
[backend.cpu]
runtime = "any"
"""


def loaded(root: Path, settings: str = "") -> Spec:
    path = root / "buildmatrix.toml"
    path.write_text(SPEC % settings)
    return load_spec(path, backends=("cpu",))


def test_a_pylock_of_another_tool_is_the_projects_and_ours_is_written(tmp_path: Path) -> None:
    (tmp_path / "base.in").write_text("numpy\n")
    path = tmp_path / "locks" / "pylock.cpu.toml"
    path.parent.mkdir()
    ours = loaded(tmp_path, 'requirements = ["base.in"]').targets[0]
    assert (ours.lock, ours.committed_lock) == ("locks/pylock.cpu.toml", "")
    path.write_text('lock-version = "1.0"\n')
    theirs = loaded(tmp_path, 'groups = ["serve"]').targets[0]
    assert theirs.lock == ".buildmatrix/locks/pylock.cpu-py311-default.toml"
    assert theirs.lock_label == "locks/pylock.cpu.toml[:serve]"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "there is no file `locks/pylock.cpu.toml` below the specification's folder"),
        ('lock = "locks/pylock.{backen}.toml"', "unknown placeholder `{backen}`"),
        ('lock = "lock.json"', "`defaults.lock` `lock.json` is not a path of a lock"),
        (
            'lock = "uv.lock"\nrequirements = ["base.in"]',
            "`requirements` have no effect in cpu-py311-default: `uv.lock` decides what is",
        ),
        (
            'lock = "uv.lock"\nreplace = { torch = "torch-cpu" }',
            "`replace` has no effect in cpu-py311-default: `uv.lock` decides what is installed",
        ),
        (
            'lock = "uv.lock"\nonly-groups = ["dev"]\nextras = ["cpu"]',
            "cpu-py311-default has `only-groups`, together with extras or groups",
        ),
        (
            'lock = "locks/{id}.toml"\nrequirements = ["base.in"]\ngroups = ["dev"]',
            "`groups` of cpu-py311-default need a lock of the project",
        ),
    ],
)
def test_mistakes_about_the_projects_lock_are_said(
    tmp_path: Path, settings: str, said: str
) -> None:
    (tmp_path / "base.in").write_text("numpy\n")
    (tmp_path / "uv.lock").write_text("version = 1\n")
    path = tmp_path / "buildmatrix.toml"
    default = 'lock = "locks/pylock.{backend}.toml"\n'
    path.write_text((SPEC.replace(default, "") if "lock" in settings else SPEC) % settings)
    with pytest.raises(BuildmatrixError) as caught:
        load_spec(path, backends=("cpu",))
    assert said in caught.value.message, caught.value.message
