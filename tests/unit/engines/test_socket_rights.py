"""A daemon that this user may not use is told as that, and not as one that is down."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ASK = """
import os, sys
from buildmatrix.engines import docker_containers as containers
from buildmatrix.base.errors import ComponentError
if os.geteuid() == 0:
    # Rights do not bind root.
    os.setgid(65534)
    os.setuid(65534)
try:
    containers.Daemon(f"unix://{sys.argv[1]}", {}).image("debian:12")
except ComponentError as error:
    print(error.message)
"""


def test_a_socket_without_rights_names_the_group_and_not_the_daemon() -> None:
    # A socket's path may hold 108 bytes: the folders of tests are too deep.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as daemon:
        path = Path(folder) / "docker.sock"
        daemon.bind(str(path))
        daemon.listen()
        path.chmod(0)
        Path(folder).chmod(0o755)
        asked = subprocess.run(
            [sys.executable, "-c", ASK, str(path)], capture_output=True, text=True
        )

    assert "permission denied; this user may not use it" in asked.stdout
    assert "see that it runs" not in asked.stdout
