"""`node-classes import`: lists of machines -> tables of a specification."""

from __future__ import annotations

import json
import random
from pathlib import Path

import clusters
import pytest
import tomli
from clusters import h100, listed, node, written

from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.commands import node_lists as reading
from buildmatrix.commands.node_lists import read_nodes, write_tables
from buildmatrix.matrix.load import load_spec
from buildmatrix.matrix.model import Spec

SPEC = """\
[project]
name = "a"
version = "1"
[defaults]
python = ["3.12"]
requirements = ["base.in"]
base = "debian:12"
"""


def imported(folder: Path, *documents: object) -> tuple[str, tuple[str, ...]]:
    names = [written(folder / f"{at}.json", item) for at, item in enumerate(documents)]
    return write_tables(read_nodes(names, load()), load())


def classes_of(text: str) -> dict[str, dict[str, object]]:
    return tomli.loads(text)["node-class"]


def loaded(folder: Path, text: str) -> Spec:
    """The tables in a specification that has their backends."""
    (folder / "base.in").write_text("numpy\n")
    backends = {table["backend"] for table in classes_of(text).values()}
    heads = "".join(f'[backend.{name}]\nruntime = "1.0"\n' for name in sorted(backends))
    path = folder / "buildmatrix.toml"
    path.write_text(f"{SPEC}{heads}\n{text}")
    return load_spec(path, backends=lambda files: load(files).backends)


def test_nodes_of_which_the_same_is_said_are_one_class(tmp_path):
    nodes = [h100(f"gpu-{number}") for number in range(10)] + [h100("odd", driver="570.86.10")]
    text, notes = imported(tmp_path, listed(*nodes))
    first, second = classes_of(text)
    assert first == "nvidia-h100-80gb-hbm3"
    assert "# 10 nodes: gpu-0, gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7 and 2 more\n" in text
    assert classes_of(text)[first] == {
        "backend": "cuda",
        "driver": "550.107.02",
        "products": ["NVIDIA-H100-80GB-HBM3"],
        "memory": "81559MiB",
        "count": 8,
        "kernel": "5.15.0-1067-nvidia",
        "container-runtime": "containerd 1.7.27",
        "cpu": "x86-64-v4",
        "resources": ["nvidia.com/gpu"],
        "tolerations": ["nvidia.com/gpu=present:NoSchedule"],
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    }
    assert classes_of(text)[second] == classes_of(text)[first] | {"driver": "570.86.10"}
    assert notes == ()


#: Labels, resources -> what the class has of it.
VENDORS = [
    (
        clusters.NVIDIA_OLD,
        {"nvidia.com/gpu": "1"},
        {"backend": "cuda", "driver": "455.06", "products": ["A100-SXM4-40GB"], "count": 1},
    ),
    (
        clusters.NVIDIA_MIG_SINGLE,
        {"nvidia.com/gpu": "56"},
        {"products": ["A100-SXM4-40GB"], "partition": "1g.5gb", "count": 56, "memory": "5120MiB"},
    ),
    (
        clusters.NVIDIA_MIG_MIXED,
        {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"},
        {"partition": "1g.10gb", "resources": ["nvidia.com/mig-1g.10gb"], "count": 8},
    ),
    (
        {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"},
        {"nvidia.com/gpu": "4"},
        {"products": ["nvidia-tesla-t4"], "count": 4},
    ),
    (
        clusters.AMD,
        {"amd.com/gpu": "8"},
        {
            **{"backend": "rocm", "products": ["AMD_Instinct_MI300X_OAM"], "memory": "192GiB"},
            **{"driver": "6.10.5", "count": 8, "resources": ["amd.com/gpu"]},
        },
    ),
    (
        clusters.AMD | {"amd.com/gpu.compute-memory-partition": "cpx_nps4"},
        {"amd.com/cpx_nps4": "64"},
        {"partition": "cpx_nps4", "resources": ["amd.com/cpx_nps4"]},
    ),
    (clusters.AMD_OLD, {}, {"backend": "rocm", "memory": "16GiB", "count": 1}),
    (
        clusters.INTEL,
        {"gpu.intel.com/i915": "20", "gpu.intel.com/i915_monitoring": "1"},
        {
            **{"backend": "oneapi", "products": ["Max_1550"], "count": 2},
            **{"resources": ["gpu.intel.com/i915"]},
        },
    ),
    (
        clusters.NEURON,
        clusters.NEURON_RESOURCES,
        {
            **{"backend": "neuron", "products": ["trn1"], "count": 16},
            **{"resources": ["aws.amazon.com/neuron", "aws.amazon.com/neuroncore"]},
        },
    ),
    ({}, {"habana.ai/gaudi": "8"}, {"backend": "hpu", "count": 8}),
    ({}, {"huawei.com/Ascend910B3": "8"}, {"products": ["Ascend910B3"], "count": 8}),
    (
        {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"},
        {"google.com/tpu": "4"},
        {"backend": "tpu", "products": ["tpu-v5-lite-podslice"], "count": 4},
    ),
]


@pytest.mark.parametrize(("labels", "resources", "expected"), VENDORS)
def test_labels_and_resources_of_each_vendor_are_read(tmp_path, labels, resources, expected):
    text, notes = imported(tmp_path, node("n", labels, resources))
    (held,) = classes_of(text).values()
    assert {key: held.get(key) for key in expected} == expected
    assert notes == ()
    assert len(loaded(tmp_path, text).node_classes) == 1


def test_what_is_written_is_what_the_specification_reads(tmp_path):
    nodes = [
        node(f"n{number}", labels, resources)
        for number, (labels, resources, _) in enumerate(VENDORS)
    ]
    text, _ = imported(tmp_path, listed(*nodes))
    spec = loaded(tmp_path, text)
    assert {item.name for item in spec.node_classes} == set(classes_of(text))
    (h100_mixed,) = [item for item in spec.node_classes if item.partition == "1g.10gb"]
    assert h100_mixed.memory == 81559 << 20
    assert h100_mixed.labels == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def test_the_order_of_nodes_and_labels_does_not_matter(tmp_path):
    nodes = [h100(f"n{number}", driver=f"550.{number % 7}.01") for number in range(40)]
    text, _ = imported(tmp_path, listed(*nodes))
    shuffled = random.Random(7)
    for _ in range(3):
        shuffled.shuffle(nodes)
        for item in nodes:
            labels = list(item["metadata"]["labels"].items())
            shuffled.shuffle(labels)
            item["metadata"]["labels"] = dict(labels)
        assert imported(tmp_path, listed(*nodes))[0] == text


def test_labels_that_look_like_an_accelerators_are_said_and_not_guessed(tmp_path):
    labels = {"nvidia.com/gpu.quantum": "yes", "habana.ai/driver": "1.23", "example.com/gpu": "1"}
    text, notes = imported(tmp_path, node("n", labels, {"amd.com/npu": "1"}))
    assert text == ""
    plain, unknown = notes
    assert plain == "1 node without a device that the catalogue knows: n"
    assert "`nvidia.com/gpu.quantum` (1 node)" in unknown
    assert "`habana.ai/driver` (1 node)" in unknown
    assert "`amd.com/npu` (1 node)" in unknown
    assert "example.com" not in unknown


def test_a_product_that_is_not_known_is_said_and_its_architecture_taken_from_the_labels(tmp_path):
    labels = clusters.NVIDIA | {"nvidia.com/gpu.product": "NVIDIA-X1000", "x": "y"}
    text, notes = imported(tmp_path, node("n", labels, {}))
    (held,) = classes_of(text).values()
    assert held["archs"] == ["sm_90"]
    assert "products" not in held
    assert notes == ("nvidia-x1000: the catalogue knows no product `NVIDIA-X1000`",)
    loaded(tmp_path, text)


def test_labels_that_contradict_the_catalogue_win_and_are_said(tmp_path):
    labels = clusters.NVIDIA | {"nvidia.com/gpu.compute.major": "8"}
    text, (note,) = imported(tmp_path, node("n", labels, {}))
    (held,) = classes_of(text).values()
    assert held["archs"] == ["sm_80"]
    assert "labels say sm_80, and the catalogue says sm_90" in note


def test_several_partitions_are_said(tmp_path):
    resources = {"nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-3g.40gb": "1"}
    text, (note,) = imported(tmp_path, node("n", clusters.NVIDIA_MIG_MIXED, resources))
    (held,) = classes_of(text).values()
    assert "partition" not in held
    assert held["resources"] == sorted(resources)
    assert "divided into `1g.10gb`, `3g.40gb`" in note


def test_what_is_true_today_is_no_class(tmp_path):
    passing = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
    text, _ = imported(tmp_path, node("n", clusters.AMD, {}, taints=passing))
    (held,) = classes_of(text).values()
    assert "tolerations" not in held


HOSTILE = 'x"]\n[project]\nname = "evil"\x1b[31m\u202e\u2028'


def test_hostile_names_and_values_stay_in_their_strings_and_comments(tmp_path):
    """A node may be called anything where the list was not made by a cluster."""
    labels = {
        "nvidia.com/gpu.product": HOSTILE,
        "nvidia.com/cuda.driver-version.full": HOSTILE,
        "nvidia.com/gpu.memory": "9" * 40,
        "nvidia.com/gpu.count": "9" * 5000,
        "nvidia.com/gpu.compute.major": "-1",
        f"nvidia.com/{HOSTILE}": "1",
    }
    item = node(HOSTILE, labels, {f"nvidia.com/mig-{HOSTILE}": "1", "nvidia.com/gpu": "many"})
    text, notes = imported(tmp_path, item)
    ((name, held),) = classes_of(text).items()
    assert set(held) == {"backend", "kernel", "container-runtime", "resources"}
    assert all(character in "abcdefghijklmnopqrstuvwxyz0123456789._-" for character in name)
    assert len(name) <= 64
    assert not any("\n" in note or "\x1b" in note for note in notes)
    loaded(tmp_path, text)


def test_names_are_short_and_differ(tmp_path):
    labels = clusters.NVIDIA | {"nvidia.com/gpu.product": "NVIDIA-H100-" + "x" * 100}
    nodes = [node(f"n{at}", labels | {"nvidia.com/gpu.count": str(at + 1)}, {}) for at in range(12)]
    text, _ = imported(tmp_path, listed(*nodes))
    assert len(classes_of(text)) == 12
    assert all(len(name) <= 64 for name in classes_of(text))
    loaded(tmp_path, text)


BAD = [
    ("half.json", json.dumps(listed(h100("n")))[:200], "half.json is not whole JSON"),
    ("empty.json", "", "empty.json is not whole JSON"),
    ("nodes.yaml", "apiVersion: v1\nkind: List\n", "nodes.yaml is not whole JSON"),
    ("text.json", '"nodes"', "text.json is not a list of nodes"),
    ("list.json", "[]", "list.json is not a list of nodes"),
    ("other.json", "{}", "other.json is not a list of nodes"),
    ("config.json", '{"kind": "ConfigMap", "data": {}}', "is a `ConfigMap`, not a list of nodes"),
    (
        "pods.json",
        '{"kind": "List", "items": [{"kind": "Pod", "spec": {"nodeName": "n"}}]}',
        "pods.json lists `Pod`, not only nodes",
    ),
    (
        "typed.json",
        '{"kind": "List", "items": [{"kind": "Event", "metadata": "x"}]}',
        "typed.json is a list of `Event`, not of nodes",
    ),
    (
        "labels.json",
        '{"kind": "Node", "metadata": {"labels": {"nvidia.com/gpu.count": 8}}}',
        "labels.json is not a list of nodes (Expected `str`, got `int`",
    ),
    ("deep.json", "[" * 200_000 + "]" * 200_000, "deep.json"),
    (
        "doctor.json",
        '{"schema": "buildmatrix/doctor/1", "tool": {}}',
        "doctor.json is not a diagnosis of a host: it has no `host`",
    ),
    (
        "report.json",
        '{"schema": "buildmatrix/report/1"}',
        "report.json is a `buildmatrix/report/1`, not a list of nodes",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=[name for name, *_ in BAD])
def test_a_file_of_another_kind_is_refused_in_one_sentence(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_nodes([str(path)], load())
    assert message in str(caught.value).replace(f"{tmp_path}/", "")
    assert "\n" not in str(caught.value)


def test_a_deep_value_that_nobody_needs_is_refused_as_well(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text('{"kind": "List", "x": ' + "[" * 100_000 + "]" * 100_000 + ', "items": []}')
    with pytest.raises(UsageError, match="nests too deeply"):
        read_nodes([str(path)], load())


def test_a_file_that_is_not_there_and_one_that_is_too_large_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_nodes([str(tmp_path / "none.json")], load())
    monkeypatch.setattr(reading, "LARGEST", 100)
    with pytest.raises(UsageError, match="more than 100 bytes"):
        read_nodes([written(tmp_path / "large.json", listed(h100("n")))], load())


def test_a_list_of_more_nodes_than_any_cluster_has_is_refused(tmp_path):
    path = tmp_path / "nodes.json"
    path.write_text('{"kind": "List", "items": [' + "{}," * 100_000 + "{}]}")
    with pytest.raises(UsageError, match="more than 100,000 nodes"):
        read_nodes([str(path)], load())
    path.write_text('{"kind": "List", "items": [' + "{}," * 99_999 + "{}]}")
    assert len(read_nodes([str(path), str(path)], load()).nodes) == 200_000


def test_utf_16_as_a_shell_of_windows_writes_it_is_named(tmp_path):
    path = tmp_path / "nodes.json"
    path.write_bytes(json.dumps(listed()).encode("utf-16"))
    with pytest.raises(UsageError, match="looks like UTF-16"):
        read_nodes([str(path)], load())


def test_an_empty_list_gives_nothing(tmp_path):
    assert imported(tmp_path, listed()) == ("", ())


DIAGNOSIS = {
    "schema": "buildmatrix/doctor/1",
    "tool": {"name": "buildmatrix", "version": "0.1.0"},
    "host": "workstation",
    "kernel": "6.1.0-28-amd64",
    "checks": [],
    "devices": [
        {
            "backend": "cuda",
            "nodes": ["/dev/nvidia0", "/dev/nvidia1"],
            "products": ["NVIDIA H100 PCIe"],
            "driver": "570.86.10",
            "cdi": ["nvidia.com/gpu"],
            "runtimes": ["nvidia"],
        }
    ],
}


def test_a_diagnosis_of_a_host_is_a_machine_too(tmp_path):
    text, notes = imported(tmp_path, DIAGNOSIS, listed(h100("n")))
    assert notes == ()
    assert classes_of(text)["nvidia-h100-pcie"] == {
        "backend": "cuda",
        "driver": "570.86.10",
        "products": ["NVIDIA H100 PCIe"],
        "memory": "80GB",
        "count": 2,
        "kernel": "6.1.0-28-amd64",
        "cdi": ["nvidia.com/gpu=all"],
    }
    assert "# 1 node: workstation\n" in text
    assert len(loaded(tmp_path, text).node_classes) == 2


@pytest.mark.parametrize(
    ("products", "memory"),
    [
        (["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"], "80GB"),
        (["NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"], ""),
        (["NVIDIA H100"], ""),
        (["NVIDIA X9000"], ""),
        ([], ""),
    ],
)
def test_a_host_has_the_memory_that_all_its_products_have(tmp_path, products, memory):
    diagnosis = {**DIAGNOSIS, "devices": [{**DIAGNOSIS["devices"][0], "products": products}]}
    path = tmp_path / "doctor.json"
    path.write_text(json.dumps(diagnosis))
    (host,) = read_nodes([str(path)], load()).nodes
    assert [machine.memory for machine in host.machines] == [memory]


def test_a_thousand_nodes_with_three_hundred_sets_of_labels_are_three_hundred_classes(tmp_path):
    """The time is measured by bench/nodes.py; here is that nothing is lost."""
    nodes = [
        h100(f"n{at:05}", driver=f"550.{at % 300}.1", **{"nvidia.com/gfd.timestamp": str(at)})
        for at in range(1_000)
    ]
    text, notes = imported(tmp_path, listed(*nodes))
    assert notes == ()
    counts = [int(line.split()[1]) for line in text.splitlines() if line.startswith("# ")]
    assert len(counts) == len(classes_of(text)) == 300
    assert sum(counts) == 1_000
