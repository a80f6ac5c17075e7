"""Generated files, compared to the byte.

After a wanted change: `UPDATE_GOLDEN=1 python -m pytest tests/unit/engines/test_golden.py`,
and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from render_cases import BACKENDS, CPU, CUDA, lock_of, spec_of

from buildmatrix.base.data import replace
from buildmatrix.engines.dockerfile import generate
from buildmatrix.matrix.model import Base, Target

GOLDEN = Path(__file__).parents[2] / "golden"

FROM_SOURCE = replace(
    CUDA,
    no_binary=("numpy",),
    pyproject="images/pyproject.toml",
    install_project=True,
    template="templates/mine.Dockerfile.j2",
    copy=(("images/app", "/app"), ("images/it's $5 [draft]", "/srv/notes")),
)
MINE = """\
{% extends "cuda.Dockerfile.j2" %}
{% block final %}
{{ super() -}}
SHELL ["/bin/bash", "-c"]
{% endblock %}
{% block command %}
ENTRYPOINT {{ ["tini", "--"] | json_array }}
{{ super() -}}
{% endblock %}
"""

UBI = replace(
    CUDA,
    base=Base("nvidia/cuda:12.8.1-devel-ubi9", "registry.access.redhat.com/ubi9/ubi-minimal:9.6"),
    system_packages=("libgomp", "mesa-libGLU-9.0.1"),
)
SUSE = replace(CPU, base=Base("registry.suse.com/bci/bci-base:15.7", "example.com/bci:15.7"))

CASES: dict[str, tuple[tuple[Target, ...], bool]] = {
    "backends": (BACKENDS, False),
    "own-template": ((FROM_SOURCE,), True),
    "rpm": ((UBI, SUSE), True),
    "no-targets": ((), False),
}


@pytest.mark.parametrize("case", CASES)
def test_generated_files_are_the_golden_ones(case: str, tmp_path: Path) -> None:
    targets, source_only = CASES[case]
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/mine.Dockerfile.j2").write_text(MINE)
    spec = spec_of(tmp_path, *targets, output="generated")
    locks = {one.id: lock_of(one, source_only=source_only) for one in targets}
    files = dict(generate(spec, targets, locks))
    assert files.pop("generated/scan/scan.pyz")
    folder = GOLDEN / case
    if os.environ.get("UPDATE_GOLDEN"):
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
    expected = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert files == expected


def test_the_same_specification_gives_the_same_bytes_anywhere(tmp_path: Path) -> None:
    made = []
    for root in (tmp_path / "one", tmp_path / "another"):
        spec = spec_of(root, CPU)
        made.append(generate(spec, [CPU], {CPU.id: lock_of(CPU)}))
    assert made[0] == made[1]
