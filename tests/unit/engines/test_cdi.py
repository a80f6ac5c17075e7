"""Devices of the Container Device Interface in sandboxes: applied, or refused with the reason."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from buildmatrix.base.data import replace
from buildmatrix.engines.model import DeviceAccess
from buildmatrix.engines.oci import cdi
from buildmatrix.engines.oci.cdi import NoSuchDevice, add_mount_point, edits, offered
from buildmatrix.engines.oci.confinement import Confined, Sandbox
from buildmatrix.engines.oci.sandboxes import failure, of_this_machine, run, sandboxes
from buildmatrix.engines.oci.unpacking import Identity, add_mount_points

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


def hook(program: str, *words: str) -> dict[str, Any]:
    first = [program, "hook"] if program == "nvidia-ctk" else [program]
    path = f"/usr/bin/{program}"
    return {"hookName": "createContainer", "path": path, "args": [*first, *words]}


@pytest.mark.parametrize("name", ["acme.json", "acme.yaml", "acme.yml"])
def test_what_a_description_edits_is_read(tmp_path: Path, name: str) -> None:
    driver = {"hostPath": "/opt/acme/lib", "containerPath": "/usr/lib/acme", "options": ["ro"]}
    nodes = [{"path": "/dev/acme0", "hostPath": "/dev/null"}, {"path": "/dev/acmectl"}]
    folder = described(tmp_path / "cdi", name, env=["ACME=all"], deviceNodes=nodes, mounts=[driver])
    assert offered([folder], {}) == ("acme.com/gpu=all",)
    found = edits(["acme.com/gpu=all"], [folder], {})
    assert found.nodes == {"/dev/acme0": "/dev/null", "/dev/acmectl": "/dev/acmectl"}
    assert found.mounts == {"/usr/lib/acme": "/opt/acme/lib"}
    assert found.environment == {"ACME_VERSION": "1", "ACME": "all"}
    assert found.groups == (4711,)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"hooks": [hook("x", "create-symlinks")]}, "has the hook 'x create-symlinks', which"),
        ({"hooks": [hook("nvidia-cdi-hook", "mount-all")]}, "has the hook 'nvidia-cdi-hook mount-"),
        ({"hooks": [hook("nvidia-ctk", "update-ldcache", "--folder", "../x")]}, "as a path"),
        ({"hooks": [hook("nvidia-ctk", "create-symlinks", "--link", "libx.so")]}, "as a path"),
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
    assert offered([folder], {}) == ()
    with pytest.raises(NoSuchDevice, match=words):
        edits(["acme.com/gpu=all"], [folder], {})


def test_a_device_that_nothing_describes_is_named(tmp_path: Path) -> None:
    folder = described(tmp_path / "cdi")
    for name in ("acme.com/gpu=7", "acme.com/npu=all"):
        with pytest.raises(NoSuchDevice, match=f"describes {name}"):
            edits([name], [folder, tmp_path / "missing"], {})


def test_the_later_folder_wins_and_what_is_no_description_is_none(tmp_path: Path) -> None:
    first = described(tmp_path / "etc", env=["ACME=etc"])
    second = described(tmp_path / "run", env=["ACME=run"])
    bomb = "a: &a [x]\n" + "\n".join(f"b{n}: [*a, *a]" for n in range(1000))
    texts = ("", "{", "[]", "kind: 7", bomb, "x" * (2 << 20))
    for number, text in enumerate(texts):
        (second / f"broken-{number}.yaml").write_text(text)
    assert edits(["acme.com/gpu=all"], [first, second], {}).environment["ACME"] == "run"
    assert offered([first, second], {}) == ("acme.com/gpu=all",)


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


def driver(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A library with a SONAME, and edits as `nvidia-ctk cdi generate` writes them for it."""
    file = folder / "libcuda.so.580.95"
    source = folder / "cuda.c"
    source.write_text("int cuInit(unsigned flags) { return 42 + flags; }\n")
    line = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", file, source]
    subprocess.run(line, check=True)
    place = "/lib/x86_64-linux-gnu"
    hooks = [
        hook("nvidia-cdi-hook", "create-symlinks", "--link", f"libcuda.so.1::{place}/libcuda.so"),
        hook("nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=580.95"),
        hook("nvidia-cdi-hook", "update-ldcache", "--folder", place),
        hook("nvidia-cdi-hook", "disable-device-node-modification"),
        hook("nvidia-ctk", "chmod", "--mode", "755", "--path", "/dev/dri"),
    ]
    mount = {"hostPath": str(file), "containerPath": f"{place}/{file.name}", "options": ["ro"]}
    return file, [{"mounts": [mount], "hooks": hooks}]


@pytest.mark.parametrize("compat", ["", "libcuda.so.570.1", "libcuda.so.590.2"])
def test_hooks_of_nvidia_are_done_in_the_files_of_the_image(tmp_path: Path, compat: str) -> None:
    file, (own,) = driver(tmp_path)
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/local/cuda-13.0/compat").mkdir(parents=True)
    (root / "usr/local/cuda").symlink_to("/usr/local/cuda-13.0")
    if compat:
        (root / "usr/local/cuda-13.0/compat" / compat).touch()
    found = edits(["acme.com/gpu=all"], [described(tmp_path / "cdi", **own)], {})
    for _ in range(2):
        laid = cdi.lay_out(root, found)
        place = root / "usr/lib/x86_64-linux-gnu"
        assert laid.mounts == {f"/usr/lib/x86_64-linux-gnu/{file.name}": str(file)}
        links = {path.name: str(path.readlink()) for path in place.iterdir() if path.is_symlink()}
        assert links == {"libcuda.so": "libcuda.so.1", "libcuda.so.1": file.name}
        (folder,) = [path for path in laid.library_path if not path.endswith("/compat")]
        names = {path.name for path in (root / folder.lstrip("/")).iterdir()}
        assert names == {"libcuda.so", "libcuda.so.1"}
        newer = ["/usr/local/cuda/compat"] if compat.endswith("590.2") else []
        assert list(laid.library_path) == [*newer, folder]


def test_no_hook_writes_outside_of_the_image(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "libcuda.so").write_text("mine")
    file, (own,) = driver(tmp_path)
    found = edits(["acme.com/gpu=all"], [described(tmp_path / "cdi", **own)], {})
    for number, target in enumerate((str(outside), "../outside", f"../../../..{outside}")):
        root = tmp_path / f"root-{number}"
        (root / "usr").mkdir(parents=True)
        (root / "lib").symlink_to("usr/lib")
        (root / "usr/lib").mkdir()
        (root / "usr/lib/x86_64-linux-gnu").symlink_to(target)
        (root / "usr/local").symlink_to(target)
        with pytest.raises(NoSuchDevice, match="is no folder there"):
            cdi.lay_out(root, found)
    assert [path.name for path in outside.iterdir()] == ["libcuda.so"]
    assert (outside / "libcuda.so").read_text() == "mine"
    assert file.is_file()


def test_links_of_an_image_that_lead_in_a_circle_are_named(tmp_path: Path) -> None:
    _, (own,) = driver(tmp_path)
    root = tmp_path / "root"
    root.mkdir()
    (root / "lib").symlink_to("lib")
    found = edits(["acme.com/gpu=all"], [described(tmp_path / "cdi", **own)], {})
    with pytest.raises(NoSuchDevice, match="lead in a circle"):
        cdi.lay_out(root, found)


PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    for (int number = 1; number < count; number++) {
        void *driver = dlopen(words[number], RTLD_NOW);
        if (!driver) { puts(dlerror()); return 1; }
        printf("%d\\n", ((int (*)(unsigned)) dlsym(driver, "cuInit"))(number));
    }
    return 0;
}
"""


@pytest.mark.parametrize("sandbox", SANDBOXES, ids=lambda sandbox: sandbox.name)
def test_the_loader_of_an_image_finds_a_driver_that_hooks_put_there(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    _, (own,) = driver(tmp_path)
    root = tmp_path / "root"
    for name in ("bin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    (tmp_path / "program.c").write_text(PROGRAM)
    program = root / "bin/program"
    subprocess.run(["gcc", "-o", program, tmp_path / "program.c", "-ldl"], check=True)
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for path in re.findall(r"/\S+\.so\S*", listed):
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    add_mount_points(root)
    for path in (tmp_path, root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    (tmp_path / "own").mkdir()
    laid = cdi.lay_out(root, edits(["acme.com/gpu=all"], [described(tmp_path / "cdi", **own)], {}))
    confined = Confined(
        root,
        Identity(10001, 10002),
        ("/bin/program", "libcuda.so.1", "libcuda.so"),
        {"PATH": "/bin", "LD_LIBRARY_PATH": ":".join(laid.library_path)},
        folders={inside: Path(here) for inside, here in laid.mounts.items()},
    )
    result = run(sandbox, confined, tmp_path / "own", math.inf, lambda: False)
    assert result.output.split() == ["43", "44"], result.output
