"""Small wheels of the corpus: what buildmatrix says is what independent tools and imports say."""

from __future__ import annotations

import pytest
from check_corpus import score
from corpus_agreement import judgement
from corpus_fetch import fetch, wheel_folder
from corpus_scan import inventory_of
from corpus_truth import TrueWheel, read_truth

pytestmark = pytest.mark.network

#: One for each way in which a wheel can hide or seem to hide something, 18 MB together: opened by
#: Python code on import, by what an import calls in another distribution, guarded, unguarded, by
#: requirement, statically, by a mangled copy, a name in code that loads nothing, and nothing.
SMALL = (
    "amdsmi",
    "cryptography",
    "dpctl",
    "numba-cuda",
    "psutil",
    "rmm-cu12",
    "torchao",
    "pyopencl",
    "xgboost-cpu",
)


@pytest.mark.parametrize("name", SMALL)
def test_a_wheel_comes_out_as_it_is(name: str) -> None:
    wheel = _wheel(name)
    result = score(wheel, inventory_of(fetch(wheel, wheel_folder())))

    said = {backend: verdict.verdict for backend, verdict in result.verdicts.items()}
    assert said == wheel.verdicts
    for field in ("bundled", "needed", "sections", "dlopen", "gpu", "requires"):
        assert (field, result.missed[field], result.false[field]) == (field, set(), set())
    assert result.contradictions == ()
    assert result.unread == ()


@pytest.mark.parametrize(("runtime", "expected"), [("13.0", "ok"), ("12.9", "broken")])
def test_a_wheel_of_another_toolkit_line_is_broken(runtime: str, expected: str) -> None:
    # readelf: lib/_torchaudio.abi3.so needs libcudart.so.13. 1 MB.
    inventory = inventory_of(fetch(_wheel("torchaudio"), wheel_folder()))
    said = judgement("cuda", inventory, runtime)
    assert [one.verdict for one in said.verdicts] == [expected]
    errors = [one.rule for one in said.findings if one.severity == "error"]
    assert errors == (["BM302"] if expected == "broken" else [])


def _wheel(name: str) -> TrueWheel:
    return next(wheel for wheel in read_truth() if wheel.name == name)
