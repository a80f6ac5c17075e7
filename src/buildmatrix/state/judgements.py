"""Cached results of the rules for a target's image, beside its inventory.

Equal rules and facts give equal results: a run with nothing to do reads these instead of the
inventories of hundreds of images. All their inputs are part of the key. Inputs that depend on the
day, a baseline or other targets (waivers, severities, node classes of waivers) are not; they are
applied in every run (`Judge.settle`).
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

#: Key of the last image's result.
JUDGEMENT = "judgement"


@dataclass(frozen=True, slots=True)
class JudgedImage:
    """Results of the rules for one image, and the parts of its inventory for a report."""

    #: Digest of all inputs.
    key: str
    judgement: Judgement
    #: Only contains unread files and counts.
    read: Inventory


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a dataclass at once.
_JUDGED_IMAGE = msgspec.msgpack.Decoder(prepare_type(JudgedImage))


def judge_image(
    files: TargetFiles,
    record: BuildRecord,
    target: Target,
    lock: Lock | None,
    judge: Judge,
    inventory: Callable[[], tuple[Inventory, str | None]],
    note: Callable[[str], None],
) -> JudgedImage:
    """Apply the rules to the image of `record`, or return the cached result.

    `inventory` loads the facts, and returns the reason if some are missing: then the result is not
    cached, so that the next run tries again. `note` is called if the cache is unusable.
    """
    key = _judgement_key(record, target, lock, judge)
    store = files.derived(note)
    kept = store.load(JUDGEMENT, _JUDGED_IMAGE)
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


def _judgement_key(record: BuildRecord, target: Target, lock: Lock | None, judge: Judge) -> str:
    """Return the key, without the rules' code: `TargetFiles.derived` is of the current code.

    `record.key` includes the Dockerfile, which determines the layers of the base.
    """
    image = record.key, record.digest, record.inventory
    parts = image, target, lock.digest if lock is not None else None, judge.basis
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
