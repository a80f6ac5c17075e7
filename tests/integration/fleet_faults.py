"""What can go wrong under a run of `fleet scan`, each as one round with a seed.

A round does something to the parts of a `Bed`, runs twice or more, and says how the first run
ended: `equal` to an undisturbed one, or `undecided` in part. Anything else fails an assertion.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

from fault_proxy import hung_up
from fleet_bed import IMPATIENT, Bed
from fleet_broken_images import IMAGE, Victim, path_escapes
from fleet_checks import Ending, Fault, check, check_equal, chosen
from fleet_store_faults import BUCKET, STORE
from killable_scheduler import killable_scheduler
from loopback import Misdeed, Request, answering, cut_after, dripping
from registry import basic

# A registry that is down, busy or breaks off


def registry_down_for_a_while(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Killed in the middle, and started again after some requests came to nothing."""
    first, failed = seed.randint(2, 35), seed.randint(2, 12)
    bed.proxy.at(first, bed.registry.kill)
    bed.proxy.at(first + failed, bed.registry.start)
    run = bed.run(folder / "store")
    assert bed.registry.process is not None and bed.proxy.total > first + failed
    check_equal(run, bed.truth)
    return "equal"


def registry_gone_until_the_next_run(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Killed in the middle, and back for the next run only."""
    bed.proxy.at(seed.randint(2, 35), bed.registry.kill)
    run = bed.run(folder / "store", waiting=IMPATIENT)
    assert bed.registry.process is None
    ending = check(run, bed.truth)
    assert ending == "undecided"
    bed.registry.start()
    check_equal(bed.run(folder / "store"), bed.truth)
    return ending


def registry_throttles(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """429 with `Retry-After`."""
    bed.proxy.plan = chosen(seed, 0.3, lambda own: answering(429, retry_after="1"))
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


def registry_unavailable(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """503 and its like."""
    statuses = (500, 502, 503, 504)
    bed.proxy.plan = chosen(seed, 0.4, lambda own: answering(own.choice(statuses)))
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


def registry_resets_connections(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """RST in place of an answer."""
    bed.proxy.plan = chosen(seed, 0.4, lambda own: hung_up())
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


def registry_cuts_bodies(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """The connection ends in the middle of a body."""

    def cut(own: random.Random) -> Misdeed:
        return cut_after(own.randint(1, 150), reset=own.random() < 0.5)

    bed.proxy.plan = chosen(seed, 0.5, cut)
    run = bed.run(folder / "store")
    check_equal(run, bed.truth)
    return "equal"


def registry_drips(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """One layer comes byte by byte: its image is undecided after the time limit."""
    victim = Victim(bed, seed)
    digest = victim.manifest["layers"][-1]["digest"]
    bed.proxy.plan = lambda request, _: (
        dripping(0.5) if request.path.endswith(f"/blobs/{digest}") else None
    )
    run = bed.run(folder / "store", time_limit=20)
    ending = check(run, bed.truth)
    (why,) = run.undecided.values()
    assert list(run.undecided) == [bed.reference(victim.name)]
    assert f"the layer {digest} of " in why and "took more than 20 s, the time limit" in why
    bed.proxy.reset()
    check_equal(bed.run(folder / "store"), bed.truth)
    return ending


REGISTRY: Mapping[str, Fault] = {
    "registry killed and started again": registry_down_for_a_while,
    "registry gone until the next run": registry_gone_until_the_next_run,
    "registry throttles (429, Retry-After)": registry_throttles,
    "registry answers 500 to 504": registry_unavailable,
    "registry resets connections": registry_resets_connections,
    "registry cuts bodies": registry_cuts_bodies,
    "registry sends a layer byte by byte": registry_drips,
}


# Workers and schedulers


def worker_killed(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """SIGKILL for one worker, twice."""
    fired = []

    def kill() -> None:
        fired.append(bed.kill_worker(seed.randrange(2)))

    # What earlier runs said is looked up before anything is handed to workers.
    first = seed.randint(1, 12)
    bed.proxy.at(first, kill)
    bed.proxy.at(first + seed.randint(18, 30), kill)
    run = bed.run(folder / "store")
    assert fired == [True, True]
    check_equal(run, bed.truth)
    check_equal(bed.run(folder / "store"), bed.truth)
    return "equal"


def scheduler_killed(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """SIGKILL for a scheduler of its own, with its workers; the next run has another one."""
    with killable_scheduler(bed.environment) as (address, kill):
        # What earlier runs said is looked up before a scheduler is spoken to.
        bed.proxy.at(seed.randint(18, 35), kill)
        run = bed.run(folder / "store", scheduler=address)
    ending = check(run, bed.truth, stopped=5)
    assert "is gone" in " ".join(run.log)
    check_equal(bed.run(folder / "store"), bed.truth)
    return ending


WORKERS: Mapping[str, Fault] = {
    "worker killed": worker_killed,
    "scheduler and workers killed": scheduler_killed,
}


# Credentials of the registry


class Guard:
    """Wants tokens, which it gives for a password; both may expire."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.token = self.password = 0
        self.tell()

    def tell(self) -> None:
        """Have the helper say the password of now."""
        answer = {"Username": "robot", "Secret": f"password-{self.password}"}
        (self.bed.folder / "secret.json").write_text(json.dumps(answer))

    def plan(self, request: Request, number: int) -> Misdeed | None:
        """See `FaultProxy.plan`."""
        sent = request.headers.get("authorization", "")
        if request.path.startswith("/token"):
            if sent != basic("robot", f"password-{self.password}"):
                return answering(401)
            body = json.dumps({"token": f"token-{self.token}", "expires_in": 300}).encode()
            return answering(200, body, content_type="application/json")
        if sent == f"Bearer token-{self.token}":
            return None
        challenge = f'Bearer realm="{self.bed.proxy.origin}/token",service="test"'
        return answering(401, www_authenticate=challenge)


def token_expires(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """The registry takes no token of before any more, three times."""
    guard = Guard(bed)

    def expire() -> None:
        guard.token += 1

    for total in sorted(seed.sample(range(5, 60), 3)):
        bed.proxy.at(total, expire)
    bed.proxy.plan = guard.plan
    check_equal(bed.run(folder / "store"), bed.truth)
    assert guard.token > 0
    return "equal"


def password_expires(bed: Bed, seed: random.Random, folder: Path) -> Ending:
    """Token and password are good no longer; the helper has the new one some requests later."""
    guard = Guard(bed)

    def expire() -> None:
        guard.token += 1
        guard.password += 1

    first = seed.randint(5, 45)
    bed.proxy.at(first, expire)
    bed.proxy.at(first + seed.randint(1, 6), guard.tell)
    bed.proxy.plan = guard.plan
    run = bed.run(folder / "store")
    assert guard.token == 1
    ending = check(run, bed.truth)
    check_equal(bed.run(folder / "store"), bed.truth)
    return ending


CREDENTIALS: Mapping[str, Fault] = {
    "registry token expires": token_expires,
    "registry password expires": password_expires,
}


FAULTS: Mapping[str, Fault] = {
    **REGISTRY,
    **IMAGE,
    "names and links that lead out": path_escapes,
    **WORKERS,
    **STORE,
    **BUCKET,
    **CREDENTIALS,
}
