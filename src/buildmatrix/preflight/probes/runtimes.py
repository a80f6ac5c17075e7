"""Inference runtimes and OpenCL, for `frameworks`.

Part of probes: runs inside an image, by the image's Python, 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from buildmatrix.preflight.probes.arrays import Cupy, Jax, Numpy, Paddle, TensorFlow, Torch
from buildmatrix.preflight.probes.frameworks import (
    Device,
    Framework,
    Product,
    first_line,
    make_numpy_matrices,
)


class OnnxRuntime(Framework):
    """onnxruntime: a provider counts as a device only after it has run something."""

    module = "onnxruntime"
    #: Numbers of types in onnx.proto (TensorProto.DataType), and of the type of their product.
    TYPES: Mapping[str, tuple[int, int]] = {
        "float32": (1, 1),
        "float16": (10, 10),
        "int8": (3, 6),
    }

    def devices(self) -> list[Device]:
        self.build = str(self.api.get_device())
        listed = []
        for provider in self.api.get_available_providers():
            if provider not in self.kinds:
                continue
            device = Device(provider, provider, is_host=provider == "CPUExecutionProvider")
            try:
                product = self.product(device, "float32", 8)
                if product.where(product.run()) == provider:
                    listed.append(device)
            except Exception as error:
                self.reason = self.reason or first_line(error)
        return listed

    def product(self, device: Device, type: str, size: int) -> Product:
        options = self.api.SessionOptions()
        options.log_severity_level = 4
        if not device.is_host:
            # Unsupported operators would run on the CPU without notice.
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        operator = "MatMulInteger" if type == "int8" else "MatMul"
        model = make_operator_model(operator, ["a", "b"], self.TYPES[type], [size, size])
        session = self.api.InferenceSession(model, options, providers=[device.id])
        left, right = make_numpy_matrices(type, size, type)
        inputs = {"a": left, "b": right}
        return Product(
            lambda: session.run(None, inputs)[0], lambda c: str(session.get_providers()[0])
        )

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        if not device.is_host:
            # Only providers know which memory is the device's, each with its own interface.
            return None
        numpy = importlib.import_module("numpy")
        options = self.api.SessionOptions()
        options.log_severity_level = 4
        model = make_operator_model("Neg", ["a"], self.TYPES["float32"], [count // 4])
        session = self.api.InferenceSession(model, options, providers=[device.id])
        binding = session.io_binding()
        source, target = (make(count // 4, "float32") for make in (numpy.ones, numpy.zeros))
        # Written once, into existing memory.
        values = [self.api.OrtValue.ortvalue_from_numpy(side) for side in (source, target)]
        binding.bind_ortvalue_input("a", values[0])
        binding.bind_ortvalue_output("c", values[1])
        # Bindings do not keep the values alive.
        return lambda: (session.run_with_iobinding(binding), values)


def make_operator_model(
    operator: str, inputs: Sequence[str], types: tuple[int, int], shape: Sequence[int]
) -> bytes:
    """Return a model of one operator with the output `c`, in onnx.proto format.

    ModelProto, IR version 8. `types` are those of the inputs and of the output, all of one `shape`.
    """

    def number(field: int, value: int) -> bytes:
        return encode_varint(field << 3) + encode_varint(value)

    def part(field: int, value: bytes) -> bytes:
        return encode_varint(field << 3 | 2) + encode_varint(len(value)) + value

    def tensor(name: str, element: int) -> bytes:
        sides = b"".join(part(1, number(1, size)) for size in shape)
        return part(1, name.encode()) + part(2, part(1, number(1, element) + part(2, sides)))

    node = b"".join(part(1, name.encode()) for name in inputs)
    graph = part(1, node + part(2, b"c") + part(4, operator.encode())) + part(2, b"product")
    graph += b"".join(part(11, tensor(name, types[0])) for name in inputs)
    graph += part(12, tensor("c", types[1]))
    return number(1, 8) + part(7, graph) + part(8, number(2, 13))


def encode_varint(value: int) -> bytes:
    """Encode a number as a Protocol Buffers varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class OpenVino(Framework):
    """OpenVINO, with the devices of its plugins."""

    module = "openvino"
    #: Capability names of the types.
    CAPABILITIES: Mapping[str, str] = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}
    HINTS: Mapping[str, str] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}

    def devices(self) -> list[Device]:
        self.core = self.api.Core()
        listed = []
        for id in self.core.available_devices:
            name = str(self.core.get_property(id, "FULL_DEVICE_NAME"))
            memory = 0
            with contextlib.suppress(Exception):
                memory = int(self.core.get_property(id, "GPU_DEVICE_TOTAL_MEM_SIZE"))
            kind = id.partition(".")[0]
            listed.append(Device(id, kind, name, memory, is_host=kind == "CPU"))
        return listed

    def types(self, device: Device) -> Sequence[str]:
        able = self.core.get_property(device.id, "OPTIMIZATION_CAPABILITIES")
        return [type for type, word in self.CAPABILITIES.items() if word in able]

    def product(self, device: Device, type: str, size: int) -> Product:
        operators = importlib.import_module("openvino.opset8")
        a, b = (operators.parameter([size, size], self.api.Type.f32, name) for name in "ab")
        model = self.api.Model([operators.matmul(a, b, False, False)], [a, b], "product")
        hints = {"INFERENCE_PRECISION_HINT": self.HINTS[type]}
        compiled = self.core.compile_model(model, device.id, hints)
        request = compiled.create_infer_request()
        sides = [self.api.Tensor(side) for side in make_numpy_matrices(type, size, "float32")]

        def where(_: Any) -> str:
            return ",".join(compiled.get_property("EXECUTION_DEVICES"))

        return Product(
            lambda: request.infer(sides, share_inputs=True, share_outputs=True)[0], where
        )

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        if not device.is_host:
            # Device memory has a different interface for each kind of device.
            return None
        numpy = importlib.import_module("numpy")
        operators = importlib.import_module("openvino.opset8")
        a = operators.parameter([count // 4], self.api.Type.f32, "a")
        model = self.api.Model([operators.negative(a)], [a], "copy")
        hints = {"INFERENCE_PRECISION_HINT": self.HINTS["float32"]}
        request = self.core.compile_model(model, device.id, hints).create_infer_request()
        source, target = (make(count // 4, "float32") for make in (numpy.ones, numpy.zeros))
        request.set_input_tensor(self.api.Tensor(source, shared_memory=True))
        request.set_output_tensor(self.api.Tensor(target, shared_memory=True))
        # Shared memory does not keep the arrays alive.
        return lambda: (request.infer(), source, target)


class OpenCl(Framework):
    """pyopencl, with the devices of all platforms whose drivers the loader opens."""

    module = "pyopencl"
    #: Types of the matrices, and of their product, in OpenCL C.
    TYPES: Mapping[str, tuple[str, str, str]] = {
        "float32": ("float", "float", "float32"),
        "float16": ("half", "half", "float16"),
        "int8": ("char", "int", "int32"),
    }
    SOURCE = """
    #ifdef cl_khr_fp16
    #pragma OPENCL EXTENSION cl_khr_fp16 : enable
    #endif
    __kernel void product(__global const T *a, __global const T *b, __global R *c, const int n) {
        const int row = get_global_id(0), column = 4 * get_global_id(1);
        A s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int k = 0; k < n; k++) {
            const A x = (A) a[row * n + k];
            __global const T *line = b + k * n + column;
            s0 += x * (A) line[0]; s1 += x * (A) line[1];
            s2 += x * (A) line[2]; s3 += x * (A) line[3];
        }
        __global R *out = c + row * n + column;
        out[0] = (R) s0; out[1] = (R) s1; out[2] = (R) s2; out[3] = (R) s3;
    }
    """

    @property
    def version(self) -> str:
        return str(self.api.VERSION_TEXT)

    def devices(self) -> list[Device]:
        cl = self.api
        listed: list[Device] = []
        try:
            platforms = cl.get_platforms()
        except Exception as error:  # PLATFORM_NOT_FOUND_KHR
            self.reason = f"no platform: {first_line(error)}"
            platforms = []
        for platform in platforms:
            version = " ".join(platform.version.split()[:4])
            self.build = ", ".join(part for part in (self.build, version) if part)
            # A platform without devices raises.
            with contextlib.suppress(cl.Error):
                for device in platform.get_devices():
                    words = ("GPU", "ACCELERATOR", "CPU")
                    known = [w for w in words if device.type & getattr(cl.device_type, w)]
                    word = known[0] if known else "CUSTOM"
                    kind = f"{word} {platform.vendor.strip()}"
                    name, memory = device.name.strip(), device.global_mem_size
                    is_host = bool(device.host_unified_memory) or word == "CPU"
                    listed.append(Device(f"{len(listed)}", kind, name, memory, device, is_host))
        return listed

    def types(self, device: Device) -> Sequence[str]:
        half = "cl_khr_fp16" in device.handle.extensions
        return [type for type in self.TYPES if type != "float16" or half]

    def _queue(self, device: Device) -> Any:
        return self.api.CommandQueue(self.api.Context([device.handle]))

    def product(self, device: Device, type: str, size: int) -> Product:
        cl, numpy = self.api, importlib.import_module("numpy")
        queue = self._queue(device)
        element, result, dtype = self.TYPES[type]
        wide = "int" if type == "int8" else "float"
        flags = cl.mem_flags
        left, right = (
            cl.Buffer(queue.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=side)
            for side in make_numpy_matrices(type, size, type)
        )
        host = numpy.empty((size, size), dtype)
        output = cl.Buffer(queue.context, flags.WRITE_ONLY, host.nbytes)
        names = [f"-DT={element}", f"-DR={result}", f"-DA={wide}"]
        kernel = cl.Kernel(cl.Program(queue.context, self.SOURCE).build(names), "product")

        def run() -> Any:
            # A kernel does not keep its arguments alive.
            event = kernel(queue, (size, size // 4), None, left, right, output, numpy.int32(size))
            event.wait()
            return event

        def read(_: Any, row: int, column: int) -> float:
            cl.enqueue_copy(queue, host, output)
            return float(host[row, column])

        def where(event: Any) -> str:
            used = event.get_info(cl.event_info.COMMAND_QUEUE).device
            return device.id if used == device.handle else str(used.name)

        return Product(run, where, read)

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        queue = self._queue(device)
        flags = self.api.mem_flags.READ_WRITE
        source, target = (self.api.Buffer(queue.context, flags, count) for _ in range(2))
        self._fill(queue, source, count)
        return lambda: self.api.enqueue_copy(queue, target, source).wait()

    def fill(self, device: Device, count: int) -> Any:
        queue = self._queue(device)
        filled = self.api.Buffer(queue.context, self.api.mem_flags.READ_WRITE, count)
        self._fill(queue, filled, count)
        return filled

    def _fill(self, queue: Any, buffer: Any, count: int) -> None:
        pattern = importlib.import_module("numpy").uint8(1)
        self.api.enqueue_fill_buffer(queue, buffer, pattern, 0, count).wait()


class LlamaCpp(Framework):
    """llama-cpp-python; its devices come from ggml's own list (ggml-backend.h)."""

    module = "llama_cpp"

    def devices(self) -> list[Device]:
        folder = Path(self.api.__file__).parent / "lib"
        listed: list[Device] = []
        for path in sorted(folder.glob("libggml*.so*")):
            library = ctypes.CDLL(os.fspath(path))
            if not hasattr(library, "ggml_backend_dev_count"):
                continue
            library.ggml_backend_dev_count.restype = ctypes.c_size_t
            library.ggml_backend_dev_get.restype = ctypes.c_void_p
            library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
            for name in ("name", "description"):
                function = getattr(library, f"ggml_backend_dev_{name}")
                function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
            for number in range(library.ggml_backend_dev_count()):
                device = library.ggml_backend_dev_get(number)
                id = library.ggml_backend_dev_name(device).decode()
                kind = id.rstrip("0123456789")
                name = library.ggml_backend_dev_description(device).decode()
                listed.append(Device(id, kind, name, is_host=kind == "CPU"))
            break
        return listed


#: By module name; the catalogue says which of them have devices of a backend.
FRAMEWORKS: Mapping[str, type[Framework]] = {
    framework.module: framework
    for framework in (
        Torch, Jax, TensorFlow, OnnxRuntime, OpenVino, Cupy, Paddle, LlamaCpp, OpenCl, Numpy
    )
}  # fmt: skip
