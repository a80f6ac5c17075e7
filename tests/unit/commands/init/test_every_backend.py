"""Every backend of the catalogue: a first specification, its Dockerfile, and both engines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from buildmatrix import cli
from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.lookup import BackendBuild, backend_build
from buildmatrix.cli.reference import list_entries
from buildmatrix.commands.init import first_spec
from buildmatrix.engines.dockerfile import (
    add_build_parts,
    builtin_templates,
    dockerfile,
    make_environment,
)
from buildmatrix.engines.oci.recipe import Account, Pairs, Recipe, SystemPackages, recipe
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec, User

CATALOGUE = load()
BUILDS = {name: backend_build(CATALOGUE, name) for name in CATALOGUE.backends}
BUILDABLE = sorted(name for name, build in BUILDS.items() if build.unbuildable is None)


def spec_of(root: Path, *backends: str, requirements: str = "numpy\n") -> Spec:
    (root / "requirements.in").write_text(requirements)
    (root / "buildmatrix.toml").write_text(
        first_spec([root / "requirements.in"], root, list(backends))
    )
    return load_spec(root / "buildmatrix.toml", backends=CATALOGUE.backends)


def generated(spec: Spec) -> tuple[str, Recipe]:
    """The Dockerfile of the first target, and what the engine oci makes of it."""
    target = spec.targets[0]
    lock = Lock(spec.root / target.lock, (), "sha256:1", "sha256:2")
    text = dockerfile(make_environment(spec.root), spec, target, lock)
    return text, recipe(spec, target, lock)


def environment(made: Recipe, base: dict[str, str]) -> dict[str, str]:
    """The variables of the image, made as the engine makes them."""
    values = dict(base)
    for step in made.steps:
        if isinstance(step, Pairs) and step.at.keyword == "ENV":
            values |= {name: word.value(values) for name, word in step.values}
    return values


@dataclass(frozen=True)
class Made:
    """What comes of a backend's first specification."""

    build: BackendBuild
    spec: Spec
    written: str
    dockerfile: str
    recipe: Recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Each backend's, made once."""
    found = {}
    for backend in BUILDABLE:
        root = tmp_path_factory.mktemp(backend)
        spec = spec_of(root, backend)
        written = (root / "buildmatrix.toml").read_text().replace("\n#   ", " ")
        found[backend] = Made(BUILDS[backend], spec, written, *generated(spec))
    return found


def test_a_first_specification_gives_a_dockerfile_that_both_engines_can_build(
    made: dict[str, Made], subtests: pytest.Subtests
) -> None:
    for backend, one in made.items():
        with subtests.test(backend):
            assert {target.backend for target in one.spec.targets} == {backend}
            assert one.recipe.problems == ()
            text, steps = one.dockerfile, one.recipe.steps
            assert f"FROM ${{MIRROR}}{one.spec.targets[0].base.final} AS final" in text
            values = environment(one.recipe, {"PATH": "/usr/bin"})
            for part in one.build.final:
                assert part.variables.items() <= values.items()
            for part in one.build.build:
                assert all(f'{name}="{value}"' in text for name, value in part.variables.items())
            (packages,) = [step.names for step in steps if isinstance(step, SystemPackages)]
            assert {*one.build.packages} <= {*packages}
            (account,) = [step for step in steps if isinstance(step, Account)]
            assert {*one.build.groups} <= {*account.user.groups}


def test_a_dockerfile_of_no_template_of_its_own_says_how_to_run_it(
    made: dict[str, Made], subtests: pytest.Subtests
) -> None:
    for backend, one in made.items():
        with subtests.test(backend):
            has_own = (builtin_templates() / f"{backend}.Dockerfile.j2").is_file()
            for run in one.build.runs:
                shown = f"# docker run {' '.join(run.options)}" in one.dockerfile
                assert shown == (not has_own)


def test_a_first_specification_says_where_base_and_wheels_come_from(
    made: dict[str, Made], subtests: pytest.Subtests
) -> None:
    for backend, one in made.items():
        with subtests.test(backend):
            for origin in one.build.wheels:
                public = origin.origin == "pypi"
                start = "Wheels on PyPI" if public else "Wheels that are not on PyPI"
                assert f"# - {start}: {', '.join(origin.names)}." in one.written
            unknown = "no public one of the vendor is known" in one.written
            assert unknown == (one.build.base is None)
            for source in one.build.base_sources:
                assert source in one.written


def test_what_is_known_of_every_backend_can_be_listed() -> None:
    silent = [
        name
        for name, build in BUILDS.items()
        if build.runs and "\nruns" not in "".join(list_entries(CATALOGUE, name))
    ]
    assert silent == []


def test_all_backends_together_are_one_specification(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, *BUILDABLE)
    assert [target.backend for target in spec.targets] == BUILDABLE


@pytest.mark.parametrize("name", ["directml", "dml", "metal", "mps"])
def test_what_no_linux_image_can_be_made_for_is_one_sentence(name: str, tmp_path: Path) -> None:
    if name == "dml" and name not in CATALOGUE.backends["directml"].aliases:
        pytest.fail("the alias is gone: take another one")
    with pytest.raises(UsageError) as caught:
        spec_of(tmp_path, name)
    assert re.fullmatch(rf"there is no image for {name}: [^\n]+", caught.value.message)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("backend", "code"), [("npu", 0), ("directml", 2)])
def test_the_command_writes_it_or_says_why_not(
    backend: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.in").write_text("")
    with pytest.raises(SystemExit) as stop:
        cli.main(["init", "--backend", backend, "--backend", "cpu"])
    assert (stop.value.code or 0) == code
    written = tmp_path / "buildmatrix.toml"
    assert written.exists() == (code == 0)
    assert code or "[backend.npu]" in written.read_text()


@pytest.mark.parametrize(
    ("distribution", "images"),
    [
        (
            "ubi9",
            {
                "cuda": "nvidia/cuda:12.8.1-base-ubi9",
                "rocm": "registry.access.redhat.com/ubi9/ubi-minimal:9.7",
                "oneapi": "registry.access.redhat.com/ubi9/ubi-minimal:9.7",
                "cpu": "registry.access.redhat.com/ubi9/ubi-minimal:9.7",
            },
        ),
        ("rockylinux9", {"cuda": "nvidia/cuda:12.8.1-base-rockylinux9"}),
        (
            "almalinux8",
            {
                "cuda": "almalinux:8-minimal",
                "rocm": "rocm/dev-almalinux-8:7.2.4-complete",
                "opengl": "almalinux:8-minimal",
                "rbln": "almalinux:8-minimal",
            },
        ),
    ],
)
def test_a_specification_for_a_distribution_of_rpms_gives_dockerfiles_with_dnf(
    distribution: str, images: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.11"\n'
    )
    text = first_spec(
        [tmp_path / "pyproject.toml"], tmp_path, list(images), distribution=distribution
    )
    (tmp_path / "buildmatrix.toml").write_text(text)
    spec = load_spec(tmp_path / "buildmatrix.toml", backends=CATALOGUE.backends)
    assert {target.backend: target.base.final for target in spec.targets} == images
    assert {target.python for target in spec.targets} == {"3.12"}, "3.13 is in none of them"
    for target in spec.targets:
        made = dockerfile(
            make_environment(tmp_path), spec, target, Lock(Path(), (), "sha256:1", "sha256:2")
        )
        assert "install --assumeyes" in made and "apt-get" not in made


def test_a_distribution_without_a_base_image_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_text("numpy\n")
    inputs = [tmp_path / "requirements.in"]
    with pytest.raises(UsageError, match="ubi7 is known; known: almalinux8, rockylinux9, ubi9"):
        first_spec(inputs, tmp_path, ["cpu"], distribution="ubi7")
    for backend in ("hpu", "npu"):
        with pytest.raises(UsageError, match=f"no base image of ubi9 is known for {backend}; "):
            first_spec(inputs, tmp_path, [backend], distribution="ubi9")


def test_an_unknown_backend_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no backend 'gaudy'; the catalogue knows .*hpu"):
        spec_of(tmp_path, "gaudy")


def test_a_backend_may_be_named_by_an_alias_and_twice(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "ascend", "npu", "cpu")
    assert [target.backend for target in spec.targets] == ["npu", "cpu"]


def test_torch_never_comes_from_its_cuda_build_on_another_accelerator(tmp_path: Path) -> None:
    names = [name for name in BUILDABLE if name not in ("cuda", "rocm", "oneapi")]
    spec = spec_of(tmp_path, *names, requirements="torch\nxgboost\nnvidia-nccl-cu12\n")
    assert {target.torch for target in spec.targets} == {"cpu"}
    assert all(target.replace == {"xgboost": "xgboost-cpu"} for target in spec.targets)
    assert all(target.drop == ("nvidia-nccl-cu12",) for target in spec.targets)


def test_the_python_of_a_base_image_wins_over_that_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "a"\nversion = "1"\nrequires-python = ">=3.12"\n'
    )
    text = first_spec([tmp_path / "pyproject.toml"], tmp_path, ["npu"])
    assert 'python = ["3.11"]  # that of the base image' in text


@pytest.mark.parametrize("inherited", ["", "/usr/local/Ascend/nnae/lib64"])
def test_folders_of_the_host_come_before_those_of_the_base_image(
    inherited: str, tmp_path: Path
) -> None:
    base = {"PATH": "/usr/bin"} | ({"LD_LIBRARY_PATH": inherited} if inherited else {})
    _, made = generated(spec_of(tmp_path, "npu"))
    folders = [*BUILDS["npu"].library_folders, *([inherited] if inherited else [])]
    assert environment(made, base)["LD_LIBRARY_PATH"].split(":") == folders


def test_what_the_target_says_is_kept_beside_what_its_backend_needs(tmp_path: Path) -> None:
    target = replace(
        spec_of(tmp_path, "npu").targets[0],
        user=User("app", 10001, ("video", "HwHiAiUser")),
        system_packages=("libgomp1",),
    )
    both = add_build_parts(target, replace(BUILDS["npu"], packages=("libnuma1", "libgomp1")))
    assert both.user.groups == ("video", "HwHiAiUser")
    assert both.system_packages == ("libnuma1", "libgomp1")
