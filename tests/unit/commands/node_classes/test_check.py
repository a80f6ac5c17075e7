"""`node-classes check`: classes of a specification against the machines that there are."""

from __future__ import annotations

import json
from pathlib import Path

import clusters
import jsonschema
import pytest
from clusters import h100, listed, node, written

from buildmatrix.catalogue.load import load
from buildmatrix.commands.node_classes import check_node_classes, exit_code
from buildmatrix.commands.node_lists import read_nodes, write_tables
from buildmatrix.matrix.load import load_spec
from buildmatrix.reports.doctor import NodeClassCheck
from buildmatrix.reports.doctor import render as table
from buildmatrix.reports.json_form import render, schema

SPEC = """\
[project]
name = "a"
version = "1"
[defaults]
python = ["3.12"]
requirements = ["base.in"]
base = "debian:12"
[backend.cuda]
runtime = "12.8"
[backend.oneapi]
runtime = "2025.3"
"""
H100 = """\
[node-class.h100]
backend = "cuda"
products = ["NVIDIA H100 80GB HBM3"]
"""
LABELLED = 'labels = { "nvidia.com/gpu.product" = "NVIDIA-H100-80GB-HBM3" }\n'


def compared(folder: Path, classes: str, *documents: object) -> NodeClassCheck:
    (folder / "base.in").write_text("numpy\n")
    path = folder / "buildmatrix.toml"
    path.write_text(SPEC + classes)
    spec = load_spec(path, backends=lambda files: load(files).backends)
    names = [written(folder / f"{at}.json", item) for at, item in enumerate(documents)]
    return check_node_classes(spec, names, read_nodes(names, load()), load())


def said(held: NodeClassCheck) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    return [
        (item.state, item.field, item.expected, item.seen, item.nodes)
        for row in held.classes
        for item in row.differences
    ]


def test_classes_as_imported_are_what_the_same_list_says(tmp_path):
    nodes = [
        *(h100(f"gpu-{at}", driver=f"550.{at}.1") for at in range(5)),
        node("max", clusters.INTEL, {"gpu.intel.com/i915": "2"}),
        node("mig", clusters.NVIDIA_MIG_SINGLE, {"nvidia.com/gpu": "56"}),
        node("plain", {}, {}),
    ]
    name = written(tmp_path / "nodes.json", listed(*nodes))
    text, _ = write_tables(read_nodes([name], load()), load())
    held = compared(tmp_path, text, listed(*nodes))
    assert (held.state, exit_code(held), said(held), held.uncovered) == ("ok", 0, [], ())
    assert sorted(row.nodes for row in held.classes) == [1] * 7
    assert held.nodes == 8


NO_AVX512 = {"feature.node.kubernetes.io/cpu-cpuid.AVX512VL": "false"}
#: What the class says, and what is said of a node that differs from the others in one thing.
DRIFT = [
    ('driver = "550.107.02"', {"driver": "570.86.10"}, "driver", "550.107.02", "570.86.10"),
    ('driver = ">=560"', {}, "driver", ">=560", "550.107.02"),
    ('kernel = ">=6.1"', {}, "kernel", ">=6.1", "5.15.0-1067-nvidia"),
    ("count = 4", {}, "count", "4", "8"),
    ('memory = "94GB"', {}, "memory", "94.0 GB", "81559MiB"),
    ('partition = "1g.10gb"', {}, "partition", "1g.10gb", ""),
    ('container-runtime = "cri-o"', {}, "container-runtime", "cri-o", "containerd 1.7.27"),
    (
        'resources = ["nvidia.com/gpu", "example.com/nic"]',
        {},
        "resources",
        "example.com/nic",
        "nvidia.com/gpu",
    ),
    ('tolerations = ["other"]', {}, "tolerations", "other", "nvidia.com/gpu=present:NoSchedule"),
    ('cpu = "x86-64-v4"', NO_AVX512, "cpu", "x86-64-v4", "x86-64-v3"),
    (
        'labels = { "nvidia.com/mig.capable" = "false" }',
        {},
        "labels.nvidia.com/mig.capable",
        "false",
        "true",
    ),
]


@pytest.mark.parametrize(("key", "labels", "field", "expected", "seen"), DRIFT)
def test_what_is_not_as_the_class_says_is_drift(tmp_path, key, labels, field, expected, seen):
    held = compared(tmp_path, f"{H100}{key}\n", listed(h100("n", **labels)))
    state = "drift" if seen else "undecided"
    assert said(held) == [(state, field, expected, seen, ("n",))]
    assert held.state == state


#: What a class may say and still mean a node with eight H100, driver 550.107.02, kernel 5.15.
FITS = [
    'driver = "550"',
    'driver = ">=550,<551"',
    'kernel = "5.15"',
    'kernel = ">=5.15"',
    'memory = "80GB"',
    'memory = "80GiB"',
    'container-runtime = "containerd"',
    'container-runtime = "containerd 1.7"',
    'cpu = "x86-64-v3"',
    'cpu = "x86-64-v4"',
    'tolerations = ["nvidia.com/gpu"]',
    'tolerations = ["nvidia.com/gpu=present:NoSchedule"]',
    'archs = ["sm_90"]',
    'interconnect = "nvlink"',
    'resources = ["nvidia.com/gpu"]',
    LABELLED.rstrip(),
]


@pytest.mark.parametrize("key", FITS)
def test_what_is_written_less_exactly_is_no_drift(tmp_path, key):
    held = compared(tmp_path, f"{H100}{key}\n", listed(h100("n")))
    assert (said(held), held.state) == ([], "ok")


def test_a_node_that_does_not_say_its_driver_leaves_that_open(tmp_path):
    bare = node(
        "bare", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, {"nvidia.com/gpu": "8"}
    )
    classes = f'{H100}driver = "550.107.02"\ncount = 8\n'
    held = compared(tmp_path, classes, listed(h100("n"), bare))
    assert said(held) == [("undecided", "driver", "550.107.02", "", ("bare",))]
    assert (held.state, exit_code(held)) == ("undecided", 3)


def test_a_node_without_labels_of_its_devices_is_open_and_not_without_a_class(tmp_path):
    bare = node("bare", {}, {"nvidia.com/gpu": "8"})
    held = compared(tmp_path, H100, listed(h100("n"), bare))
    assert said(held) == [("undecided", "products", "NVIDIA H100 80GB HBM3", "", ("bare",))]
    assert (held.uncovered, exit_code(held)) == ((), 3)


def test_drift_counts_more_than_what_is_open(tmp_path):
    bare = node("bare", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, {})
    classes = f'{H100}driver = "550.107.02"\n'
    held = compared(tmp_path, classes, listed(h100("n", driver="570.1"), bare))
    assert (held.state, exit_code(held)) == ("drift", 1)


def test_a_class_without_nodes_and_nodes_without_a_class_are_said(tmp_path):
    max_ = node("max", clusters.INTEL, {"gpu.intel.com/i915": "2"})
    amd = node("amd", clusters.AMD, {"amd.com/gpu": "8"})
    held = compared(tmp_path, H100, listed(max_, amd))
    assert [row.state for row in held.classes] == ["no-nodes"]
    assert [(item.backend, item.in_specification) for item in held.uncovered] == [
        ("oneapi", True),
        ("rocm", False),
    ]
    assert exit_code(held) == 1
    # A backend that the specification does not have is somebody else's.
    held = compared(tmp_path, H100, listed(h100("n"), amd))
    assert (held.state, len(held.uncovered)) == ("ok", 1)


def test_of_several_classes_that_fit_the_nearest_is_meant(tmp_path):
    classes = "".join(
        f'[node-class.d{at}]\nbackend = "cuda"\nproducts = ["NVIDIA H100"]\ndriver = "{at}"\n'
        for at in (535, 550, 570)
    )
    nodes = [h100(f"n{at}", driver=f"{at}.1") for at in (535, 550, 550, 570)]
    held = compared(tmp_path, classes, listed(*nodes))
    assert [(row.name, row.nodes, row.state) for row in held.classes] == [
        ("d535", 1, "ok"),
        ("d550", 2, "ok"),
        ("d570", 1, "ok"),
    ]


def test_a_node_whose_labels_changed_has_drifted(tmp_path):
    classes = H100 + 'labels = { "pool" = "training", "zone" = "a" }\n'
    nodes = [h100("a", pool="training", zone="a"), h100("b", pool="inference", zone="a")]
    held = compared(tmp_path, classes, listed(*nodes))
    assert said(held) == [("drift", "labels.pool", "training", "inference", ("b",))]


def test_an_exchanged_device_is_drift_of_a_class_with_labels(tmp_path):
    classes = H100 + 'labels = { "pool" = "training" }\n'
    labels = {"pool": "training", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    held = compared(tmp_path, classes, listed(h100("a", **labels)))
    assert ("drift", "products", "NVIDIA H100 80GB HBM3", "NVIDIA-A100-SXM4-80GB", ("a",)) in said(
        held
    )


def test_partitions_that_the_class_does_not_have_are_drift(tmp_path):
    classes = H100.replace("NVIDIA H100 80GB HBM3", "A100-SXM4-40GB") + "count = 56\n"
    mig = node("mig", clusters.NVIDIA_MIG_SINGLE, {"nvidia.com/gpu": "56"})
    held = compared(tmp_path, classes, listed(mig))
    assert said(held) == [("drift", "partition", "none", "1g.5gb", ("mig",))]


def diagnosis(**devices: object) -> dict[str, object]:
    return {
        "schema": "buildmatrix/doctor/1",
        "tool": {"name": "buildmatrix", "version": "0.1.0"},
        **{"host": "desk", "kernel": "6.1.0-28-amd64", "checks": []},
        "devices": [
            {
                **{"backend": "cuda", "nodes": ["/dev/nvidia0"], "driver": "570.86.10"},
                **{"products": ["NVIDIA H100 80GB HBM3"], "cdi": [], "runtimes": []},
                **devices,
            }
        ],
    }


def test_a_host_has_no_labels_and_is_of_a_class_all_the_same(tmp_path):
    other = '[node-class.max]\nbackend = "oneapi"\nproducts = ["Max_1550"]\n'
    classes = f'{H100}{LABELLED}memory = "80GB"\ncount = 1\ndriver = "570"\n{other}'
    held = compared(tmp_path, classes, diagnosis())
    # That no host of the other class was given proves nothing.
    assert (said(held), held.state) == ([], "ok")
    assert [row.state for row in held.classes] == ["ok", "no-nodes"]
    held = compared(tmp_path, classes, diagnosis(driver=None))
    assert (said(held), exit_code(held)) == ([("undecided", "driver", "570", "", ("desk",))], 3)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["nvidia.com/gpu"], []),
        (["example.com/gpu", "nvidia.com/gpu"], []),
        ([], [("drift", "cdi", "nvidia.com/gpu=0, nvidia.com/gpu=1", "", ("desk",))]),
        (
            ["example.com/gpu"],
            [
                (
                    "drift",
                    "cdi",
                    "nvidia.com/gpu=0, nvidia.com/gpu=1",
                    "example.com/gpu=all",
                    ("desk",),
                )
            ],
        ),
    ],
)
def test_a_host_says_which_kinds_of_cdi_devices_it_has(tmp_path, present, expected):
    classes = H100 + 'cdi = ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]\n'
    held = compared(tmp_path, classes, diagnosis(cdi=present))
    assert (said(held), held.classes[0].not_compared) == (expected, ())


def test_what_no_machine_can_say_is_named_and_is_no_drift(tmp_path):
    classes = H100 + 'cdi = ["nvidia.com/gpu=all"]\ninterconnect = "nvlink"\n'
    held = compared(tmp_path, classes, listed(h100("n")))
    assert (exit_code(held), held.classes[0].not_compared) == (0, ("interconnect", "cdi"))
    text = table(held, width=200, color=False)
    assert "not compared, as these machines do not report it: interconnect, cdi\n" in text
    # Of a class without machines nothing was compared.
    assert compared(tmp_path, classes, listed()).classes[0].not_compared == ()


def test_a_driver_that_is_no_version_is_open(tmp_path):
    held = compared(tmp_path, H100 + 'driver = ">=550"\n', listed(h100("n", driver="custom")))
    assert said(held) == [("undecided", "driver", ">=550", "custom", ("n",))]


def test_the_document_keeps_its_schema_and_the_table_names_everything(tmp_path):
    bare = node("bare", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, {})
    strange = {"nvidia.com/gpu.quantum": "1"}
    nodes = [h100("n", driver="570.1", **strange), bare, node("amd", clusters.AMD, {})]
    held = compared(tmp_path, f'{H100}driver = "550"\n', listed(*nodes))
    jsonschema.validate(json.loads(render(held)), schema(NodeClassCheck, "x"))
    text = table(held, width=200, color=False)
    assert "drift      h100 (cuda, " in text
    assert "driver should be 550 but is 570.1 on 1 node: n\n" in text
    assert "driver should be 550 but is not reported by 1 node: bare\n" in text
    assert (
        "no class  1 node of rocm, which the specification does not have: "
        "AMD_Instinct_MI300X_OAM (amd)\n" in text
    )
    assert "that are not known: nvidia.com/gpu.quantum (1 node)\n" in text
    assert text.endswith("3 nodes, 1 node class: 1 drift\n")
