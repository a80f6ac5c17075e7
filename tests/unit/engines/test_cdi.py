"""Devices of the Container Device Interface in sandboxes: applied, or refused with the reason."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from buildmatrix.base.data import replace
from buildmatrix.engines.model import DeviceAccess
from buildmatrix.engines.oci import cdi
from buildmatrix.engines.oci.cdi import NoSuchDevice, add_mount_point, edits, offered
from buildmatrix.engines.oci.confinement import Sandbox
from buildmatrix.engines.oci.sandboxes import failure, of_this_machine, run, sandboxes
from buildmatrix.engines.oci.unpacking import Identity

SANDBOXES = [sandbox for sandbox in sandboxes() if failure(sandbox, math.inf) is None]


def described(folder: Path, name: str = "acme.json", **own: Any) -> Path:
    """A description of `acme.com/gpu=all`, whose own edits are `own`."""
    folder.mkdir(exist_ok=True)
    document = {
        "cdiVersion": "0.6.0",
        "kind": "acme.com/gpu",
        "containerEdits": {"env": ["ACME_VERSION=1"], "additionalGids": [0, 4711]},
        "devices": [{"name": "all", "containerEdits": own}],
    }
    text = json.dumps(document) if name.endswith("json") else yaml.safe_dump(document)
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", ["acme.json", "acme.yaml", "acme.yml"])
def test_what_a_description_edits_is_read(tmp_path: Path, name: str) -> None:
    driver = {"hostPath": "/opt/acme/lib", "containerPath": "/usr/lib/acme", "options": ["ro"]}
    nodes = [{"path": "/dev/acme0", "hostPath": "/dev/null"}, {"path": "/dev/acmectl"}]
    folder = described(tmp_path / "cdi", name, env=["ACME=all"], deviceNodes=nodes, mounts=[driver])
    assert offered([folder]) == ("acme.com/gpu=all",)
    found = edits(["acme.com/gpu=all"], [folder])
    assert found.nodes == {"/dev/acme0": "/dev/null", "/dev/acmectl": "/dev/acmectl"}
    assert found.mounts == {"/usr/lib/acme": "/opt/acme/lib"}
    assert found.environment == {"ACME_VERSION": "1", "ACME": "all"}
    assert found.groups == (4711,)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"hooks": [{"hookName": "createContainer", "path": "/usr/bin/x"}]}, "has hooks, which"),
        ({"netDevices": [{"hostInterfaceName": "eth0", "name": "eth0"}]}, "has netDevices, which"),
        ({"env": "ACME=1"}, "cannot be read"),
        ({"deviceNodes": [{"path": "/dev/../etc/acme"}]}, "as a path"),
        ({"deviceNodes": [{"path": "/etc/acme"}]}, "not below /dev"),
        ({"mounts": [{"hostPath": "opt", "containerPath": "/opt"}]}, "'opt' as a path"),
    ],
)
def test_what_cannot_be_applied_is_refused_whole(
    tmp_path: Path, own: dict[str, Any], words: str
) -> None:
    folder = described(tmp_path / "cdi", **own)
    assert offered([folder]) == ()
    with pytest.raises(NoSuchDevice, match=words):
        edits(["acme.com/gpu=all"], [folder])


def test_a_device_that_nothing_describes_is_named(tmp_path: Path) -> None:
    folder = described(tmp_path / "cdi")
    for name in ("acme.com/gpu=7", "acme.com/npu=all"):
        with pytest.raises(NoSuchDevice, match=f"describes {name}"):
            edits([name], [folder, tmp_path / "missing"])


def test_the_later_folder_wins_and_what_is_no_description_is_none(tmp_path: Path) -> None:
    first = described(tmp_path / "etc", env=["ACME=etc"])
    second = described(tmp_path / "run", env=["ACME=run"])
    bomb = "a: &a [x]\n" + "\n".join(f"b{n}: [*a, *a]" for n in range(1000))
    texts = ("", "{", "[]", "kind: 7", bomb, "x" * (2 << 20))
    for number, text in enumerate(texts):
        (second / f"broken-{number}.yaml").write_text(text)
    assert edits(["acme.com/gpu=all"], [first, second]).environment["ACME"] == "run"
    assert offered([first, second]) == ("acme.com/gpu=all",)


def test_no_mount_follows_a_link_of_an_image(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
    (root / "usr").symlink_to(outside)
    (root / "etc").write_text("a file")
    (root / "lib").mkdir()
    (root / "lib/acme.so").symlink_to(outside / "acme.so")
    file = tmp_path / "driver.so"
    file.write_text("")
    for inside in ("/usr/lib/acme.so", "/etc/acme.so", "/lib/acme.so", "/usr"):
        with pytest.raises(NoSuchDevice, match="nothing can be mounted"):
            add_mount_point(root, inside, str(file))
    assert list(outside.iterdir()) == []
    add_mount_point(root, "/opt/acme/lib.so", str(file))
    add_mount_point(root, "/opt/acme/folder", str(tmp_path))
    assert (root / "opt/acme/lib.so").is_file() and (root / "opt/acme/folder").is_dir()


def test_groups_of_nodes_are_those_of_this_machine(tmp_path: Path) -> None:
    group = Path("/dev/null").stat().st_gid
    found = cdi.Edits({"/dev/acme0": "/dev/null", "/dev/acme1": str(tmp_path / "gone")})
    assert list(cdi.groups(found)) == ([group] if group else [])


@pytest.mark.parametrize("sandbox", SANDBOXES, ids=lambda sandbox: sandbox.name)
def test_a_sandbox_shows_a_node_by_its_other_name(sandbox: Sandbox, tmp_path: Path) -> None:
    for name in ("root", "own"):
        (tmp_path / name).mkdir()
    driver = tmp_path / "driver"
    driver.write_text("acme 1\n")
    driver.chmod(0o644)
    tmp_path.chmod(0o755)
    script = (
        "echo x >/dev/acme/0 && ls /dev/acme; cat /opt/acme/driver; (echo >/opt/acme/driver) 2>&-"
        " || echo read-only; echo $ACME"
    )
    confined = of_this_machine(tmp_path / "root", Identity(10001, 10002), ("/bin/sh", "-c", script))
    add_mount_point(tmp_path / "root", "/opt/acme/driver", str(driver))
    confined = replace(
        confined,
        environment={"PATH": "/bin", "ACME": "all"},
        folders={**confined.folders, "/opt/acme/driver": driver},
        devices=DeviceAccess(),
        renamed={"/dev/acme/0": "/dev/null"},
    )
    result = run(sandbox, confined, tmp_path / "own", math.inf, lambda: False)
    assert result.output.split() == ["0", "acme", "1", "read-only", "all"], result.output


def test_some_sandbox_runs_here() -> None:
    assert SANDBOXES
