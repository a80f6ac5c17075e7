"""What docs/clusters.md has for Kubernetes: held against the operator's definition and the schemas.

Its container commands are Dask's own, which are asked whether they know each option.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml
from document_blocks import ROOT, blocks_of

import buildmatrix

IMAGE, PROGRAM = (
    block.text
    for block in blocks_of(ROOT / "docs/clusters.md")
    if "test_fleet_kubernetes.py" in block.marker
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the program asks the operator for."""
    from dask_kubernetes import operator

    asked: list[dict[str, Any]] = []

    class Running:
        scheduler_address = "tcp://fleet-scheduler:8786"

        def __init__(self, *, custom_cluster_spec: dict[str, Any]) -> None:
            asked.append(custom_cluster_spec)

        def __enter__(self) -> Running:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def scan(*sources: str, **options: str) -> SimpleNamespace:
        assert options["scheduler"] == Running.scheduler_address
        return SimpleNamespace(render=lambda _: "", exit_code=0)

    monkeypatch.setattr(operator, "KubeCluster", Running)
    monkeypatch.setattr(buildmatrix, "fleet_scan", scan, raising=False)
    with pytest.raises(SystemExit):
        exec(PROGRAM, {})
    (cluster,) = asked
    return cluster


def without_nothing(value: Any) -> Any:
    """As the API server keeps it: what is null is left out."""
    if isinstance(value, Mapping):
        return {key: without_nothing(item) for key, item in value.items() if item is not None}
    return [without_nothing(item) for item in value] if isinstance(value, list) else value


def test_the_operator_would_take_the_cluster(cluster: dict[str, Any]) -> None:
    chart = files("dask_kubernetes.operator") / "deployment/helm/dask-kubernetes-operator"
    definition = yaml.safe_load((chart / "crds/daskcluster.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    assert cluster["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
    jsonschema.validate(without_nothing(cluster), version["schema"]["openAPIV3Schema"])


@pytest.mark.parametrize("part", ["scheduler", "worker"])
def test_kubernetes_would_take_the_pods(cluster: dict[str, Any], part: str) -> None:
    import kubernetes_validate

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": part},
        "spec": without_nothing(cluster["spec"][part]["spec"]),
    }
    for version in ("1.28", "1.35"):
        kubernetes_validate.validate(pod, version, strict=True)
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "registry.example.com/buildmatrix-fleet:1"
    names = {volume["name"] for volume in pod["spec"].get("volumes", ())}
    assert {mount["name"] for mount in container.get("volumeMounts", ())} == names


@pytest.mark.parametrize("part", ["scheduler", "worker"])
def test_dask_has_the_commands_of_the_containers(cluster: dict[str, Any], part: str) -> None:
    import distributed.cli.dask_scheduler
    import distributed.cli.dask_worker

    (container,) = cluster["spec"][part]["spec"]["containers"]
    dask, command, *arguments = container["args"]
    assert (dask, command) == ("dask", part)
    module = getattr(distributed.cli, f"dask_{part}")
    # Raises what the command line would say.
    context = module.main.make_context(command, arguments, resilient_parsing=False)
    if part == "worker":
        assert context.params["nthreads"] == 1 and context.params["memory_limit"] == "2GB"
        assert context.params["scheduler"] is None, "the operator gives it as a variable"


def test_the_image_has_what_a_worker_needs() -> None:
    assert "pip install --no-cache-dir 'buildmatrix[fleet]' s3fs" in IMAGE
