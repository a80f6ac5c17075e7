"""`doctor --format json`: what other commands read of a machine."""

from __future__ import annotations

import json
from pathlib import Path

import hosts
import jsonschema
from test_live_process import MAPS, generated

from buildmatrix.catalogue.load import load
from buildmatrix.commands import doctor
from buildmatrix.commands.doctor import find_node, make_diagnosis
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.reports.doctor import Diagnosis, DoctorLine
from buildmatrix.reports.doctor import render_table as table
from buildmatrix.reports.json_form import parse, render, schema

#: As the driver writes it (/proc/driver/nvidia/gpus/BUS/information).
INFORMATION = "Model: \t\t NVIDIA H100 PCIe\nIRQ:   \t\t 127\nGPU UUID: \t GPU-2a\n"
MACHINE = {
    "dev/nvidia0": "",
    "dev/nvidia1": "",
    "dev/nvidiactl": "",
    "dev/nvidia-uvm": "",
    "sys/module/nvidia/version": "570.86.10\n",
    "proc/driver/nvidia/gpus/0000:01:00.0/information": INFORMATION,
    "proc/driver/nvidia/gpus/0000:81:00.0/information": INFORMATION,
    "proc/sys/kernel/osrelease": "6.1.0-28-amd64\n",
    "proc/sys/kernel/hostname": "desk\n",
    "etc/cdi/nvidia.yaml": "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n",
    "dev/dri/renderD128": "",
    "dev/kfd": "",
    "sys/class/drm/renderD128/device/vendor": "0x1002\n",
    "sys/class/drm/card0/device/product_name": "AMD Instinct MI210\n",
    "sys/module/amdgpu/initstate": "live\n",
}


def machine(folder: Path) -> MachineFiles:
    for name, text in MACHINE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return MachineFiles(folder)


def test_a_diagnosis_has_what_programs_want_to_know_of_the_machine(tmp_path):
    lines = [DoctorLine("ok", "resolver", "uv 1")]
    held = make_diagnosis(machine(tmp_path), load(), None, lines)
    document = json.loads(render(held))
    jsonschema.validate(document, schema(Diagnosis, "x"))
    assert (document["host"], document["kernel"]) == ("desk", "6.1.0-28-amd64")
    assert document["checks"] == [{"state": "ok", "subject": "resolver", "text": "uv 1"}]
    assert document["devices"] == [
        {
            "backend": "cuda",
            "nodes": ["/dev/nvidia0", "/dev/nvidia1"],
            "products": ["NVIDIA H100 PCIe"],
            "driver": "570.86.10",
            "cdi": ["nvidia.com/gpu"],
            "runtimes": [],
        },
        {
            "backend": "rocm",
            "nodes": ["/dev/dri/renderD128"],
            "products": ["AMD Instinct MI210"],
            # That of the kernel has no version of its own.
            "driver": None,
            "cdi": [],
            "runtimes": [],
        },
    ]
    assert table(held) == "ok       resolver: uv 1\n"


def test_a_machine_without_anything_is_an_empty_diagnosis(tmp_path):
    held = make_diagnosis(MachineFiles(tmp_path), load(), None, [])
    assert (held.host, held.kernel, held.devices) == ("", "", ())


def test_the_json_of_a_node_and_a_process_is_read_again(tmp_path):
    files = generated(tmp_path, MAPS)
    hosts.write(tmp_path / "dgx", hosts.dgx())
    checks = tuple(find_node(MachineFiles(tmp_path / "dgx"), load()).run_checks(None))
    seen = doctor.examine_process(7, load(), files)
    held = make_diagnosis(files, load(), None, (), checks=checks, process=seen)
    text = render(held)
    jsonschema.validate(json.loads(text), schema(Diagnosis, "x"))
    assert parse(text.encode(), Diagnosis) == held
