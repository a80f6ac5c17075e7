"""An index that sends without end ends neither the machine's memory nor the user's patience."""

from __future__ import annotations

import gzip
import io
import subprocess
import threading
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest
from index import IndexServer
from lock_cases import target
from loopback import Response

from buildmatrix.base import child
from buildmatrix.base.errors import BuildmatrixError
from buildmatrix.locks import uv
from buildmatrix.locks.uv import explain_failure

#: Bytes that the page of the bomb unpacks to.
BOMB = 1 << 30


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    (tmp_path / "files").mkdir()
    with IndexServer(tmp_path / "files") as server:
        monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        yield server


def failure(folder: Path) -> BuildmatrixError:
    """What a resolution of `endless` ends with."""
    (folder / "a.in").write_text("endless\n")
    done = uv.find_uv().run(["pip", "compile", "--quiet", "a.in"], folder)
    assert done.returncode != 0
    return explain_failure(target(), done.stderr)


def test_an_index_that_drips_without_end_is_given_up(
    tmp_path: Path, server: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Response(200, repeat(b" " * 512)).having(content_type="text/html")
    asked = threading.Event()

    def endless(*_: object) -> Response:
        asked.set()
        return page

    communicate = subprocess.Popen.communicate

    def once_asked(
        self: subprocess.Popen[str], input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        """Let the time begin when uv reads the page: on a busy machine it starts slowly."""
        assert "compile" not in self.args or asked.wait(300)
        return communicate(self, input, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_asked)
    server.misbehave("/simple/endless/", endless)
    monkeypatch.setattr(uv, "SECONDS", 0.5)
    assert "uv gave no answer" in failure(tmp_path).message
    assert server.count("/simple/endless/") == 1


def test_a_page_that_unpacks_to_gigabytes_takes_no_more_than_the_limit(
    tmp_path: Path, server: IndexServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as out:
        zeros = b" " * (1 << 24)
        for _ in range(BOMB >> 24):
            out.write(zeros)
    page = Response(200, packed.getvalue())
    page = page.having(content_type="text/html", content_encoding="gzip")
    server.misbehave("/simple/endless/", lambda *_: page)
    monkeypatch.setattr(uv, "MEMORY", 512 << 20)
    assert "uv ran out of memory and was stopped" in failure(tmp_path).message


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        child.run(["sleep", "60"], tmp_path, {"PATH": "/bin"}, seconds=0.1, memory=1 << 30)
