"""`diff` of real wheels, and of images that an engine built, saved and scanned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from buildmatrix.engines.process import plain
from buildmatrix.reports.formats import document_schema

SITE = "/usr/local/lib/python3.11/site-packages"


def buildmatrix(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "buildmatrix", *(str(one) for one in arguments)],
        cwd=folder,
        env={
            **os.environ,
            "BUILDMATRIX_CACHE": str(folder / "cache"),
            "BUILDMATRIX_NO_VULNERABILITIES": "1",
        },
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def difference(folder: Path, *arguments: object, code: int = 0) -> dict:
    done = buildmatrix(folder, "diff", *arguments, "--format", "json")
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, document_schema("diff"))
    return found


# Wheels


def download(folder: Path, *requirements: str) -> list[Path]:
    for one in requirements:
        arguments = ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), one]
        subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], check=True)
    return sorted(folder.glob("*.whl"))


@pytest.mark.network
def test_two_versions_of_a_real_wheel_tell_the_version_of_its_library(tmp_path: Path) -> None:
    names = [f"nvidia-cuda-runtime-cu12=={version}" for version in ("12.6.77", "12.9.79")]
    old, new = download(tmp_path, *names)
    by_file = difference(tmp_path, old, new, "--backend", "cuda")
    by_index = difference(tmp_path, *(f"pypi:{name}" for name in names), "--backend", "cuda")
    for found in (by_file, by_index):
        (change,) = found["distributions"]["changes"]
        assert (change["before"], change["after"]) == (["12.6.77"], ["12.9.79"])
        cudart = next(one for one in found["libraries"] if one["name"] == "libcudart")
        assert (cudart["before"], cudart["after"]) == (["12.6.77"], ["12.9.79"])
        assert (cudart["major"], cudart["version_of"]) == ("", "distribution")
        assert found["findings"]["new"] == []


@pytest.mark.network
def test_another_major_of_a_runtime_on_the_index_is_marked_and_is_new(tmp_path: Path) -> None:
    found = difference(
        tmp_path,
        "pypi:nvidia-cuda-runtime-cu12==12.9.79",
        "pypi:nvidia-cuda-runtime==13.0.96",
        "--backend=cuda",
        "--runtime=12.9",
        code=1,
    )
    cudart = next(one for one in found["libraries"] if one["name"] == "libcudart")
    assert cudart["major"] == "12 -> 13"
    assert {one["rule"] for one in found["findings"]["new"]} == {"BM103"}


# Images


def built(base: str, name: str, *steps: str) -> str:
    done = subprocess.run(
        ["docker", "buildx", "build", "--load", "--tag", name, "-"],
        input="\n".join([f"FROM {base}", "USER 0", *steps, ""]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, plain(done.stderr)
    return name


def distribution(name: str, version: str) -> str:
    """A step that installs a distribution with one library."""
    folder = f"{SITE}/{name}-{version}.dist-info"
    library = f"{SITE}/{name}/lib/libcudnn.so.{version[0]}"
    return (
        f"RUN mkdir -p {folder} {SITE}/{name}/lib && cp /bin/true {library}"
        f" && printf 'Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n'"
        f" > {folder}/METADATA"
        f" && printf '{name}/lib/libcudnn.so.{version[0]},,\\n' > {folder}/RECORD"
    )


@pytest.fixture(scope="module")
def images(small_base: str) -> tuple[str, str]:
    label = 'LABEL dev.buildmatrix.backend="cpu" org.opencontainers.image.base.name="python"'
    return (
        built(
            small_base, "buildmatrix-test/diff:1", label, "ENV DEMO=1 DEMO_TOKEN=one",
            distribution("demo", "8.9"), "RUN cat /proc/sys/kernel/random/uuid > /same",
        ),
        built(
            small_base, "buildmatrix-test/diff:2", label, "ENV DEMO=2 DEMO_TOKEN=two",
            distribution("demo", "9.1"), "RUN cat /proc/sys/kernel/random/uuid > /same",
            "RUN echo more > /more",
        ),
    )  # fmt: skip


@pytest.mark.engine
def test_two_images_tell_findings_libraries_layers_and_environment(
    images: tuple[str, str], tmp_path: Path
) -> None:
    found = difference(tmp_path, *images, "--fail-on", "never")
    (demo,) = found["distributions"]["changes"]
    assert (demo["name"], demo["before"], demo["after"]) == ("demo", ["8.9"], ["9.1"])
    (cudnn,) = found["libraries"]
    assert (cudnn["name"], cudnn["major"]) == ("libcudnn", "8 -> 9")
    history = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{len .RootFS.Layers}}", *images],
        capture_output=True,
        text=True,
        check=True,
    )
    layers = found["layers"]
    assert [layers["before"], layers["after"]] == [int(one) for one in history.stdout.split()]
    assert [(one["change"], one["instruction"][:30]) for one in layers["changes"]][-2:] == [
        ("changed", "RUN cat /proc/sys/kernel/rando"),
        ("added", "RUN echo more > /more"),
    ]
    assert layers["same"] == layers["before"] - 2
    assert [(one["name"], one["after"]) for one in found["environment"]] == [
        ("DEMO", "2"),
        ("DEMO_TOKEN", "(not shown)"),
    ]
    assert found["before"]["base"] == "python"
    assert found["findings"]["new"] == [], "the library was foreign before, too"


@pytest.mark.engine
def test_an_image_and_its_saved_archive_do_not_differ(
    images: tuple[str, str], tmp_path: Path
) -> None:
    subprocess.run(["docker", "save", "--output", tmp_path / "one.tar", images[0]], check=True)
    found = difference(tmp_path, images[0], "one.tar")
    assert found["distributions"]["changes"] == []
    assert found["libraries"] == found["architectures"] == found["environment"] == []
    assert (found["layers"]["changes"], found["layers"]["same"]) == ([], found["layers"]["before"])
    assert found["verdicts"] == found["findings"]["new"] == found["findings"]["gone"] == []


@pytest.mark.engine
def test_an_image_is_compared_with_the_report_of_its_predecessor(
    images: tuple[str, str], small_base: str, tmp_path: Path
) -> None:
    plain_image = built(
        small_base, "buildmatrix-test/diff:0", 'LABEL dev.buildmatrix.backend="cpu"'
    )
    scan = ("scan", "--fail-on", "never")
    done = buildmatrix(tmp_path, *scan, f"docker:{plain_image}", "--format", "json=before.json")
    assert done.returncode == 0, done.stderr
    arguments = ("before.json", images[0], "--fail-on", "warning")
    found = difference(tmp_path, *arguments, code=1)
    assert {one["distribution"] for one in found["findings"]["new"]} == {"demo"}
    assert found["libraries"] is None
    done = buildmatrix(tmp_path, *scan, f"docker:{images[0]}", "--format", "json=same.json")
    assert done.returncode == 0, done.stderr
    same = difference(tmp_path, "same.json", images[0])
    assert same["findings"]["new"] == same["verdicts"] == []
    assert same["findings"]["same"] > 0


@pytest.mark.engine
def test_an_image_that_is_not_there_is_undecided(engine: None, tmp_path: Path) -> None:
    done = buildmatrix(tmp_path, "diff", "docker:buildmatrix-test/gone:1", "docker:x/y:1")
    assert done.returncode == 3
    assert "there is no image buildmatrix-test/gone:1 on this machine" in done.stderr
