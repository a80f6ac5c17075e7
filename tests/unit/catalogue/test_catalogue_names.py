"""Names: what wheel builders and people make of them, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.catalogue.model import GlobIndex, demangle, library_names, matches
from buildmatrix.facts.inventory.listing import distribution_name

HASHES = st.text("0123456789abcdef", min_size=8, max_size=8)
STEMS = st.from_regex(r"lib[a-zA-Z][a-zA-Z0-9_]{0,12}(-[a-z]{1,5})?", fullmatch=True)
VERSIONS = st.lists(st.integers(0, 300).map(str), max_size=4).map(
    lambda parts: "".join(f".{part}" for part in parts)
)


@given(STEMS, HASHES, VERSIONS)
def test_auditwheels_hash_is_taken_out_again(stem: str, digest: str, version: str) -> None:
    assert demangle(f"{stem}-{digest}.so{version}") == f"{stem}.so{version}"


@given(STEMS, HASHES, VERSIONS)
def test_torchvisions_hash_is_taken_out_again(stem: str, digest: str, version: str) -> None:
    assert demangle(f"{stem}.{digest}.so{version}") == f"{stem}.so{version}"


@given(STEMS, VERSIONS)
def test_names_without_a_hash_stay_as_they_are(stem: str, version: str) -> None:
    assert demangle(f"{stem}.so{version}") == f"{stem}.so{version}"


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("libcudart-9335f6a2.so.12", "libcudart.so.12"),
        ("libcudart.782fcab0.so.11.0", "libcudart.so.11.0"),
        ("libopenblas-r0-f650aae0.3.3.so", "libopenblas-r0.3.3.so"),
        ("libcudart-9335f6a2.txt", "libcudart-9335f6a2.txt"),
        ("libnvrtc-builtins.so.12.8", "libnvrtc-builtins.so.12.8"),
    ],
)
def test_names_seen_in_wheels(mangled: str, name: str) -> None:
    assert demangle(mangled) == name


def test_a_library_answers_to_shorter_versions_of_itself() -> None:
    assert list(library_names("libnccl-0a1b2c3d.so.2.30.7")) == [
        "libnccl.so.2.30.7",
        "libnccl.so.2.30",
        "libnccl.so.2",
        "libnccl.so",
    ]


def test_distribution_names_are_compared_as_pep_503_writes_them() -> None:
    assert distribution_name("NVIDIA_cublas.CU12") == "nvidia-cublas-cu12"


GLOBS = st.text("ab*?", min_size=1, max_size=6)


@given(st.lists(GLOBS, max_size=8), st.text("ab", max_size=6))
def test_an_index_finds_what_trying_every_glob_would_find(globs: list[str], text: str) -> None:
    found = GlobIndex((glob, glob) for glob in globs).find(text)
    assert sorted(found) == sorted(glob for glob in globs if matches(glob, text))


def test_an_index_gives_the_most_exact_glob_first() -> None:
    index = GlobIndex((glob, glob) for glob in ("*-cu12", "nvidia-*", "nvidia-nccl-cu12"))
    assert list(index.find("nvidia-nccl-cu12")) == ["nvidia-nccl-cu12", "nvidia-*", "*-cu12"]
