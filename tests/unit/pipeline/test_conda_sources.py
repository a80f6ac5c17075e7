"""What conda and pixi install is no SOURCE of an audit, and that is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from buildmatrix.errors import SpecError, UsageError
from buildmatrix.lock.wanted import read_wanted
from buildmatrix.sources.asked import parse


@pytest.mark.parametrize(
    "text",
    [
        "environment.yml",
        "requirements:env/gpu.yaml",
        "conda-lock.yml",
        "lock:pixi.lock",
        "pixi.toml",
    ],
)
def test_files_of_conda_and_pixi_are_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"is for conda or pixi, .* `buildmatrix scan dir:PREFIX`"):
        parse(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "# platform: linux-64\n@EXPLICIT\nhttps://conda.example.com/linux-64/numpy-2-0.conda#ab\n",
        "# platform: linux-64\n_libgcc_mutex=0.1=conda_forge\nnumpy=1.26.4=py311h64a7726_0\n",
    ],
)
def test_what_conda_list_writes_is_one_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "explicit.txt").write_text(text)
    with pytest.raises(SpecError) as caught:
        read_wanted(tmp_path / "explicit.txt", "explicit.txt")
    said = "explicit.txt:2: this is conda's list of packages, which audit does not read; create the"
    assert caught.value.message.startswith(said)
    assert len(caught.value.problems) == 1
