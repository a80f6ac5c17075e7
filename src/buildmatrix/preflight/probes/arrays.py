"""Array frameworks, for `frameworks`.

Part of probes: runs inside an image, by the image's Python, 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from buildmatrix.preflight.probes.frameworks import (
    UNIT,
    Device,
    Framework,
    Product,
    first_line,
    make_numpy_matrices,
    make_pattern,
)


class Numpy(Framework):
    """numpy: the CPU, with the BLAS it was built with."""

    module = "numpy"
    TYPES = ("float32",)

    def devices(self) -> list[Device]:
        return [Device("cpu", "cpu", is_host=True)]

    def product(self, device: Device, type: str, size: int) -> Product:
        left, right = make_numpy_matrices(type, size, type)
        return Product(lambda: left @ right, lambda c: "cpu")

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        source, target = self.api.ones(count, "uint8"), self.api.zeros(count, "uint8")
        return lambda: self.api.copyto(target, source)

    def fill(self, device: Device, count: int) -> Any:
        return self.api.ones(count, "uint8")


class Torch(Framework):
    """torch, with the accelerators of its build and of plugins."""

    module = "torch"
    TYPES = ("float32", "float16", "bfloat16", "int8")

    def devices(self) -> list[Device]:
        torch = self.api
        version = torch.version
        built = {name: getattr(version, name, None) for name in self.kinds}
        self.build = ", ".join(f"{name} {value}" for name, value in built.items() if value)
        listed = []
        # A HIP build names its devices like CUDA's.
        names = ["cuda" if kind == "hip" else kind for kind in self.kinds if kind != "cpu"]
        for name in dict.fromkeys(names):
            accelerator = getattr(torch, name, None)
            if accelerator is None or not hasattr(accelerator, "device_count"):
                continue
            kind = "hip" if name == "cuda" and getattr(version, "hip", None) else name
            try:
                for number in range(accelerator.device_count()):
                    id = f"{name}:{number}"
                    torch.zeros(8, device=id).add_(1).sum().item()
                    listed.append(Device(id, kind, *self._described(accelerator, number)))
                if not listed and built.get(kind):
                    torch.zeros(1, device=name)
            except Exception as error:  # The type depends on the vendor's code.
                self.reason = self.reason or first_line(error)
        level = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: "")()
        return [*listed, Device("cpu", "cpu", level, is_host=True)]

    @staticmethod
    def _described(accelerator: Any, number: int) -> tuple[str, int]:
        with contextlib.suppress(Exception):
            properties = accelerator.get_device_properties(number)
            return str(properties.name), int(properties.total_memory)
        return "", 0

    def _wait(self, device: Device) -> None:
        if device.id != "cpu":
            getattr(self.api, device.id.partition(":")[0]).synchronize(device.id)

    def product(self, device: Device, type: str, size: int) -> Product:
        torch = self.api
        at = torch.arange(size)
        left, right = (
            make_pattern(at[:, None], at[None, :]),
            make_pattern(at[:, None] + 17, at[None, :] + 5),
        )
        if type == "int8":
            multiply = torch._int_mm
        else:
            left, right, multiply = left / UNIT, right / UNIT, torch.mm
        left, right = (side.to(device.id, getattr(torch, type)) for side in (left, right))

        def run() -> Any:
            result = multiply(left, right)
            self._wait(device)
            return result

        return Product(run, lambda c: str(c.device))

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        torch = self.api
        source = torch.ones(count, dtype=torch.uint8, device=device.id)
        target = torch.zeros_like(source)

        def run() -> Any:
            target.copy_(source)
            self._wait(device)

        return run

    def fill(self, device: Device, count: int) -> Any:
        filled = self.api.ones(count, dtype=self.api.uint8, device=device.id)
        self._wait(device)
        return filled

    def release(self, device: Device) -> None:
        accelerator = getattr(self.api, device.id.partition(":")[0])
        if device.id != "cpu" and hasattr(accelerator, "empty_cache"):
            accelerator.empty_cache()

    def free(self, device: Device) -> int | None:
        accelerator = getattr(self.api, device.id.partition(":")[0])
        if device.id == "cpu" or not hasattr(accelerator, "mem_get_info"):
            return None
        return int(accelerator.mem_get_info(int(device.id.partition(":")[2]))[0])


class Jax(Framework):
    """jax, with its plugins."""

    module = "jax"
    ENVIRONMENT: Mapping[str, str] = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    TYPES = ("float32", "float16", "bfloat16", "int8")

    def devices(self) -> list[Device]:
        listed = []
        for device in self.api.devices():
            kind = device.platform
            said = str(getattr(device.client, "platform_version", "")).split("\n")[-1].split()
            self.build = self.build or " ".join(said[:2])
            if kind == "gpu" and said:
                kind = f"gpu {said[0]}"
            memory = 0
            with contextlib.suppress(Exception):
                memory = int((device.memory_stats() or {}).get("bytes_limit", 0))
            id = f"{device.platform}:{device.id}"
            host = device.platform == "cpu"
            listed.append(Device(id, kind, device.device_kind, memory, device, host))
        return listed

    def product(self, device: Device, type: str, size: int) -> Product:
        jax, jnp = self.api, importlib.import_module("jax.numpy")
        sides = [
            jax.device_put(jnp.asarray(side, dtype=type), device.handle)
            for side in make_numpy_matrices(type, size, "int8" if type == "int8" else "float32")
        ]
        wide = "int32" if type == "int8" else type
        multiply = jax.jit(lambda a, b: jnp.matmul(a, b, preferred_element_type=wide))

        def where(result: Any) -> str:
            (used,) = result.devices()
            return f"{used.platform}:{used.id}"

        return Product(lambda: multiply(*sides).block_until_ready(), where)

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        source, add = self.fill(device, count), self.api.jit(lambda x: x + 1)
        return lambda: add(source).block_until_ready()

    def fill(self, device: Device, count: int) -> Any:
        jnp = importlib.import_module("jax.numpy")
        with self.api.default_device(device.handle):
            return jnp.ones(count // 4, "float32").block_until_ready()


class TensorFlow(Framework):
    """TensorFlow, with the devices of its build and its plugins."""

    module = "tensorflow"
    ENVIRONMENT: Mapping[str, str] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    TYPES = ("float32", "float16", "bfloat16")

    def devices(self) -> list[Device]:
        info: Mapping[str, Any] = self.api.sysconfig.get_build_info()
        built = [name for name in ("cuda", "rocm") if info.get(f"is_{name}_build")]
        version = info.get("cuda_version", "")
        self.build = " ".join([*built, version]).strip()
        listed = []
        for device in self.api.config.list_physical_devices():
            kind = " ".join([device.device_type, *built]) if device.device_type == "GPU" else ""
            id = ":".join(device.name.rpartition("/physical_device:")[2].split(":"))
            host = device.device_type == "CPU"
            listed.append(Device(id, kind or device.device_type, is_host=host))
        return listed

    def product(self, device: Device, type: str, size: int) -> Product:
        tensorflow = self.api
        tensorflow.config.set_soft_device_placement(False)
        with tensorflow.device(device.id):
            left, right = (
                tensorflow.cast(tensorflow.constant(side), type)
                for side in make_numpy_matrices(type, size, "float32")
            )

        def run() -> Any:
            with tensorflow.device(device.id):
                result = tensorflow.linalg.matmul(left, right)
            # Its devices run asynchronously.
            result[0, 0].numpy()
            return result

        return Product(
            run,
            lambda c: c.device.rpartition("/device:")[2],
            lambda c, i, j: float(c[i, j].numpy()),
        )

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        tensorflow = self.api
        with tensorflow.device(device.id):
            # Passing on an array copies nothing.
            source = tensorflow.ones(count // 4, "float32")

        def run() -> Any:
            with tensorflow.device(device.id):
                tensorflow.negative(source)[0].numpy()

        return run

    def fill(self, device: Device, count: int) -> Any:
        with self.api.device(device.id):
            filled = self.api.ones(count, "uint8")
        filled[0].numpy()
        return filled


class Cupy(Framework):
    """CuPy, for CUDA or for HIP."""

    module = "cupy"
    TYPES = ("float32", "float16")

    def devices(self) -> list[Device]:
        runtime = self.api.cuda.runtime
        kind = "hip" if runtime.is_hip else "cuda"
        self.build = f"{kind} {runtime.runtimeGetVersion()}"
        try:
            count = runtime.getDeviceCount()
        except Exception as error:
            self.reason = first_line(error)
            count = 0
        listed = []
        for number in range(count):
            properties = runtime.getDeviceProperties(number)
            memory = int(properties["totalGlobalMem"])
            listed.append(Device(f"{number}", kind, properties["name"].decode(), memory))
        return listed

    def product(self, device: Device, type: str, size: int) -> Product:
        with self.api.cuda.Device(int(device.id)):
            left, right = (self.api.asarray(side) for side in make_numpy_matrices(type, size, type))

        def run() -> Any:
            with self.api.cuda.Device(int(device.id)) as used:
                result = left @ right
                used.synchronize()
            return result

        return Product(run, lambda c: str(c.device.id))

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        source, target = self.fill(device, count), self.fill(device, count)

        def run() -> Any:
            with self.api.cuda.Device(int(device.id)) as used:
                self.api.copyto(target, source)
                used.synchronize()

        return run

    def fill(self, device: Device, count: int) -> Any:
        with self.api.cuda.Device(int(device.id)) as used:
            filled = self.api.ones(count, "uint8")
            used.synchronize()
        return filled

    def release(self, device: Device) -> None:
        with self.api.cuda.Device(int(device.id)):
            self.api.get_default_memory_pool().free_all_blocks()

    def free(self, device: Device) -> int | None:
        with self.api.cuda.Device(int(device.id)):
            return int(self.api.cuda.runtime.memGetInfo()[0])


class Paddle(Framework):
    """PaddlePaddle, with the devices of its build and its plugins."""

    module = "paddle"

    def devices(self) -> list[Device]:
        paddle = self.api
        built = [
            name
            for name in ("cuda", "rocm", "xpu")
            if getattr(paddle, f"is_compiled_with_{name}", lambda: False)()
        ]
        self.build = " ".join(built)
        listed = []
        for id in paddle.device.get_available_device():
            name = id.partition(":")[0]
            kind = " ".join([name, *built]) if name == "gpu" else name
            listed.append(Device(id, kind, is_host=name == "cpu"))
        with contextlib.suppress(Exception):
            for id in paddle.device.get_available_custom_device():
                listed.append(Device(id, id.partition(":")[0]))
        # The list may lack the CPU.
        return [
            *(device for device in listed if not device.is_host),
            Device("cpu", "cpu", is_host=True),
        ]

    def types(self, device: Device) -> Sequence[str]:
        return ("float32",) if device.is_host else ("float32", "float16", "bfloat16")

    def product(self, device: Device, type: str, size: int) -> Product:
        paddle = self.api
        paddle.set_device(device.id)
        left, right = (
            paddle.to_tensor(side).cast(type) for side in make_numpy_matrices(type, size, "float32")
        )

        def run() -> Any:
            result = paddle.matmul(left, right)
            # Waits for any device.
            result[0, 0].item()
            return result

        def where(result: Any) -> str:
            place = str(result.place)
            for old, new in (("Place(", ""), (")", ""), ("_pinned", "")):
                place = place.replace(old, new)
            return place

        return Product(run, where, lambda c, i, j: float(c[i, j].item()))

    def copy(self, device: Device, count: int) -> Callable[[], Any] | None:
        self.api.set_device(device.id)
        source, target = self.fill(device, count), self.fill(device, count)

        def run() -> Any:
            self.api.assign(source, target)
            target[0].item()

        return run

    def fill(self, device: Device, count: int) -> Any:
        self.api.set_device(device.id)
        filled = self.api.ones([count], "uint8")
        filled[0].item()
        return filled
