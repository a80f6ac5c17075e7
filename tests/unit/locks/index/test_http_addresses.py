"""What a reference in a document or a redirect means: the short way says what the long one says."""

from __future__ import annotations

from urllib.parse import urljoin

from hypothesis import example, given
from hypothesis import strategies as st

from buildmatrix.base.errors import UndecidedError
from buildmatrix.net.addresses import HttpAddress, parse

BASE = parse("http://user:secret@[::1]:5000/v2/")


def the_long_way(reference: str) -> HttpAddress | str:
    try:
        return parse(urljoin(BASE.url, reference.strip()))
    except UndecidedError as error:
        return error.message


def joined(reference: str) -> HttpAddress | str:
    try:
        return BASE.join(reference)
    except UndecidedError as error:
        return error.message


@given(
    st.lists(
        st.sampled_from(["/", "//", "/v2/team/app/manifests/1.0", "..", ".", ":", "@", "%", "%2f"])
        | st.sampled_from(["?n=1", "#a", " ", "\t", "é", "sha256:ab", "~", "http:", "a", ";b"])
    ).map("".join)
)
@example("/v2/team/app/manifests/sha256:" + "a" * 64)
@example("/a//b")
@example("/..a/b")
@example("//other.example/v2/")
@example("/@other.example/")
def test_a_reference_means_what_it_says(reference: str) -> None:
    assert joined(reference) == the_long_way(reference)
