"""What `doctor` says of devices. There are none here: every machine is a generated file system."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.commands.doctor import check_devices
from buildmatrix.engines.model import Facilities
from buildmatrix.preflight.machine import LARGEST, LOW_DISK_SPACE, MachineFiles, report_disk

Generate = Callable[[Mapping[str, str]], MachineFiles]

NVIDIA_PROC = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n"
NVIDIA = {
    "/dev/nvidia0": "",
    "/dev/nvidia1": "",
    "/dev/nvidia10": "",
    "/dev/nvidiactl": "",
    "/dev/nvidia-uvm": "",
    "/sys/module/nvidia/initstate": "live\n",
    "/proc/driver/nvidia/version": NVIDIA_PROC,
}
CDI_YAML = 'cdiVersion: "0.6.0"\ncontainerEdits:\n  env: []\nkind: nvidia.com/gpu\ndevices: []\n'


@pytest.fixture
def generated(tmp_path: Path) -> Generate:
    def write(files: Mapping[str, str]) -> MachineFiles:
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("->"):
                path.symlink_to(text[2:])
            else:
                path.write_text(text)
        return MachineFiles(tmp_path)

    return write


def said(
    machine: MachineFiles, backend: str, *runtimes: str, catalogue: Catalogue | None = None
) -> str:
    lines = check_devices(machine, catalogue or load(), {backend}, Facilities(runtimes))
    (line,) = [line for line in lines if line.subject == f"devices {backend}"]
    return f"{line.state}: {line.text}"


def render_node(number: int, vendor: str, driver: str) -> dict[str, str]:
    """A render node as the kernel shows it."""
    folder = f"/sys/class/drm/renderD{number}/device"
    return {
        f"/dev/dri/renderD{number}": "",
        f"{folder}/vendor": f"{vendor}\n",
        f"{folder}/driver": f"->../../../../bus/pci/drivers/{driver}",
        f"/sys/module/{driver}/initstate": "live\n",
    }


def test_gpus_of_a_generated_machine_are_told_with_driver_and_ways_into_containers(
    generated: Generate,
) -> None:
    machine = generated({**NVIDIA, "/etc/cdi/nvidia.yaml": CDI_YAML})
    assert said(machine, "cuda", "runc", "nvidia") == (
        "ok: 3 devices (/dev/nvidia0 /dev/nvidia1 /dev/nvidia10); driver nvidia 570.86.10; for "
        "containers: CDI nvidia.com/gpu (/etc/cdi/nvidia.yaml), Docker runtime nvidia"
    )


def test_the_version_of_the_loaded_module_wins_over_other_files_of_a_generated_machine(
    generated: Generate,
) -> None:
    machine = generated({**NVIDIA, "/sys/module/nvidia/version": "580.65.06\n"})
    assert "driver nvidia 580.65.06;" in said(machine, "cuda")


def test_a_generated_machine_without_devices_says_what_was_looked_for_and_needs_nothing(
    generated: Generate,
) -> None:
    assert said(generated({}), "cuda") == (
        "none: none here (no /dev/nvidia[0-9]*); building needs none"
    )


def test_the_render_node_of_another_vendor_is_none_of_ours_on_a_generated_machine(
    generated: Generate,
) -> None:
    machine = generated(render_node(128, "0x8086", "xe"))
    assert said(machine, "rocm").startswith("none: none here (no /dev/dri/renderD* of PCI vendor")
    assert said(machine, "oneapi").startswith("ok: 1 device (/dev/dri/renderD128); driver xe")


def test_a_driver_that_is_part_of_the_kernel_has_its_version_on_a_generated_machine(
    generated: Generate,
) -> None:
    machine = generated(
        {**render_node(128, "0x8086", "i915"), "/proc/sys/kernel/osrelease": "6.1.0-28-amd64\n"}
    )
    assert "driver i915 of Linux 6.1.0-28-amd64" in said(machine, "oneapi")


def test_the_node_that_all_amd_devices_share_is_missed_on_a_generated_machine(
    generated: Generate,
) -> None:
    told = said(generated(render_node(128, "0x1002", "amdgpu")), "rocm")
    assert told.startswith("partly: 1 device (/dev/dri/renderD128); driver amdgpu")
    assert "/dev/kfd missing: programs cannot open a device without it." in told


def test_a_driver_without_nodes_is_told_on_a_generated_machine(generated: Generate) -> None:
    told = said(generated({"/proc/driver/nvidia/version": NVIDIA_PROC}), "cuda")
    assert told.startswith("partly: driver 570.86.10")
    assert "The driver is loaded, and there is no /dev/nvidia[0-9]*" in told


def test_a_cdi_file_that_outlived_its_devices_is_told_on_a_generated_machine(
    generated: Generate,
) -> None:
    document = {"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": []}
    told = said(generated({"/var/run/cdi/amd.json": json.dumps(document)}), "rocm")
    assert told.startswith("partly: driver not seen; for containers: CDI amd.com/gpu")
    assert "/var/run/cdi/amd.json offers amd.com/gpu to containers, and there is no" in told


def test_only_the_kind_of_the_file_itself_counts_on_a_generated_machine(
    generated: Generate,
) -> None:
    text = "cdiVersion: 0.6.0\nkind: vendor.example/thing\ndevices:\n      - kind: nvidia.com/gpu\n"
    assert generated({"/etc/cdi/x.yaml": text}).cdi() == {"vendor.example/thing": "/etc/cdi/x.yaml"}


def test_a_folder_that_docker_left_where_a_node_should_be_is_no_device_of_a_generated_machine(
    generated: Generate,
) -> None:
    assert said(generated({"/dev/nvidia0/.keep": ""}), "cuda").startswith("none:")


def test_who_may_not_open_a_node_is_told_which_group_may_on_a_generated_machine(
    generated: Generate, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = generated({**render_node(128, "0x1002", "amdgpu"), "/dev/kfd": ""})
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).endswith("kfd"))
    number = (machine.root / "dev/kfd").stat().st_gid
    told = said(machine, "rocm")
    assert f"This user may not open /dev/kfd: add the user to the group {number}," in told


def test_a_file_of_a_generated_machine_is_read_up_to_a_bound(generated: Generate) -> None:
    machine = generated({"/proc/driver/nvidia/version": "x" * (LARGEST + 10)})
    assert len(machine.text("/proc/driver/nvidia/version") or "") == LARGEST


def test_backends_without_a_sign_on_a_generated_machine_are_one_line(generated: Generate) -> None:
    lines = list(check_devices(generated(NVIDIA), load(), (), None))
    assert [(line.state, line.subject) for line in lines] == [
        ("ok", "devices cuda"),
        ("none", "devices"),
    ]
    assert "rocm" in lines[1].text


def test_a_backend_whose_devices_nobody_knows_to_look_for_is_no_trouble_of_a_healthy_machine(
    generated: Generate,
) -> None:
    backends = ("openvino", "tpu", "vulkan")
    lines = [
        line
        for line in check_devices(generated({}), load(), backends, None)
        if line.subject.removeprefix("devices ") in backends
    ]
    assert {line.state for line in lines} == {"none"}
    assert len(lines) == len(backends)


def test_a_data_file_of_the_user_tells_how_its_devices_look_on_a_generated_machine(
    generated: Generate, tmp_path: Path
) -> None:
    (tmp_path / "acme.toml").write_text(
        'schema = 1\nbackend = "wave"\nvendor = "acme"\ntitle = "Acme Wave"\n'
        'checked = 2026-11-20\n[sources]\nmanual = "page 17"\n[[hosts]]\n'
        'nodes = ["/dev/wave[0-9]*"]\nmodules = ["wave"]\nsource = ["manual"]\n'
        'basis = "documented"\n'
    )
    machine = generated({"/dev/wave0": "", "/sys/module/wave/version": "4.2\n"})
    catalogue = load((tmp_path / "acme.toml",))
    assert said(machine, "wave", catalogue=catalogue) == (
        "ok: 1 device (/dev/wave0); driver wave 4.2"
    )


def test_a_disk_with_little_room_is_said_to_be_low() -> None:
    assert report_disk("images", "/var", LOW_DISK_SPACE - 1, 100 * LOW_DISK_SPACE).state == "low"
    assert report_disk("images", "/var", LOW_DISK_SPACE, 100 * LOW_DISK_SPACE).state == "ok"


@pytest.mark.parametrize("node", ["", "dev/wave0", "/", "/dev/**/wave", "/*/wave0", "/dev/w**"])
def test_a_node_that_is_no_path_of_one_machine_is_refused(tmp_path: Path, node: str) -> None:
    (tmp_path / "acme.toml").write_text(
        'schema = 1\nbackend = "wave"\nvendor = "acme"\ntitle = "Acme Wave"\n'
        'checked = 2026-11-20\n[sources]\nmanual = "page 17"\n[[hosts]]\n'
        f'nodes = ["{node}"]\nsource = ["manual"]\nbasis = "documented"\n'
    )
    with pytest.raises(SpecError, match="write an absolute path"):
        load((tmp_path / "acme.toml",))
