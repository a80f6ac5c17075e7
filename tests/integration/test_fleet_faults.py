"""What a run over a fleet does when something dies under it: nothing is lost or counted twice.

Dask is real, with processes that are killed after a number of results that a seed chooses. What
workers do is a stand-in (`fleet_steps`), which writes down everything that it is asked for.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path

import dask
import pytest
from fleet_cases import results_of
from fleet_steps import ENDLESS, FATAL, STEPS, events, subject
from killable_scheduler import killable_scheduler

from buildmatrix.base.errors import ComponentError
from buildmatrix.base.progress import Silent
from buildmatrix.fleet.model import ClusterOptions, WaitingOptions, WorkerSettings
from buildmatrix.fleet.run import scan
from buildmatrix.fleet.running import ResultJournal, RunOutcome
from buildmatrix.reports.fleet import FleetResult
from buildmatrix.reports.fleet_assembly import assemble

TIMES = 20
#: Runs in which workers, or the scheduler, are killed; each at other moments.
KILLED_WORKERS, KILLED_SCHEDULERS = (6, 5) if os.environ.get("BUILDMATRIX_WEEKLY") else (2, 2)
#: Images that share layers: each has a layer of its own and one of seven.
FLEET = [f"image-{number % 7}-{100 + number}" for number in range(40)]
SOON = WaitingOptions(longest=5.0, first_pause=0.01, last_pause=0.05)


@pytest.fixture(scope="module", autouse=True)
def _processes_that_start_soon() -> Iterator[None]:
    """Workers are forked from one process that has imported everything."""
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(
            ["distributed", "buildmatrix.fleet.cluster", "fleet_steps"]
        )
        yield


def run(
    folder: Path,
    names: list[str],
    *,
    scheduler: str = "",
    workers: int = 2,
    write: Callable[[FleetResult], None] = lambda _: None,
) -> RunOutcome:
    folder.mkdir(exist_ok=True)
    return scan(
        [subject(name) for name in names],
        WorkerSettings(
            store=str(folder),
            platform="linux/amd64",
            today=date(2026, 1, 1),
            time_limit=60.0,
        ),
        STEPS,
        ClusterOptions(workers=0 if scheduler else workers, scheduler=scheduler),
        progress=Silent(),
        write=write,
        waiting=SOON,
    )


def reported(results: Iterable[FleetResult]) -> tuple[FleetResult, ...]:
    return assemble("fleet", results, "2026-01-01").results


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[FleetResult, ...]:
    folder = tmp_path_factory.mktemp("undisturbed")
    results = reported(run(folder, FLEET).results)
    assert len(results) == len(FLEET)
    reads = Counter(event for event in events(folder) if event.startswith("read"))
    assert len(reads) == 47
    assert set(reads.values()) == {1}, "each layer is read once"
    return results


class Killer:
    """Kills something after the results of these numbers."""

    def __init__(self, numbers: set[int], kill: Callable[[], None]) -> None:
        self.numbers, self.kill, self.seen = numbers, kill, 0

    def __call__(self, _: FleetResult) -> None:
        self.seen += 1
        if self.seen in self.numbers:
            self.kill()


def a_worker(seed: random.Random) -> Callable[[], None]:
    def kill() -> None:
        children = multiprocessing.active_children()
        if workers := [child for child in children if "Dask Worker" in child.name]:
            seed.choice(workers).kill()

    return kill


def test_workers_that_end_at_work_cost_no_result_and_their_work_is_done_again(
    tmp_path: Path, undisturbed: tuple[FleetResult, ...]
) -> None:
    # No layer that is shared: an image whose two layers both end a worker, in one task, is taken
    # for what ends its worker each time.
    reads = [f"read {100 + number}" for number in range(len(FLEET))]
    judged = [f"judge {name}" for name in FLEET]
    fatal = random.Random(1).sample([*reads, *judged], TIMES)
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / FATAL).write_text("\n".join(fatal))
    outcome = run(folder, FLEET)
    ended = {path.name.partition(" ")[2] for path in folder.glob(f"{FATAL} *")}
    assert ended == set(fatal), "each of them has ended a worker"
    assert outcome.stopped is None and outcome.missing == ()
    assert len(outcome.results) == len(FLEET), "nothing is counted twice"
    assert reported(outcome.results) == undisturbed
    assert outcome.work.retries >= TIMES


def test_workers_that_are_killed_at_any_moment_cost_no_result(
    tmp_path: Path, undisturbed: tuple[FleetResult, ...]
) -> None:
    """Some are at work, some have done it and not told yet, some have just started.

    Three in each run: an image that is unlucky four times is taken for what ends its worker.
    """
    for number in range(KILLED_WORKERS):
        seed = random.Random(number)
        times = set(seed.sample(range(1, len(FLEET)), 3))
        outcome = run(tmp_path / str(number), FLEET, write=Killer(times, a_worker(seed)))
        assert outcome.stopped is None
        assert outcome.missing == ()
        assert len(outcome.results) == len(FLEET), "nothing is counted twice"
        assert reported(outcome.results) == undisturbed


def test_what_kills_its_worker_each_time_is_undecided_and_all_others_are_judged(
    tmp_path: Path,
) -> None:
    charts = [f"chart-{number}" for number in range(12)]
    outcome = run(tmp_path / "store", [*FLEET[:8], "killer-3", *charts, "image-13"])
    undecided = {item.repository: item.error or "" for item in outcome.results if item.error}
    assert set(undecided) == {"registry.test/killer-3", "registry.test/image-13"}
    assert "reading it ended its worker each time" in undecided["registry.test/killer-3"]
    assert undecided["registry.test/image-13"] == "layer 13 is torn"
    assert len(outcome.results) == 10
    # Each of two attempts to read it killed two workers, and between them its image was a suspect.
    assert outcome.work.retries >= 3
    first, *_, last = outcome.notes
    assert (first, len(outcome.notes)) == ("registry.test/chart-0:1 is left out: a chart", 11)
    assert last == "2 more references left out: no images"


def test_what_has_no_end_is_given_up_and_its_worker_replaced(tmp_path: Path) -> None:
    names = [*FLEET[:6], f"endless-{ENDLESS}", *FLEET[6:12]]
    outcome = run(tmp_path / "store", names, workers=1)
    (result,) = (item for item in outcome.results if item.error)
    assert result.repository == f"registry.test/endless-{ENDLESS}"
    assert (result.error or "").startswith("it took more than 60 s, the time limit of one image")
    assert len(outcome.results) == 13 and outcome.stopped is None
    reads = Counter(event for event in events(tmp_path / "store") if event.startswith("read"))
    assert reads[f"read {ENDLESS}"] == 1


def test_a_scheduler_that_is_killed_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path, undisturbed: tuple[FleetResult, ...]
) -> None:
    # `bench/fleet_faults.py` does it 20 times.
    for number in range(KILLED_SCHEDULERS):
        folder, lines = tmp_path / f"store{number}", tmp_path / f"lines{number}"
        # Answers may be here already when it dies, but never half of all.
        after = random.Random(number).randrange(1, len(FLEET) // 2)
        with killable_scheduler() as (address, kill), ResultJournal(lines) as journal:
            killer = Killer({after}, kill)

            def write(result: FleetResult, journal: ResultJournal = journal, killer=killer) -> None:
                journal.write(result)
                killer(result)

            outcome = run(folder, FLEET, scheduler=address, write=write)
        assert isinstance(outcome.stopped, ComponentError)
        assert outcome.stopped.exit_code == 5
        assert f"the Dask scheduler at {address} was lost" in outcome.stopped.message
        done = len(outcome.results)
        assert after <= done < len(FLEET)
        assert outcome.missing == (
            f"{len(FLEET) - done} of 40 images not judged: the run ended before",
        )
        with lines.open("rb") as file:
            assert results_of(file) == outcome.results
        assert set(reported(outcome.results)) <= set(undisturbed)
        if number % 2:
            continue  # Processes are what this costs.
        with killable_scheduler() as (address, _):
            again = run(folder, FLEET, scheduler=address)
        assert again.stopped is None
        assert reported(again.results) == undisturbed
        reads = Counter(event for event in events(folder) if event.startswith("read"))
        # What was under way when the scheduler died may have been written down twice.
        assert sum(reads.values()) - len(reads) <= 4


def test_a_run_that_is_killed_leaves_whole_lines(
    tmp_path: Path, undisturbed: tuple[FleetResult, ...]
) -> None:
    with killable_scheduler() as (address, _):
        for number in range(3):
            lines = tmp_path / f"lines{number}"
            after = random.Random(number).randrange(1, len(FLEET))
            program = textwrap.dedent(f"""
                import os, signal, sys
                from pathlib import Path
                from test_fleet_faults import FLEET, ResultJournal, run
                journal, seen = ResultJournal(Path({str(lines)!r})), 0
                def write(result):
                    global seen
                    journal.write(result)
                    seen += 1
                    if seen == {after}:
                        os.kill(os.getpid(), signal.SIGKILL)
                run(Path({str(tmp_path / f"store{number}")!r}), FLEET, scheduler={address!r},
                    write=write)
            """)
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            process = subprocess.run(
                [sys.executable, "-c", program],
                cwd=Path(__file__).parent,
                env=environment,
                timeout=600,
            )
            assert process.returncode == -signal.SIGKILL
            with lines.open("rb") as file:
                results = results_of(file)
            assert len(results) == after
            assert set(reported(results)) <= set(undisturbed)
