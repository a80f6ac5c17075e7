"""BM705: labels with which a base image says what it was made for."""

from __future__ import annotations

import pytest
from nodecases import cudart, node, on
from rulecases import image, of_image
from test_fit import cells

from buildmatrix.base.data import replace
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import NodeClass

LABEL = "com.nvidia.cuda.version"


def labeled(text: str, *files: object, name: str = LABEL) -> Inventory:
    return replace(image(*files), labels={name: text})  # type: ignore[arg-type]


def findings(inventory: Inventory, *nodes: NodeClass, runtime: str = "12.8") -> list[Finding]:
    every = of_image(on(*nodes, runtime=runtime), inventory)
    return [finding for finding in every if finding.rule == "BM705"]


def test_a_label_of_another_line_than_the_targets() -> None:
    (finding,) = findings(labeled("9.0.176"))
    assert finding.severity == "warning"
    assert LABEL in finding.message and "9.0.176" in finding.message and "12.8" in finding.message
    assert findings(labeled("12.1.0")) == []
    assert findings(labeled("9.0.176"), runtime="any") == []


@pytest.mark.parametrize(
    ("text", "driver", "state", "severities"),
    [
        ("12.1.0", "450.80.02", "undecided", ["warning"]),
        ("12.1.0", "530.30.02", "ok", []),
        # Within a line the label asks for no more than its first driver.
        ("12.8.1", "530.30.02", "ok", []),
        ("12.1.0", "", "ok", []),
        ("latest", "450.80.02", "ok", []),
        ("12", "450.80.02", "ok", []),
    ],
)
def test_a_label_and_the_driver_of_a_node_class(
    text: str, driver: str, state: str, severities: list[str]
) -> None:
    inventory, where = labeled(text), node(driver, "sm_80")
    assert [finding.severity for finding in findings(inventory, where)] == severities
    (cell,) = cells(inventory, where)
    assert cell.state == state


def test_the_runtime_that_is_there_counts_more_than_a_label() -> None:
    inventory, where = labeled("12.1.0", cudart("11.8.89")), node("450.80.02", "sm_80")
    (cell,) = cells(inventory, where)
    assert cell.state == "minor-version"
    assert {reason.rule for reason in cell.reasons} == {"BM702", "BM705"}
    assert [item.severity for item in findings(inventory, where)] == ["note"]


def test_other_labels_and_other_backends_say_nothing() -> None:
    where = node("450.80.02", "sm_80")
    assert findings(labeled("12.1.0", name="com.nvidia.cudnn.version"), where) == []
    rocm = on(node("6.1", "gfx942", backend="rocm"), runtime="7.0", backend="rocm")
    assert [item for item in of_image(rocm, labeled("12.1.0")) if item.rule == "BM705"] == []
