"""The journal never says of an image what was said of another one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildmatrix.base.errors import SpecError
from buildmatrix.commands.build_plan import Digests
from buildmatrix.sources import state_folder
from buildmatrix.sources.state_folder import BuildRecord, TargetFiles

KEY = "k" * 64


@pytest.fixture
def files(tmp_path: Path) -> TargetFiles:
    (tmp_path / "inventory.json").write_text("{}")
    return TargetFiles(tmp_path)


def record(files: TargetFiles, **changes: object) -> BuildRecord:
    values: dict[str, object] = {
        "key": KEY,
        "digest": "sha256:manifest",
        "config": "sha256:config",
        "loaded": True,
        "tags": ("registry.example.com/a:1", "registry.example.com/a:latest"),
        "inventory": state_folder.file_sha256(files.inventory),
        "seconds": 1.5,
    }
    return BuildRecord(**{**values, **changes})  # type: ignore[arg-type]  # values are checked by use


def test_a_record_comes_back_as_it_was_written(files: TargetFiles) -> None:
    written = record(files, smoke=("a", "b"))
    state_folder.write(files, written)

    assert state_folder.load(files) == written


def test_no_record_yet(files: TargetFiles) -> None:
    assert state_folder.load(files) is None


def test_a_record_cut_off_at_any_byte_says_nothing(files: TargetFiles) -> None:
    state_folder.write(files, record(files))
    whole = files.record.read_bytes()
    for length in range(len(whole) - 1):
        files.record.write_bytes(whole[:length])
        assert state_folder.load(files) is None


@pytest.mark.parametrize("change", ["tampered", "gone"])
def test_a_record_whose_inventory_is_not_its_own_says_nothing(
    files: TargetFiles, change: str
) -> None:
    state_folder.write(files, record(files))
    if change == "gone":
        files.inventory.unlink()
    else:
        files.inventory.write_text('{"distributions": []}')

    assert state_folder.load(files) is None


def test_a_forgotten_record_is_gone_and_forgetting_twice_is_harmless(files: TargetFiles) -> None:
    state_folder.write(files, record(files))
    state_folder.forget(files)
    state_folder.forget(files)

    assert state_folder.load(files) is None


def test_writing_leaves_no_other_file_behind(files: TargetFiles) -> None:
    state_folder.write(files, record(files))

    assert {path.name for path in files.folder.iterdir()} == {"inventory.json", "record.json"}


def forge_both(files: TargetFiles) -> None:
    """Edit the inventory, and have the record name the result, as whoever commits both would."""
    files.inventory.write_text('{"schema": "edited"}')
    text = json.loads(files.record.read_bytes())
    text["inventory"] = state_folder.file_sha256(files.inventory)
    files.record.write_text(json.dumps(text))


def drop_the_seal(files: TargetFiles) -> None:
    text = json.loads(files.record.read_bytes())
    del text["seal"]
    files.record.write_text(json.dumps(text))


def use_the_record_of_another_target(files: TargetFiles) -> None:
    other = TargetFiles(files.folder / "other")
    other.folder.mkdir()
    other.inventory.write_bytes(files.inventory.read_bytes())
    state_folder.write(other, record(other, smoke=("passed elsewhere",)))
    files.record.write_bytes(other.record.read_bytes())


@pytest.mark.parametrize("forge", [forge_both, drop_the_seal, use_the_record_of_another_target])
def test_a_record_that_others_wrote_says_nothing_but_its_seconds(
    files: TargetFiles, forge: Callable[[TargetFiles], None]
) -> None:
    state_folder.write(files, record(files))
    assert not state_folder.is_foreign(files)
    forge(files)

    assert state_folder.load(files) is None and state_folder.load_inventory(files) is None
    assert state_folder.is_foreign(files)
    assert state_folder.load_seconds(files) == 1.5


def test_state_of_another_machine_says_nothing(
    files: TargetFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "one"))
    state_folder.write(files, record(files))
    for store in (files.layers(print), files.derived(print)):
        store.put("key", b"value")
        assert store.get("key") == b"value"
    monkeypatch.setenv("BUILDMATRIX_CACHE", str(tmp_path / "other"))

    assert state_folder.load(files) is None and state_folder.is_foreign(files)
    assert [store.get("key") for store in (files.layers(print), files.derived(print))] == [
        None,
        None,
    ]


@pytest.mark.parametrize("kind", ["layers", "derived"])
def test_entries_beside_a_record_need_the_seal_as_well(files: TargetFiles, kind: str) -> None:
    """One that has the plain SHA-256 of the user's cache was made by somebody who has no key."""
    sealed = getattr(files, kind)(print)
    sealed.put("key", b"read here")
    path = sealed.path("key")
    data = path.read_bytes()
    forged = data[32:].replace(b"read here", b"no verdict")
    path.write_bytes(hashlib.sha256(path.name.encode() + forged).digest() + forged)

    assert sealed.get("key") is None


@pytest.mark.parametrize("name", ["sha256:manifest", "sha256:config"])
def test_an_image_is_there_when_all_tags_lead_to_it(files: TargetFiles, name: str) -> None:
    tags = record(files).tags

    assert record(files).is_at(dict.fromkeys(tags, name))
    assert not record(files).is_at({tags[0]: name})
    assert not record(files).is_at({tags[0]: name, tags[1]: "sha256:another"})
    assert not record(files).is_at({})


def test_an_image_of_unknown_configuration_is_missed_when_it_is_missing(files: TargetFiles) -> None:
    assert not record(files, config=None).is_at({})


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4),
)
def test_keys_are_equal_exactly_when_their_parts_are(
    one: dict[str, str], other: dict[str, str]
) -> None:
    assert (state_folder.make_key(one) == state_folder.make_key(other)) == (one == other)
    assert state_folder.make_key(one) == state_folder.make_key(dict(reversed(one.items())))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    (folder / "sub").mkdir(parents=True)
    (folder / "main.py").write_text("print()")
    (folder / "sub" / "data.bin").write_bytes(bytes(1000))
    (folder / "link").symlink_to("main.py")
    return folder


def digest(app: Path) -> str:
    return Digests(app.parent).of("app")


def test_the_same_files_have_the_same_digest_whatever_their_times(app: Path) -> None:
    before = digest(app)
    os.utime(app / "main.py", (0, 0))

    assert digest(app) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda app: (app / "main.py").write_text("print(1)"),
        lambda app: (app / "main.py").rename(app / "other.py"),
        lambda app: (app / "main.py").chmod(0o755),
        lambda app: (app / "sub" / "data.bin").unlink(),
        lambda app: (app / "sub" / "new").touch(),
        lambda app: (app / "empty").mkdir(),
        lambda app: ((app / "link").unlink(), (app / "link").symlink_to("sub")),
        lambda app: ((app / "link").unlink(), (app / "link").write_text("print()")),
    ],
    ids=["content", "name", "mode", "removed", "added", "folder", "link", "link-to-file"],
)
def test_a_change_that_reaches_the_image_changes_the_digest(app: Path, change) -> None:
    before = digest(app)
    change(app)

    assert digest(app) != before


def test_what_no_build_context_holds_does_not_count(app: Path) -> None:
    before = digest(app)
    (app / "__pycache__").mkdir()
    (app / "__pycache__" / "main.cpython-311.pyc").touch()
    (app / "sub" / "x.pyc").touch()
    (app / ".git").mkdir()
    (app / ".git" / "HEAD").touch()

    assert digest(app) == before


def test_what_buildmatrix_writes_does_not_count_where_everything_is_copied(app: Path) -> None:
    before = Digests(app, "docker").of(".")
    (app / ".buildmatrix" / "state").mkdir(parents=True)
    (app / ".buildmatrix" / "state" / "record.json").touch()
    assert Digests(app, "docker").of(".") == before

    (app / "docker").mkdir()
    before = Digests(app, "docker").of(".")
    (app / "docker" / "docker-bake.json").touch()
    assert Digests(app, "docker").of(".") == before


def test_what_the_projects_ignore_rules_leave_out_does_not_count(app: Path) -> None:
    (app.parent / ".dockerignore").write_text("**/.env\napp/sub\n!app/sub/kept\n")
    before = digest(app)
    (app / ".env").touch()
    (app / "sub" / "new").touch()
    assert digest(app) == before

    (app / "sub" / "kept").touch()
    assert digest(app) != before


def test_links_out_of_the_folder_are_not_followed(app: Path, tmp_path: Path) -> None:
    (app / "out").symlink_to(tmp_path / "secret")
    before = digest(app)
    (tmp_path / "secret").write_text("x")

    assert digest(app) == before


def test_special_files_are_not_opened(app: Path) -> None:
    os.mkfifo(app / "pipe")

    assert digest(app)


def test_a_single_file_counts_by_its_content(app: Path) -> None:
    digests = Digests(app)

    assert digests.of("main.py") != digests.of("sub/data.bin")


@pytest.mark.parametrize("name", [".wh.main.py", ".wh..wh..opq", "sub/.wh.data.bin"])
def test_what_an_image_takes_for_the_removal_of_files_is_not_copied(app: Path, name: str) -> None:
    (app / name).touch()
    with pytest.raises(SpecError, match=r"`copy` brings .*\.wh\..* removes other files"):
        Digests(app.parent).of("app")
    with pytest.raises(SpecError, match="removes other files"):
        Digests(app).of(name)
    (app.parent / ".dockerignore").write_text("**/.wh.*\n")
    assert Digests(app.parent).of("app")


def test_a_folder_that_is_missing_is_named(app: Path) -> None:
    with pytest.raises(SpecError, match=r"missing: .*copied into the image; see `copy`"):
        Digests(app).of("missing")
