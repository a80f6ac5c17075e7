"""Coverage-guided fuzzing of what reads foreign bytes.

    python tests/fuzz/fuzz.py [TARGET...]
    python tests/fuzz/fuzz.py --seconds 600 [--corpus FOLDER] [TARGET...]

Without --seconds, each target runs its count of inputs from a fixed seed: in one checkout the same
ones each time, however busy the machine. With it, the targets share the seconds and try new inputs.

Both start from small honest files of every format and from the cases that were found before. An
input that breaks a promise ends the run with exit code 1 and is written to the working directory,
as TARGET-crash-* or TARGET-timeout-*: make it smaller, put it with the cases of its tests, which
replay them, and fix the reader.

--corpus keeps what was learned for the next run. Needs atheris (dependency group `fuzz`), which can
be installed for Python up to 3.12 on x86-64 Linux: elsewhere nothing is fuzzed, and that is said.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
#: Bytes of an input: room for every table, and fast.
LONGEST = 1 << 14
#: Seconds after which an input hangs, however busy the machine; honest ones take a millisecond.
SLOWEST = 120
MOST_MEMORY_MB = 1024
#: Seconds beyond its share after which a target that was given seconds is ended from outside.
PATIENCE = 300
#: Seed of a run that is bounded by a count of inputs.
SEED = 1
#: `personality(2)`: the same addresses in each run, which hashes of objects come from.
_ADDR_NO_RANDOMIZE = 0x0040000
_personality = getattr(ctypes.CDLL(None), "personality", None)


@dataclass(frozen=True)
class Target:
    """What is fuzzed."""

    #: Packages whose branches guide the fuzzer.
    packages: Sequence[str]
    cases: Path
    pattern: str
    #: Its share of the seconds.
    weight: int
    #: Inputs of a run without seconds; all targets together take about 20 s of one processor.
    inputs: int


_CASES = UNIT / "promises" / "cases"
TARGETS = {
    "elf": Target(
        ["buildmatrix.facts.binaries", "buildmatrix.facts.elf"],
        UNIT / "facts" / "elf" / "cases",
        "*",
        4,
        4000,
    ),
    "wheel": Target(["buildmatrix.facts.trees"], _CASES, "wheel-*", 2, 2000),
    "page": Target(["buildmatrix.locks.index.client", "html.parser"], _CASES, "page-*", 1, 2000),
    "lock": Target(["buildmatrix.locks"], _CASES, "lock-*", 1, 1500),
    "tree": Target(
        ["buildmatrix.facts.inventory", "buildmatrix.facts.python_imports"],
        _CASES,
        "tree-*",
        2,
        1500,
    ),
}


def prepare(name: str, folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    """The honest inputs of a target, and what keeps its promises; imported under atheris' eyes."""
    import atheris

    sys.path[:0] = map(str, (ROOT / "src", UNIT / "facts/elf", UNIT / "locks", UNIT / "promises"))
    with atheris.instrument_imports(include=list(TARGETS[name].packages)):
        if name == "elf":
            from elf_promises import keeps_promises
            from elf_seeds import seeds

            return seeds(), keeps_promises
        import promises
        import seeds as honest
    if name == "lock":
        from lock_cases import CPU

        from buildmatrix.locks.selection import LockSelection

        ask = LockSelection(folder / "lock", "lock", CPU)
        return honest.locks(), lambda data: promises.lock(data, ask)
    if name == "tree":
        from elf_seeds import seeds as binaries

        return honest.trees(binaries()[0]), promises.tree
    return (honest.wheels(), promises.wheel) if name == "wheel" else (honest.pages(), promises.page)


def fuzz(name: str, seconds: int | None, corpus: Path, folder: Path) -> None:
    """Fuzzes one target in this process, which ends with it."""
    import atheris

    honest, promise = prepare(name, folder)
    known = [case.read_bytes() for case in sorted(TARGETS[name].cases.glob(TARGETS[name].pattern))]
    (folder / "seeds").mkdir()
    seeds = [folder / "seeds" / str(number) for number in range(len(honest) + len(known))]
    for seed, data in zip(seeds, [*honest, *known], strict=True):
        seed.write_bytes(data[:LONGEST])
    # Named one by one: a folder has another order on another disk.
    (folder / "list").write_text(",".join(map(str, seeds)))
    corpus.mkdir(parents=True, exist_ok=True)
    options = [f"-seed_inputs=@{folder / 'list'}", f"-max_len={LONGEST}", f"-timeout={SLOWEST}"]
    options += [f"-rss_limit_mb={MOST_MEMORY_MB}", f"-artifact_prefix={name}-"]
    options += ["-reload=0", "-verbosity=0", "-print_final_stats=1"]
    if seconds is None:
        options += [f"-seed={SEED}", f"-runs={TARGETS[name].inputs}"]
        # An inventory says how long it took, and the fuzzer follows each comparison.
        time.monotonic = lambda: 0.0
    else:
        options.append(f"-max_total_time={seconds}")
    atheris.Setup([sys.argv[0], str(corpus), *options], promise)
    atheris.Fuzz()


def _fix_addresses() -> None:
    """Load the next program at the same addresses in each run, where the sandbox allows that."""
    if _personality is not None:
        _personality(_ADDR_NO_RANDOMIZE)


def run(name: str, seconds: int | None, corpus: Path | None) -> bool:
    """Fuzzes one target in a process of its own; whether it kept its promises."""
    with tempfile.TemporaryDirectory() as folder:
        where = corpus / name if corpus else Path(folder) / "corpus"
        command = [sys.executable, __file__, "--inside", name, folder, "--corpus", str(where)]
        if seconds is not None:
            command += ["--seconds", str(seconds)]
        try:
            done = subprocess.run(
                command,
                check=False,
                timeout=None if seconds is None else seconds + PATIENCE,
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                preexec_fn=_fix_addresses,
            )
        except subprocess.TimeoutExpired:
            print(f"fuzz {name}: did not end {PATIENCE} s after its {seconds} s", flush=True)
            return False
    stats = dict(
        line.removeprefix("stat::").replace(" ", "").split(":", 1)
        for line in done.stderr.splitlines()
        if line.startswith("stat::")
    )
    runs = stats.get("number_of_executed_units", "?")
    if done.returncode == 0:
        learned = stats.get("new_units_added", "?")
        print(
            f"fuzz {name}: {runs} inputs, {learned} with new branches, every promise kept",
            flush=True,
        )
        return True
    told = [line for line in done.stderr.splitlines() if not line.startswith(("INFO:", "WARNING:"))]
    print("\n".join([done.stdout[-8000:], *told[-60:]]))
    print(f"fuzz {name}: a promise was broken after {runs} inputs (see above)", flush=True)
    return False


def main() -> int:
    """The exit code: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=" ".join(TARGETS))
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        fuzz(options.inside[0], options.seconds, options.corpus, Path(options.inside[1]))
        return 0
    if unknown := set(options.targets) - TARGETS.keys():
        parser.error(f"no target is called {', '.join(sorted(unknown))}: {', '.join(TARGETS)}")
    try:
        import atheris  # noqa: F401 (only whether it is there)
    except ImportError:
        here = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}"
        if sys.version_info >= (3, 13) or platform.machine() != "x86_64":
            print(f"fuzz: not run: there is no atheris for {here}", file=sys.stderr)
            return 0
        print("fuzz: atheris is missing: uv pip install --group fuzz", file=sys.stderr)
        return 5
    chosen = options.targets or list(TARGETS)
    weights = sum(TARGETS[name].weight for name in chosen)
    shares = {
        name: options.seconds and max(1, options.seconds * TARGETS[name].weight // weights)
        for name in chosen
    }
    kept = [run(name, seconds, options.corpus) for name, seconds in shares.items()]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
