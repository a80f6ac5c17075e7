"""Reduce over all devices of this machine with the installed frameworks.

Runs inside an image, by the image's Python, 3.8 or newer. PyTorch gets one process per device, and
each reports its progress, so that a hanging one is known. JAX drives all devices from one process.
See `preflight.protocol` for the output.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from buildmatrix.preflight.probes.bounded import (
    Emit,
    Ended,
    compute_memory_limit,
    read_options,
    report,
    run,
)
from buildmatrix.preflight.probes.frameworks import select_devices
from buildmatrix.preflight.probes.runtimes import FRAMEWORKS

#: Numbers per rank: 64 MiB of float32 on a device, 16 MiB on a CPU.
COUNT, COUNT_HOST = 16 << 20, 4 << 20
#: Timed rounds, after an untimed one.
ROUNDS = 5
#: Numbers of a rank repeat with this period, times the rank plus one: exact in float32 up to 500
#: ranks.
PERIOD = 97
#: Stages of a rank, in order.
STAGES = ("began", "imported", "joined", "reduced")
#: Number of nodes that reduce together, index of this one, address and port of the first: set for
#: pods of a JobSet (`preflight.manifests`). Only PyTorch reduces over several.
NODES = int(os.environ.get("BUILDMATRIX_NODES", "1"))
NODE, FIRST = int(os.environ.get("BUILDMATRIX_RANK", "0")), os.environ.get("BUILDMATRIX_FIRST", "")
PORT = 29500
#: Ranks of a CPU, which is one device.
RANKS_OF_HOST = 2

Question = dict[str, Any]


def list_torch_devices(question: Question, emit: Emit) -> None:
    """Report PyTorch's device types for the backend, with counts and communication backends."""
    framework = FRAMEWORKS["torch"](question["kinds"], question["imports"])
    types = [
        device.id.partition(":")[0]
        for device in select_devices(framework.devices(), question["wanted"])
    ]
    distributed = import_module("torch.distributed")
    backends: dict[str, str] = {}
    if distributed.is_available():
        # Registered by PyTorch and its plugins, for their devices.
        backends = distributed.Backend.default_device_backend_map
    for type in dict.fromkeys(types):
        emit(type=type, count=types.count(type), backend=backends.get(type, ""))
    if not types:
        emit(reason=framework.reason)


def run_torch_rank(
    question: Question,
    type: str,
    backend: str,
    own_ranks: int,
    place: str,
    own_rank: int,
    emit: Emit,
) -> None:
    """Run one of the processes that reduce together; with several nodes, one of this node's."""
    emit(stage="began")
    ranks, rank = own_ranks * NODES, own_ranks * NODE + own_rank
    if NODES == 1:
        # The only interface of a container without network.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch = FRAMEWORKS["torch"](question["kinds"], question["imports"]).api
    distributed = import_module("torch.distributed")
    emit(stage="imported")
    if type != "cpu":
        getattr(torch, type).set_device(own_rank)
    distributed.init_process_group(
        backend,
        init_method=place,
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=read_options()["seconds"]),
    )
    emit(stage="joined")
    device = "cpu" if type == "cpu" else f"{type}:{own_rank}"
    count = COUNT_HOST if type == "cpu" else COUNT
    numbers = torch.arange(count, device=device) % PERIOD
    own = (numbers * (rank + 1)).to(torch.float32)
    expected = (numbers * (ranks * (ranks + 1) // 2)).to(torch.float32)
    times = []
    for _ in range(1 + ROUNDS):
        data = own.clone()
        wait(torch, type)
        began = time.monotonic()
        distributed.all_reduce(data)
        wait(torch, type)
        times.append(time.monotonic() - began)
    right = bool(torch.equal(data, expected))
    emit(stage="reduced", right=right, seconds=min(times[1:]), bytes=count * 4)


def wait(torch: Any, type: str) -> None:
    """Wait until the device has finished."""
    if type != "cpu":
        getattr(torch, type).synchronize()


def reduce_with_torch(question: Question) -> None:
    """Reduce over all devices that PyTorch sees, or over two processes on a CPU."""
    seconds = read_options()["seconds"]
    ended = run(partial(list_torch_devices, question), seconds, compute_memory_limit())
    if ended.why:
        report("torch", "undecided", f"asking it for its devices {ended.account}")
        return
    seen = [answer for answer in ended.answers if "type" in answer]
    if not seen:
        reason = str(ended.answers[0]["reason"]) if ended.answers else ""
        report("torch", "not-run", "; ".join(filter(None, ("torch sees no device", reason))))
    for answer in seen:
        type, backend = answer["type"], answer["backend"]
        ranks = RANKS_OF_HOST if type == "cpu" else answer["count"]
        if ranks * NODES == 1:
            report(f"torch {type}", "not-run", f"torch sees one {type} device only")
        elif not backend:
            report(f"torch {type}", "not-run", f"this torch has no collectives for {type} devices")
        else:
            with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(ranks) as pool:
                place = f"tcp://{FIRST}:{PORT}" if FIRST else Path(folder, "ranks").as_uri()
                work = partial(run_torch_rank, question, type, backend, ranks, place)
                share = compute_memory_limit() // ranks
                jobs = [
                    pool.submit(run, partial(work, rank), seconds, share) for rank in range(ranks)
                ]
                judge(type, backend, [job.result() for job in jobs])


def judge(type: str, backend: str, ranks: list[Ended]) -> None:
    """Report the reduction, or the ranks that kept the others from it."""
    answers = [{k: v for answer in rank.answers for k, v in answer.items()} for rank in ranks]
    subject = f"torch {type} {backend}"
    stages = [STAGES.index(answer["stage"]) if answer else -1 for answer in answers]
    values: dict[str, Any] = {"ranks": len(ranks), "backend": backend}
    if min(stages) < len(STAGES) - 1:
        least = min(stages)
        # Dead ranks block those that wait for them.
        died = [n for n, rank in enumerate(ranks) if rank.why and "more than" not in rank.why]
        behind = [n for n, stage in enumerate(stages) if stage == least]
        culprits = [n for n in behind if n in died] or behind
        names = ", ".join(map(str, culprits))
        after = f"after it had {STAGES[least]}" if least >= 0 else "before it began"
        account = ranks[culprits[0]].account or "ended without a word"
        noun = "rank" if len(culprits) == 1 else "ranks"
        message = f"{noun} {names} of {len(ranks)} stopped {after}: {account}"
        report(subject, "failed", message, ranks_behind=[str(n) for n in culprits], **values)
        return
    wrong = [n for n, answer in enumerate(answers) if not answer["right"]]
    if wrong:
        names = ", ".join(map(str, wrong))
        report(subject, "failed", f"the sum is wrong on rank {names} of {len(ranks)}", **values)
        return
    slowest = max(answer["seconds"] for answer in answers)
    report_reduction(subject, len(ranks) * NODES, answers[0]["bytes"], slowest, backend)


def report_reduction(subject: str, ranks: int, size: int, seconds: float, backend: str) -> None:
    """Report a correct sum, and the rate per rank (`busbw` of nccl-tests)."""
    rate = size * 2 * (ranks - 1) / ranks / seconds / 1e9
    message = f"{ranks} ranks added up {size >> 20} MiB each at {rate:.2f} GB/s"
    report(subject, "passed", message, seconds, ranks=ranks, backend=backend, bytes=size, gbps=rate)


def run_jax_devices(question: Question, emit: Emit) -> None:
    """Drive all devices of JAX in one process; two parts of a CPU count as two."""
    if "cpu" in question["wanted"]:
        flag = f"--xla_force_host_platform_device_count={RANKS_OF_HOST}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    framework = FRAMEWORKS["jax"](question["kinds"], question["imports"])
    jax, numpy = framework.api, import_module("numpy")
    devices = select_devices(framework.devices(), question["wanted"])
    ranks = len(devices)
    emit(ranks=ranks, type=devices[0].id.partition(":")[0] if devices else "")
    if ranks < 2:
        return
    count = COUNT_HOST if devices[0].is_host else COUNT
    numbers = (numpy.arange(count) % PERIOD).astype("float32")
    data = numpy.stack([numbers * (rank + 1) for rank in range(ranks)])
    handles = [device.handle for device in devices]
    add = jax.pmap(lambda part: jax.lax.psum(part, "ranks"), axis_name="ranks", devices=handles)
    # Its result stays on the devices, so the timed part has no copy to them.
    data = jax.pmap(lambda part: part, devices=handles)(data)
    times = []
    for _ in range(1 + ROUNDS):
        began = time.monotonic()
        result = add(data).block_until_ready()
        times.append(time.monotonic() - began)
    expected = numbers * (ranks * (ranks + 1) // 2)
    right = all(bool((numpy.asarray(part) == expected).all()) for part in result)
    emit(right=right, seconds=min(times[1:]), bytes=count * 4)


def reduce_with_jax(question: Question) -> None:
    """Reduce with JAX, and report the result."""
    ended = run(
        partial(run_jax_devices, question), read_options()["seconds"], compute_memory_limit()
    )
    answer = {key: value for part in ended.answers for key, value in part.items()}
    ranks, type = answer.get("ranks", 0), answer.get("type", "")
    subject = f"jax {type}".strip()
    if ended.why:
        report(subject, "failed", f"reducing with it {ended.account}", ranks=ranks)
    elif ranks < 2:
        seen = f"one {type} device only" if ranks else "no device"
        report(subject, "not-run", f"jax sees {seen}")
    elif not answer["right"]:
        report(subject, "failed", f"the sum over {ranks} devices is wrong", ranks=ranks)
    else:
        report_reduction(subject, ranks, answer["bytes"], answer["seconds"], "pmap")


def main() -> None:
    """Run every supported framework in turn."""
    probes: dict[str, Callable[[Question], None]] = {
        "torch": reduce_with_torch,
        "jax": reduce_with_jax,
    }
    questions = read_options()["frameworks"]
    names = [name for name in probes if name in questions and importlib.util.find_spec(name)]
    report("frameworks", "passed", names=names)
    for name in names:
        probes[name](questions[name])


if __name__ == "__main__":
    main()
