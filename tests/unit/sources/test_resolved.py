"""What an audit looks at: sources × targets, resolved with the real uv on a loopback index."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lock_cases import spec_of, target
from package_index import PackageIndex, serve

from buildmatrix.base.errors import UsageError
from buildmatrix.base.progress import Silent
from buildmatrix.images.store.cache import Cache
from buildmatrix.judge.judging import Judge
from buildmatrix.locks.model import Package
from buildmatrix.locks.selection import refusal
from buildmatrix.matrix.model import Base, Position
from buildmatrix.sources import resolved as resolved_module
from buildmatrix.sources.resolved import Resolved, Unresolved, resolve_sources


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PackageIndex]:
    with serve() as served:
        for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url("pypi"))
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        served.add("pypi", "numpy", "2.0")
        served.add("pypi", "torch", "2.13.0", "nvidia-cublas", "numpy")
        served.add("pypi", "nvidia-cublas", "13.0")
        served.add("pypi", "xgboost", "3.4.1", "nvidia-nccl-cu13", "numpy")
        served.add("pypi", "nvidia-nccl-cu13", "2.28")
        served.add("pypi", "xgboost-cpu", "3.4.1", "numpy")
        served.add("rocm", "torch", "2.12.0+rocm6.4", "numpy")
        yield served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(root: Path, text: str, name: str = "requirements.in") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def attempt(root: Path, *sources: str, **more: Any) -> list[Resolved | Unresolved]:
    spec = more.pop("spec", None)
    found = resolve_sources(sources, spec, root=root, progress=Silent(), jobs=2, **more)
    assert all(isinstance(one, Resolved | Unresolved) for one in found)
    return list(found)  # type: ignore[arg-type]


def resolved(root: Path, *sources: str, **more: Any) -> list[Resolved]:
    found = attempt(root, *sources, **more)
    for one in found:
        assert isinstance(one, Resolved), one
    return found  # type: ignore[return-value]


def packages(root: Path, source: str, **more: Any) -> dict[str, Package]:
    (one,) = resolved(root, source, backends=["cpu"], **more)
    return {package.name: package for package in one.lock.packages}


def error(root: Path, source: str, **more: Any) -> Unresolved:
    narrow = {} if "globs" in more else {"backends": ["cpu"]}
    (one,) = attempt(root, source, **narrow, **more)
    assert isinstance(one, Unresolved)
    return one


# Which targets


def test_without_a_specification_four_backends_cost_what_one_does(
    root: Path, tmp_path: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "# the service\nxgboost\n")
    resolved(root, "requirements.in", backends=["cpu"])
    for_one = index.requests
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another-cache"))
    found = resolved(root, "requirements.in")
    assert index.requests - for_one <= 1.5 * for_one
    assert [(one.target.backend, one.target.id) for one in found] == [
        (name, f"{name}:requirements.in") for name in ("cuda", "rocm", "oneapi", "cpu")
    ]
    assert [[p.name for p in one.lock.packages] for one in found] == [
        ["numpy", "nvidia-nccl-cu13", "xgboost"]
    ] * 4
    assert found[0].lock.packages[2].via == ("requirements.in:2",)


def test_a_backend_can_be_named_with_its_runtime(root: Path, index: PackageIndex) -> None:
    (one,) = resolved(root, "pypi:numpy==2.0", backends=["cuda12.8"])
    assert (one.target.backend, one.target.runtime) == ("cuda", "12.8")


def test_a_source_is_looked_at_with_the_indexes_and_twins_of_the_matrix(
    root: Path, index: PackageIndex
) -> None:
    write(root, "torch\nxgboost\n", "new.in")
    spec = spec_of(
        root,
        target(
            id="rocm6.4-py311-server",
            backend="rocm",
            runtime="6.4",
            index={"torch": index.url("rocm")},
            replace={"xgboost": "xgboost-cpu"},
        ),
        target(),
        target(id="cpu-py310-server", python="3.10"),
    )
    rocm, cpu = resolved(root, "new.in", spec=spec)
    assert (rocm.target.id, cpu.target.id) == ("rocm6.4-py311-server", "cpu-py311-server")
    assert [f"{p.name} {p.version}" for p in rocm.lock.packages] == [
        "numpy 2.0",
        "torch 2.12.0+rocm6.4",
        "xgboost-cpu 3.4.1",
    ]
    assert rocm.lock.packages[1].index == index.url("rocm")
    assert rocm.lock.packages[2].via == ("new.in:2",)
    assert "nvidia-cublas" in {p.name for p in cpu.lock.packages}
    (chosen,) = resolved(root, "new.in", spec=spec, globs=["cpu-py310-*"])
    assert chosen.target.id == "cpu-py310-server"


def test_who_asks_about_a_file_hears_nothing_of_the_base_images_of_the_matrix(
    root: Path, index: PackageIndex
) -> None:
    write(root, "numpy\n")
    at = Position("buildmatrix.toml", 9)
    spec = spec_of(root, target(base=Base("debian", "debian", at, at)))

    def said(*sources: str) -> list[str]:
        (work,) = resolved(root, *sources, spec=spec)
        judge = Judge(spec, "error", date(2026, 11, 22))
        return [one.rule for one in judge.lock(work.target, work.lock)]

    assert said("requirements.in") == []
    assert said() == ["BM607"]


def test_no_lock_of_today_names_a_wheel_variant(root: Path, index: PackageIndex) -> None:
    """What docs/variants.md gives as the reason for which `audit` chooses none."""
    tags = ("py3-none-any", "py3-none-any-x8664v3")
    for tag in tags:
        index.add_wheel("pypi", "demo", "1.0", tag)
    index.add_wheel("pypi", "only-variants", "1.0", tags[1])
    index._offer("pypi", "demo", "demo-1.0-variants.json", b"{}")
    (wheel,) = packages(root, "pypi:demo==1.0")["demo"].wheels
    assert wheel.filename == "demo-1.0-py3-none-any.whl"
    assert "only unsupported wheel variants" in error(root, "pypi:only-variants==1.0").message


def test_a_missing_lock_is_resolved_and_not_written(root: Path, index: PackageIndex) -> None:
    write(root, "numpy\n", "requirements.in")
    before = sorted(root.rglob("*"))
    (one,) = resolved(root, spec=spec_of(root, target()))
    assert one.origin == "resolved from requirements.in"
    assert one.lock.packages[0].via == ("requirements.in:1",)
    assert sorted(root.rglob("*")) == before


def test_a_committed_lock_is_audited_as_it_is_and_said_to_be_old(
    root: Path, index: PackageIndex
) -> None:
    from buildmatrix.locks.resolve import lock_targets

    write(root, "torch\n", "requirements.in")
    spec = spec_of(root, target())
    lock_targets(spec, spec.targets, upgrade=False, offline=False, progress=Silent(), jobs=1)
    (fresh,) = resolved(root, spec=spec)
    assert fresh.stale is None
    write(root, "numpy\n", "requirements.in")
    (old,) = resolved(root, spec=spec)
    assert str(old.stale) == "requirements.in changed since the lock was made"
    assert "nvidia-cublas" in {p.name for p in old.lock.packages}
    # The same file, named as a source.
    (named,) = resolved(root, "locks/pylock.cpu-py311-server.toml", spec=spec)
    assert named.stale == old.stale


# Which sources


def test_extras_and_groups_of_a_project_are_asked_for_by_name(
    root: Path, index: PackageIndex
) -> None:
    write(
        root,
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["numpy"]\n'
        '[project.optional-dependencies]\ngpu = ["torch"]\n'
        '[dependency-groups]\nboost = [{ include-group = "base" }]\nbase = ["xgboost"]\n',
        "pyproject.toml",
    )
    assert list(packages(root, "pyproject.toml")) == ["numpy"]
    found = packages(root, "pyproject.toml[gpu]:boost")
    assert found["torch"].via == ("pyproject.toml:6",)
    assert found["xgboost"].via == ("pyproject.toml:9",)
    assert "there is no extra `web`; extras here: gpu" in error(root, "pyproject.toml[web]").message


def test_uv_s_own_sources_of_a_project_decide_where_things_come_from(
    root: Path, index: PackageIndex
) -> None:
    write(
        root,
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch", "mine", "fast"]\n'
        "[tool.uv.sources]\n"
        'torch = [{ index = "rocm", marker = "sys_platform == \'linux\'" }]\n'
        'mine = { workspace = true }\nfast = { git = "https://example.com/fast" }\n'
        f'[[tool.uv.index]]\nname = "rocm"\nurl = "{index.url("rocm")}"\nexplicit = true\n'
        # Would run a program.
        '[tool.uv.pip]\npython = "./evil"\n',
        "pyproject.toml",
    )
    found = packages(root, "pyproject.toml")
    assert found["torch"].version == "2.12.0+rocm6.4"
    assert found["torch"].via == ("pyproject.toml:4",)
    assert found["fast"].source == "git+https://example.com/fast"
    assert found["mine"].source_only


def test_one_version_from_the_index_is_a_source(root: Path, index: PackageIndex) -> None:
    found = packages(root, "pypi:xgboost==3.4.1")
    assert found["xgboost"].via == ("pypi:xgboost==3.4.1",)
    assert found["nvidia-nccl-cu13"].via == ("xgboost",)


def test_a_local_wheel_is_a_source_with_what_it_requires(root: Path, index: PackageIndex) -> None:
    from package_index import wheel_bytes

    name, data = wheel_bytes("service", "1.0", ["xgboost"])
    (root / name).write_bytes(data)
    found = packages(root, f"wheel:{name}")
    assert found["service"].wheels[0].url == str(root / name)
    assert found["xgboost"].via == ("service",)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("docker:app:1", "run `buildmatrix scan docker:app:1`"),
        ("pypi:numpy = 2", "pypi:numpy = 2 is not a valid requirement"),
        ("gone.txt", "there is no gone.txt|gone.txt: cannot be read"),
        ("Pipfile", "audit Pipfile.lock"),
        (".", r"\. is a folder"),
        ("", "SOURCE is empty"),
        ("lock:", "lock: names nothing"),
        ("requirements.in[gpu]", "extras and groups belong to"),
        ("wheel:requirements.in", "requirements.in is not a wheel: wheel names end in .whl"),
        ("wheel:gone-1-py3-none-any.whl", "^wheel:gone-1-py3-none-any.whl: there is no "),
    ],
)
def test_what_is_no_source_says_what_to_write(root: Path, source: str, said: str) -> None:
    with pytest.raises((UsageError, Unresolved), match=said):
        raise error(root, source)


def test_nothing_to_audit_says_what_could_be(root: Path) -> None:
    with pytest.raises(UsageError, match="there is nothing to audit"):
        attempt(root)
    with pytest.raises(UsageError, match="there is no backend 'abacus'; the catalogue knows"):
        attempt(root, "pypi:numpy", backends=["abacus"])
    with pytest.raises(UsageError, match="'4' is not a Python version"):
        attempt(root, "pypi:numpy", python="4")
    with pytest.raises(UsageError, match="write linux/amd64 or linux/arm64"):
        attempt(root, "pypi:numpy", platform="windows/amd64")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("xpu", "oneapi"), ("NVIDIA", "cuda"), ("cu128", "cuda12.8"), ("rocmm", "rocm")],
)
def test_a_backend_by_another_name_is_pointed_at(root: Path, name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"there is no backend '{name}'; write {meant}$"):
        attempt(root, "pypi:numpy", backends=[name])


# What is not built


def test_source_code_is_never_run_and_always_named(
    root: Path, tmp_path: Path, index: PackageIndex
) -> None:
    trap = tmp_path / "was-built"
    index.add_source("pypi", "native", "1.0", str(trap))
    index.add_source("pypi", "inner", "3.0", str(trap))
    index.add("pypi", "outer", "1.0", "inner<2.5", "native")
    index.add_source("pypi", "inner", "2.0", str(trap))
    write(root, "outer\n-e .\n")
    found = packages(root, "requirements.in")
    assert not trap.exists()
    assert (found["native"].version, found["native"].via) == ("1.0", ("outer",))
    # The release that its asker allows, not the newest.
    assert (found["inner"].version, found["inner"].source_only) == ("2.0", True)
    assert (refusal(found["native"], target()) or "").startswith(
        "there is only its source distribution"
    )
    assert found["local-project"].source == "."


def test_an_old_wheel_does_not_hide_that_the_newest_release_is_to_be_built(
    root: Path, tmp_path: Path, index: PackageIndex
) -> None:
    trap = tmp_path / "was-built"
    index.add("pypi", "native", "0.1")
    index.add_source("pypi", "native", "2.0", str(trap))
    index.add("pypi", "careful", "1.0", "native<1")
    write(root, "native\n")
    write(root, "careful\n", "careful.in")
    found = packages(root, "requirements.in")["native"]
    assert (found.version, found.source_only) == ("2.0", True)
    # Where the newest is out of bounds, the older wheel is what is installed.
    old = packages(root, "careful.in")["native"]
    assert (old.version, old.source_only) == ("0.1", False)
    assert not trap.exists()


def test_what_is_to_be_built_from_source_has_no_wheel_to_read(
    root: Path, index: PackageIndex
) -> None:
    write(root, "--no-binary xgboost\nxgboost\n")
    found = packages(root, "requirements.in")
    assert found["xgboost"].source_only
    assert "nvidia-nccl-cu13" in found


# Locks without addresses


def test_files_of_a_lock_that_has_only_hashes_are_looked_up(
    root: Path, index: PackageIndex
) -> None:
    good = index.sha256("pypi", "xgboost-3.4.1-py3-none-any.whl")
    write(
        root,
        "# This file is autogenerated by pip-compile with Python 3.11\n"
        f"xgboost==3.4.1 --hash=sha256:{good}\n"
        f"numpy==2.0 --hash=sha256:{'0' * 64}\n    # via xgboost\n"
        "torch==9.9\n",
        "requirements.txt",
    )
    found = packages(root, "requirements.txt")
    (wheel,) = found["xgboost"].wheels
    assert (wheel.sha256, wheel.url.startswith("http://127.0.0.1:")) == (good, True)
    # As it is: what it lacks is not added.
    assert "nvidia-nccl-cu13" not in found
    assert found["numpy"].via == ("xgboost",)
    assert found["numpy"].unknown == "the index has numpy 2.0 with other hashes than the lock"
    assert refusal(found["torch"], target()) == "the index has no torch 9.9"


def test_an_index_that_is_down_leaves_its_pins_unknown_and_the_others_known(
    root: Path, index: PackageIndex
) -> None:
    index.broken["rocm"] = 500
    spec = spec_of(root, target(index={"torch": index.url("rocm")}))
    write(root, "# via\ntorch==2.12.0+rocm6.4\nnumpy==2.0\n", "requirements.txt")
    found = packages(root, "requirements.txt", spec=spec)
    assert "500" in found["torch"].unknown
    assert found["numpy"].wheels


# Trouble


def test_a_conflict_is_told_for_each_target_by_its_name(root: Path, index: PackageIndex) -> None:
    write(root, "numpy<2\nxgboost\n")
    for one in attempt(root, "requirements.in", backends=["rocm", "cpu"]):
        assert isinstance(one, Unresolved)
        assert one.exit_code == 3
        begin = f"{one.target.id}: its requirements cannot be resolved. Because only numpy==2.0"
        assert one.message.startswith(begin)
        assert one.message.endswith(" Asked for in requirements.in:1.")


def test_a_release_that_the_routed_index_lacks_is_named_with_the_nearest_a4(
    root: Path, index: PackageIndex
) -> None:
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    index.add_wheel("rocm", "torch", "2.13.0+rocm7.0", tag)
    write(root, "torch==2.14.0\n", "new.in")
    rocm = target(
        id="rocm6.4", backend="rocm", runtime="6.4", index={"torch": index.url("rocm", "me:pw@")}
    )
    said = error(root, "new.in", spec=spec_of(root, rocm), globs=["rocm6.4"]).message
    assert said.startswith("rocm6.4: its requirements cannot be resolved.")
    assert said.endswith(
        f" Asked for in new.in:1. torch 2.14.0 has no build for rocm 6.4 on {index.url('rocm')}; "
        "the nearest that has one is 2.12.0+rocm6.4."
    )


def test_a_release_that_the_index_has_is_not_said_to_be_missing(
    root: Path, index: PackageIndex
) -> None:
    write(root, "torch==2.12.0\nnumpy==99\n", "new.in")
    rocm = target(id="rocm6.4", backend="rocm", runtime="6.4", index={"torch": index.url("rocm")})
    said = error(root, "new.in", spec=spec_of(root, rocm), globs=["rocm6.4"]).message
    assert "numpy==99" in said
    assert "has no build" not in said


def test_a_source_that_is_not_there_is_named_as_every_other(
    root: Path, index: PackageIndex
) -> None:
    write(root, "numpy\n", "good.in")
    _, gone = attempt(root, "good.in", "gone.in", backends=["cpu"])
    assert isinstance(gone, Unresolved)
    assert gone.target.id == "cpu:gone.in"


def test_one_source_that_fails_stops_no_other(root: Path, index: PackageIndex) -> None:
    write(root, "numpy\n", "good.in")
    write(root, "numpy >>\n", "bad.in")
    bad, good = attempt(root, "bad.in", "good.in", backends=["cpu"])
    assert isinstance(bad, Unresolved)
    assert (bad.exit_code, bad.message.startswith("bad.in:1:7: ")) == (2, True)
    assert isinstance(good, Resolved)


def test_offline_answers_from_what_was_resolved_before_or_says_so(
    root: Path, tmp_path: Path, index: PackageIndex
) -> None:
    cache = tmp_path / "kept"
    write(root, "xgboost\n")
    (before,) = resolved(root, "requirements.in", backends=["cpu"], cache=Cache(cache))
    requests = index.requests
    # A comment moves the line, and asks nothing new.
    write(root, "# moved\n\nxgboost\n")
    (again,) = resolved(root, "requirements.in", backends=["cpu"], cache=Cache(cache), offline=True)
    assert index.requests == requests
    assert again.lock.packages[2].via == ("requirements.in:3",)
    assert again.lock.packages[0] == before.lock.packages[0]
    write(root, "torch\n")
    said = error(root, "requirements.in", cache=Cache(cache), offline=True)
    assert "the network is off" in said.message


def test_a_damaged_cache_is_no_answer(root: Path, tmp_path: Path, index: PackageIndex) -> None:
    cache = tmp_path / "kept"
    write(root, "xgboost\n")
    resolved(root, "requirements.in", backends=["cpu"], cache=Cache(cache))
    for entry in (cache / "resolved").iterdir():
        entry.write_bytes(entry.read_bytes()[:-5])
    assert "xgboost" in packages(root, "requirements.in", cache=Cache(cache))


def test_credentials_of_an_index_are_neither_shown_nor_kept(
    root: Path, tmp_path: Path, index: PackageIndex
) -> None:
    secret = index.url("pypi", "robot:s3cret@")
    write(root, f"--index-url {secret}\nxgboost\n")
    cache = tmp_path / "kept"
    (one,) = resolved(root, "requirements.in", backends=["cpu"], cache=Cache(cache))
    assert "s3cret" not in repr(one)
    assert all(b"s3cret" not in entry.read_bytes() for entry in (cache / "resolved").iterdir())


def test_a_source_that_is_not_there_asks_for_nothing_where_that_is_fine(root: Path) -> None:
    (one,) = resolved(root, "requirements.in", backends=["cpu"], missing_ok=True)
    assert (one.lock.packages, one.origin) == ((), "nothing: requirements.in is not there")


def test_another_python_is_taken_where_the_running_one_is_excluded_and_nobody_chose(
    root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = SimpleNamespace(major=3, minor=11)
    monkeypatch.setattr(resolved_module, "sys", SimpleNamespace(version_info=running))
    write(
        root,
        '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.13"\n'
        'dependencies = ["numpy"]\n',
        "pyproject.toml",
    )
    (one,) = resolved(root, "pyproject.toml", backends=["cpu"])
    # Not the newest: a lock that says `>=3.13` was made with 3.13.
    assert one.target.python == "3.13"
    said = error(root, "pyproject.toml", python="3.11").message
    assert "`requires-python` is `>=3.13`, and cpu" in said


def test_a_distribution_that_is_too_new_for_the_running_python_is_looked_at_with_a_newer_one(
    root: Path, index: PackageIndex
) -> None:
    index.add_wheel("pypi", "modern", "1.0", "py3-none-any", python=">=3.30")
    (one,) = resolved(root, "pypi:modern==1.0", backends=["cpu"])
    assert one.target.python == "3.30"
    said = error(root, "pypi:modern==1.0", python="3.12").message
    assert "modern==1.0 depends on Python>=3.30" in said
