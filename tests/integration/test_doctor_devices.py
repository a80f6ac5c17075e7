"""`doctor` on this machine: what it says of NVIDIA's devices is what nvidia-smi says.

A machine without such a device lacks no component: there the same test asserts that `doctor` sees
none. So nothing is skipped anywhere.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from buildmatrix.catalogue.load import load
from buildmatrix.commands.doctor import find_node, make_diagnosis
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.reports.doctor import Diagnosis

_ASKED = "name,driver_version,pci.bus_id,pcie.link.width.current"


def examined() -> Diagnosis:
    machine = MachineFiles()
    seen = find_node(machine, load())
    checks = tuple(seen.run_checks((seen.take_sample(1.0), seen.take_sample(2.0))))
    return make_diagnosis(machine, load(), None, (), checks=checks)


def test_doctor_and_nvidia_smi_see_the_same_devices():
    held = examined()
    nodes = [node for item in held.devices if item.backend == "cuda" for node in item.nodes]
    if not Path("/dev/nvidiactl").exists():
        assert nodes == []
        assert {check.backend for check in held.node or ()} <= {"", "rocm", "oneapi", "hpu"}
        return
    table = subprocess.run(
        ["nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, timeout=300, check=True,
    ).stdout  # fmt: skip
    rows = [[field.strip() for field in row.split(",")] for row in table.splitlines()]
    (devices,) = [item for item in held.devices if item.backend == "cuda"]
    assert len(nodes) == len(rows)
    assert {devices.driver} == {driver for _, driver, _, _ in rows}
    assert set(devices.products) <= {name for name, _, _, _ in rows}
    widths = {
        measure.place.split("/")[-2]: measure.number
        for check in held.node or () if check.id == "pcie-link-width"
        for measure in check.measures
    }  # fmt: skip
    for _, _, address, width in rows:
        # It writes the domain with eight digits, and in capitals.
        place = address.lower().removeprefix("0000")
        if place in widths and width.isdecimal():
            assert widths[place] == int(width)


def test_every_check_of_this_machine_has_an_answer():
    checks = examined().node or ()
    assert {check.state for check in checks} <= {"ok", "none", "low", "partly", "unknown"}
    assert all(check.text for check in checks)
    # Linux has these everywhere.
    states = {check.id: check.state for check in checks}
    assert states["shared-memory"] in ("ok", "low", "none")
