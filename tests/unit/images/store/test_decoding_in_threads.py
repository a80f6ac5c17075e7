"""What several threads decode at once; in processes of their own, as these would crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AT_ONCE = """
import sys, threading
from pathlib import Path
sys.setswitchinterval(1e-6)
folder = Path(sys.argv[1])
{prepare}
ready = threading.Barrier(8)
answers = []
def ask():
    ready.wait()
    answers.append({ask})
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(answers) == 8 and None not in answers, answers
"""

WHEELS = """
from buildmatrix.locks.index.model import WheelCache, WheelEntry
from buildmatrix.locks.index.model import WheelFacts
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.images.store.cache import Cache
if len(sys.argv) > 2:
    facts = WheelFacts("demo-1-py3-none-any.whl", "ab", 1, "listing", Inventory(), ())
    WheelCache(Cache(folder)).put(WheelEntry("ab", facts, None, False))
    sys.exit()
"""

INVENTORIES = """
from buildmatrix.facts.inventory.model import encode
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.images.store import decode
data = encode(Inventory())
"""

CASES = {
    "wheels": (WHEELS, 'WheelCache(Cache(folder)).get("ab", "listing", None)'),
    "inventories": (INVENTORIES, "decode(data)"),
}


@pytest.mark.parametrize("what", CASES)
def test_threads_that_meet_stored_facts_at_once_all_get_them(what: str, tmp_path: Path) -> None:
    prepare, ask = CASES[what]
    script = AT_ONCE.format(prepare=prepare, ask=ask)
    for extra in (["write"], []) if what == "wheels" else ([],):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), *extra], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
