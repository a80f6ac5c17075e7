"""`doctor --format prometheus`, read by Prometheus' own Python client."""

from __future__ import annotations

import hosts
import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_live_process import MAPS, generated

from buildmatrix.catalogue.load import load
from buildmatrix.commands import doctor
from buildmatrix.commands.doctor import find_node, make_diagnosis
from buildmatrix.commands.doctor_node import format_checks
from buildmatrix.reports.doctor import Diagnosis, DoctorLine, render_metrics

#: The names that docs/contract.md promises, and the labels of each.
NAMES = {
    "buildmatrix_doctor_info": {"host", "kernel", "version"},
    "buildmatrix_doctor_lines": {"subject", "state"},
    "buildmatrix_doctor_devices": {"backend"},
    "buildmatrix_doctor_check": {"check", "backend", "state"},
    "buildmatrix_doctor_measure": {"check", "place", "unit"},
    "buildmatrix_doctor_violations": {"check", "backend"},
    "buildmatrix_doctor_process_libraries": {"pid", "vendor", "origin", "deleted"},
}


def parsed(held: Diagnosis) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(render_metrics(held)):
        assert family.documentation
        for sample in family.samples:
            assert set(sample.labels) == NAMES[sample.name]
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples
            samples[key] = sample.value
    return samples


@pytest.mark.parametrize("kind", hosts.KINDS)
def test_every_machine_is_valid_text_without_a_sample_twice(kind, tmp_path):
    machine = hosts.write(tmp_path, hosts.KINDS[kind]())
    seen = find_node(machine, load())
    checks = tuple(seen.run_checks((seen.take_sample(1.0), seen.take_sample(2.0))))
    held = make_diagnosis(machine, load(), None, tuple(format_checks(checks)), checks=checks)
    samples = parsed(held)
    states = {
        (labels["check"], labels["state"])
        for name, pairs in samples
        if name == "buildmatrix_doctor_check" and (labels := dict(pairs))
    }
    assert states == {(check.id, check.state) for check in checks}


def test_numbers_and_violations_are_those_of_the_checks(tmp_path):
    machine = hosts.write(tmp_path, hosts.dgx())
    checks = tuple(find_node(machine, load()).run_checks(None))
    samples = parsed(make_diagnosis(machine, load(), None, (), checks=checks))
    place = "/sys/bus/pci/devices/0000:1e:00.0/current_link_width"
    labels = {"check": "pcie-link-width", "place": place, "unit": "lanes"}
    assert samples["buildmatrix_doctor_measure", frozenset(labels.items())] == 8
    labels = {"check": "pcie-link-width", "backend": ""}
    assert samples["buildmatrix_doctor_violations", frozenset(labels.items())] == 1
    assert samples["buildmatrix_doctor_devices", frozenset({("backend", "cuda")})] == 8


def test_a_process_and_what_needs_to_be_escaped(tmp_path):
    machine = generated(tmp_path, MAPS)
    seen = doctor.examine_process(7, load(), machine)
    odd = DoctorLine("ok", 'a "quoted"\nback\\slash', "text")
    samples = parsed(make_diagnosis(machine, load(), None, [odd, odd], process=seen))
    labels = {"subject": odd.subject, "state": "ok"}
    assert samples["buildmatrix_doctor_lines", frozenset(labels.items())] == 2
    labels = {"pid": "7", "vendor": "nvidia", "origin": "image", "deleted": "false"}
    assert samples["buildmatrix_doctor_process_libraries", frozenset(labels.items())] == 1
