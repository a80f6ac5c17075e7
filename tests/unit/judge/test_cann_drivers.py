"""BM704 for CANN: the folder says its version, and the vendor's table which drivers it runs on."""

from __future__ import annotations

import pytest
from nodecases import node, on
from rulecases import elf, file, image, of_image
from test_fit import cells

from buildmatrix.facts.inventory.model import Inventory

FOLDERS = {"9.1": "cann-9.1.1", "8.5": "cann-8.5.0", "8.3": "ascend-toolkit/8.3.RC1", "": "latest"}


def cann(version: str) -> Inventory:
    folder = f"usr/local/Ascend/{FOLDERS[version]}/x86_64-linux/lib64"
    return image(file(f"{folder}/libascendcl.so", elf("libascendcl.so")))


@pytest.mark.parametrize(
    ("version", "driver", "state", "severities"),
    [
        ("9.1", "25.0.1", "refused", ["error"]),
        ("9.1", "25.5.0", "ok", []),
        ("8.5", "25.0.RC1", "ok", []),
        ("8.5", "26.1.1", "ok", []),
        # The table begins with 8.5, and with driver 25.0.
        ("8.3", "25.5.0", "undecided", ["note"]),
        ("8.5", "24.1.0", "undecided", ["note"]),
        ("", "25.5.0", "undecided", []),
        ("8.5", "", "undecided", []),
    ],
)
def test_cann_and_the_driver(version: str, driver: str, state: str, severities: list[str]) -> None:
    where = node(driver, backend="npu")
    (cell,) = cells(cann(version), where, backend="npu")
    assert cell.state == state
    found = of_image(on(where, runtime="any", backend="npu"), cann(version))
    assert [item.severity for item in found if item.rule == "BM704"] == severities
