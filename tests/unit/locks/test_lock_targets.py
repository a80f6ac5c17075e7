"""Locking with the real uv against an index on loopback."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from lock_cases import spec_of, target
from package_index import PackageIndex, wheel_bytes

from buildmatrix.base.errors import BuildmatrixError, SpecError, UndecidedError, UsageError
from buildmatrix.base.progress import Silent
from buildmatrix.cli import main
from buildmatrix.locks.model import Lock, Package
from buildmatrix.locks.resolve import lock_targets
from buildmatrix.locks.status import staleness
from buildmatrix.matrix.model import Target


def attempt(
    root: Path,
    *targets: Target,
    upgrade: bool | Sequence[str] = False,
    offline: bool = False,
) -> list[Lock | BuildmatrixError]:
    locks = lock_targets(
        spec_of(root, *targets),
        targets,
        upgrade=upgrade,
        offline=offline,
        progress=Silent(),
        jobs=2,
    )
    assert list(locks) == [t.id for t in targets]
    return list(locks.values())


def lock(root: Path, one: Target, **flags: bool | Sequence[str]) -> dict[str, Package]:
    (result,) = attempt(root, one, **flags)  # type: ignore[arg-type]
    assert isinstance(result, Lock), result
    return {package.name: package for package in result.packages}


def error(root: Path, one: Target, **flags: bool) -> BuildmatrixError:
    (result,) = attempt(root, one, **flags)
    assert isinstance(result, BuildmatrixError), result
    return result


def write(root: Path, text: str, name: str = "requirements.in") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_every_package_has_a_hash_an_index_and_the_one_who_asked(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "# the service\nsentence-transformers\n")
    packages = lock(tmp_path, target())
    assert packages["sentence-transformers"].via == ("requirements.in:2",)
    assert packages["torch"].via == ("sentence-transformers",)
    assert packages["numpy"].via == ("sentence-transformers", "torch")
    assert packages["torch"].index == index.url("pypi")
    assert all(len(wheel.sha256) == 64 for p in packages.values() for wheel in p.wheels)


def test_a_line_of_an_included_file_is_blamed_by_its_own_place(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "-r images/base.in\n-c images/limits.txt\n")
    write(tmp_path, "# comment\n\nnumpy>=2  # arrays\n", "images/base.in")
    write(tmp_path, "numpy<2.1\n", "images/limits.txt")
    packages = lock(tmp_path, target())
    assert packages["numpy"].version == "2.0"
    assert packages["numpy"].via == ("images/base.in:3",)


def test_extras_of_pyproject_are_inputs_with_their_lines(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(
        tmp_path,
        '[project]\nname = "inferno"\nversion = "1"\ndependencies = [\n  "numpy<2.1",\n]\n'
        '[project.optional-dependencies]\nboost = ["xgboost"]\n',
        "pyproject.toml",
    )
    one = target(requirements=(), pyproject="pyproject.toml", extras=("boost",))
    packages = lock(tmp_path, one)
    assert packages["numpy"].via == ("pyproject.toml:5", "xgboost")
    assert packages["xgboost"].via == ("pyproject.toml:8",)


def test_a_transitive_torch_comes_from_its_index_and_nothing_else_does(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "sentence-transformers\n")
    packages = lock(tmp_path, target(index={"torch": index.url("cu128")}))
    assert (packages["torch"].version, packages["torch"].index) == (
        "2.12.0+cu128",
        index.url("cu128"),
    )
    assert packages["torch"].via == ("sentence-transformers",)
    assert (packages["triton"].version, packages["triton"].via) == ("3.8.0", ("torch",))
    assert (packages["numpy"].version, packages["numpy"].index) == ("2.1", index.url("pypi"))
    assert "nvidia-cublas" not in packages


def test_a_family_member_that_only_the_wrong_torch_wanted_does_not_stay(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "torch\nsentence-transformers\n")
    packages = lock(tmp_path, target(index={"torch": index.url("cpu")}))
    assert packages["torch"].version == "2.12.0+cpu"
    assert packages["torch"].via == ("requirements.in:1", "sentence-transformers")
    assert {"triton", "nvidia-cublas"}.isdisjoint(packages)


def test_one_distribution_can_have_an_index_of_its_own(tmp_path: Path, index: PackageIndex) -> None:
    index.add("private", "booster", "2.0+acme")
    write(tmp_path, "booster\nnumpy\n")
    packages = lock(tmp_path, target(index={"Booster": index.url("private")}))
    assert packages["booster"].version == "2.0+acme"
    assert packages["numpy"].index == index.url("pypi")


def test_a_torch_that_the_index_does_not_have_is_an_error_and_no_silent_fallback(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "torch==2.13.0\n")
    problem = error(tmp_path, target(index={"torch": index.url("cu128")}))
    assert isinstance(problem, UndecidedError)
    assert problem.message.startswith("cpu-py311-server: its requirements cannot be resolved.")
    assert "no version of torch==2.13.0" in problem.message
    assert f"The torch family is taken from {index.url('cu128')} only." in problem.message
    assert "buildmatrix-index" not in problem.message


def test_replace_swaps_a_requirement_line_and_keeps_what_it_says(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "numpy\nxgboost<3.5 ; python_version >= '3.9'\n")
    packages = lock(tmp_path, target(replace={"XGBoost": "xgboost-cpu"}))
    assert packages["xgboost-cpu"].version == "3.4.1"
    assert packages["xgboost-cpu"].via == ("requirements.in:2",)
    assert {"xgboost", "nvidia-nccl-cu13"}.isdisjoint(packages)


def test_replace_swaps_what_is_asked_for_transitively_at_the_same_version(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "booster\n")
    packages = lock(tmp_path, target(replace={"xgboost": "xgboost-cpu"}))
    assert packages["xgboost-cpu"].version == "3.4.1"
    assert packages["xgboost-cpu"].via == ("booster",)
    assert {"xgboost", "nvidia-nccl-cu13"}.isdisjoint(packages)


def test_a_replacement_that_nobody_wants_brings_nothing_in(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "numpy\n")
    assert set(lock(tmp_path, target(replace={"xgboost": "xgboost-cpu"}))) == {"numpy"}


@pytest.mark.parametrize("replace", [{"xgboost": "xgboost"}, {"xgboost": "a", "a": "xgboost"}])
def test_a_replacement_that_is_replaced_itself_is_an_error_and_not_an_empty_lock(
    tmp_path: Path, index: PackageIndex, replace: dict[str, str]
) -> None:
    write(tmp_path, "xgboost\n")
    problem = error(tmp_path, target(replace=replace))
    assert isinstance(problem, UsageError)
    assert "write the final replacement of xgboost" in problem.message


def test_drop_takes_a_distribution_out_wherever_it_is_asked_for(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "xgboost\nnvidia-nccl-cu13\n")
    assert set(lock(tmp_path, target(drop=("nvidia_nccl_cu13",)))) == {"xgboost", "numpy"}


def test_a_target_without_requirements_has_an_empty_lock(
    tmp_path: Path, index: PackageIndex
) -> None:
    assert lock(tmp_path, target(requirements=())) == {}


def test_locking_twice_writes_the_same_bytes(tmp_path: Path, index: PackageIndex) -> None:
    write(tmp_path, "sentence-transformers\n")
    one = target(index={"torch": index.url("cu128")})
    lock(tmp_path, one)
    first = (tmp_path / one.lock).read_bytes()
    (tmp_path / one.lock).unlink()
    lock(tmp_path, one)
    assert (tmp_path / one.lock).read_bytes() == first
    assert str(tmp_path).encode() not in first


def test_a_current_lock_is_read_without_asking_the_index(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "numpy\n")
    lock(tmp_path, target())
    asked = index.requests
    assert lock(tmp_path, target())["numpy"].version == "2.1"
    assert index.requests == asked


def test_a_new_line_leaves_the_other_versions_where_they_are(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "numpy\n")
    lock(tmp_path, target())
    index.add("pypi", "numpy", "2.2")
    write(tmp_path, "numpy\nxgboost-cpu\n")
    assert lock(tmp_path, target())["numpy"].version == "2.1"


@pytest.mark.parametrize(
    ("upgrade", "numpy", "booster"),
    [(True, "2.2", "1.1"), (["NumPy"], "2.2", "1.0"), (["booster"], "2.1", "1.1")],
)
def test_upgrade_gives_up_all_versions_or_those_named(
    tmp_path: Path, index: PackageIndex, upgrade: bool | list[str], numpy: str, booster: str
) -> None:
    write(tmp_path, "numpy\nbooster\n")
    lock(tmp_path, target())
    index.add("pypi", "numpy", "2.2")
    index.add("pypi", "booster", "1.1", "xgboost>=3")
    packages = lock(tmp_path, target(), upgrade=upgrade)
    assert (packages["numpy"].version, packages["booster"].version) == (numpy, booster)


def test_the_name_of_an_upgrade_that_no_lock_has_is_refused(
    tmp_path: Path,
    index: PackageIndex,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path, "numpy\n")
    (tmp_path / "buildmatrix.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\n[defaults]\npython = "3.12"\n'
        'requirements = ["requirements.in"]\n'
        '[backend.cpu]\nruntime = "any"\nbase = "python:3.12-slim"\n'
    )
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as stop:
            main(["lock", *arguments])
        return stop.value.code or 0, capsys.readouterr().err

    # Whether it is right shows only when there is a lock.
    assert run("--upgrade=NumPy", "-q") == (0, "")
    code, err = run("--upgrade=nunpy")
    assert (code, "no lock of these targets has it; did you mean numpy?" in err) == (2, True)
    assert run("--upgrade=NumPy", "-q") == (0, "")


def test_one_target_that_cannot_be_resolved_does_not_stop_the_others(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "numpy\n")
    write(tmp_path, "numpy<2\nnumpy>2\n", "impossible.in")
    bad = target(
        id="cpu-py311-bad", requirements=("impossible.in",), lock="locks/pylock.cpu-py311-bad.toml"
    )
    failed, good = attempt(tmp_path, bad, target())
    assert isinstance(good, Lock)
    assert isinstance(failed, UndecidedError)
    assert "you require numpy<2 and numpy>2" in failed.message
    assert not (tmp_path / bad.lock).exists()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "refused the request (HTTP 401); give its credentials"),
        (403, "refused the request (HTTP 403); give its credentials"),
        (404, "numpy was not found in the package registry"),
        (503, "answers 503 Service Unavailable; try again later."),
    ],
)
def test_an_index_that_answers_an_error_is_named_without_its_password(
    tmp_path: Path,
    index: PackageIndex,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    said: str,
) -> None:
    write(tmp_path, "numpy\n")
    index.broken["pypi"] = status
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url("pypi", "robot:s3cret@"))
    problem = error(tmp_path, target())
    assert isinstance(problem, UndecidedError)
    assert said in problem.message
    assert "s3cret" not in problem.message
    assert "\n" not in problem.message


def test_an_index_that_is_down_is_said_with_its_address(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "numpy\n")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    message = error(tmp_path, target()).message
    assert "http://127.0.0.1:9/simple/numpy/ cannot be reached (Connection refused" in message


def test_an_index_that_speaks_no_trusted_tls_is_said_so(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "numpy\n")
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url("pypi").replace("http:", "https:"))
    assert "set SSL_CERT_FILE" in error(tmp_path, target()).message


def test_offline_with_an_empty_cache_says_what_to_run(tmp_path: Path, index: PackageIndex) -> None:
    write(tmp_path, "numpy\n")
    assert "without `--offline`" in error(tmp_path, target(), offline=True).message
    assert index.requests == 0


def test_credentials_of_an_index_never_reach_the_lock(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "torch\n")
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url("pypi", "robot:s3cret@"))
    one = target(index={"torch": index.url("cu128", "robot:s3cret@")})
    lock(tmp_path, one)
    assert "s3cret" not in (tmp_path / one.lock).read_text()


def test_settings_of_the_machine_that_would_change_the_result_are_ignored(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "numpy\n")
    write(tmp_path, "numpy==2.0\n", "machine.txt")
    monkeypatch.setenv("UV_OVERRIDE", str(tmp_path / "machine.txt"))
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    assert lock(tmp_path, target())["numpy"].version == "2.1"


def test_settings_beside_the_specification_count_and_are_an_input(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "numpy\n")
    write(tmp_path, 'constraint-dependencies = ["numpy<2.1"]\n', "uv.toml")
    assert lock(tmp_path, target())["numpy"].version == "2.0"
    write(tmp_path, "", "uv.toml")
    assert staleness(spec_of(tmp_path, target()), target()) == (
        "uv.toml changed since the lock was made"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numpy ==\n", "requirements.in:1:7: `numpy ==` is not a valid requirement"),
        ("numpy\n-e .\n", "requirements.in:2: `-e .` is on this machine"),
        ("./dist/app-1.0-py3-none-any.whl\n", "requirements.in:1: `./dist/app"),
        ("-r missing.in\n", "missing.in: cannot be read: no such file or directory"),
        ("-r https://wheels.example.com/all.txt\n", "is read from the network"),
        ("six\nnumpy \\\n  >=2\n", "requirements.in:2: this line continues on the next one"),
        ("numpy>=2 \\\n\n", "requirements.in:1: this line continues on the next one"),
        ("numpy>=2 --foo=1\n", "requirements.in:1: `--foo=1` is not an option of a requirement"),
        ("numpy --hash=md5:12\n", "requirements.in:1: the hashes of this line cannot be checked"),
        ("numpy\n--require-hashes\n", "requirements.in:2: `--require-hashes` is not supported"),
        ("numpy\n--foo\n", "requirements.in:2:1: Unexpected '-'"),
    ],
)
def test_a_line_that_cannot_be_locked_is_named_with_its_place(
    tmp_path: Path, index: PackageIndex, text: str, said: str
) -> None:
    write(tmp_path, text)
    problem = error(tmp_path, target())
    assert isinstance(problem, SpecError)
    assert said in problem.message


def test_the_width_of_a_terminal_does_not_change_what_a_failure_is(
    tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    write(tmp_path, "numpy\n--foo\n")
    with pytest.raises(SpecError, match=r"requirements\.in:2:1: Unexpected '-'"):
        raise error(tmp_path, target())


def test_all_bad_lines_are_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path, "numpy ==\nfine\n!!\n")
    assert len(error(tmp_path, target()).message.splitlines()) == 2


def test_an_extra_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    write(
        tmp_path,
        '[project]\nname = "a"\nversion = "1"\n[project.optional-dependencies]\ncuda = []\n',
        "pyproject.toml",
    )
    one = target(requirements=(), pyproject="pyproject.toml", extras=("coda",))
    assert "there is no extra `coda`; extras here: cuda" in error(tmp_path, one).message


@pytest.mark.parametrize(
    ("project", "said"),
    [
        ('dynamic = ["dependencies"]', "pyproject.toml:4: `dependencies` is dynamic"),
        (
            'dynamic = ["optional-dependencies"]',
            "pyproject.toml:4: `optional-dependencies` is dynamic",
        ),
        ('dependencies = "numpy"', "pyproject.toml:4: `dependencies` is not an array of strings"),
        ("dependencies = [1]", "pyproject.toml:4: `dependencies` is not an array of strings"),
        (
            'requires-python = ">=3.12"',
            "pyproject.toml:4: `requires-python` is `>=3.12`, and cpu-py311-server has Python 3.11",
        ),
        ('requires-python = "new"', "pyproject.toml:4: `requires-python` is 'new'"),
    ],
)
def test_a_pyproject_that_does_not_say_what_to_install_is_named_with_its_line(
    tmp_path: Path, project: str, said: str
) -> None:
    write(tmp_path, f'[project]\nname = "a"\nversion = "1"\n{project}\n', "pyproject.toml")
    problem = error(
        tmp_path, target(requirements=(), pyproject="pyproject.toml", extras=("boost",))
    )
    assert isinstance(problem, SpecError)
    assert said in problem.message


def test_a_pyproject_without_a_project_table_is_an_error_and_no_empty_lock(tmp_path: Path) -> None:
    write(tmp_path, "[tool.ruff]\n", "pyproject.toml")
    problem = error(tmp_path, target(requirements=(), pyproject="pyproject.toml"))
    assert isinstance(problem, SpecError)
    assert "pyproject.toml: there is no `[project]` table" in problem.message


def test_a_python_that_a_later_patch_satisfies_is_accepted(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(
        tmp_path,
        '[project]\nname = "a"\ndynamic = ["version"]\nrequires-python = ">=3.11.4"\n'
        'dependencies = ["numpy"]\n',
        "pyproject.toml",
    )
    packages = lock(tmp_path, target(requirements=(), pyproject="pyproject.toml"))
    assert packages["numpy"].via == ("pyproject.toml:5",)


def test_a_file_of_constraints_that_is_required_too_is_blamed_by_its_lines(
    tmp_path: Path, index: PackageIndex
) -> None:
    write(tmp_path, "-c base.in\n-r base.in\n")
    write(tmp_path, "# arrays\nnumpy\n", "base.in")
    assert lock(tmp_path, target())["numpy"].via == ("base.in:2",)


def test_a_hash_that_the_index_has_is_accepted_on_a_continued_line(
    tmp_path: Path, index: PackageIndex
) -> None:
    sha256 = hashlib.sha256(wheel_bytes("numpy", "2.1")[1]).hexdigest()
    hashes = f"--hash=sha256:{'0' * 64} \\\n  --hash=sha256:{sha256}"
    write(tmp_path, f"numpy==2.1 \\\n  {hashes} \\\n  # mine\n")
    assert lock(tmp_path, target())["numpy"].via == ("requirements.in:1",)


@pytest.mark.parametrize("text", ["numpy==2.1 --hash=sha256:{}\n", "numpy\n-c limits.txt\n"])
def test_a_hash_that_the_index_does_not_have_leaves_no_lock(
    tmp_path: Path, index: PackageIndex, text: str
) -> None:
    write(tmp_path, text.format("0" * 64))
    write(tmp_path, f"numpy==2.1 --hash=sha256:{'0' * 64}\n", "limits.txt")
    problem = error(tmp_path, target())
    assert isinstance(problem, UndecidedError)
    assert ":1: the index has numpy-2.1-py3-none-any.whl with sha256 " in problem.message
    assert not (tmp_path / target().lock).exists()
