"""pip's settings are read as pip reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from buildmatrix.net.machine_indexes import PYPI, pip_settings

A, B, C, D = (f"https://{host}.example.com/simple" for host in "abcd")
#: What pip makes of its settings for `pip install`.
OPTIONS = """
import json, os, sys
from pip._internal.commands import create_command
said = {}
for name, environment in json.loads(sys.argv[1]).items():
    os.environ.clear()
    os.environ.update(environment)
    one, _ = create_command("install").parse_args([])
    said[name] = [one.index_url, one.extra_index_urls, one.find_links, bool(one.no_index),
                  one.trusted_hosts, one.cert]
print(json.dumps(said))
"""
CONF = ".config/pip/pip.conf"


CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "a file": ({CONF: f"[global]\nindex-url = {A}\n"}, {}),
    "the newer place wins": (
        {
            CONF: f"[global]\nindex-url = {A}\n",
            ".pip/pip.conf": f"[global]\nindex-url = {B}\nextra-index-url = {C} {D}\n",
        },
        {},
    ),
    "a section wins over a file": (
        {
            CONF: f"[global]\nindex-url = {A}\n",
            ".pip/pip.conf": f"[install]\nindex_url = {B}\nno-index = no\n",
        },
        {},
    ),
    "a file that is named replaces the user's": (
        {
            CONF: f"[global]\nINDEX-URL = {A}\nfind-links =\n  /one\n  two\ntrusted-host = h\n",
            "mine.conf": f"[global]\nextra-index-url = {C}\n[download]\nindex-url = {D}\n",
        },
        {"PIP_CONFIG_FILE": "mine.conf"},
    ),
    "unless it is not there": (
        {CONF: f"[global]\nindex-url = {A}\n"},
        {"PIP_CONFIG_FILE": "missing.conf"},
    ),
    "variables win": (
        {CONF: f"[install]\nindex-url = {A}\nextra-index-url = {B}\nfind-links = /x\n"},
        {
            "PIP_INDEX_URL": C,
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_NO_INDEX": "on",
            "PIP_FIND_LINKS": "/y https://example.com/z",
            "PIP_TRUSTED_HOST": "a b:1",
            "PIP_CERT": "/c.pem",
        },
    ),
}


def test_pip_itself_agrees(tmp_path: Path) -> None:
    environments = {}
    for number, (name, (files, variables)) in enumerate(CASES.items()):
        home = tmp_path / str(number)
        for file, text in files.items():
            path = home / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        environments[name] = {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "xdg"), **variables}
        if named := variables.get("PIP_CONFIG_FILE"):
            environments[name]["PIP_CONFIG_FILE"] = str(home / named)
    done = subprocess.run(
        [sys.executable, "-c", OPTIONS, json.dumps(environments)],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    for name, environment in environments.items():
        ours = pip_settings(environment)
        assert said[name] == [
            ours.index_url or PYPI.rstrip("/"),
            list(ours.extra_index_urls),
            list(ours.find_links),
            ours.no_index,
            list(ours.trusted_hosts),
            ours.certificates or None,
        ], name
