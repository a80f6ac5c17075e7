"""Differences between how this program and engines in Go read images: documents and indexes.

    python tests/fuzz/image_differences.py [documents] [indexes]
    python tests/fuzz/image_differences.py --seconds 3600 --seed 7 documents

Without --seconds, a fixed count of inputs from a fixed seed: in one checkout the same ones each
time. An input that we read, and Go reads as something else, ends the run with exit code 1 and is
printed: make it smaller, put it with the tests of its reader, and fix the reader. A refusal is no
difference, but a run where most is refused proves nothing, and fails as well.

The oracle is `image_oracle.go`, which uses Go's standard library alone (see `go_oracle.py`). skopeo
says of the first indexes which image it takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from go_oracle import COMPILERS, compile_oracle

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.strict import parse_json
from buildmatrix.images import documents
from buildmatrix.images.documents import (
    Descriptor,
    ImageIndex,
    Platform,
    choose,
    configuration_of,
    encode,
    index_of,
    manifest_of,
)

HERE = Path(__file__).parent
#: Inputs of a run without seconds: about 15 s each.
DOCUMENTS, INDEXES = 12_000, 20_000
#: Inputs that the oracle gets at once.
BATCH = 2000
#: Indexes of each batch's first that skopeo is asked about, in a run without seconds.
ASKED_OF_SKOPEO = 60
#: A run has to decide this part of its inputs.
LEAST_DECIDED = 0.15


class Oracle:
    """Go's answers."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def answers(self, inputs: Sequence[tuple[str, bytes]]) -> list[Any]:
        """One answer for each kind and its bytes."""
        packed = b"".join(
            kind.encode() + struct.pack(">I", len(data)) + data for kind, data in inputs
        )
        done = subprocess.run([self._program], input=packed, stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


# Documents


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _descriptor(rng: random.Random, media_type: str) -> dict[str, Any]:
    value: dict[str, Any] = {
        "mediaType": media_type,
        "digest": _digest(rng.choice("abcd")),
        "size": rng.choice([0, 1, 42, 1 << 40]),
    }
    if rng.random() < 0.3:
        value["annotations"] = {rng.choice(["a", "A", "layers", 'q"']): rng.choice(["", "x", "ä"])}
    if rng.random() < 0.2:
        value["platform"] = {"os": "linux", "architecture": "amd64", "os.features": ["x"]}
    return value


def honest(rng: random.Random, kind: str) -> Any:
    """A document without oddities."""
    layers = [_descriptor(rng, documents.LAYER_GZIP) for _ in range(rng.randrange(3))]
    if kind == "m":
        config = _descriptor(rng, documents.CONFIGURATION)
        return {"schemaVersion": 2, "config": config, "layers": layers}
    if kind == "i":
        entries = [_descriptor(rng, documents.MANIFEST) for _ in range(rng.randrange(3))]
        return {"schemaVersion": 2, "mediaType": documents.INDEX, "manifests": entries}
    if kind == "c":
        return {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["A=b"], "Labels": {"l": "v", "L": "w"}, "Cmd": None},
            "rootfs": {"type": "layers", "diff_ids": [_digest("a")]},
            "history": [{"created_by": "RUN x", "empty_layer": rng.random() < 0.5}],
        }
    return {"list": [1, -1, 0.5, 1e300, True, None, "a\\b/ü\U0001f600"], "x": layers, "": {}}


#: What stands in place of a value, or of a part of one.
_ODD_VALUES = (
    b"NaN", b"Infinity", b"-Infinity", b"-0", b"-0.0", b"1.0", b"1e2", b"1E400", b"1e-400", b"01",
    b"+1", b".5", b"5.", b"0x1", b"1_0", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551615", b"18446744073709551616", b"9" * 40, b"9" * 5000, b"1" + b"0" * 310,
    b"123456789012345678.5", b"0.1e1", b"True", b"nil", b"undefined", b"null", b"true", b"{}",
    b"[]", b'""', b"'a'", b"/* */ 1", b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"',
    b'"\\uD800\\u0041"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xf4\x90\x80\x80"',
    b'"\x00"', b'"\n"', b'"\\x41"', b'"\\u004"', b'"\\u0022"', b'"\\u00e9"', b'"\\/"', b'"\x7f"',
    b"[" * 150 + b"]" * 150, b"[" * 300 + b"]" * 300, b'{"a":' * 250 + b"1" + b"}" * 250,
    b"[1,]", b'{"a":1,}', b"[1 2]", b'{"a" 1}', b"{1:2}", b"[,1]",
)  # fmt: skip
_SPACE = (b"", b"", b"", b" ", b"\n", b"\t\r\n", b"\x0b", b"\xc2\xa0", b"\xef\xbb\xbf", b"\x00")
_ENDS = (b"\n", b" \t", b"{}", b"1", b"\x00", b",", b"\x1a", b"\xef\xbb\xbf", b"]", b"//")
#: Letters that Go folds to those of a key, and some that it does not.
_FOLDED = {"s": "ſS", "k": "\u212aK", "i": "İıI"}


class Writer:
    """Writes JSON as nobody does."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rate = rng.choice([0.0, 0.002, 0.005, 0.02, 0.1])

    def document(self, value: Any) -> bytes:
        """Return a document, maybe cut, changed or with something around it."""
        data = self._value(value)
        if self._is_odd(4):
            data += self._rng.choice(_ENDS)
        if self._is_odd(4):
            data = self._rng.choice(_SPACE) + data
        if self._is_odd(2):
            place = self._rng.randrange(len(data))
            data = data[:place] + bytes([self._rng.randrange(256)]) + data[place + 1 :]
        return data[: self._rng.randrange(len(data))] if self._is_odd(2) else data

    def _is_odd(self, weight: float = 1) -> bool:
        return self._rng.random() < self._rate * weight

    def _space(self) -> bytes:
        return self._rng.choice(_SPACE) if self._is_odd() else b""

    def _value(self, value: Any) -> bytes:
        if self._is_odd():
            return self._rng.choice(_ODD_VALUES)
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return b"[" + b",".join(self._space() + self._value(part) for part in value) + b"]"
        if isinstance(value, dict):
            pairs = list(value.items())
            for key, part in list(pairs):
                if self._is_odd(2):
                    other = self._rng.choice([part, None, "x", 7, [], {}])
                    pairs.insert(self._rng.randrange(len(pairs) + 1), (self._other(key), other))
            texts = (self._text(key) + self._space() + b":" + self._value(v) for key, v in pairs)
            return b"{" + b",".join(self._space() + text for text in texts) + b"}"
        return json.dumps(value).encode()

    def _other(self, key: str) -> str:
        """The same key, or one that some readers take for it."""
        place = self._rng.randrange(len(key)) if key else 0
        letter = key[place : place + 1]
        folded = self._rng.choice(_FOLDED.get(letter.lower(), letter.swapcase()) or " ")
        return self._rng.choice(
            [key, key, key.upper(), key.title(), key[:place] + folded + key[place + 1 :], f"{key} "]
        )

    def _text(self, text: str) -> bytes:
        if not self._is_odd(3):
            return json.dumps(text, ensure_ascii=self._rng.random() < 0.5).encode()
        letters = [
            f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 and self._rng.random() < 0.3
            else json.dumps(letter)[1:-1]
            for letter in text
        ]  # fmt: skip
        return f'"{"".join(letters)}"'.encode()


_READERS: Mapping[str, Callable[[bytes, str], Any]] = {
    "m": manifest_of, "i": index_of, "c": configuration_of
}  # fmt: skip
#: What one of the two does not look at, and what we write always.
_UNSHARED = frozenset({"urls", "data", "schemaVersion", "Healthcheck", "OnBuild", "Shell", "type"})


def _plain(value: Any) -> Any:
    """Both have no word for what is empty."""
    if isinstance(value, dict):
        parts = {key: _plain(part) for key, part in value.items() if key not in _UNSHARED}
        return {key: part for key, part in parts.items() if part or part is True}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _exact(value: Any) -> Any:
    """Keeps `1`, `1.0` and `true` apart."""
    if isinstance(value, dict):
        return {key: _exact(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_exact(part) for part in value]
    return type(value).__name__, value


def document_inputs(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Documents without end."""
    while True:
        kind = rng.choice("micj")
        yield kind, Writer(rng).document(honest(rng, kind))


def document_difference(kind: str, data: bytes, answer: Any) -> tuple[str, str]:
    """What became of a document: a word, and the difference or nothing."""
    try:
        ours = parse_json(data) if kind == "j" else _READERS[kind](data, "it")
    except (ValueError, UndecidedError):
        return "refused", ""
    if "value" not in answer:
        # Go has an error for a field that we do not look at: it is no image for an engine.
        return "refused by Go", "" if kind != "j" else f"Go refuses what is {ours!r} for us"
    if kind == "j":
        # What Go writes is well formed; its numbers are those of the input, letter by letter.
        one, other = _exact(ours), _exact(answer["value"])
    else:
        one, other = _plain(msgspec.to_builtins(ours)), _plain(answer["value"])
    return "read", "" if one == other else f"we: {one!r}\nGo: {other!r}"


# Indexes

_OS = ("linux",) * 12 + ("Linux", "windows", "darwin", "macOS", "unknown", "", "LINUX")
_ARCHITECTURES = (
    *("amd64", "arm64", "arm") * 4, "386", "x86_64", "AMD64", "x86-64", "aarch64", "armhf", "armel",
    "i386", "s390x", "riscv64", "unknown", "", "ARM64",
)  # fmt: skip
_VARIANTS = (
    *("",) * 10, "v1", "v2", "v3", "v5", "v6", "v7", "v8", "v9", "8", "7", "6", "v8.0", "v8.2",
    "V8", "v9.0", "v9.1", "9", "V1", "5", "v4",
)  # fmt: skip
_WANTED = (
    *("linux/amd64", "linux/arm64") * 5, "linux/arm64/v8", "linux/arm/v7", "linux/arm/v6",
    "linux/arm", "linux/amd64/v2", "linux/amd64/v3", "linux/386", "linux/s390x", "windows/amd64",
    "linux/arm64/v9", "linux/arm64/v8.2", "linux/x86_64", "Linux/aarch64", "darwin/arm64",
    "linux/riscv64", "linux/arm/v8", "linux/arm64/v9.1", "linux/arm/7",
)  # fmt: skip


def _platform(rng: random.Random) -> Platform | None:
    if rng.random() < 0.06:
        return None
    if rng.random() < 0.04:
        return Platform()
    return Platform(
        os=rng.choice(_OS),
        architecture=rng.choice(_ARCHITECTURES),
        variant=rng.choice(_VARIANTS),
        os_version="10" if rng.random() < 0.03 else "",
        os_features=("x",) if rng.random() < 0.05 else (),
    )


def _index(rng: random.Random) -> ImageIndex:
    entries = []
    for number in range(rng.randrange(1, 6)):
        # Some come twice: one image under two platforms.
        salt = number if rng.random() < 0.9 else 0
        annotations = {}
        if rng.random() < 0.1:
            annotations["io.github.containers.compression.zstd"] = "true"
        if rng.random() < 0.1:
            annotations["vnd.docker.reference.type"] = "attestation-manifest"
        entries.append(
            Descriptor(
                media_type=documents.MANIFEST,
                digest=_digest(str(salt)),
                size=1,
                platform=_platform(rng),
                annotations=annotations,
            )
        )
    return ImageIndex(manifests=tuple(entries), media_type=documents.INDEX)


def index_inputs(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Questions without end: an index, and a platform."""
    while True:
        index = _index(rng)
        asked = {
            "Entries": [entry.platform for entry in index.manifests],
            "Zstd": [
                "io.github.containers.compression.zstd" in entry.annotations
                for entry in index.manifests
            ],
            "Wanted": Platform.parse(rng.choice(_WANTED)),
            "index": msgspec.Raw(encode(index)),
        }
        yield "p", msgspec.json.encode(asked)


def _chosen(data: bytes) -> tuple[ImageIndex, Platform, Descriptor | None]:
    asked = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    index = index_of(bytes(asked["index"]), "it")
    wanted = msgspec.json.decode(asked["Wanted"], type=Platform)
    return index, wanted, choose(index.manifests, wanted, "it")


def index_difference(_: str, data: bytes, answer: Mapping[str, int]) -> tuple[str, str]:
    """What became of a question, and the engine that runs another image, if any."""
    try:
        index, wanted, chosen = _chosen(data)
    except UndecidedError:
        return "refused", ""
    run = {
        engine: index.manifests[number].digest for engine, number in answer.items() if number >= 0
    }
    others = {
        engine: digest for engine, digest in run.items() if not chosen or digest != chosen.digest
    }
    if others or (chosen is not None and not run):
        return "chosen", f"on {wanted}, we: {chosen}\nengines: {others or 'none'}"
    return "none" if chosen is None else "chosen", ""


def ask_skopeo(inputs: Sequence[tuple[str, bytes]], folder: Path) -> Iterator[str]:
    """Differences between our choice and that of skopeo."""
    layout = folder / "layout"
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, media_type: str) -> Descriptor:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return Descriptor(media_type=media_type, digest=f"sha256:{name}", size=len(data))

    for _, data in inputs:
        try:
            index, wanted, chosen = _chosen(data)
        except UndecidedError:
            continue
        entries = []
        for entry in index.manifests:
            config = documents.ImageConfiguration(
                os="linux",
                architecture="amd64",
                author=entry.digest,
                rootfs=documents.RootFileSystem(diff_ids=()),
            )
            held = put(encode(config), documents.CONFIGURATION)
            manifest = documents.Manifest(config=held, layers=(), media_type=documents.MANIFEST)
            real = put(encode(manifest), documents.MANIFEST)
            entries.append(msgspec.structs.replace(entry, digest=real.digest, size=real.size))
        top = put(encode(msgspec.structs.replace(index, manifests=tuple(entries))), documents.INDEX)
        (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        (layout / "index.json").write_bytes(encode(ImageIndex(manifests=(top,))))
        platform = wanted.normalized()
        command = [
            "skopeo",
            f"--override-os={platform.os}",
            f"--override-arch={platform.architecture}",
        ]
        if wanted.variant:
            command.append(f"--override-variant={wanted.variant}")
        command += ["inspect", "--config", f"oci:{layout}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            if "no image found" not in done.stderr:
                yield f"skopeo: {done.stderr}"
            continue
        taken = json.loads(done.stdout)["author"]
        if chosen is None or chosen.digest != taken:
            yield f"on {wanted}, we: {chosen}\nskopeo: {taken}\n{encode(index).decode()}"


TARGETS = {
    "documents": (document_inputs, document_difference, DOCUMENTS),
    "indexes": (index_inputs, index_difference, INDEXES),
}


def run(name: str, seconds: int | None, seed: int, folder: Path, program: Path) -> bool:
    """Compare one kind of input; whether there was no difference."""
    inputs, difference, amount = TARGETS[name]
    oracle = Oracle(program)
    source = inputs(random.Random(seed))
    outcomes: Counter[str] = Counter()
    found: list[str] = []
    end = None if seconds is None else time.monotonic() + seconds
    for number in count():
        if found or (outcomes.total() >= amount if end is None else time.monotonic() > end):
            break
        batch = [next(source) for _ in range(BATCH)]
        for (kind, data), answer in zip(batch, oracle.answers(batch), strict=True):
            outcome, text = difference(kind, data, answer)
            outcomes[outcome] += 1
            if text:
                found.append(f"{kind} {data!r}\n{text}")
        if name == "indexes" and (number == 0 or (end is not None and number % 50 == 0)):
            with tempfile.TemporaryDirectory(dir=folder) as inner:
                found += ask_skopeo(batch[:ASKED_OF_SKOPEO], Path(inner))
        if number % 100 == 99:
            print(f"{name}: {dict(outcomes)}", flush=True)
    for text in found[:20]:
        print(text)
    refused = (outcomes["refused"] + outcomes["refused by Go"]) / outcomes.total()
    print(
        f"{name}: {len(found)} differences in {outcomes.total()} inputs, {dict(outcomes)}",
        flush=True,
    )
    if 1 - refused < LEAST_DECIDED:
        print(f"{name}: {refused:.0%} of the inputs were refused: that proves nothing")
        return False
    return not found


def main() -> int:
    """The exit code: 1 when there was a difference."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=" ".join(TARGETS))
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.targets) - TARGETS.keys():
        parser.error(f"no target is called {', '.join(sorted(unknown))}: {', '.join(TARGETS)}")
    sys.set_int_max_str_digits(0)
    with tempfile.TemporaryDirectory() as folder:
        program = compile_oracle(HERE / "image_oracle.go", Path(folder))
        if program is None or shutil.which("skopeo") is None:
            print(f"fuzz images: not run: install skopeo, and {COMPILERS}", file=sys.stderr)
            return 5 if os.environ.get("CI") else 0
        kept = [
            run(name, options.seconds, options.seed, Path(folder), program)
            for name in options.targets or TARGETS
        ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
