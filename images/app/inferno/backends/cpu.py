"""CPU: the layer as a one-node graph for ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from inferno.model import Array


def _session(relu: bool) -> onnxruntime.InferenceSession:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["sum" if relu else "y"])]
    if relu:
        nodes.append(helper.make_node("Relu", ["sum"], ["y"]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", "k"]), ("w", ["k", "m"]), ("b", ["m"]))
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])
    graph = helper.make_graph(nodes, "dense", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


class OnnxBackend:
    """Runs on whatever cores the machine has."""

    def __init__(self) -> None:
        self._sessions = {relu: _session(relu) for relu in (True, False)}

    def device(self) -> str:
        """Always the CPU."""
        return "cpu (ONNX Runtime " + onnxruntime.__version__ + ")"

    def dense(self, x: Array, weights: Array, bias: Array, *, relu: bool) -> Array:
        """One Gemm, with or without a Relu behind it."""
        (y,) = self._sessions[relu].run(["y"], {"x": x, "w": weights, "b": bias})
        return np.asarray(y, np.float32)


def create() -> OnnxBackend:
    """Build both graphs."""
    return OnnxBackend()
