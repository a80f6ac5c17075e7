"""A Docker engine with BuildKit: the one that already answers, or one of the stack's own.

Debian 12 has Docker 20.10 only. The engine, client, buildx and containerd of the newer
suites run on its libc; their packages are unpacked into a private prefix and started by
hand, with a socket, data and configuration that no other engine shares.

Its images are in Docker's older store, which compresses layers only when it pushes them: half the
processor time of the tests that build. `BUILDMATRIX_ENGINE_STORE=containerd` selects containerd's.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import apt
from .errors import StackError
from .layout import Layout, system_path
from .process import (
    State,
    output,
    processes_naming,
    processes_rooted_in,
    replace,
    start,
    unmount,
)
from .progress import say

NAME = "dockerd"
_UNPACKED = ("docker.io", "docker-cli", "docker-buildx", "containerd", "tini-static")
# Debian 12's own: the newer runc needs a newer libc, iptables needs its plugins in place.
_INSTALLED = {"runc": "runc", "iptables": "iptables"}
_PROGRAMS = (
    "usr/bin/docker",
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/docker-init",
    "usr/bin/tini-static",
    "usr/sbin/dockerd",
    "usr/sbin/docker-proxy",
    "usr/libexec/docker/cli-plugins/docker-buildx",
)
_DAEMONS = ("dockerd", "containerd", "containerd-shim-runc-v2")
_START_SECONDS = 60
_GIGABYTES = 3
# The engine's own garbage collection spares images and containers, and an engine that
# was killed leaves snapshots that nothing collects: the data only grew, to 43 GB in a day.
_DATA_GIGABYTES = 10
_FREE_GIGABYTES = 16


@dataclass(frozen=True)
class Engine:
    """An engine that answers: its version, and whether the stack started it."""

    version: str
    own: bool


def find(layout: Layout) -> Engine | None:
    """The engine to use now: the stack's own if it runs, else the one of the environment."""
    if NAME in State(layout.state).read():
        version = _version(layout.docker_environment())
        if version:
            return Engine(version, own=True)
    version = _version(dict(os.environ))
    if version and output(["docker", "buildx", "version"]) is not None:
        return Engine(version, own=False)
    return None


def _version(env: dict[str, str]) -> str | None:
    """The server's version when an engine answers in this environment."""
    docker = shutil.which("docker", path=env.get("PATH"))
    if docker is None:
        return None
    text = output([docker, "version", "--format", "{{.Server.Version}}"], env=env, timeout=10)
    return text.strip() if text and text.strip() else None


def ensure(layout: Layout) -> Engine:
    """Return an engine that answers, installing and starting one if need be."""
    found = find(layout)
    if found:
        say(f"engine: Docker {found.version} answers, reused")
        return found
    apt.require_debian_root("Starting a Docker engine")
    apt.ensure_programs(_INSTALLED, layout)
    if not _installed(layout):
        _install(layout)
    _configure_client(layout)
    _clear_leftovers(layout)
    limit_data(layout)
    _start(layout, containerd_store=os.environ.get("BUILDMATRIX_ENGINE_STORE") == "containerd")
    found = find(layout)
    if found is None or not found.own:
        raise StackError(f"dockerd started but does not answer, see {layout.log(NAME)}.")
    say(f"engine: Docker {found.version} started on {layout.docker_host}")
    return found


def _installed(layout: Layout) -> bool:
    """Whether the prefix holds the programs with the digests they were unpacked with."""
    try:
        manifest = json.loads((layout.prefix / "manifest.json").read_text(encoding="utf-8"))
        return all(
            apt.sha256(layout.prefix / program) == manifest["programs"][program]
            for program in _PROGRAMS
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _install(layout: Layout) -> None:
    """Unpack the newest packages that run on this libc; the prefix appears whole or not."""
    apt.require_space(layout.cache, _GIGABYTES)
    archive = apt.archive(apt.NEWER_SUITES, layout)
    packages = [archive.newest(name, apt.runs_on_this_libc) for name in _UNPACKED]
    say("engine: downloading " + ", ".join(f"{p.name} {p.version}" for p in packages))
    debs = archive.download(packages)
    draft = Path(tempfile.mkdtemp(dir=layout.drafts))
    try:
        for deb in debs:
            apt.unpack(deb, draft)
            deb.unlink()
        shutil.rmtree(draft / "usr/share", ignore_errors=True)
        manifest = {
            "packages": {package.name: package.version for package in packages},
            "programs": {program: apt.sha256(draft / program) for program in _PROGRAMS},
        }
        replace(draft / "manifest.json", json.dumps(manifest, indent=1) + "\n")
        shutil.rmtree(layout.prefix, ignore_errors=True)
        draft.chmod(0o755)
        draft.rename(layout.prefix)
    except FileNotFoundError as error:
        raise StackError(f"A Debian package no longer holds {error.filename}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _configure_client(layout: Layout) -> None:
    """Put `docker` into a folder of its own and buildx where the client looks for plugins."""
    plugins = layout.docker_config / "cli-plugins"
    for folder in (layout.bin, plugins):
        folder.mkdir(parents=True, exist_ok=True)
    _link(layout.bin / "docker", layout.prefix / "usr/bin/docker")
    _link(plugins / "docker-buildx", layout.prefix / "usr/libexec/docker/cli-plugins/docker-buildx")


def _link(link: Path, target: Path) -> None:
    """Point a link to a target, replacing what was there."""
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def limit_data(
    layout: Layout, most: float = _DATA_GIGABYTES, free: float = _FREE_GIGABYTES
) -> bool:
    """Remove the images and build cache of a stopped engine that takes too much of the disk.

    Everything in it can be built again, and the base images lie in the registry. It goes
    when it has more than `most` GB, or when the disk has less than `free` GB left; return
    whether it went.
    """
    if not layout.data_root.exists():
        return False
    size = _gigabytes(layout.data_root)
    left = shutil.disk_usage(layout.data_root).free / 1e9
    if size <= most and left >= free:
        return False
    say(f"engine: removing its data ({size:.0f} GB; {left:.0f} GB of the disk are free)")
    shutil.rmtree(layout.data_root)
    return True


def _gigabytes(folder: Path) -> float:
    """What a folder takes of the disk."""
    text = output(["du", "-sx", "--block-size=1", str(folder)], timeout=600)
    return int(text.split()[0]) / 1e9 if text else 0.0


@contextmanager
def beside(layout: Layout, folder: Path, *, containerd_store: bool = True) -> Iterator[Layout]:
    """One more engine of the same programs for a while, with its data below `folder`.

    The data stays there. Containers and build steps have the host's network, or none. Its images
    are in containerd's store, or in Docker's older one.
    """
    apt.require_debian_root("Starting a Docker engine")
    run = Path(tempfile.mkdtemp(prefix="buildmatrix-", dir=layout.run.parent))
    other = Layout(folder, run, programs=layout.cache)
    other.create()
    try:
        # Without a bridge (`none`) it would take away the one of the other engine.
        _start(other, containerd_store=containerd_store, iptables=False, ip6tables=False)
        yield other
    finally:
        stop(other)
        shutil.rmtree(run, ignore_errors=True)


def _start(layout: Layout, *, containerd_store: bool, **network: object) -> None:
    """Start dockerd and wait for its socket."""
    config = {
        **network,
        "features": {"containerd-snapshotter": containerd_store},
        "hosts": [layout.docker_host],
        "data-root": str(layout.data_root),
        "exec-root": str(layout.run / "exec"),
        "pidfile": str(layout.run / "dockerd.pid"),
        # It removes what was used least often, which is what a test has just built and is about to
        # find cached. `limit_data` removes all of it before the next start.
        "builder": {"gc": {"enabled": False}},
    }
    path = layout.run / "dockerd.json"
    replace(path, json.dumps(config, indent=1) + "\n")
    prefix_path = f"{layout.prefix}/usr/bin:{layout.prefix}/usr/sbin"
    say("engine: starting dockerd")
    daemon = start(
        NAME,
        [layout.prefix / "usr/sbin/dockerd", "--config-file", path],
        log=layout.log(NAME),
        ready=lambda: layout.socket.exists() and bool(_version(layout.docker_environment())),
        seconds=_START_SECONDS,
        env={**os.environ, "PATH": f"{prefix_path}:{system_path()}"},
    )
    State(layout.state).add(daemon)


def stop(layout: Layout) -> bool:
    """Stop the stack's engine and what it left behind; say whether there was one."""
    state = State(layout.state)
    daemon = state.read().get(NAME)
    if daemon:
        say(f"engine: stopping dockerd (pid {daemon.pid})")
        daemon.stop()
    _clear_leftovers(layout)
    state.remove(NAME)
    return daemon is not None


def _clear_leftovers(layout: Layout) -> None:
    """End what an engine that was killed left running, and unmount what it had mounted."""
    data_root = layout.data_root.resolve()
    for daemon in processes_naming(layout.run, _DAEMONS):
        say(f"engine: stopping {daemon.name} (pid {daemon.pid}), left by an earlier engine")
        daemon.stop(patience=10)
    for process in processes_rooted_in(data_root):
        say(f"engine: stopping {process.name} (pid {process.pid}), left by an earlier engine")
        process.stop(patience=1)
    unmount([layout.run.resolve(), data_root])
    for name in ("dockerd.pid", "docker.sock"):
        (layout.run / name).unlink(missing_ok=True)
    shutil.rmtree(layout.run / "exec", ignore_errors=True)
