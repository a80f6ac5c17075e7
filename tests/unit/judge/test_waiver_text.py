"""What a waiver to fill in says of a file, whatever the file is called."""

from __future__ import annotations

import tomllib

from hypothesis import example, given
from hypothesis import strategies as st

from buildmatrix.judge.fixes import accept

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES, NAMES)
@example('a\n[[waive]]\nrule = "BM401"', "x\x00\x7f\u202e\U000e0041")
@example("a\"\\u0041'''", "\r\n::error::x")
def test_a_name_stays_one_value(path: str, name: str) -> None:
    text = accept("BM902", path=path, distribution=name)
    assert text.count("\n") == 7
    read = tomllib.loads(text.replace("YYYY-MM-DD", "2027-01-31"))
    (waiver,) = read["waive"]
    assert (waiver["path"], waiver["distribution"]) == (path, name)
