"""An OSV-compatible service on loopback, with some published records, that misbehaves on demand.

It speaks the one call that pip-audit makes, `POST /v1/query` (https://google.github.io/osv.dev).
Names, aliases, ranges and summaries of the records are as published; of each, one is shortened to
what is needed here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from packaging.version import Version

Trouble = Literal["error", "hang", "garbage", "cut", "incomplete"]


def record(
    name: str, id: str, aliases: list[str], summary: str, *ranges: tuple[str, str | None]
) -> dict:
    """A record; each range has the first version with the flaw, and the first without it."""
    events = [
        [{"introduced": start}] + ([{"fixed": end}] if end is not None else [])
        for start, end in ranges
    ]
    return {
        "schema_version": "1.7.3",
        "id": id,
        "aliases": aliases,
        "summary": summary,
        "modified": "2025-02-13T18:00:00Z",
        "published": "2024-01-11T15:20:48Z",
        "affected": [
            {
                "package": {"name": name, "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": one} for one in events],
            }
        ],
    }


RECORDS: dict[str, list[dict]] = {
    "jinja2": [
        record(
            "jinja2",
            "GHSA-h5c8-rqwp-cp95",
            ["CVE-2024-22195"],
            "Jinja vulnerable to HTML attribute injection when passing user input as keys to "
            "xmlattr filter",
            ("0", "3.1.3"),
        ),
        record(
            "jinja2",
            "GHSA-h75v-3vvj-5mfj",
            ["CVE-2024-34064"],
            "Jinja vulnerable to HTML attribute injection when passing user input as keys to "
            "xmlattr filter",
            ("0", "3.1.4"),
        ),
        record(
            "jinja2",
            "GHSA-cpwx-vrp4-4pq7",
            ["CVE-2025-27516"],
            "Jinja2 vulnerable to sandbox breakout through attr filter selecting format method",
            ("0", "3.1.6"),
        ),
    ],
    "requests": [
        # One flaw, in two databases.
        record(
            "requests",
            "PYSEC-2023-74",
            ["CVE-2023-32681", "GHSA-j8r2-6x86-q33q"],
            "Unintended leak of Proxy-Authorization header in requests",
            ("2.3.0", "2.31.0"),
        ),
        record(
            "requests",
            "GHSA-j8r2-6x86-q33q",
            ["CVE-2023-32681", "PYSEC-2023-74"],
            "Unintended leak of Proxy-Authorization header in requests",
            ("2.3.0", "2.31.0"),
        ),
        record(
            "requests",
            "GHSA-9hjg-9r4m-mvj7",
            ["CVE-2024-47081"],
            "Requests vulnerable to .netrc credentials leak via malicious URLs",
            ("0", "2.32.4"),
        ),
    ],
    "torch": [
        record(
            "torch",
            "GHSA-53q9-r3pm-6pq6",
            ["CVE-2025-32434"],
            "PyTorch: `torch.load` with `weights_only=True` leads to remote code execution",
            ("0", "2.6.0"),
        ),
        record(
            "torch",
            "GHSA-887c-mr87-cxwp",
            ["CVE-2025-3730"],
            "PyTorch Improper Resource Shutdown or Release vulnerability",
            ("0", "2.8.0"),
        ),
    ],
}


class OsvServer:
    """What the service answers, and what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        #: Name and version of each question, in order.
        self.asked: list[tuple[str, str]] = []
        #: Name of a package (`*` for all) → how it is answered instead.
        self.trouble: dict[str, Trouble] = {}
        #: More records, by package.
        self.records = dict(RECORDS)
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/query"

    def vulnerabilities(self, name: str, version: str) -> list[dict]:
        wanted = Version(version)
        return [one for one in self.records.get(name, []) if _is_affected(one, wanted)]


def _is_affected(one: dict, wanted: Version) -> bool:
    for part in one["affected"]:
        for span in part["ranges"]:
            start = Version(span["events"][0]["introduced"])
            end = [Version(event["fixed"]) for event in span["events"] if "fixed" in event]
            if start <= wanted and not (end and wanted >= end[0]):
                return True
    return False


@contextmanager
def osv_server() -> Iterator[OsvServer]:
    """A running service; it ends with the block, also where a client waits for it."""
    service = OsvServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name, version = query["package"]["name"], query["version"]
            service.asked.append((name, version))
            trouble = service.trouble.get(name) or service.trouble.get("*")
            if trouble == "hang":
                service.stopped.wait(300)
                return
            found = service.vulnerabilities(name, version)
            body = json.dumps({"vulns": found} if found else {}).encode()
            if trouble == "garbage":
                body = b"<html>maintenance</html>"
            if trouble == "incomplete":
                body = b'{"next_page_token": "more"}'
            self.send_response(500 if trouble == "error" else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body) + (100 if trouble == "cut" else 0)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()
