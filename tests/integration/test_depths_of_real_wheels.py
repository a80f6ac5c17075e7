"""A deeper look into a real wheel takes nothing back of what a shallower one said."""

from __future__ import annotations

import pytest
from corpus_depths import contradictions, said
from corpus_fetch import fetch, wheel_folder
from corpus_truth import read_truth

pytestmark = pytest.mark.network


@pytest.mark.parametrize(
    "name", ["amdsmi", "numba-cuda", "rmm-cu12", "torchao", "torchaudio", "xformers"]
)
def test_a_deeper_look_contradicts_no_shallower_one(name: str) -> None:
    wheel = next(one for one in read_truth() if one.name == name)
    known = said(fetch(wheel, wheel_folder()))
    assert not list(contradictions(known))
    # The property says something only where the looks differ.
    assert known["listing", "cpu"].verdict.depth == "listing"
    assert known["whole", "cpu"].verdict.depth == "whole"


def test_what_was_seen_of_a_part_is_called_a_lower_bound() -> None:
    wheel = next(one for one in read_truth() if one.name == "torchaudio")
    known = said(fetch(wheel, wheel_folder()))
    part, whole = known["some", "cpu"].verdict, known["whole", "cpu"].verdict
    assert 0 < part.foreign_bytes < whole.foreign_bytes
    assert (part.foreign_at_least, whole.foreign_at_least) == (True, False)
