"""Dockerfiles of targets whose lock is an environment of conda."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from dockerfile_reader import instructions
from render_cases import CPU, CUDA, lock_of, spec_of

from buildmatrix.base.data import replace
from buildmatrix.engines.dockerfile import dockerfile, make_environment
from buildmatrix.locks.model import CondaPackage, Lock, LockedFile
from buildmatrix.locks.pylock import taken_document
from buildmatrix.matrix.model import Target

URLS = [
    "https://conda.example.com/forge/linux-64/python-3.12.7-h_0.conda",
    "https://conda.example.com/forge/noarch/a-1!2.0-py_0.tar.bz2",
]
CONDA = tuple(
    CondaPackage(
        name=f"conda:{number}",
        version="1",
        index=None,
        wheels=(),
        source_only=False,
        via=(),
        file=LockedFile(url.rpartition("/")[2], url, str(number) * 64),
    )
    for number, url in enumerate(URLS)
)


def rendered(target: Target, **changes: object) -> list[tuple[str, str]]:
    lock: Lock = replace(lock_of(target), conda=CONDA, **changes)  # type: ignore[arg-type]
    spec = spec_of(Path("/nonexistent"), target)
    return instructions(dockerfile(make_environment(spec.root), spec, target, lock))


def runs(target: Target, **changes: object) -> list[str]:
    return [text for keyword, text in rendered(target, **changes) if keyword == "RUN"]


@pytest.mark.parametrize("target", [CPU, replace(CUDA, system_packages=("ffmpeg",))])
def test_an_environment_needs_no_python_of_the_base(target: Target) -> None:
    text = "\n".join(runs(target))
    assert "micromamba create" in text
    assert "uv venv" not in text
    assert f"python{target.python}" not in text
    # Only what the specification asks for is installed by the package manager.
    assert text.count("apt-get install") == len(target.system_packages)


def test_wheels_are_added_to_the_environment_and_only_where_there_are_some() -> None:
    assert sum("uv pip install" in text for text in runs(CPU)) == 1
    assert not any("uv pip" in text for text in runs(CPU, packages=()))


def test_the_image_gets_the_environment_at_the_same_prefix() -> None:
    steps = rendered(CPU)
    assert ("COPY", "--from=build /opt/venv /opt/venv") in steps
    environment = next(text for keyword, text in steps if keyword == "ENV" and "PATH" in text)
    assert 'CONDA_PREFIX="/opt/venv"' in environment
    assert "VIRTUAL_ENV" not in environment


def test_the_step_reads_urls_with_hashes_out_of_the_taken_lock(tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(
        taken_document("pixi.lock", lock_of(CPU).packages, ["a"], CONDA)
    )
    step = next(text for text in runs(CPU) if "micromamba create" in text)
    command = re.search(r"echo \"@EXPLICIT\".*?explicit\.txt;.*?explicit\.txt;", step, re.DOTALL)
    assert command is not None
    script = re.sub(r"/run/buildmatrix/|/tmp/", "", command[0])
    subprocess.run(["sh", "-euc", script], check=True, cwd=tmp_path)
    explicit = (tmp_path / "explicit.txt").read_text().splitlines()
    assert explicit == [
        "@EXPLICIT",
        *(f"{url}#sha256:{str(number) * 64}" for number, url in enumerate(URLS)),
    ]
