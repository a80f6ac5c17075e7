"""Sets of real wheels that contradict themselves, audited by default (docs/incidents.md, E)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from buildmatrix import cli

pytestmark = pytest.mark.network

SPARSE, LINKER = "nvidia-cusparse-cu12==12.5.8.93", "nvidia-nvjitlink-cu12"
CUDNN = "nvidia-cudnn-cu12"


def audited(folder: Path, backend: str, lines: list[str]) -> dict[str, Any]:
    """The report of an audit of pins, with the cache of all tests."""
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    report = folder / "report.json"
    with pytest.raises(SystemExit):
        cli.main(
            [
                *(
                    "--no-progress",
                    "audit",
                    str(folder / "requirements.txt"),
                    "--no-vulnerabilities",
                ),
                *("--backend", backend, "--python", "3.12", "--format", "json", "-o", str(report)),
            ]
        )
    result: dict[str, Any] = json.loads(report.read_text())
    return result


@pytest.mark.parametrize(
    ("backend", "lines", "rule", "texts"),
    [
        pytest.param(
            "cuda12.8",
            [SPARSE, f"{LINKER}==12.1.105"],
            "BM305",
            ["__nvJitLinkCreate_12_8", f"{LINKER} 12.1.105"],
            id="E1",
        ),
        pytest.param("cuda12.8", [SPARSE, f"{LINKER}==12.8.93"], "BM305", None, id="E1 near miss"),
        pytest.param(
            "oneapi",
            ["dpctl==0.20.2", "intel-sycl-rt==2026.0.0"],
            "BM302",
            ["libsycl.so.8", "libsycl.so.9"],
            id="E2",
        ),
        pytest.param(
            "cuda12.8",
            ["ctranslate2==4.4.0", f"{CUDNN}==9.10.2.21"],
            "BM706",
            ["libcudnn_ops_infer.so.8", "libcudnn.so.9"],
            id="E3",
        ),
        pytest.param(
            "cuda12.8",
            ["ctranslate2==4.4.0", f"{CUDNN}==8.9.7.29"],
            "BM706",
            None,
            id="E3 near miss",
            marks=pytest.mark.weekly,
        ),
        pytest.param(
            "cuda12.8",
            ["jax-cuda12-plugin==0.6.2", f"{CUDNN}==9.1.0.70"],
            "BM706",
            ["9.8 or later", "9.1.0.70"],
            id="E4",
        ),
    ],
)
def test_a_set_that_contradicts_itself(
    tmp_path: Path, backend: str, lines: list[str], rule: str, texts: list[str] | None
) -> None:
    cold, warm = (audited(tmp_path, backend, lines) for _ in range(2))
    assert (cold["findings"], cold["distributions"]) == (warm["findings"], warm["distributions"])
    found = [item for item in cold["findings"] if item["rule"] == rule]
    assert len(found) == (texts is not None)
    for text in texts or ():
        assert text in found[0]["message"]
