"""Which engine `auto` means, and what is said where it is not Docker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from buildmatrix.engines import choose_builder

OWN = SimpleNamespace(name="oci")


@pytest.mark.parametrize(("installed", "level"), [(True, "warning"), (False, "info")])
def test_auto_without_a_daemon_is_our_engine_and_warns_where_docker_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, level: str
) -> None:
    if installed:
        docker = tmp_path / "docker"
        docker.write_text("#!/bin/sh\nexit 1\n")
        docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[tuple[str, str]] = []

    engine = choose_builder("auto", None, lambda: OWN, lambda *line: said.append(line))

    assert engine is OWN
    ((how, text),) = said
    assert (how, text.startswith("engine oci, without Docker: ")) == (level, True)
