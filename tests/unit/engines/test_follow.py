"""From the stream of a build to progress and log."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from pathlib import Path

import pytest

from buildmatrix.base.progress import Ending
from buildmatrix.engines.docker_follow import LINE, TAIL, Follower, is_scan, messages, step_text

DATA = Path(__file__).parent / "data"


class Recorder:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.lines: list[str] = []

    def step(self, target: str, text: str) -> None:
        self.steps.append(text)

    def output(self, target: str, line: str) -> None:
        self.lines.append(line)

    def done(self, target: str, outcome: str, ending: Ending) -> None:
        raise AssertionError("a follower does not end a target")

    def note(self, text: str) -> None:
        raise AssertionError("a follower speaks for one target")


def follow(data: bytes) -> tuple[Follower, Recorder, str]:
    log, progress = io.StringIO(), Recorder()
    follower = Follower("cpu-py311", log, progress)
    for message in messages(io.BytesIO(data)):
        follower.feed(message)
    return follower, progress, log.getvalue()


def recorded(name: str) -> tuple[Follower, Recorder, str]:
    return follow((DATA / f"{name}.jsonl").read_bytes())


def printing(*chunks: bytes, error: str = "") -> bytes:
    """The stream of one step that prints `chunks` and ends."""
    step = {"digest": "d", "name": "[build 1/1] RUN x", "started": "2026-01-01T00:00:00Z"}
    end = {**step, "completed": "2026-01-01T00:00:02.5Z", "error": error}
    logs = [{"vertex": "d", "data": b64encode(chunk).decode()} for chunk in chunks]
    return b"".join(
        json.dumps(message).encode() + b"\n"
        for message in ({"vertexes": [step]}, {"logs": logs}, {"vertexes": [end]})
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("[image build 2/7] RUN uv pip sync x", "build 2/7 RUN uv pip sync x"),
        ("[build 2/7] RUN uv pip sync x", "build 2/7 RUN uv pip sync x"),
        ("[image internal] load build context", "load build context"),
        ("[internal] load .dockerignore", "load .dockerignore"),
        ("[image] exporting to image", "exporting to image"),
        ("[2/2] COPY a b", "2/2 COPY a b"),
        ("[scan-image scanner 1/2] RUN --mount=from=r,target=/rootfs python3 /scan.pyz", "scan"),
        (f"[image build 1/3] FROM a:1@sha256:{'0' * 64}", "build 1/3 FROM a:1"),
        ("importing cache manifest", "importing cache manifest"),
        ("[] odd", "odd"),
    ],
)
def test_a_step_is_shown_by_its_stage_and_its_instruction(name: str, text: str) -> None:
    assert step_text(name) == text


def test_only_the_step_that_sees_the_root_file_system_is_the_scan() -> None:
    assert is_scan("[scan-a s 1/1] RUN --mount=type=bind,from=rootfs,target=/rootfs python3 x")
    assert not is_scan("[scan-a build 2/2] RUN uv pip sync x")


def test_progress_ends_with_the_scan_and_its_output() -> None:
    _, progress, _ = recorded("build-and-scan")

    assert "scan" in progress.steps
    assert progress.steps.index("scan") > progress.steps.index("exporting to image")
    assert progress.lines[-1] == "files 5740"


def test_what_the_builder_does_for_itself_is_in_the_log_alone() -> None:
    _, progress, log = recorded("build-and-scan")

    for step in ("load build definition from ", "load .dockerignore", "exporting to client"):
        assert step in log
        assert not any(step in shown for shown in progress.steps)


def test_the_log_has_every_step_every_line_and_how_each_step_ended() -> None:
    _, _, log = recorded("build-and-scan")

    assert "RUN --mount=type=secret" in log
    assert "| line 3" in log
    assert "done in 1.0 s" in log


def test_cached_steps_are_marked_in_the_log() -> None:
    _, _, log = recorded("hash-mismatch")

    assert "cached" in log


def test_the_failed_step_keeps_its_name_its_error_and_its_last_lines() -> None:
    follower, _, log = recorded("step-fails")

    assert follower.failed is not None
    assert follower.failed.name.endswith("RUN echo before; echo oops >&2; exit 7")
    assert follower.failed.error.endswith("exit code: 7")
    assert follower.failed.output == ("before", "oops")
    assert "error: process" in log
    assert ">>> RUN echo before" in log


def test_lines_are_joined_across_messages_and_the_last_one_needs_no_end() -> None:
    _, progress, _ = follow(printing(b"Collec", b"ting six\nDone", b"!"))

    assert progress.lines == ["Collecting six", "Done!"]


def test_a_redrawn_line_is_a_line_per_drawing() -> None:
    _, progress, _ = follow(printing(b"10 %\r20 %\r\nend\n"))

    assert progress.lines == ["10 %", "20 %", "end"]


def test_what_a_step_prints_cannot_steer_the_terminal() -> None:
    _, progress, log = follow(printing(b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m \x08\x9b1m\n"))

    assert progress.lines[0].startswith("red")
    assert not any(ord(c) < 32 and c not in "\t\n" for c in "".join(progress.lines) + log)


def test_an_endless_line_is_cut() -> None:
    _, progress, _ = follow(printing(b"x" * (5 * LINE)))

    assert max(map(len, progress.lines)) == LINE


def test_only_the_last_lines_are_kept_in_memory() -> None:
    follower, _, log = follow(printing(b"".join(b"%d\n" % n for n in range(500)), error="boom"))

    assert follower.failed is not None
    assert len(follower.failed.output) == TAIL
    assert follower.failed.output[-1] == "499"
    assert "| 0\n" in log


def test_a_step_that_was_only_stopped_is_not_the_one_that_failed() -> None:
    follower, _, _ = follow(printing(b"", error="context canceled"))

    assert follower.failed is None


def test_a_large_download_is_told_in_tenths() -> None:
    status = {"id": "sha256:abc", "vertex": "d", "total": 50_000_000}
    data = b"".join(
        json.dumps({"statuses": [{**status, "current": n * 500_000}]}).encode() + b"\n"
        for n in range(101)
    )
    _, progress, _ = follow(data)

    assert len(progress.lines) == 11
    assert progress.lines[-1] == "sha256:abc 50.0 MB of 50.0 MB"
