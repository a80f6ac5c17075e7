"""What the rules said is asked of them once, until something that they go by changes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from rulecases import elf, file, image, lock, pin, sass, target

from buildmatrix.base.data import replace
from buildmatrix.catalogue import load
from buildmatrix.commands.image_gates import JudgedImage, judge_image
from buildmatrix.facts.inventory.model import Inventory, Stats, Unread
from buildmatrix.judge.judging import Judge, Judgement
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import NodeClass, Policy, Position, Spec, Target, Waiver, bare_spec
from buildmatrix.sources.state_folder import BuildRecord, TargetFiles

TODAY = date(2026, 11, 23)
LOCK = lock(pin("xgboost 3.0.0", "base.in:3"), pin("nvidia-nccl-cu12 2.27.3", "xgboost"))
INVENTORY = image(
    file(
        "xgboost/lib/libxgboost.so",
        elf(needed=["libnccl.so.2"], device_code=sass("sm_90", size=48_000_000)),
        "xgboost 3.0.0",
        200_000_000,
    ),
    file("nvidia/nccl/lib/libnccl.so.2", elf("libnccl.so.2"), "nvidia-nccl-cu12 2.27.3", 3 << 20),
    unread=[Unread("opt/broken.so", "it is cut off")],
    stats=Stats(files=3, bytes_total=300_000_000),
)
RECORD = BuildRecord(
    key="k",
    digest="sha256:" + "1" * 64,
    config=None,
    loaded=True,
    tags=("x:1",),
    inventory="2" * 64,
    seconds=1.0,
)


class Judging:
    """One target, and how often its inventory was asked for."""

    def __init__(self, folder: Path) -> None:
        self.files = TargetFiles(folder)
        self.files.folder.mkdir()
        self.target: Target = target("cuda", "12.8")
        node = NodeClass("h100", "cuda", "535.54", ("sm_80",), {}, (), Position("b.toml", 7))
        self.target = replace(self.target, node_classes=(node,))
        self.spec: Spec = bare_spec(self.target)
        self.record, self.inventory = RECORD, INVENTORY
        self.lock: Lock | None = LOCK
        self.unknown: str | None = None
        self.read = 0

    @property
    def judge(self) -> Judge:
        return Judge(self.spec, "error", TODAY)

    def image(self) -> JudgedImage:
        return judge_image(
            self.files, self.record, self.target, self.lock, self.judge, self._read, print
        )

    def _read(self) -> tuple[Inventory, str | None]:
        self.read += 1
        return self.inventory, self.unknown


@pytest.fixture
def judging(tmp_path: Path) -> Judging:
    return Judging(tmp_path / "state")


def test_what_is_kept_is_what_was_said(judging: Judging) -> None:
    first, second = judging.image(), judging.image()
    assert judging.read == 1
    assert first == second
    settled = judging.judge.settle(second.judgement)
    assert settled == judging.judge.image(judging.target, INVENTORY, LOCK)
    # Everything that a judgement can have is in it.
    assert all((settled.findings, settled.verdicts, settled.fits, settled.composition))
    assert second.read == Inventory(unread=INVENTORY.unread, stats=INVENTORY.stats)


@pytest.mark.parametrize("field", [name for name in RECORD.__struct_fields__ if name != "tags"])
def test_a_field_of_the_record_counts_where_it_names_what_was_read(
    judging: Judging, field: str
) -> None:
    judging.image()
    values: dict[str, Any] = {"loaded": False, "seconds": 2.0, "bases": {"b": "c"}, "smoke": ("s",)}
    judging.record = type(RECORD)(
        **{name: getattr(RECORD, name) for name in RECORD.__struct_fields__}
        | {field: values.get(field, "other")}
    )
    judging.image()
    assert judging.read == (2 if field in ("key", "digest", "inventory") else 1)


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": "12.6"},
        {"archs": ("sm_90",)},
        {"id": "other"},
        {"node_classes": ()},
    ],
)
def test_another_target_is_judged_again(judging: Judging, change: dict[str, Any]) -> None:
    judging.image()
    judging.target = replace(judging.target, **change)
    assert judging.judge.settle(judging.image().judgement) == judging.judge.image(
        judging.target, INVENTORY, LOCK
    )
    assert judging.read == 2


def test_another_lock_is_judged_again(judging: Judging) -> None:
    judging.image()
    judging.lock = replace(LOCK, digest="sha256:1")
    judging.image()
    assert judging.read == 2


def test_another_policy_is_judged_again(judging: Judging) -> None:
    judging.image()
    judging.spec = replace(judging.spec, policy=Policy(bloat_threshold=1))
    judging.image()
    assert judging.read == 2


def test_a_data_file_of_the_user_that_changed_is_judged_again(
    judging: Judging, tmp_path: Path
) -> None:
    data = tmp_path / "own.toml"
    head = 'schema = 1\nbackend = "cuda"\nvendor = "nvidia"\ntitle = "CUDA"\nsources = {}\n'
    for day in (21, 21, 22):
        data.write_text(f"{head}checked = 2026-11-{day}\n")
        load._load.cache_clear()  # as a new process has it
        judging.spec = replace(
            judging.spec, path=tmp_path / "buildmatrix.toml", catalogue=("own.toml",)
        )
        judging.image()
    assert judging.read == 2


def test_a_waiver_and_its_end_need_no_second_look(judging: Judging) -> None:
    bare = judging.judge.settle(judging.image().judgement)
    rule = bare.findings[0].rule
    accepted = Waiver(rule, (), None, None, "it runs", "me", TODAY, Position("b.toml", 1))
    judging.spec = replace(judging.spec, waivers=(accepted,))
    settled = judging.judge.settle(judging.image().judgement)
    assert settled.findings[0].waived == "it runs (me, until 2026-11-23)"
    judging.spec = replace(judging.spec, waivers=(replace(accepted, expires=date(2026, 11, 22)),))
    settled = judging.judge.settle(judging.image().judgement)
    assert settled.findings[0].waived is None
    assert judging.read == 1


def test_where_layers_could_not_be_read_the_next_run_tries_again(judging: Judging) -> None:
    judging.unknown = "the image is gone"
    assert judging.image().judgement == judging.image().judgement
    assert judging.read == 2


def test_a_damaged_entry_is_judged_again(judging: Judging) -> None:
    first = judging.image()
    (entry,) = (judging.files.folder / "made").iterdir()
    entry.write_bytes(entry.read_bytes()[:-9])
    assert judging.image() == first
    assert judging.read == 2


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    judging: Judging, capsys: pytest.CaptureFixture[str]
) -> None:
    (judging.files.folder / "made").write_text("in the way")
    first: Judgement = judging.image().judgement
    assert judging.image().judgement == first
    assert judging.read == 2
    assert "cannot be" in capsys.readouterr().out


def test_the_code_is_part_of_it(judging: Judging, monkeypatch: pytest.MonkeyPatch) -> None:
    judging.image()
    monkeypatch.setattr("buildmatrix.sources.state_folder.source_digest", lambda: "changed")
    judging.image()
    assert judging.read == 2


def test_an_image_without_a_lock_is_another_question(judging: Judging) -> None:
    judging.image()
    judging.lock = None
    judging.image()
    assert judging.read == 2
