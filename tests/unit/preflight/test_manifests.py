"""What `kubectl create` would get: of Kubernetes' form, and nothing but the names as data."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from buildmatrix.base.data import replace
from buildmatrix.base.errors import UsageError
from buildmatrix.matrix.model import NodeClass, Position, bare_target
from buildmatrix.preflight import manifests
from buildmatrix.preflight.manifests import Step, remove_mark
from buildmatrix.preflight.protocol import make_call

IMAGE = f"registry.example.com/inferno@sha256:{'7' * 64}"
NODE = NodeClass(
    name="h100",
    backend="cuda",
    driver=">=570",
    archs=("sm_90",),
    labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    runs=(),
    position=Position(Path("buildmatrix.toml"), 1, 1),
    tolerations=("nvidia.com/gpu=present:NoSchedule", "maintenance"),
)
JOB_SET = json.loads((Path(__file__).parents[2] / "schemas/jobset-v1alpha2.json").read_text())


def step(name: str = "imports", rung: Any = "import") -> Step:
    return Step(rung, remove_mark(make_call(name, {"seconds": 5}).command)[0], 60)


def run(**changes: Any) -> manifests.ManifestRun:
    target = bare_target("cuda12.8-py311-server", "cuda")
    made = manifests.ManifestRun(target, IMAGE, NODE, "import", (step(),), {"nvidia.com/gpu": 8})
    return replace(made, **changes)


def documents(made: manifests.ManifestRun) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(manifests.format_manifest(made)))


def check(document: dict[str, Any]) -> None:
    """By the schemas that Kubernetes publishes: unknown fields are mistakes."""
    if document["kind"] == "JobSet":
        jsonschema.validate(document, JOB_SET)
        (job,) = document["spec"]["replicatedJobs"]
        template = job["template"]["spec"]
        document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": template}
    for version in ("1.29", "1.37"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("nodes", [1, 4])
def test_kubernetes_takes_the_documents(nodes: int) -> None:
    found = documents(run(nodes=nodes, steps=(step(), step(rung="collective"))))
    kinds = [document["kind"] for document in found]
    assert kinds == ["ConfigMap", "Job"] + (["ConfigMap", "JobSet"] if nodes > 1 else [])
    for document in found:
        check(document)


def test_the_validation_finds_mistakes() -> None:
    _, job = documents(run())
    job["spec"]["template"]["spec"]["contaners"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        check(job)


def test_a_pod_has_nothing_that_it_does_not_need() -> None:
    _, job = documents(run())
    assert job["spec"]["backoffLimit"] == 0
    # What the commands may take, and the time to fetch the image.
    assert job["spec"]["activeDeadlineSeconds"] == 1860
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["image"] == IMAGE
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostPath"} & set(json.dumps(job).split('"'))
    assert pod["nodeSelector"] == NODE.labels
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "maintenance", "operator": "Exists"},
    ]


def test_pods_of_one_class_keep_to_machines_of_their_own() -> None:
    _, job = documents(run(nodes=3))
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"]) == (3, 3)
    # One machine that fails ends none of the others.
    assert (spec["backoffLimitPerIndex"], "backoffLimit" in spec) == (0, False)
    (apart,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    labels = spec["template"]["metadata"]["labels"].items()
    assert apart["labelSelector"]["matchLabels"].items() <= labels


def test_the_first_of_a_set_has_an_address_that_is_a_host_name() -> None:
    *_, job_set = documents(run(nodes=2, steps=(step(rung="collective"),)))
    (job,) = job_set["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item.get("value") for item in container["env"]}
    host, _, subdomain = str(variables["BUILDMATRIX_FIRST"]).partition(".")
    assert (host, subdomain) == (f"{job_set['metadata']['name']}-nodes-0-0", host[:-10])
    assert (len(host) <= 63, variables["BUILDMATRIX_NODES"]) == (True, "2")


def test_the_same_run_gives_the_same_bytes() -> None:
    assert manifests.format_manifest(run()) == manifests.format_manifest(run())


def test_each_run_has_a_name_of_its_own() -> None:
    other = bare_target("cuda12.8-py311-servers", "cuda")
    runs = [run(), run(nodes=2), run(target=other), run(node_class=replace(NODE, name="h200"))]
    assert len({made.name for made in runs}) == len({made.file for made in runs}) == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": {"key": "two words"}}, "'two words' is not a value of key"),
        ({"labels": {"/": "x"}}, "'/' is not a"),
        ({"labels": {"a" * 70: "x"}}, "is not a"),
        ({"tolerations": ("a b",)}, "'a b' is not a Kubernetes taint"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(changes: Any, said: str) -> None:
    with pytest.raises(UsageError, match="node class h100") as error:
        manifests.format_manifest(run(node_class=replace(NODE, **changes)))
    assert said in error.value.message


def test_more_than_a_config_map_holds_is_refused() -> None:
    big = Step("batch", ("python", "-c", "x" * 1_000_001), 1)
    with pytest.raises(UsageError, match="run fewer with --level"):
        manifests.format_manifest(run(steps=(big,)))


HOSTILE = st.text(min_size=1, max_size=60) | st.sampled_from(
    [
        "a: b",
        "- x",
        "---\nkind: Pod",
        "!!python/object:os.system",
        "{{x}}",
        "*a",
        "&a",
        "'\"",
        "#",
        "~",
    ]
)


LABEL = "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"


@given(HOSTILE, HOSTILE, HOSTILE)
@settings(max_examples=60, deadline=None)
def test_no_name_becomes_more_than_a_text(target: str, node: str, word: str) -> None:
    made = run(
        target=bare_target(target, "cuda"),
        node_class=replace(NODE, name=node),
        steps=(Step("batch", ("sh", "-c", word), 5),),
    )
    config, job = documents(made)
    assert (config["kind"], job["kind"]) == ("ConfigMap", "Job")
    plan = json.loads(config["data"]["plan.json"])
    assert (plan["target"], plan["node_class"]) == (target, node)
    assert plan["steps"][0]["command"] == ["sh", "-c", word]
    name = job["metadata"]["name"]
    assert len(name) <= 49 and name.replace("-", "").isalnum() and name.isascii()
    assert manifests.format_manifest(made).isascii()
    for document in (config, job):
        jsonschema.validate(
            document["metadata"]["labels"],
            {
                "additionalProperties": {
                    "pattern": "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"
                }
            },
        )
