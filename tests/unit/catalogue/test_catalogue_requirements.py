"""What a distribution requires: kinds, markers of the target, extras of meta packages."""

import pytest

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.releases import Required, requirements
from buildmatrix.facts.inventory.model import Distribution

SITE = "usr/lib/python3.11/site-packages"


def required(*lines: str, site: str = SITE) -> tuple[Required, ...]:
    return requirements(Distribution("demo", "1", f"{site}/demo-1.dist-info", lines), load())


@pytest.mark.parametrize(
    ("line", "active"),
    [
        ("nvidia-nccl-cu12", True),
        ('nvidia-nccl-cu12; platform_system == "Linux"', True),
        ('nvidia-nccl-cu12; sys_platform == "win32"', False),
        ('nvidia-nccl-cu12; platform_machine == "aarch64"', False),
        ('nvidia-nccl-cu12; extra == "gpu"', False),
        ('nvidia-nccl-cu12; sys_platform == "linux" and extra == "gpu"', False),
        ('nvidia-nccl-cu12; python_version >= "3.12"', False),
        ('nvidia-nccl-cu12; python_version < "3.12"', True),
    ],
)
def test_markers_are_those_of_the_target(line: str, active: bool) -> None:
    (one,) = required(line)
    assert (one.active, one.name) == (active, "nvidia-nccl-cu12")
    assert one.match is not None
    assert one.match.vendor == "nvidia"


def test_a_meta_package_brings_what_its_extras_name() -> None:
    everything, nothing = required("cuda-toolkit[cublas,cudart]==13.*", "cuda-toolkit==13.*")
    assert everything.brings == ("nvidia-cublas", "nvidia-cuda-runtime")
    assert nothing.brings == ()


def test_an_extra_that_the_meta_package_does_not_have_brings_nothing() -> None:
    (one,) = required("cuda-toolkit[tea]")
    assert one.brings == ()


def test_other_distributions_bring_themselves() -> None:
    (one,) = required("NumPy[extra]>=2")
    assert one.brings == ("numpy",)


def test_what_is_no_requirement_is_left_out_as_installers_do() -> None:
    assert [one.name for one in required("this is none !!", "numpy")] == ["numpy"]


def test_the_interpreter_of_another_site_packages_decides() -> None:
    line = 'numpy; python_version >= "3.12"'
    (newer,) = required(line, site="opt/venv/lib/python3.12/site-packages")
    assert newer.active
