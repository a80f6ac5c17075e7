"""Nodes as clusters describe them. Labels and their values are those that the vendors' own pages
show; names of nodes, counts and kernels are made up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

#: NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery/README.md, "Verifying Everything Works":
#: the spelling of the first releases.
NVIDIA_OLD = {
    "nvidia.com/cuda.driver.major": "455",
    "nvidia.com/cuda.driver.minor": "06",
    "nvidia.com/cuda.driver.rev": "",
    "nvidia.com/cuda.runtime.major": "11",
    "nvidia.com/cuda.runtime.minor": "1",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gfd.timestamp": "1594644571",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.machine": "NVIDIA-DGX-2H",
    "nvidia.com/gpu.memory": "39538",
    "nvidia.com/gpu.product": "A100-SXM4-40GB",
}
#: The same page and NVIDIA's GPU Operator: the spelling of today.
NVIDIA = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/cpu-cpuid.AVX2": "true",
    "feature.node.kubernetes.io/cpu-cpuid.AVX512VL": "true",
    "nvidia.com/cuda.driver-version.full": "550.107.02",
    "nvidia.com/cuda.driver-version.major": "550",
    "nvidia.com/cuda.driver-version.minor": "107",
    "nvidia.com/cuda.driver-version.revision": "02",
    "nvidia.com/cuda.driver.major": "550",
    "nvidia.com/cuda.driver.minor": "107",
    "nvidia.com/cuda.driver.rev": "02",
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/gfd.timestamp": "1731000000",
    "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.deploy.dcgm": "true",
    "nvidia.com/gpu.family": "hopper",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/vgpu.present": "false",
}
#: The same page, "MIG 'single' strategy".
NVIDIA_MIG_SINGLE = NVIDIA | {
    "nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb",
    "nvidia.com/gpu.count": "56",
    "nvidia.com/gpu.memory": "5120",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.multiprocessors": "14",
    "nvidia.com/gpu.slices.gi": "1",
}
#: The same page, "MIG 'mixed' strategy".
NVIDIA_MIG_MIXED = NVIDIA | {
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig-1g.10gb.count": "7",
    "nvidia.com/mig-1g.10gb.memory": "9856",
    "nvidia.com/mig-3g.40gb.count": "2",
}
#: instinct.docs.amd.com, AMD GPU Device Plugin for Kubernetes, "Verify the Node Labeler": MI300X.
AMD = {
    "amd.com/gpu.cu-count": "304",
    "amd.com/gpu.device-id": "74a1",
    "amd.com/gpu.family": "AI",
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
    "amd.com/gpu.simd-count": "1216",
    "amd.com/gpu.vram": "192G",
    "amd.com/gpu.driver-version": "6.10.5",
}
#: ROCm/k8s-device-plugin, cmd/k8s-node-labeller/README.md: the value is a part of the key.
AMD_OLD = {
    "beta.amd.com/gpu.cu-count.64": "1",
    "beta.amd.com/gpu.device-id.6860": "1",
    "beta.amd.com/gpu.family.AI": "1",
    "beta.amd.com/gpu.simd-count.256": "1",
    "beta.amd.com/gpu.vram.16G": "1",
}
#: intel-device-plugins-for-kubernetes, cmd/gpu_plugin/labels.md.
INTEL = {
    "gpu.intel.com/device-id.0380-0bd5.count": "2",
    "gpu.intel.com/device-id.0380-0bd5.present": "true",
    "gpu.intel.com/device.count": "2",
    "gpu.intel.com/family": "Max_Series",
    "gpu.intel.com/product": "Max_1550",
}
#: AWS Neuron documentation, "Kubernetes environment setup for Neuron".
NEURON = {"node.kubernetes.io/instance-type": "trn1.32xlarge"}
NEURON_RESOURCES = {"aws.amazon.com/neuroncore": "32", "aws.amazon.com/neuron": "16"}


def node(
    name: str,
    labels: Mapping[str, str],
    resources: Mapping[str, str],
    *,
    kernel: str = "5.15.0-1067-nvidia",
    runtime: str = "containerd://1.7.27",
    taints: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """A Node, with what every node has beside that."""
    capacity = {"cpu": "192", "memory": "2113407884Ki", "pods": "110", **resources}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                **labels,
            },
        },
        "spec": {
            "podCIDR": "10.42.0.0/24",
            **({"taints": [dict(taint) for taint in taints]} if taints else {}),
        },
        "status": {
            "addresses": [{"address": name, "type": "Hostname"}],
            "allocatable": capacity,
            "capacity": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": ["registry.k8s.io/pause:3.9"], "sizeBytes": 321520}],
            "nodeInfo": {
                "architecture": "amd64",
                "containerRuntimeVersion": runtime,
                "kernelVersion": kernel,
                "operatingSystem": "linux",
            },
        },
    }


def listed(*nodes: dict[str, Any]) -> dict[str, Any]:
    """What `kubectl get nodes -o json` writes."""
    return {
        "apiVersion": "v1",
        "items": list(nodes),
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }


def written(path: Path, document: object) -> str:
    """The name of a file that holds a document."""
    path.write_text(json.dumps(document, indent=4))
    return str(path)


H100 = ("nvidia.com/gpu", "8")


def h100(name: str, **labels: str) -> dict[str, Any]:
    """A node with eight H100; `driver` is its driver."""
    driver = labels.pop("driver", "550.107.02")
    return node(
        name,
        {**NVIDIA, "nvidia.com/cuda.driver-version.full": driver, **labels},
        dict([H100]),
        taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    )
