from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from layer_archives import Entry, hard, link, special, tar

from buildmatrix.facts.trees import archive, archive_layers, decompression
from buildmatrix.facts.trees.archive_layers import LayeredTree
from buildmatrix.facts.trees.base import File, Symlink, Trouble, Unreadable
from buildmatrix.images import saved_image
from buildmatrix.images.documents import Platform
from buildmatrix.images.saved_image import SavedImage


def blob(data: bytes) -> tuple[str, dict[str, object]]:
    digest = hashlib.sha256(data).hexdigest()
    kind = "application/vnd.oci.image.layer.v1.tar"
    return f"blobs/sha256/{digest}", {
        "mediaType": kind,
        "digest": f"sha256:{digest}",
        "size": len(data),
    }


def oci(
    layers: Sequence[bytes],
    config: Mapping[str, object] | None = None,
    name: str = "acme:1",
    **more: str,
) -> dict[str, bytes]:
    """The files of an OCI layout with one image."""
    files = {}
    configuration = json.dumps({"config": config or {}, **more}).encode()
    descriptors = []
    for data in (configuration, *layers):
        place, descriptor = blob(data)
        files[place] = data
        descriptors.append(descriptor)
    manifest = json.dumps({"config": descriptors[0], "layers": descriptors[1:]}).encode()
    place, descriptor = blob(manifest)
    files[place] = manifest
    descriptor["annotations"] = {"org.opencontainers.image.ref.name": name}
    files["index.json"] = json.dumps({"manifests": [descriptor]}).encode()
    files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    return files


def docker(layers: Sequence[bytes], tag: str = "acme:1") -> list[Entry]:
    """What docker save wrote before it wrote OCI layouts."""
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "c.json", "RepoTags": [tag], "Layers": names}]
    return [
        ("manifest.json", json.dumps(manifest).encode()),
        ("c.json", json.dumps({"config": {"Env": ["A=1=2"], "Labels": None}}).encode()),
        *zip(names, layers, strict=True),
    ]


def saved(tmp_path: Path, files: Mapping[str, bytes] | Sequence[Entry]) -> Path:
    path = tmp_path / "image.tar"
    path.write_bytes(tar(list(files.items()) if isinstance(files, Mapping) else files))
    return path


@pytest.mark.parametrize("name", ["index.json", "./index.json", "a/../index.json"])
def test_a_path_that_is_there_twice_is_refused_as_engines_take_one_or_the_other(
    tmp_path: Path, name: str
) -> None:
    path = saved(tmp_path, [*oci([tar([])]).items(), (name, b"{}")])
    with pytest.raises(Unreadable, match=r"twice|leads out"):
        SavedImage(path)


def tree_of(*layers: Sequence[Entry]) -> LayeredTree:
    slices = []
    for entries in layers:
        data = tar(entries)
        slices.append(archive.Slice(Memory(data), 0, len(data)))
    return LayeredTree(slices)


class Memory:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


def told(tree: LayeredTree) -> dict[str, str]:
    """Path → text of a file, `-> target` of a link, `! reason` of what cannot be had."""
    found = {}
    for entry in tree.walk():
        if isinstance(entry, File):
            found[entry.path] = tree.read_bytes(entry.path, 1000).decode()
        else:
            found[entry.path] = (
                f"-> {entry.target}" if isinstance(entry, Symlink) else f"! {entry.why}"
            )
    return found


# Layers


def test_an_upper_layer_replaces_and_adds() -> None:
    assert told(tree_of([("a", b"1"), ("d/b", b"1")], [("a", b"2"), ("d/c", b"2")])) == {
        "a": "2",
        "d/b": "1",
        "d/c": "2",
    }


def test_a_whiteout_hides_a_file_or_a_whole_folder_of_the_layers_below() -> None:
    lower = [("a", b""), ("d/b", b""), ("d/e/c", b""), ("keep", b"")]
    assert told(tree_of(lower, [(".wh.a", b""), (".wh.d", b"")])) == {"keep": ""}


def test_a_whiteout_hides_nothing_of_its_own_layer_wherever_it_stands() -> None:
    lower = [("d/old", b"")]
    for upper in (
        [("d/new", b""), ("d/.wh..wh..opq", b"")],
        [("d/.wh..wh..opq", b""), ("d/new", b"")],
    ):
        assert told(tree_of(lower, upper)) == {"d/new": ""}


def test_a_folder_takes_the_place_of_a_file_and_the_other_way_round() -> None:
    folder = special("a", tarfile.DIRTYPE)
    assert told(tree_of([("a", b"")], [folder, ("a/b", b"")])) == {"a/b": ""}
    assert told(tree_of([("a/b", b"")], [("a", b"1")])) == {"a": "1"}


def test_a_file_below_a_linked_folder_lands_where_a_container_puts_it() -> None:
    assert told(tree_of([("usr/lib/a", b"1"), link("lib", "usr/lib")], [("lib/b", b"2")])) == {
        "lib": "-> usr/lib",
        "usr/lib/a": "1",
        "usr/lib/b": "2",
    }


def test_links_stay_inside_of_the_image() -> None:
    found = told(tree_of([link("up", "../../.."), link("abs", "/etc"), ("etc/x", b"1")],
                         [("up/a", b"2"), ("abs/b", b"3")]))  # fmt: skip
    assert (found["a"], found["etc/b"]) == ("2", "3")


def test_a_loop_of_links_ends_and_is_told() -> None:
    found = told(tree_of([link("a", "b"), link("b", "a")], [("a/x", b"")]))
    assert found["a/x"].startswith("! its folder is a file, or a link")


def test_links_that_grow_with_every_step_end() -> None:
    found = told(tree_of([link("a", "/".join(["a"] * 3000))], [("a/x", b"")]))
    assert found["a/x"].startswith("!")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/../x"])
def test_a_name_that_leads_out_is_reported_and_left_out(name: str) -> None:
    found = told(tree_of([(name, b"bad"), ("ok", b"")]))
    assert found == {name: "! a name inside of a layer that leads out of the image", "ok": ""}


def test_absolute_and_dotted_names_are_below_the_root() -> None:
    assert told(tree_of([("/a", b"1"), ("./b", b"2"), ("c//d", b"3")])) == {
        "a": "1",
        "b": "2",
        "c/d": "3",
    }


def test_hard_links_share_an_identity_and_their_bytes() -> None:
    tree = tree_of([("a", b"1"), hard("b", "a"), ("c", b"1")])
    files = {entry.path: entry for entry in tree.walk() if isinstance(entry, File)}
    assert files["a"].identity == files["b"].identity is not None
    assert files["c"].identity is None
    assert told(tree) == {"a": "1", "b": "1", "c": "1"}


def test_a_hard_link_to_nothing_is_reported() -> None:
    assert told(tree_of([hard("b", "../etc/passwd"), hard("c", "nothing")])) == {
        "b": "! a hard link to ../etc/passwd, which is not a file of the image",
        "c": "! a hard link to nothing, which is not a file of the image",
    }


def test_devices_and_fifos_are_no_part_of_a_tree() -> None:
    layer = [special("null", tarfile.CHRTYPE), special("pipe", tarfile.FIFOTYPE), ("a", b"")]
    assert told(tree_of(layer)) == {"a": ""}


def test_names_that_are_no_text_keep_their_bytes() -> None:
    name = os.fsdecode(b"\xff.so")
    tree = tree_of([(name, b"1")])
    assert tree.read_bytes(name, 10) == b"1"


def test_very_deep_names_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "/".join("d" * (archive_layers.MAX_DEPTH + 1))
    (only,) = tree_of([(name, b"")]).walk()
    assert isinstance(only, Trouble) and "deep" in only.why


# Archives


@pytest.mark.parametrize("packed", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("outer", [lambda data: data, gzip.compress], ids=["tar", "tar.gz"])
def test_an_oci_archive_is_read(
    tmp_path: Path, packed: Callable[[bytes], bytes], outer: Callable[[bytes], bytes]
) -> None:
    config = {"Env": ["PATH=/bin", "X=a=b"], "Labels": {"l": "v"}}
    layers = [packed(tar([("a", b"1" * 900_000)])), packed(tar([("b", b"2")]))]
    path = saved(tmp_path, oci(layers, config))
    path.write_bytes(outer(path.read_bytes()))
    with SavedImage(path) as image:
        assert image.configuration.environment == {"PATH": "/bin", "X": "a=b"}
        assert image.configuration.labels == {"l": "v"}
        assert image.configuration.names == ("acme:1",)
        tree = image.tree()
        assert tree.read_bytes("a", 1_000_000) == b"1" * 900_000
        assert tree.read_bytes("b", 9) == b"2"


def test_the_output_of_an_older_docker_save_is_read(tmp_path: Path) -> None:
    entries = docker([tar([("a", b"1")]), tar([(".wh.a", b""), ("b", b"2")])])
    # A layer that another image has too is stored as a link to it.
    again = [
        link("1/layer.tar", "../shared/layer.tar")
        if isinstance(entry, tuple) and entry[0] == "1/layer.tar"
        else entry
        for entry in entries
    ]
    shared = next(entry[1] for entry in entries if isinstance(entry, tuple) and entry[0][0] == "1")
    for files in (entries, [*again, ("shared/layer.tar", shared)]):
        with SavedImage(saved(tmp_path, files)) as image:
            assert image.configuration.environment == {"A": "1=2"}
            assert told(image.tree()) == {"b": "2"}


def test_a_layout_in_a_folder_is_read_and_its_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    files = oci([tar([("a", b"1")])])
    layer = next(name for name in files if name.startswith("blobs") and len(files[name]) > 5000)
    secret.write_bytes(files[layer])
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with SavedImage(tmp_path) as image:
        assert told(image.tree()) == {"a": "1"}
    (tmp_path / layer).unlink()
    (tmp_path / layer).symlink_to(secret)
    with SavedImage(tmp_path) as image, pytest.raises(Unreadable, match="is missing"):
        image.tree()


def test_nothing_is_unpacked_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(archive.tempfile, "tempdir", str(folder))
    path = saved(tmp_path, oci([gzip.compress(tar([("a", b"1"), ("../b", b"2")]))]))
    with SavedImage(path) as image:
        assert image.tree().read_bytes("a", 9) == b"1"
        assert not list(folder.iterdir())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["image.tar", "temporary"]


def test_zstandard_without_a_reader_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decompression, "find_decompressor", lambda: None)
    path = saved(tmp_path, oci([decompression.ZSTD_MAGIC + b"x"]))
    with SavedImage(path) as image, pytest.raises(Unreadable, match="Zstandard"):
        image.tree()


# Archives that are damaged, or lie


def cut(path: Path, keep: int) -> None:
    os.truncate(path, keep)


@pytest.mark.parametrize("keep", [0, 100, 700, 5000, 11_000])
def test_a_truncated_archive_is_never_taken_for_a_whole_one(tmp_path: Path, keep: int) -> None:
    path = saved(tmp_path, docker([tar([("a", b"1" * 6000)])]))
    assert path.stat().st_size > 11_000
    cut(path, keep)
    with pytest.raises(Unreadable):
        SavedImage(path).tree()


def test_a_layer_cut_between_two_entries_is_noticed(tmp_path: Path) -> None:
    layer = tar([("a", b"1"), ("b", b"2")])
    path = saved(tmp_path, docker([layer[:1024]]))
    with SavedImage(path) as image, pytest.raises(Unreadable, match=r"layer 1 of 1 .* no end mark"):
        image.tree()


def test_a_damaged_compressed_layer_is_noticed(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(tar([("a", random.Random(1).randbytes(5000))])))
    data[2000] ^= 0xFF
    path = saved(tmp_path, oci([bytes(data)]))
    with SavedImage(path) as image, pytest.raises(Unreadable, match="damaged"):
        image.tree()


def test_a_truncated_compressed_layer_is_noticed(tmp_path: Path) -> None:
    data = gzip.compress(tar([("a", random.Random(1).randbytes(5000))]))
    path = saved(tmp_path, oci([data[:-2000]]))
    with SavedImage(path) as image, pytest.raises(Unreadable, match="damaged"):
        image.tree()


def test_a_bomb_is_not_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "INFLATION_ALLOWANCE", 1 << 20)
    path = saved(tmp_path, oci([gzip.compress(bytes(64 << 20))]))
    with SavedImage(path) as image, pytest.raises(Unreadable, match="a bomb"):
        image.tree()


def test_a_header_that_claims_gigabytes_is_refused() -> None:
    info = special("x", tarfile.XHDTYPE)
    info.size = 8 << 30
    data = info.tobuf(tarfile.GNU_FORMAT) + bytes(4096)
    with pytest.raises(Unreadable):
        LayeredTree([archive.Slice(Memory(data), 0, 9 << 30)])


def test_a_changed_document_is_noticed_by_its_digest(tmp_path: Path) -> None:
    files = oci([tar([])], {"Env": ["A=1"]})
    name = next(name for name, data in files.items() if b"A=1" in data)
    files[name] = files[name].replace(b"A=1", b"A=2")
    with pytest.raises(Unreadable, match="another digest"):
        SavedImage(saved(tmp_path, files))


def test_several_images_are_named_and_refused(tmp_path: Path) -> None:
    one, other = oci([tar([("a", b"")])], name="one:1"), oci([tar([("b", b"")])], name="two:1")
    index = {
        "manifests": [json.loads(files["index.json"])["manifests"][0] for files in (one, other)]
    }
    path = saved(tmp_path, {**one, **other, "index.json": json.dumps(index).encode()})
    with pytest.raises(Unreadable, match=r"2 images \(one:1; two:1\); save exactly one"):
        SavedImage(path)


def test_two_images_of_the_same_layers_are_two_where_their_variables_differ(tmp_path: Path) -> None:
    layer = tar([("a", b"")])
    one = oci([layer], {"Env": ["LD_LIBRARY_PATH=/opt/cuda"]}, name="one:1")
    other = oci([layer], {"Env": ["LD_LIBRARY_PATH=/opt/rocm"]}, name="two:1")
    index = {
        "manifests": [json.loads(files["index.json"])["manifests"][0] for files in (one, other)]
    }
    path = saved(tmp_path, {**one, **other, "index.json": json.dumps(index).encode()})
    with pytest.raises(Unreadable, match=r"2 images \(one:1; two:1\)"):
        SavedImage(path)


def test_of_an_index_of_platforms_the_saved_one_is_taken(tmp_path: Path) -> None:
    files = oci([tar([("a", b"1")])])
    (here,) = json.loads(files["index.json"])["manifests"]
    inner = json.dumps(
        {
            "manifests": [
                here | {"platform": {"os": "linux", "architecture": "amd64"}},
                here | {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux"}},
                here | {"platform": {"os": "unknown", "architecture": "unknown"}},
            ]
        }
    ).encode()
    place, descriptor = blob(inner)
    files |= {place: inner, "index.json": json.dumps({"manifests": [descriptor]}).encode()}
    with SavedImage(saved(tmp_path, files)) as image:
        assert told(image.tree()) == {"a": "1"}


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"readme": b"x"}, "neither an OCI layout nor"),
        ({"index.json": b"{"}, "not a JSON document"),
        ({"index.json": b"[]"}, "not a valid index"),
        ({"index.json": b"{}"}, "missing required field `manifests`"),
        ({"index.json": b'{"manifests": [{"digest": "sha256:../../x"}]}'}, "not a valid index"),
        ({"index.json": b'{"manifests": [{"digest": 3}]}'}, "not a valid index"),
        ({"index.json": b'{"manifests": []}'}, "no complete image"),
        ({"manifest.json": b"[3]"}, "not a list of images"),
        ({"manifest.json": b'[{"Config": "c", "Layers": []}]'}, "c is missing"),
        ({"index.json": b"[" * 200_000}, "not a JSON document"),
        ({"../index.json": b"{}"}, "leads out"),
    ],
)
def test_an_archive_that_is_no_image_is_refused_in_one_sentence(
    tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        SavedImage(saved(tmp_path, files))
    assert "\n" not in str(caught.value)


def _both(**changed: object) -> dict[str, bytes]:
    """An archive as Docker 25 writes it, whose manifest.json says something else."""
    files = oci([tar([("a", b"1")]), tar([("b", b"2")])])
    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files[f"blobs/{entry['digest'].replace(':', '/')}"])
    places = [
        f"blobs/{one['digest'].replace(':', '/')}"
        for one in (manifest["config"], *manifest["layers"])
    ]
    listed = {"Config": places[0], "RepoTags": ["acme:1"], "Layers": places[1:], **changed}
    return {**files, "manifest.json": json.dumps([listed]).encode()}


def test_an_archive_of_both_formats_names_one_image(tmp_path: Path) -> None:
    """Docker's own store reads manifest.json, podman and containerd read index.json."""
    files = _both()
    with SavedImage(saved(tmp_path, files)) as image:
        assert told(image.tree()) == {"a": "1", "b": "2"}
    (listed,) = json.loads(files["manifest.json"])
    config, layers = listed["Config"], listed["Layers"]
    for changed in (
        {"Layers": layers[:1]},
        {"Layers": layers[::-1]},
        {"Layers": None},
        {"Config": layers[0]},
        {"Layers": [*layers, config]},
    ):
        with pytest.raises(Unreadable, match=r"manifest\.json|not a JSON"):
            SavedImage(saved(tmp_path, _both(**changed)))
    one = files["manifest.json"]
    for text in (
        one[:-1] + b"," + json.dumps({**listed, "Layers": []}).encode() + b"]",
        one[:-2] + b', "layers": []}]',
        one[:-2] + b', "Layers": []}]',
    ):
        with pytest.raises(Unreadable, match=r"manifest\.json"):
            SavedImage(saved(tmp_path, {**files, "manifest.json": text}))
    with pytest.raises(Unreadable, match="older Docker"):
        SavedImage(saved(tmp_path, {**oci([tar([])]), "repositories": b"{}"}))


def _rewritten(files: dict[str, bytes], *edits: tuple[bytes, bytes]) -> dict[str, bytes]:
    """The same layout with another text of its manifest."""
    (entry,) = json.loads(files["index.json"])["manifests"]
    data = files[f"blobs/{entry['digest'].replace(':', '/')}"]
    for old, new in edits:
        assert old in data
        data = data.replace(old, new)
    place, descriptor = blob(data)
    return {**files, place: data, "index.json": json.dumps({"manifests": [descriptor]}).encode()}


@pytest.mark.parametrize("key", [b"Layers", b"layers", b"LAYERS", "layer\u017f".encode()])
def test_layers_that_another_key_replaces_are_refused(tmp_path: Path, key: bytes) -> None:
    """Go's decoder takes the last of them; so do podman, containerd and Docker."""
    files = _rewritten(oci([tar([("a", b"1")])]), (b'"layers"', b'"' + key + b'": [], "layers"'))
    with pytest.raises(Unreadable, match=r"case only|comes twice"):
        SavedImage(saved(tmp_path, files))


@pytest.mark.parametrize(
    "extra",
    [
        [("index.json", b'{"manifests": []}')],
        [("./index.json", b'{"manifests": []}')],
        [("manifest.json", b"[]"), ("manifest.json", b"[]")],
        [link("manifest.json", "other.json")],
        [hard("manifest.json", "index.json")],
    ],
)
def test_a_document_that_comes_twice_or_is_a_link_is_refused(
    tmp_path: Path, extra: list[Entry]
) -> None:
    with pytest.raises(Unreadable, match=r"comes twice|is not a file"):
        SavedImage(saved(tmp_path, [*oci([tar([])]).items(), *extra]))


def test_a_layout_whose_index_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[]")
    (tmp_path / "index.json").symlink_to("manifest.json")
    with pytest.raises(Unreadable, match="is a link"):
        SavedImage(tmp_path)


AMD64 = {"os": "linux", "architecture": "amd64"}
ANNOTATED = {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}}


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        # podman and containerd run the first one.
        ({"platform": AMD64, **ANNOTATED}, {"platform": AMD64}, "several images"),
        ({"platform": {"os": "Linux", "architecture": "x86_64"}}, {"platform": AMD64}, "several"),
        ({"platform": {**AMD64, "variant": "v1"}}, {"platform": AMD64}, "several images"),
        ({"platform": {**AMD64, "Architecture": "arm64"}}, {"platform": AMD64}, "case only"),
        ({"platform": {"os": "unknown", "architecture": "unknown"}}, {"platform": AMD64}, ""),
        ({}, {"platform": AMD64}, ""),
        ({}, {}, "several images"),
    ],
)
@pytest.mark.parametrize("platform", [None, Platform.parse("linux/amd64")])
def test_of_an_index_the_image_that_engines_run_is_taken(
    tmp_path: Path,
    first: dict[str, object],
    second: dict[str, object],
    why: str,
    platform: Platform | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a platform that of this machine is meant."""
    own = platform or Platform.parse("linux/amd64")
    monkeypatch.setattr(saved_image, "this_platform", lambda: own)
    entries, files = [], {}
    for name, more in (("bad", first), ("good", second)):
        files |= oci([tar([(name, b"")])])
        entries.append({**json.loads(files["index.json"])["manifests"][0], **more})
    inner = json.dumps({"manifests": entries}).encode()
    place, descriptor = blob(inner)
    files |= {place: inner, "index.json": json.dumps({"manifests": [descriptor]}).encode()}
    if why:
        with pytest.raises(Unreadable, match=why):
            SavedImage(saved(tmp_path, files), platform)
    else:
        with SavedImage(saved(tmp_path, files), platform) as image:
            assert told(image.tree()) == {"good": ""}


@pytest.mark.parametrize(("own", "found"), [("amd64", "a"), ("arm64", "b"), ("s390x", "")])
@pytest.mark.parametrize("is_nested", [True, False])
def test_a_layout_of_several_platforms_without_a_choice_is_that_of_this_machine(
    tmp_path: Path, own: str, found: str, is_nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_image, "this_platform", lambda: Platform.parse(f"linux/{own}"))
    entries, files = [], {}
    for name, architecture in (("a", "amd64"), ("b", "arm64")):
        platform = {"os": "linux", "architecture": architecture}
        files |= oci([tar([(name, b"")])], **platform)
        entry = json.loads(files["index.json"])["manifests"][0]
        entries.append(entry | {"platform": platform})
    index = json.dumps({"manifests": entries}).encode()
    place, descriptor = blob(index)
    outer = json.dumps({"manifests": [descriptor]}).encode()
    files |= {place: index, "index.json": outer} if is_nested else {"index.json": index}
    if found:
        with SavedImage(saved(tmp_path, files)) as image:
            assert told(image.tree()) == {found: ""}
    else:
        with pytest.raises(Unreadable, match="no image for linux/s390x; give --platform one of"):
            SavedImage(saved(tmp_path, files))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(random.Random(1).randbytes(3000))
    with pytest.raises(Unreadable, match="no readable tar archive"):
        SavedImage(path)


def test_headers_that_announce_each_other_without_end_are_refused() -> None:
    info = special("x", tarfile.XHDTYPE)
    data = info.tobuf(tarfile.GNU_FORMAT) * 5000
    with pytest.raises(Unreadable, match="no readable tar archive"):
        LayeredTree([archive.Slice(Memory(data), 0, len(data))])
