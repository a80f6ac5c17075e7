"""Which devices a container gets: on recorded hosts, and with nodes of this machine."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from buildmatrix.base.data import replace
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.engines.model import NO_DEVICES, DeviceAccess, Facilities
from buildmatrix.engines.oci.confinement import Sandbox
from buildmatrix.engines.oci.sandboxes import failure, of_this_machine, run, sandboxes
from buildmatrix.engines.oci.unpacking import Identity
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.preflight.subject import find_access

HERE = Path("/var/lib/engine")
DOCKER = Facilities(("runc",), HERE, has_cdi=True, has_gpus=True)
OLD_DOCKER = Facilities(("runc",), HERE, has_gpus=True)
OWN = Facilities((), HERE)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load()


def host(root: Path, *files: str, **texts: str) -> MachineFiles:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return MachineFiles(root)


@pytest.fixture
def nvidia(tmp_path: Path) -> MachineFiles:
    return host(tmp_path, "dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm")


@pytest.fixture
def amd(tmp_path: Path) -> MachineFiles:
    vendor = "sys/class/drm/renderD128/device/vendor"
    other = "sys/class/drm/renderD129/device/vendor"
    nodes = ("dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129", "dev/dri/card0")
    return host(tmp_path, *nodes, **{vendor: "0x1002\n", other: "0x8086\n"})


def test_without_devices_nothing_changes(catalogue: Catalogue, tmp_path: Path) -> None:
    for backend in catalogue.backends:
        assert find_access(MachineFiles(tmp_path), catalogue, backend, DOCKER) == (NO_DEVICES, "")


def test_a_description_of_the_vendor_comes_first(
    catalogue: Catalogue, nvidia: MachineFiles, tmp_path: Path
) -> None:
    host(tmp_path, **{"etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"})
    devices = DeviceAccess(cdi=("nvidia.com/gpu=all",))
    assert find_access(nvidia, catalogue, "cuda", DOCKER) == (devices, "")
    # What the daemon has is asked for where it says so: no device is called `all`.
    names = ("nvidia.com/gpu=0", "nvidia.com/gpu=1", "acme.com/gpu=0")
    facilities = Facilities(("runc",), HERE, has_cdi=True, cdi=names, has_gpus=True)
    assert find_access(nvidia, catalogue, "cuda", facilities)[0].cdi == names[:2]
    # An engine that says what it has, and has none of the kind, is asked in another way.
    others = replace(facilities, cdi=("acme.com/gpu=0",))
    assert find_access(nvidia, catalogue, "cuda", others) == (DeviceAccess(gpus=True), "")
    assert find_access(nvidia, catalogue, "cuda", OLD_DOCKER) == (DeviceAccess(gpus=True), "")


def test_nodes_are_enough_where_commands_see_the_libraries_of_the_driver(
    catalogue: Catalogue, nvidia: MachineFiles
) -> None:
    """In an environment of this machine; a container needs more of NVIDIA's."""
    devices, why = find_access(nvidia, catalogue, "cuda", replace(OWN, has_host_files=True))
    names = {Path(node).name for node in devices.nodes}
    assert (names >= {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}, why) == (True, "")
    assert find_access(nvidia, catalogue, "cuda", OWN)[0] == NO_DEVICES


def test_an_engine_may_offer_a_device_that_no_file_describes(
    catalogue: Catalogue, nvidia: MachineFiles
) -> None:
    made = replace(OWN, has_cdi=True, cdi=("nvidia.com/gpu=all", "acme.com/gpu=all"))
    devices = DeviceAccess(cdi=("nvidia.com/gpu=all",))
    assert find_access(nvidia, catalogue, "cuda", made) == (devices, "")


def test_a_node_class_names_its_devices(catalogue: Catalogue, nvidia: MachineFiles) -> None:
    devices, _ = find_access(nvidia, catalogue, "cuda", DOCKER, ["nvidia.com/gpu=1"])
    assert devices == DeviceAccess(cdi=("nvidia.com/gpu=1",))


def test_without_a_description_docker_is_asked_for_all(
    catalogue: Catalogue, nvidia: MachineFiles
) -> None:
    assert find_access(nvidia, catalogue, "cuda", DOCKER) == (DeviceAccess(gpus=True), "")


def test_an_engine_that_cannot_bring_the_libraries_says_so(
    catalogue: Catalogue, nvidia: MachineFiles
) -> None:
    devices, why = find_access(nvidia, catalogue, "cuda", OWN)
    assert devices == NO_DEVICES
    assert "/dev/nvidia0" in why and "--gpus all" in why


def test_nodes_come_with_the_groups_of_this_host(
    catalogue: Catalogue, amd: MachineFiles, tmp_path: Path
) -> None:
    group = (tmp_path / "dev/kfd").stat().st_gid
    devices, why = find_access(amd, catalogue, "rocm", OWN)
    # Another vendor's card is not handed in, nor what draws on a screen.
    assert (devices.nodes, why) == (("/dev/dri/renderD128", "/dev/kfd"), "")
    assert devices.groups == ((group,) if group else ())
    assert find_access(amd, catalogue, "oneapi", OWN)[0].nodes == ("/dev/dri/renderD129",)


def test_a_backend_of_several_vendors_gets_what_its_options_say(
    catalogue: Catalogue, amd: MachineFiles
) -> None:
    devices, _ = find_access(amd, catalogue, "opencl", OWN)
    assert devices.nodes == ("/dev/dri/card0", "/dev/dri/renderD128", "/dev/dri/renderD129")


def test_a_vendors_runtime_reads_its_variables(catalogue: Catalogue, tmp_path: Path) -> None:
    machine = host(tmp_path, "dev/mtgpu0")
    devices, _ = find_access(machine, catalogue, "musa", Facilities(("mthreads", "runc"), HERE))
    assert devices.runtime == "mthreads"
    assert devices.environment["MTHREADS_VISIBLE_DEVICES"] == "all"


def test_an_engine_elsewhere_gets_none_of_ours(catalogue: Catalogue, amd: MachineFiles) -> None:
    devices, why = find_access(amd, catalogue, "rocm", Facilities(("runc",), None))
    assert (devices, "elsewhere" in why) == (NO_DEVICES, True)


@pytest.fixture
def node() -> Iterator[str]:
    """A device of this machine that no sandbox has by itself, and that does nothing."""
    path = Path(f"/dev/buildmatrix-{os.getpid()}/null")
    try:
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(1, 3))
        path.chmod(0o660)  # Whatever the umask is.
        os.chown(path, 0, 4711)
    except PermissionError:
        if "CI" in os.environ:
            raise
        pytest.skip("only root makes devices")
    yield str(path)
    path.unlink()
    path.parent.rmdir()


SANDBOXES = [sandbox for sandbox in sandboxes() if failure(sandbox, math.inf) is None]


@pytest.mark.parametrize("sandbox", SANDBOXES, ids=lambda sandbox: sandbox.name)
def test_a_sandbox_has_the_node_and_its_group_alone(
    sandbox: Sandbox, node: str, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "own").mkdir()
    script = (
        f"echo x >{node} && echo written; ls {Path(node).parent}; (echo >/dev/x) 2>&-; ls /dev/x"
    )
    confined = of_this_machine(tmp_path / "root", Identity(10001, 10002), ("/bin/sh", "-c", script))
    devices = DeviceAccess((node,), (4711,))
    result = run(
        sandbox, replace(confined, devices=devices, environment={"PATH": "/bin"}),
        tmp_path / "own", math.inf, lambda: False,
    )  # fmt: skip
    # What is printed as an error comes by a pipe of its own, before the rest or behind it.
    lines = result.output.splitlines()
    said = [line for line in lines if "No such file" not in line]
    assert (said, len(lines)) == (["written", Path(node).name], 3), result.output


@pytest.mark.parametrize("sandbox", SANDBOXES, ids=lambda sandbox: sandbox.name)
@pytest.mark.parametrize("path", ["/dev/buildmatrix-gone", "/etc/hostname", "/dev"])
def test_a_device_that_vanished_starts_nothing(sandbox: Sandbox, path: str, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "own").mkdir()
    confined = of_this_machine(tmp_path / "root", Identity(10001, 10002), ("/bin/true",))
    confined = replace(confined, devices=DeviceAccess((path,)))
    result = run(sandbox, confined, tmp_path / "own", math.inf, lambda: False)
    assert result.exit_code == 127 and result.output.startswith(f"{path}: No such")
