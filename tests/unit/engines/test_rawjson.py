"""Reading the progress stream of buildx; `data/` holds streams of the real one (0.29)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.engines import docker_follow as follow
from buildmatrix.engines.docker_follow import Message, messages

DATA = Path(__file__).parent / "data"


def parse(data: bytes) -> list[Message | str]:
    return list(messages(io.BytesIO(data)))


def test_a_recorded_build_is_all_messages_and_no_words() -> None:
    stream = parse((DATA / "build-and-scan.jsonl").read_bytes())

    assert all(isinstance(item, Message) for item in stream)
    names = {v.name for m in stream if isinstance(m, Message) for v in m.vertexes}
    assert any("RUN" in name and "target=/rootfs" in name for name in names)


def test_what_a_step_printed_is_decoded() -> None:
    stream = parse((DATA / "step-fails.jsonl").read_bytes())

    logs = b"".join(log.data for m in stream if isinstance(m, Message) for log in m.logs)
    assert logs == b"before\noops\n"


def test_words_after_the_stream_come_as_text() -> None:
    stream = parse((DATA / "step-fails.jsonl").read_bytes())

    assert isinstance(stream[-1], str)
    assert stream[-1].startswith("ERROR: failed to solve: process")


@pytest.mark.parametrize(
    "line", [b"{", b'{"vertexes": 1}', b'{"logs":[{"vertex":"a","data":"%%%"}]}', b"[]", b"\xff\n"]
)
def test_a_line_that_is_no_message_is_text_and_the_next_one_still_counts(line: bytes) -> None:
    first, second = parse(line.rstrip() + b'\n{"vertexes":[{"digest":"d","name":"n"}]}\n')

    assert isinstance(first, str)
    assert isinstance(second, Message)
    assert second.vertexes[0].name == "n"


def test_a_line_without_end_is_cut_and_costs_no_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "MAX_LINE", 100)
    stream = parse(b"x" * 1000 + b'\n{"logs":[]}\n')

    assert stream == ["x" * 100, Message()]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    parse(data)
