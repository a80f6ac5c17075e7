"""What servers want to see, as they write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.net.registry_tokens import parse_challenges


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Basic realm="x"', [("basic", {"realm": "x"})]),
        (
            'Bearer realm="https://auth.example/token",service="a,b",scope="repository:a/b:pull"',
            [
                (
                    "bearer",
                    {
                        "realm": "https://auth.example/token",
                        "service": "a,b",
                        "scope": "repository:a/b:pull",
                    },
                )
            ],
        ),
        (
            'Basic realm=x, BEARER Realm = "a\\"b" , service=s',
            [("basic", {"realm": "x"}), ("bearer", {"realm": 'a"b', "service": "s"})],
        ),
        (
            'Negotiate, Basic realm="a, Bearer realm=b"',
            [("negotiate", {}), ("basic", {"realm": "a, Bearer realm=b"})],
        ),
        ('Basic realm="first", realm="second"', [("basic", {"realm": "first"})]),
        ('Basic realm="without an end', [("basic", {})]),
        ("", []),
        ("=", []),
        ("," * 1_000_000, []),
    ],
)
def test_a_header_is_taken_apart(header: str, expected: list[tuple[str, dict[str, str]]]) -> None:
    found = [
        (challenge.scheme, dict(challenge.parameters)) for challenge in parse_challenges(header)
    ]
    assert found == expected


@given(st.text(alphabet='Bearer ,="\\x', max_size=300))
def test_any_header_ends(header: str) -> None:
    assert len(list(parse_challenges(header))) <= len(header)


@pytest.mark.parametrize(
    ("start", "part", "times"),
    [('a="', '\\"', 500_000), ("", "a ", 500_000), ("", 'a b="\\', 300_000)],
)
def test_a_hostile_header_takes_no_time(start: str, part: str, times: int) -> None:
    assert len(list(parse_challenges(start + part * times))) < 20_000
