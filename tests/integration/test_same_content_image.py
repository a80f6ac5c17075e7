"""The same files give the same findings in a folder and in an image of an engine."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import Buildmatrix
from test_same_content import BACKENDS, CONTENTS

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("engine")]

IMAGE = "buildmatrix-test/same-content:1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with one distribution for each of the contents."""
    folder = tmp_path_factory.mktemp("root")
    site = folder / "usr/lib/python3.11/site-packages"
    for number, files in enumerate(CONTENTS.values()):
        name = f"demo{number}"
        metadata = site / f"{name}-1.0.dist-info"
        held = {f"{name}/__init__.py": b""}
        held |= {path.replace("demo/", f"{name}/", 1): data for path, data in files().items()}
        for path, data in held.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(data)
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "RECORD").write_text("".join(f"{path},,\n" for path in held))
    return folder


@pytest.fixture(scope="module")
def image(root: Path, engine: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root, arcname=".")
    subprocess.run(["docker", "import", "--message", "test", archive, IMAGE], check=True)
    return f"docker:{IMAGE}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_image_is_judged_as_the_folder_that_it_was_made_of(
    root: Path, image: str, backend: str, tmp_path: Path, buildmatrix: Buildmatrix
) -> None:
    found = []
    for source in (f"dir:{root}", image):
        run = buildmatrix(
            *(tmp_path, "scan", source, f"--backend={backend}", "--no-cache", "--format=json"),
        )
        assert run.code in (1, 3), run.err
        report = run.report()
        found.append(
            (
                {
                    (one["rule"], one["severity"], one["distribution"], one["path"])
                    for one in report["findings"]
                },
                {(one["name"], one["verdict"], one["certain"]) for one in report["distributions"]},
                {(one["path"], one["why"]) for one in report["unread"]},
            )
        )
    in_folder, in_image = found
    assert in_image == in_folder
    assert any(severity == "error" for _, severity, _, _ in in_folder[0])
    assert len(in_folder[1]) == len(CONTENTS)
