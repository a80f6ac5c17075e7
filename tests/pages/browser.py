"""A headless Chromium, driven by its DevTools protocol over two pipes."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """One open page. Every request that it made and everything that it logged is kept."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def open(self, path: Path) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + 60
        while self.run("document.readyState") != "complete":
            assert time.monotonic() < deadline, "the page does not load"
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def call(self, method: str, **parameters: Any) -> dict:
        self._number += 1
        message: dict = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 16)
            assert data, "the browser has ended"
            self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(first)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message.get("method") == "Log.entryAdded":
            self.complaints.append(message["params"]["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(message["params"]["exceptionDetails"]))
        return message


@contextmanager
def opened(browser: str, path: Path) -> Iterator[Page]:
    """A page in a browser of its own, which ends with the block."""
    # The protocol reads commands from descriptor 3 and writes answers to descriptor 4.
    commands_out, commands_in = os.pipe()
    answers_out, answers_in = os.pipe()
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        options = (
            "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run "
            "--disable-background-networking --disable-component-update --remote-debugging-pipe"
        )
        process = subprocess.Popen(
            [
                *("bash", "-c", 'exec "$@" 3<&"$READ" 4>&"$WRITE"', "bash"),
                *(browser, *options.split(), f"--user-data-dir={profile}", "about:blank"),
            ],
            env={**os.environ, "READ": str(commands_out), "WRITE": str(answers_in)},
            pass_fds=(commands_out, answers_in),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_out)
        os.close(answers_in)
        try:
            page = Page(answers_out, commands_in)
            page.open(path)
            yield page
        finally:
            os.close(commands_in)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(answers_out)
