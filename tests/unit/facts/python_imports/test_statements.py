"""What files that are named after a version or a build say of it; nothing is run."""

from __future__ import annotations

import pytest

from buildmatrix.facts.python_imports.statements import LARGEST, has_literals, read_literals

TENSORFLOW = b"""
import collections

build_info = collections.OrderedDict([('cpu_compiler', 'clang'), ('cuda_compute_capabilities', \
['sm_60', 'compute_90']), ('cuda_version', '12.5.1'), ('cudnn_version', '9'), \
('is_cuda_build', True)])
"""
TORCH = b"""
from typing import Optional

__all__ = ['__version__', 'cuda']
__version__ = '2.6.0+cu124'
debug = False
cuda: Optional[str] = '12.4'
hip: Optional[str] = None
"""


def test_the_forms_that_frameworks_use() -> None:
    assert read_literals(TENSORFLOW) == {
        "cpu_compiler": ("clang",),
        "cuda_compute_capabilities": ("sm_60", "compute_90"),
        "cuda_version": ("12.5.1",),
        "cudnn_version": ("9",),
    }
    assert read_literals(TORCH) == {
        "__all__": ("__version__", "cuda"),
        "__version__": ("2.6.0+cu124",),
        "cuda": ("12.4",),
    }
    assert read_literals(b"versions = {'cuda': '13.0', 'n': 3, **other}") == {"cuda": ("13.0",)}


@pytest.mark.parametrize(
    "source",
    [
        b"cuda = compute()",
        b"cuda = '12' + '.4'",
        b"cuda = f'{major}.4'",
        b"def cuda():\n    cuda = '12.4'\n",
        b"if gpu:\n    cuda = '12.4'\n",
        b"cuda = ''",
        b"cuda = '" + b"1" * 101 + b"'",
        b"cuda = " + b"[" * 5000 + b"]" * 5000,
        b"cuda = '12.4",
        b"\xff\xfe\x00",
        # Which of the two counts, only a run would show.
        b"cuda = '12.4'\ncuda = '11.8'\n",
    ],
)
def test_what_is_no_literal_says_nothing(source: bytes) -> None:
    assert read_literals(source) == {}


def test_a_long_file_says_its_first_names() -> None:
    source = b"".join(b"name_%d = 'text'\n" % number for number in range(500))
    assert len(read_literals(source)) == 64


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tensorflow/python/platform/build_info.py", True),
        ("onnxruntime/capi/build_and_package_info.py", True),
        ("torch/version.py", True),
        ("paddle/version/__init__.py", True),
        ("a/_version.py", True),
        ("a/cuda_version_info.py", True),
        ("a/conversion.py", False),
        ("a/versions.py", False),
        ("a/version.pyi", False),
        ("a/version.py/b.py", False),
    ],
)
def test_files_are_known_by_their_names(path: str, expected: bool) -> None:
    assert has_literals(path, 100) is expected
    assert not has_literals(path, LARGEST + 1)
