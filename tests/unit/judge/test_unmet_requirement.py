"""BM705, and the conditions of libnvidia-container that it evaluates."""

from __future__ import annotations

import pytest
from nodecases import cudart, node, on
from rulecases import codes, image, of_image

from buildmatrix.catalogue.drivers import LONGEST, InvalidConditionError, NodeFacts, is_met
from buildmatrix.judge.model import Finding
from buildmatrix.matrix.model import NodeClass

FACTS = NodeFacts(
    {"cuda": (12, 4), "driver": (550, 54, 14), "arch": (9, 0)}, frozenset({"nvidia", "tesla"})
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("cuda>=12.4", True),
        ("cuda>=12.4.0", True),
        ("cuda>=12.8", False),
        ("cuda>=12.8 driver>=550,driver<551", True),
        ("cuda>=12.8 driver>=550,driver<550", False),
        ("driver=550.54.14", True),
        ("driver!=550.54.14", False),
        ("DRIVER>549", True),
        ("cuda<=12", False),
        ("arch>=7.5", True),
        ("", True),
        ("   ", True),
        (",,cuda>=12.4,,", True),
        # `!` begins `!=`, and so it is taken for that.
        ("cuda!12.4", False),
        # A brand is one of several: decided only where all of them agree.
        ("brand=geforce", False),
        ("brand!=geforce", True),
        ("brand=Tesla", None),
        ("cuda>=12.8 brand=tesla,driver>=550,driver<551", None),
        ("cuda>=12.8 brand=tesla,driver>=470,driver<471", False),
        ("cuda>=12.4 nonsense", True),  # Nobody reads on.
    ],
)
def test_conditions(condition: str, expected: bool | None) -> None:
    assert is_met(condition, FACTS) is expected


@pytest.mark.parametrize(
    "condition",
    [
        "nonsense",
        "cuda==12.4",
        "cuda>=",
        "cuda>=abc",
        "memory>=80",
        "brand>tesla",
        ">=12",
        "cuda>=12.8 nonsense",
        "cuda>=" + "1" * LONGEST,
    ],
)
def test_what_cannot_be_read_stops_the_container(condition: str) -> None:
    with pytest.raises(InvalidConditionError):
        is_met(condition, FACTS)


def test_what_is_not_known_decides_nothing() -> None:
    assert is_met("cuda>=12.4", NodeFacts()) is None
    assert is_met("cuda>=12.4,driver<1", NodeFacts({"driver": (550,)})) is False


#: As nvidia/cuda:12.4.1-base has it, shortened.
BASE = "cuda>=12.4 " + " ".join(
    f"brand={brand},driver>=470,driver<471" for brand in ("tesla", "unknown", "nvidia")
)
#: That of nvidia/cuda:11.7.1 asks for the brand that drivers of this branch know.
OLD_BRANCH = "cuda>=11.7 brand=tesla,driver>=450,driver<451"


def of_class(environment: dict[str, str], *nodes: NodeClass) -> list[Finding]:
    held = image(cudart("12.4.127"), environment=environment)
    return [item for item in of_image(on(*nodes), held) if item.rule == "BM705"]


# B7: nvidia-container-toolkit #152, nvidia-docker #543.
def test_b7_a_driver_that_is_older_than_the_image_asks() -> None:
    (finding,) = of_class({"NVIDIA_REQUIRE_CUDA": BASE}, node("535.104.05", name="old"))
    assert finding.severity == "error"
    assert "NVIDIA_REQUIRE_CUDA=cuda>=12.4" in finding.message
    assert "old has driver 535.104.05, which is CUDA 12.2" in finding.message
    assert "unsatisfied condition" in finding.message


@pytest.mark.parametrize(
    ("environment", "driver", "products", "severities"),
    [
        ({"NVIDIA_REQUIRE_CUDA": BASE}, "550.54.14", (), []),
        ({"NVIDIA_REQUIRE_CUDA": BASE}, "999.1", (), []),
        ({"NVIDIA_REQUIRE_CUDA": BASE}, "470.82.01", ("Tesla V100-SXM2-16GB",), []),
        ({"NVIDIA_REQUIRE_CUDA": BASE}, "470.82.01", ("NVIDIA GeForce RTX 3090",), ["error"]),
        # Drivers call a Tesla one or the other, by their branch.
        ({"NVIDIA_REQUIRE_CUDA": OLD_BRANCH}, "450.80.02", ("Tesla-T4",), ["note"]),
        ({"NVIDIA_REQUIRE_CUDA": BASE}, "470.82.01", (), ["note"]),
        ({"NVIDIA_REQUIRE_CUDA": BASE}, "", (), ["note"]),
        ({"NVIDIA_REQUIRE_CUDA": BASE, "NVIDIA_DISABLE_REQUIRE": "true"}, "470.1", (), []),
        ({"NVIDIA_REQUIRE_CUDA": BASE, "NVIDIA_DISABLE_REQUIRE": "yes"}, "535.1", (), ["error"]),
        ({"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all"}, "550.54.14", (), []),
        ({"NVIDIA_REQUIRE_HOUSE": "driver>=560"}, "550.54.14", (), ["error"]),
        ({"NVIDIA_REQUIRE_HOUSE": "garbage"}, "550.54.14", (), ["error"]),
        ({"CUDA_VERSION": "12.8.1"}, "550.54.14", (), ["error"]),
        ({"CUDA_VERSION": "12.4.1"}, "550.54.14", (), []),
        ({"CUDA_VERSION": "12.8.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}, "550.54.14", (), []),
    ],
)
def test_requirements_of_an_image(
    environment: dict[str, str], driver: str, products: tuple[str, ...], severities: list[str]
) -> None:
    found = of_class(environment, node(driver, products=products))
    assert [item.severity for item in found] == severities


def test_the_package_does_not_change_what_is_asked() -> None:
    """Conditions are met by the driver of the host: the base lists the branches of its package."""
    where = on(node("535.104.05", products=("NVIDIA H100",)))
    held = image(cudart("12.4.127"), environment={"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"})
    assert "BM705" in codes(of_image(where, held), "error")
