"""What the rules said of a target's image, kept beside its inventory.

The same rules say the same of the same facts: a run with nothing to do reads what they said, and
not the inventories of hundreds of images. Whatever they depend on is part of the key. What depends
on the day, on a baseline or on other targets (waivers, severities, node classes that a waiver is
about) is no part of it, and is applied in every run (`Judge.settle`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from buildmatrix.inventory.model import Inventory
from buildmatrix.judge import Judge
from buildmatrix.locks.model import Lock
from buildmatrix.rules.engine import Judgement
from buildmatrix.spec.model import Target
from buildmatrix.state.folder import TargetFiles
from buildmatrix.state.journal import BuildRecord
from buildmatrix.threads import prepare_type

#: The key of what was said of the last image.
JUDGEMENT = "judgement"


@dataclass(frozen=True, slots=True)
class JudgedImage:
    """What the rules said of one image, and what of its inventory goes into a report."""

    #: Digest of everything that it depends on.
    key: str
    judgement: Judgement
    #: Holds what was not read, and counts, and nothing else.
    read: Inventory


#: Made here, by one thread: msgspec 0.22 crashes where several meet a dataclass for the first time.
_JUDGED = msgspec.msgpack.Decoder(prepare_type(JudgedImage))


def judged_image(
    files: TargetFiles,
    record: BuildRecord,
    target: Target,
    lock: Lock | None,
    judge: Judge,
    inventory: Callable[[], tuple[Inventory, str | None]],
    note: Callable[[str], None],
) -> JudgedImage:
    """What the rules say of the image of `record`, from what was kept where nothing has changed.

    `inventory` reads the facts, and says what of them could not be read: then nothing is kept, so
    the next run tries again. `note` hears of a folder that cannot be used.
    """
    key = _key(record, target, lock, judge)
    store = files.made(note)
    kept = store.load(JUDGEMENT, _JUDGED)
    if kept is not None and kept.key == key:
        return kept
    facts, unknown = inventory()
    judged = JudgedImage(
        key,
        judge.by_rules(target, facts, lock),
        Inventory(unread=facts.unread, stats=facts.stats),
    )
    if unknown is None:
        store.save(JUDGEMENT, judged)
    return judged


def _key(record: BuildRecord, target: Target, lock: Lock | None, judge: Judge) -> str:
    """The code of the rules is missing here: `TargetFiles.made` is of this very code.

    `record.key` stands for the Dockerfile, which says what layers are the base's.
    """
    image = record.key, record.digest, record.inventory
    parts = image, target, lock.digest if lock is not None else None, judge.basis
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
