"""The checks of the catalogue on generated machines; `hosts` makes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import hosts
import pytest

from buildmatrix.base.errors import SpecError
from buildmatrix.catalogue.load import load
from buildmatrix.commands.doctor import check_devices, find_node
from buildmatrix.commands.doctor_node import Sample, format_checks
from buildmatrix.preflight import machine as machines
from buildmatrix.preflight.machine import MachineFiles
from buildmatrix.reports.doctor import NodeCheck


def checked(
    machine: MachineFiles, samples: tuple[Sample, Sample] | None = None
) -> dict[str, NodeCheck]:
    return {check.id: check for check in find_node(machine, load()).run_checks(samples)}


def states(checks: Mapping[str, NodeCheck], *wanted: str) -> dict[str, str]:
    return {name: check.state for name, check in checks.items() if check.state in wanted}


def said(checks: Mapping[str, NodeCheck], name: str) -> str:
    return f"{checks[name].state}: {checks[name].text}"


@pytest.fixture
def generated(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, NodeCheck]:
    return checked(hosts.write(tmp_path, hosts.KINDS[request.param]()))


def of(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("generated", [kind], indirect=True)


@of("dgx")
def test_a_node_of_a_data_center_with_a_lost_gpu_and_half_a_link(generated):
    assert states(generated, "partly", "unknown") == {
        "pcie-link-width": "partly",
        "nvidia-xid": "partly",
        "nvidia-sxid": "partly",
        "nvidia-cdi-driver": "partly",
    }
    assert states(generated, "low") == {"memory-corrected": "low", "infiniband-ports": "low"}
    assert said(generated, "pcie-link-width") == (
        "partly: 0000:1e:00.0/current_link_width: 8 lanes (could be 16)"
    )
    assert (
        said(generated, "nvidia-xid") == "partly: 0000:1f:00: 79 (the GPU has fallen off the bus)"
    )
    # What an application did wrong is shown in the measures, and is no trouble of the machine.
    assert [(m.value, m.holds) for m in generated["nvidia-xid"].measures] == [
        ("31 (memory page fault of an application)", True),
        ("79 (the GPU has fallen off the bus)", False),
    ]
    assert said(generated, "nvidia-sxid") == "partly: 0000:06:00.0: 20034, Fatal"
    assert said(generated, "nvidia-cdi-driver") == (
        "partly: /etc/cdi/nvidia.yaml: 565.57.01 (should be 570.86.10)"
    )
    assert said(generated, "nvidia-user-driver") == "ok: 570.86.10"
    assert said(generated, "nvidia-mig") == "ok: gpu0/mig/gi1, gpu0/mig/gi2, gpu0/mig/gi3"
    assert said(generated, "numa-node") == "ok: 0 (4×), 1 (4×)"


def test_a_pod_whose_driver_is_mounted_below_usr_local(tmp_path: Path) -> None:
    """As on GKE, and on the H100 that the product first ran on: no MIG."""
    files = hosts.dgx()
    divided = "/proc/driver/nvidia/capabilities/gpu0"
    mounted = {
        path.replace("/usr/lib/x86_64-linux-gnu/libcuda", "/usr/local/nvidia/lib64/libcuda"): text
        for path, text in files.items()
        if not path.startswith(divided)
    }
    found = checked(hosts.write(tmp_path, mounted))
    assert said(found, "nvidia-user-driver") == "ok: 570.86.10"
    assert said(found, "nvidia-mig").startswith("ok: none here")


@of("desktop")
def test_a_desktop_whose_driver_was_updated_without_being_loaded(generated):
    assert states(generated, "partly") == {"temperature": "partly", "nvidia-user-driver": "partly"}
    assert set(states(generated, "low")) == {
        "pcie-link-speed",
        "pcie-slot-width",
        "iommu-mode",
        "cpu-governor",
        "cpu-throttling",
        "nvidia-container-hooks",
    }
    # The card uses all that the slot has.
    assert said(generated, "pcie-link-width") == "ok: 8 lanes"
    assert said(generated, "pcie-slot-width") == (
        "low: 0000:01:00.0/max_link_width: 16 lanes (limited to 8)"
    )
    assert said(generated, "pcie-link-speed").endswith(": 2.5 GT/s (could be 16)")
    assert said(generated, "nvidia-user-driver").endswith("580.95.05 (should be 580.65.06)")
    assert said(generated, "temperature") == (
        "partly: hwmon/hwmon0/temp1_input: 101 °C (should be below 100)"
    )
    assert said(generated, "cpu-governor") == (
        "low: cpu/cpu0/cpufreq/scaling_governor cpu/cpu1/cpufreq/scaling_governor: powersave "
        "(should be performance)"
    )
    # A machine with one node does not say which one a device is next to.
    assert "numa-node" not in generated


@of("instinct")
def test_gpus_that_are_divided_and_one_with_memory_errors(generated):
    assert states(generated, "partly") == {"amd-uncorrected": "partly"}
    assert said(generated, "amd-uncorrected") == (
        "partly: 0000:0d:00.0/ras/umc_err_count: 1 (should be 0 or less)"
    )
    assert said(generated, "amd-partitions") == "ok: CPX (2×), NPS4 (2×)"
    assert generated["amd-corrected"].state == "low"
    assert said(generated, "amd-errors") == "ok: no such line in /dev/kmsg"


def test_every_part_of_a_divided_gpu_is_a_device_of_its_vendor(tmp_path):
    machine = hosts.write(tmp_path, hosts.instinct())
    (line,) = [
        line
        for line in check_devices(machine, load(), {"rocm"}, None)
        if line.subject == "devices rocm"
    ]
    assert line.text.startswith("16 devices (/dev/dri/renderD128 ")
    assert "driver amdgpu 6.10.5" in line.text


@of("workstation")
def test_a_workstation_whose_gpu_was_reset(generated):
    assert states(generated, "partly", "unknown") == {"amd-errors": "partly"}
    assert said(generated, "amd-errors") == (
        "partly: 0000:03:00.0: ring gfx_0.0.0 timeout; 0000:03:00.0: GPU reset begin, 2×"
    )
    # The GPU in the processor has neither lanes nor speed.
    assert said(generated, "pcie-link-width") == "ok: 16 lanes"
    assert said(generated, "pcie-link-speed") == "ok: 16 GT/s"


@of("intel")
def test_a_gpu_of_a_data_center_that_its_driver_gave_up(generated):
    assert states(generated, "partly", "unknown") == {"intel-gpu-errors": "partly"}
    assert "Xe has declared device 0000:29:00.0 as wedged" in generated["intel-gpu-errors"].text


@of("gaudi")
def test_a_healthy_gaudi_without_its_container_runtime(generated):
    assert states(generated, "low", "partly", "unknown") == {"gaudi-container-hooks": "low"}
    assert said(generated, "pcie-link-width") == "ok: 16 lanes"


@of("neuron")
def test_a_device_whose_driver_has_another_name_on_the_bus(generated):
    assert said(generated, "pcie-link-speed") == "ok: 32 GT/s"
    assert said(generated, "locked-memory") == (
        "low: /proc/self/limits: 8,388,608 bytes (should be unlimited)"
    )


@of("virtual")
def test_a_machine_without_accelerators_has_no_checks_of_vendors(generated):
    assert {check.backend for check in generated.values()} == {""}
    assert states(generated, "low", "partly", "unknown") == {"shared-memory": "low"}
    assert said(generated, "shared-memory") == (
        "low: /proc/self/mounts: 67,108,864 bytes (should be 1,073,741,824 or more)"
    )
    assert "locked-memory" not in generated
    assert said(generated, "pcie-link-width").startswith("none:")


@of("container")
def test_a_container_without_access_says_that_it_could_not_read_the_log(generated):
    assert said(generated, "nvidia-xid") == (
        "unknown: the kernel's log cannot be read (/dev/kmsg: No such file or directory; "
        "/var/log/kern.log: No such file or directory; "
        "/var/log/messages: No such file or directory)"
    )
    assert said(generated, "pcie-link-width") == "ok: 16 lanes"


@pytest.mark.parametrize("kind", hosts.KINDS)
def test_every_check_names_its_sources_and_what_is_out_of_bounds_a_remedy(kind, tmp_path):
    for check in checked(hosts.write(tmp_path, hosts.KINDS[kind]())).values():
        assert check.sources and all(check.sources)
        assert check.checked.startswith("20")
        assert bool(check.remedy) == (check.state in ("low", "partly"))
        broken = [measure for measure in check.measures if not measure.holds]
        assert bool(broken) <= (check.state in ("low", "partly"))


def test_checks_with_nothing_to_read_are_one_line(tmp_path):
    checks = find_node(MachineFiles(tmp_path), load()).run_checks(None)
    (line,) = format_checks(tuple(checks))
    assert (line.state, line.subject) == ("none", "node")
    assert "cpu-governor" in line.text


# Counters


def samples(
    tmp_path: Path, before: Mapping[str, str], after: Mapping[str, str], seconds: float = 2.0
) -> dict[str, NodeCheck]:
    machine = hosts.write(tmp_path, hosts.virtual())
    return checked(machine, (Sample(100.0, before), Sample(100.0 + seconds, after)))


STAT = "/proc/stat"
DROPPED = "/sys/class/net/eth0/statistics/rx_dropped"


def test_waiting_is_a_share_of_the_time_between_two_samples(tmp_path):
    checks = samples(
        tmp_path,
        {STAT: "cpu  100 0 100 800 50 0 0 0 9 9\n"},
        {STAT: "cpu  120 0 110 820 100 0 0 0 9 9\n"},
    )
    assert said(checks, "iowait") == "low: /proc/stat: 50 % (should be 20 or less)"


def test_drops_are_counted_by_the_second(tmp_path):
    checks = samples(tmp_path, {DROPPED: "7\n"}, {DROPPED: "107\n"})
    assert said(checks, "packet-drops") == (
        "low: net/eth0/statistics/rx_dropped: 50 packets/s (should be 10 or less)"
    )


def test_old_drops_are_no_trouble(tmp_path):
    checks = samples(tmp_path, {DROPPED: "9000\n"}, {DROPPED: "9002\n"})
    assert said(checks, "packet-drops") == "ok: 1 packets/s"


@pytest.mark.parametrize(
    ("after", "seconds", "reason"),
    [("3\n", 2.0, "went back"), ("9\n", 0.0, "no time passed"), ("9\n", -5.0, "no time passed")],
)
def test_a_counter_or_a_clock_that_goes_back_leaves_it_open(tmp_path, after, seconds, reason):
    checks = samples(tmp_path, {DROPPED: "7\n"}, {DROPPED: after}, seconds)
    assert checks["packet-drops"].state == "unknown"
    assert reason.split()[-1] in checks["packet-drops"].text


def test_an_interface_that_came_in_between_says_nothing(tmp_path):
    checks = samples(tmp_path, {}, {DROPPED: "9\n"})
    assert checks["packet-drops"].state == "none"


def test_without_a_second_look_counters_are_not_judged(tmp_path):
    checks = checked(hosts.write(tmp_path, hosts.virtual()))
    assert said(checks, "iowait") == "none: not measured, as --interval is 0"


# Hostile and half trees


def test_pipes_loops_and_folders_in_place_of_files_end_at_once(tmp_path):
    files = hosts.dgx()
    for name in ("/dev/kmsg", "/proc/self/mounts", "/sys/class/infiniband/mlx5_0/ports/1/state"):
        del files[name]
    machine = hosts.write(tmp_path, files)
    (tmp_path / "sys/class/net/loop").symlink_to("loop")
    (tmp_path / "sys/bus/pci/drivers/nvidia/0000:99:00.0").symlink_to("0000:99:00.0")
    (tmp_path / "sys/class/hwmon").mkdir(parents=True)
    (tmp_path / "sys/class/hwmon/hwmon0").symlink_to("..")
    os.mkfifo(tmp_path / "dev/kmsg")
    os.mkfifo(tmp_path / "proc/self/mounts")
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    os.mkfifo(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state")
    checks = checked(machine)
    assert checks["nvidia-xid"].state == "unknown"
    assert "/dev/kmsg: no log" in checks["nvidia-xid"].text
    assert said(checks, "shared-memory") == (
        "unknown: /proc/self/mounts cannot be read by this user"
    )
    assert checks["infiniband-ports"].state == "unknown"


@pytest.mark.parametrize("text", ["", "\0" * 5000, "é\xff" * 100, "9" * 400, "-1", "[]\n[["])
def test_any_text_in_any_file_gives_a_state(tmp_path, text):
    files = {
        name: content if content.startswith("->") else text
        for name, content in {**hosts.dgx(), **hosts.desktop(), **hosts.instinct()}.items()
    }
    machine = hosts.write(tmp_path, files)
    seen = find_node(machine, load())
    both = (seen.take_sample(1.0), seen.take_sample(2.0))
    assert all(check.text for check in seen.run_checks(both))


@pytest.mark.parametrize(
    "text", ["a" + " " * 999_000 + "b", "9" * 999_000 + "x", "cpu 1" * 200_000, "size=[" * 160_000]
)
def test_a_large_text_takes_no_more_than_one_look(tmp_path, text):
    """Each pattern would need hours if it went back and forth in it."""
    places = [
        "/proc/self/mounts",
        "/proc/self/limits",
        "/proc/stat",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "/sys/class/infiniband/mlx5_0/ports/1/state",
        "/etc/cdi/nvidia.yaml",
        "/dev/kmsg",
    ]
    checks = checked(hosts.write(tmp_path, hosts.dgx() | dict.fromkeys(places, text)))
    assert checks["nvidia-xid"].state == "ok"


def test_a_file_that_this_user_may_not_read_is_named(tmp_path, monkeypatch):
    machine = hosts.write(tmp_path, hosts.virtual())
    real = os.open

    def closed(path, *arguments, **named):
        if str(path).endswith("transparent_hugepage/enabled"):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", closed)
    assert said(checked(machine), "transparent-huge-pages") == (
        "unknown: /sys/kernel/mm/transparent_hugepage/enabled cannot be read by this user"
    )


def test_of_a_long_log_the_end_is_read_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(machines, "LOG_BYTES", 200)
    files = hosts.desktop()
    del files["/dev/kmsg"]
    files["/var/log/kern.log"] = "kernel: NVRM: Xid (PCI:0000:01:00): 48, x\n" + "kernel: y\n" * 50
    checks = checked(hosts.write(tmp_path, files))
    assert checks["nvidia-xid"].state == "unknown"
    assert "only a part of /var/log/kern.log was read" in checks["nvidia-xid"].text


def test_the_log_of_this_machine_is_read_or_it_is_said_why_not():
    log = MachineFiles().kernel_log()
    assert log.path in machines.LOGS if log.path else "/dev/kmsg: " in log.unread


# Data


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ('id = "No"\nfiles = ["/a"]', "write small letters"),
        ('id = "no"\nfiles = ["a"]', "write an absolute path"),
        ('id = "no"\nfiles = ["/a/**/b"]', "write an absolute path"),
        ('id = "no"\nfiles = ["/a/../b"]', "write an absolute path"),
        ('id = "no"', "either files or the log"),
        ('id = "no"\nfiles = ["/a"]\nover = "share"', "`whole`"),
        ('id = "no"\nfiles = ["/a"]\npattern = "("', "invalid regular expression"),
        ('id = "no"\nfiles = ["/a"]\npattern = "a"', "must have a group"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused(tmp_path, entry, complaint):
    (tmp_path / "acme.toml").write_text(
        'schema = 1\nbackend = "wave"\nvendor = "acme"\ntitle = "Acme Wave"\n'
        'checked = 2026-11-20\n[sources]\nmanual = "page 17"\n[[checks]]\ntitle = "x"\n'
        f'remedy = "y"\nsource = ["manual"]\nbasis = "documented"\n{entry}\n'
    )
    with pytest.raises(SpecError, match=complaint):
        load((tmp_path / "acme.toml",))


def test_a_data_file_of_the_user_adds_a_check(tmp_path):
    (tmp_path / "acme.toml").write_text(
        'schema = 1\nbackend = "cpu"\ntitle = "x"\n'
        'checked = 2026-11-20\n[sources]\nmanual = "page 17"\n[[checks]]\nid = "pool"\n'
        'title = "pool"\nfiles = ["/proc/pool"]\nmost = 3\nremedy = "Drain it."\n'
        'source = ["manual"]\nbasis = "documented"\n'
    )
    machine = hosts.write(tmp_path / "root", {"/proc/pool": "4\n"})
    catalogue = load((tmp_path / "acme.toml",))
    (check,) = [
        check for check in find_node(machine, catalogue).run_checks(None) if check.id == "pool"
    ]
    assert (check.state, check.text) == ("partly", "/proc/pool: 4 (should be 3 or less)")
    assert check.sources == ("page 17",)
