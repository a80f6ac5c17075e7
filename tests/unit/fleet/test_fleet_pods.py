"""The images of a cluster's pods, and the node classes that they run on."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clusters import AMD, NVIDIA, h100, listed, node

from buildmatrix.base.errors import UsageError
from buildmatrix.catalogue.load import load
from buildmatrix.fleet import pods
from buildmatrix.fleet.model import Subject
from buildmatrix.fleet.reference_lists import SubjectList, SubjectSettings
from buildmatrix.fleet.subjects import Lister
from buildmatrix.matrix.model import NodeClass, Position

DIGEST, OTHER = "sha256:" + "a" * 64, "sha256:" + "b" * 64
POOL = "node.test/pool"
APP = "registry.test/team/app"


def node_class(name: str, backend: str, labels: Mapping[str, str] = {}, **more: Any) -> NodeClass:
    place = Position("buildmatrix.toml", 1)
    return NodeClass(name, backend, "", (), labels, (), place, **more)


CLASSES = (
    node_class("h100", "cuda", {POOL: "h100"}, resources=("nvidia.com/gpu",)),
    node_class("a100-half", "cuda", {POOL: "a100"}, resources=("nvidia.com/mig-3g.20gb",)),
    node_class("mi300x", "rocm", {POOL: "mi300x"}),
)


def pod(
    name: str,
    *images: str | tuple[str, str],
    on: str = "",
    phase: str = "Running",
    resources: Mapping[str, str] = {},
    labels: Mapping[str, str] = {},
    **spec: Any,
) -> dict[str, Any]:
    """A pod as kubectl shows it; of a pair, the second is what the node pulled."""
    pairs = [(image, "") if isinstance(image, str) else image for image in images]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "labels": dict(labels), "uid": "1"},
        "spec": {
            "nodeName": on,
            "containers": [
                {"name": f"c{at}", "image": image, "resources": {"limits": dict(resources)}}
                for at, (image, _) in enumerate(pairs)
            ],
            **spec,
        },
        "status": {
            "phase": phase,
            "containerStatuses": [
                {"name": f"c{at}", "image": image, "imageID": pulled, "ready": True}
                for at, (image, pulled) in enumerate(pairs)
            ],
        },
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(folder: Path, *items: Any, nodes: Sequence[Any] = (), **settings: Any) -> SubjectList:
    document = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    (folder / "pods.json").write_text(json.dumps(document))
    if nodes:
        (folder / "nodes.json").write_text(json.dumps(listed(*nodes)))
        settings["nodes"] = ("nodes.json",)
    settings.setdefault("node_classes", CLASSES)
    lister = Lister(SubjectSettings(**settings), load(), lambda: pytest.fail("no registry"))
    return lister.find(["pods:pods.json"])


def classes(held: SubjectList) -> dict[str, tuple[str, ...]]:
    return {item.reference.rpartition("/")[2]: item.node_classes for item in held.subjects}


def test_images_by_what_was_pulled(folder: Path):
    held = found(
        folder,
        pod("a", (f"{APP}:1", f"{APP}@{DIGEST}"), ("nginx", f"docker.io/library/nginx@{OTHER}")),
        pod("b", (f"{APP}:1", f"docker-pullable://{APP}@{DIGEST}")),
        # Moved meanwhile, so that another image runs under the same tag.
        pod("c", (f"{APP}:1", f"{APP}@{OTHER}")),
        # The node had the image under another name.
        pod("d", ("registry.test/copy:1", f"{APP}@{DIGEST}")),
        # The digest of a configuration, not of a manifest: unused in a registry.
        pod("e", ("registry.test/local:1", OTHER)),
        pod("f", f"{APP}@{OTHER}"),
    )
    assert {item.reference: item.containers for item in held.subjects} == {
        f"docker.io/library/nginx@{OTHER}": 1,
        "registry.test/local:1": 1,
        f"{APP}:1@{DIGEST}": 2,
        f"{APP}:1@{OTHER}": 1,
        f"{APP}@{DIGEST}": 1,
        f"{APP}@{OTHER}": 1,
    }
    assert "1 container whose digest the cluster does not say" in " ".join(held.notes)
    app = next(item for item in held.subjects if item.containers == 2)
    assert app.places == ("pod ml/a", "pod ml/b")


def test_all_kinds_of_containers(folder: Path):
    whole = pod("a", f"{APP}:1")
    whole["spec"]["initContainers"] = [{"name": "i", "image": f"{APP}:init"}]
    whole["spec"]["ephemeralContainers"] = [{"name": "e", "image": f"{APP}:debug"}]
    whole["status"]["initContainerStatuses"] = [{"name": "i", "imageID": f"{APP}@{DIGEST}"}]
    held = found(folder, whole)
    assert [item.reference for item in held.subjects] == [
        f"{APP}:1",
        f"{APP}:debug",
        f"{APP}:init@{DIGEST}",
    ]


def test_what_a_cluster_wrote(folder: Path):
    """Kubernetes 1.36.2 and containerd 2.1.9; shortened, and its GPUs were made up."""
    wrote = json.loads((Path(__file__).parent / "kubernetes-1.36.json").read_text())
    for name in ("pods", "nodes"):
        (folder / f"{name}.json").write_text(json.dumps(wrote[name]))
    settings = SubjectSettings(node_classes=(), nodes=("nodes.json",))
    held = Lister(settings, load(), lambda: pytest.fail("no registry")).find(["pods:pods.json"])
    h100, mi300x = "nvidia-h100-80gb-hbm3", "amd-instinct-mi300x-oam"
    assert {
        re.sub(r"@sha256:(....).*", r"@\1", item.reference.partition("/")[2]): (
            item.containers,
            item.node_classes,
            item.owner,
        )
        for item in held.subjects
    } == {
        "debian:bookworm-slim@c2da": (2, (h100,), "search"),
        "debian@c2da": (1, (h100,), ""),
        # It was never started: nothing is known but its name.
        "nowhere:1": (0, (h100,), "shop"),
        "nvidia/cuda:12.8.1-base-ubuntu24.04@3057": (1, (h100,), ""),
        "nvidia/cuda:13.0.2-base-ubuntu24.04": (0, (h100,), ""),
        # Loaded onto the node as example/loaded:1, which pulled the same image by another name.
        "pause@23d3": (1, (h100,), ""),
        "python:3.11-slim@7a6e": (1, (h100,), "search"),
        "python:3.11-slim-bookworm@7a6e": (1, (h100,), "search"),
        # It waits for a node that does not answer.
        "rocm/dev-ubuntu-24.04:7.2.4": (0, (mi300x,), ""),
    }
    (missing,) = held.missing
    assert "pod search/wrong-name: 'registry.example.com/No_Where:1' is not the name" in missing
    assert "1 pod that ended left out" in held.notes[0]
    assert "the images of 4 pods that wait to be started" in held.notes[1]


def test_pods_that_do_not_run(folder: Path):
    held = found(
        folder,
        pod("a", f"{APP}:1", phase="Succeeded"),
        pod("b", f"{APP}:1", phase="Failed"),
        pod("c", f"{APP}:2", phase="Pending", resources={"nvidia.com/gpu": "1"}),
        pod("d", f"{APP}:3", phase="Unknown", on="lost", resources={"nvidia.com/gpu": "1"}),
    )
    assert held.subjects == (
        Subject(reference=f"{APP}:2", places=("pod ml/c",), node_classes=("h100",)),
        Subject(reference=f"{APP}:3", places=("pod ml/d",), node_classes=("h100",), containers=1),
    )
    assert held.notes == (
        "pods.json: 2 pods that ended left out",
        "pods.json: the images of 1 pod that wait to be started are judged, and their containers "
        "not counted",
        "pods.json: 1 container whose digest the cluster does not say; their tags are taken as "
        "they are now",
    )


def test_names_that_are_no_images(folder: Path):
    held = found(folder, *(pod(f"p{at}", "Not An Image") for at in range(7)))
    assert held.subjects == ()
    assert len(held.missing) == 6
    assert held.missing[0].startswith(
        "pods.json: pod ml/p0: 'Not An Image' is not the name of an image"
    )
    assert held.missing[5] == "pods.json: and 2 more such pods"


def test_owners_by_label(folder: Path):
    part, team, own = "app.kubernetes.io/part-of", "team", "acme.test/squad"
    items = (
        pod("a", f"{APP}:1", labels={part: "search", team: "ml"}),
        pod("b", f"{APP}:2", labels={team: "ml", own: "x"}),
        pod("c", f"{APP}:3"),
        pod("d", f"{APP}:4", labels={team: "ml"}),
        pod("e", f"{APP}:4", labels={team: "ads"}),
    )
    assert [item.owner for item in found(folder, *items).subjects] == [
        "search",
        "ml",
        "",
        "ads, ml",
    ]
    assert [item.owner for item in found(folder, *items, owner_labels=(own,)).subjects] == [
        "search",
        "x",
        "",
        "ads, ml",
    ]


def test_the_node_says_where_a_pod_runs(folder: Path):
    nodes = (
        h100("gpu-1", **{POOL: "h100"}),
        node("amd-1", AMD | {POOL: "mi300x"}, {"amd.com/gpu": "8"}),
        node("plain-1", {POOL: "web"}, {}),
    )
    held = found(
        folder,
        pod("a", f"{APP}:1", on="gpu-1"),
        pod("b", f"{APP}:1", on="amd-1", nodeSelector={POOL: "h100"}),
        pod("c", f"{APP}:3", on="plain-1"),
        pod("d", f"{APP}:4", on="gone-1"),
        pod("e", f"{APP}:5", on="gone-1", nodeSelector={POOL: "a100"}),
        nodes=nodes,
    )
    assert classes(held) == {
        "app:1": ("h100", "mi300x"),
        "app:3": ("cpu",),
        "app:4": (),
        "app:5": ("a100-half",),
    }
    assert [item.name for item in held.node_classes] == ["h100", "a100-half", "mi300x", "cpu"]
    assert "pods.json: 1 container of which nothing says the node class" in held.notes


def test_classes_come_from_the_cluster_where_no_specification_has_them(folder: Path):
    held = found(
        folder,
        pod("a", f"{APP}:1", on="gpu-1"),
        pod("b", f"{APP}:2", on="plain-1"),
        nodes=(h100("gpu-1"), node("plain-1", {}, {})),
        node_classes=(),
    )
    (name,) = classes(held)["app:1"]
    made = {item.name: item for item in held.node_classes}
    assert made[name].backend == "cuda"
    assert made[name].driver == NVIDIA["nvidia.com/cuda.driver-version.full"]
    assert made[name].products == ("NVIDIA-H100-80GB-HBM3",)
    assert classes(held)["app:2"] == ("cpu",)


def test_a_name_that_a_specification_has_for_something_else(folder: Path):
    held = found(
        folder,
        pod("a", f"{APP}:1", on="plain-1"),
        nodes=(node("plain-1", {}, {}),),
        node_classes=(node_class("cpu", "cuda", {POOL: "h100"}),),
    )
    assert classes(held) == {"app:1": ("cpu-2",)}


def test_nodes_without_devices_are_of_the_class_that_says_so(folder: Path):
    web = node_class("web", "cpu", {POOL: "web"})
    rest = node_class("rest", "cpu")
    held = found(
        folder,
        pod("a", f"{APP}:1", on="plain-1"),
        pod("b", f"{APP}:2", on="plain-2"),
        nodes=(node("plain-1", {POOL: "web"}, {}), node("plain-2", {}, {})),
        node_classes=(rest, web),
    )
    assert classes(held) == {"app:1": ("web",), "app:2": ("rest",)}


def test_a_device_that_the_catalogue_does_not_know_is_no_processor(folder: Path):
    held = found(
        folder,
        pod("a", f"{APP}:1", on="odd-1"),
        nodes=(node("odd-1", {}, {"nvidia.com/quantum": "4"}),),
    )
    assert classes(held) == {"app:1": ()}
    assert any("odd-1" in note for note in held.notes)


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"nodeSelector": {POOL: "h100"}}, ("h100",)),
        ({"nodeSelector": {POOL: "h100", "zone": "a"}}, ("h100",)),
        ({"nodeSelector": {POOL: "web"}}, ()),
        ({"nodeSelector": {"zone": "a"}}, ()),
        ([(POOL, "In", ["h100", "mi300x"])], ("h100", "mi300x")),
        ([(POOL, "NotIn", ["h100"])], ()),
        ([(POOL, "Exists", None), (POOL, "NotIn", ["h100"])], ("a100-half", "mi300x")),
        ([(POOL, "DoesNotExist", None)], ()),
        ([(POOL, "Gt", ["1"])], ()),
        ([(POOL, "Wrong", ["h100"])], ()),
    ],
)
def test_what_a_pod_asks_of_its_node(folder: Path, spec: Any, names: tuple[str, ...]):
    if isinstance(spec, list):
        expressions = [
            {"key": key, "operator": operator, "values": values} for key, operator, values in spec
        ]
        terms = [{"matchExpressions": expressions}]
        required = {"nodeSelectorTerms": terms}
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        spec = {"affinity": {"nodeAffinity": affinity}}
    assert classes(found(folder, pod("a", f"{APP}:1", on="x", **spec))) == {"app:1": names}


def test_one_of_several_terms_has_to_hold(folder: Path):
    def term(value: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": POOL, "operator": "In", "values": [value]}]}

    required = {"nodeSelectorTerms": [term("h100"), term("mi300x")]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    either = pod("a", f"{APP}:1", affinity=affinity)
    both = pod("b", f"{APP}:2", affinity=affinity, nodeSelector={POOL: "h100"})
    assert classes(found(folder, either, both)) == {"app:1": ("h100", "mi300x"), "app:2": ("h100",)}


def test_numbers_of_labels(folder: Path):
    small, large = (node_class(f"n{size}", "cuda", {"gpus": size}) for size in ("4", "8"))
    required = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["6"]}]}
        ]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    held = found(folder, pod("a", f"{APP}:1", affinity=affinity), node_classes=(small, large))
    assert classes(held) == {"app:1": ("n8",)}


def test_what_a_container_asks_for(folder: Path):
    two = pod("b", f"{APP}:3", f"{APP}:4")
    two["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/mig-3g.20gb": 1}}
    two["spec"]["containers"][1]["resources"] = {"requests": {"nvidia.com/gpu": "0", "cpu": 0.5}}
    held = found(
        folder,
        pod("a", f"{APP}:1", resources={"nvidia.com/gpu": "2", "memory": "1Gi"}),
        pod("c", f"{APP}:2", resources={"amd.com/gpu": "1"}),
        two,
    )
    # A class that does not say which resources it has may have that of its vendor.
    assert classes(held) == {
        "app:1": ("h100",),
        "app:2": ("mi300x",),
        "app:3": ("a100-half",),
        "app:4": (),
    }
    alone = found(folder, pod("a", f"{APP}:1", resources={"nvidia.com/gpu": "2"}), node_classes=())
    assert classes(alone) == {"app:1": ("nvidia.com/gpu",)}
    assert [(item.name, item.backend) for item in alone.node_classes] == [
        ("nvidia.com/gpu", "cuda")
    ]


def test_a_single_pod(folder: Path):
    (folder / "pod.json").write_text(json.dumps(pod("a", f"{APP}:1")))
    lister = Lister(SubjectSettings(), load(), lambda: pytest.fail("no registry"))
    assert [item.containers for item in lister.find(["pods:pod.json"]).subjects] == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; write one with `kubectl get pods -A -o json`"),
        ("{", "is not whole JSON"),
        ("[]", "is not a list of pods"),
        ('{"kind": "List"}', "is not a list of pods"),
        ('{"kind": "NodeList", "items": []}', "is not a list of pods"),
        ('{"kind": "List", "items": [{"kind": "Node"}]}', "lists Node"),
        ('{"kind": "List", "items": [{"metadata": {"name": 1}}]}', "is not a list of pods"),
        ('{"a":' + "[" * 100_000, "nests too deeply|is not whole JSON"),
        ('{"kind": "List", "items": [{},{},{}]}', "has more than 2 pods"),
        (
            '{"kind": "List", "items": [{"spec": {"containers": [{},{},{}]}}]}',
            "has more than 2 containers",
        ),
    ],
)
def test_what_is_no_list(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str):
    monkeypatch.setattr(pods, "MOST_PODS", 2)
    monkeypatch.setattr(pods, "MOST_CONTAINERS", 2)
    (folder / "pods.json").write_text(text)
    lister = Lister(SubjectSettings(), load(), lambda: pytest.fail("no registry"))
    with pytest.raises(UsageError, match=message):
        lister.find(["pods:pods.json"])


def test_files_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    lister = Lister(SubjectSettings(), load(), lambda: pytest.fail("no registry"))
    for name in ("gone.json", "."):
        with pytest.raises(UsageError, match="cannot be read"):
            lister.find([f"pods:{name}"])
    monkeypatch.setattr(pods, "LARGEST", 3)
    (folder / "pods.json").write_text("{}  ")
    with pytest.raises(UsageError, match="more than 3 bytes"):
        lister.find(["pods:pods.json"])


def test_standard_input(monkeypatch: pytest.MonkeyPatch):
    data = json.dumps({"kind": "PodList", "items": [pod("a", f"{APP}:1")]}).encode()
    lister = Lister(SubjectSettings(), load(), lambda: pytest.fail("no registry"))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert len(lister.find(["pods:-"]).subjects) == 1
    monkeypatch.setattr(pods, "LARGEST_STREAM", 3)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(UsageError, match="write it to a file"):
        lister.find(["pods:-"])
