"""Files of device code outside ELF objects of the host, and static archives."""

from __future__ import annotations

import struct

import pytest
from elf_images import ALLOC, Image, Part, bundle, fat_binary, fat_entry

from buildmatrix.facts.binaries.devicefile import HEAD, detect_kind, read_device_file
from buildmatrix.facts.binaries.intermediate import read_spirv
from buildmatrix.facts.binaries.reader import read_elf
from buildmatrix.facts.elf.model import DeviceFile
from buildmatrix.facts.elf.search import MARKS
from buildmatrix.facts.trees.archive import BytesSource

KERNEL, SHADER = 2, 0


def spirv(addressing: int = KERNEL) -> bytes:
    """A module: OpCapability, OpMemoryModel, and two functions with OpFunction, OpFunctionEnd."""
    words = [0x07230203, 0x00010400, 0, 100, 0, 2 << 16 | 17, 6, 3 << 16 | 14, addressing, 2]
    words += [5 << 16 | 54, 1, 2, 0, 3, 1 << 16 | 56] * 2
    return struct.pack(f"<{len(words)}I", *words)


class Bits:
    """Writes LLVM's stream of bits."""

    def __init__(self) -> None:
        self.value = 0
        self.size = 0

    def fixed(self, value: int, width: int) -> None:
        self.value |= value << self.size
        self.size += width

    def variable(self, value: int, width: int) -> None:
        more = 1 << width - 1
        while value >= more:
            self.fixed(value & more - 1 | more, width)
            value >>= width - 1
        self.fixed(value, width)

    def align(self) -> None:
        self.size += -self.size % 32

    def bytes(self) -> bytes:
        self.align()
        return self.value.to_bytes(self.size // 8, "little")


def bitcode(triple: str) -> bytes:
    """A module with an abbreviation and a block to be skipped in front of its triple."""
    body = Bits()
    body.fixed(2, 3)  # an abbreviation of a literal, a fixed field and an array of six-bit letters
    body.variable(4, 5)
    body.fixed(1, 1)
    body.variable(1000, 8)
    for encoding, width in ((1, 7), (3, None), (4, None)):
        body.fixed(0, 1)
        body.fixed(encoding, 3)
        if width:
            body.variable(width, 5)
    body.fixed(1, 3)  # a block of types
    body.variable(17, 8)
    body.variable(4, 4)
    body.align()
    body.fixed(2, 32)
    body.fixed(0xFFFFFFFFFFFFFFFF, 64)
    for code, values in ((1, [2]), (2, list(triple.encode()))):
        body.fixed(3, 3)
        body.variable(code, 6)
        body.variable(len(values), 6)
        for value in values:
            body.variable(value, 6)
    inner = body.bytes()
    head = Bits()
    head.fixed(1, 2)
    head.variable(8, 8)
    head.variable(3, 4)
    head.align()
    head.fixed(len(inner) // 4, 32)
    return b"BC\xc0\xde" + head.bytes() + inner


def archive(*members: tuple[bytes, bytes]) -> bytes:
    data = b"!<arch>\n"
    for name, content in members:
        data += name.ljust(16) + b"0".ljust(32) + b"%-10d`\n" % len(content) + content
        data += b"\n" * (len(content) % 2)
    return data


def read(data: bytes, name: str = "file") -> DeviceFile | None:
    return read_device_file(BytesSource(data), len(data), name)


def known(data: bytes, name: str = "file") -> DeviceFile:
    found = read(data, name)
    assert found is not None
    return found


def archs(data: bytes, name: str = "file") -> list[tuple[str, str, str | None]]:
    return [(code.format, code.kind, code.arch) for code in known(data, name).device_code]


KPACK_TABLE = (
    b"\x84\xaagroup_name\xa5blas_\xa7version\xcd\x01\x00"
    b"\xaagfx_arches\x92\xa7gfx1100\xa7gfx1101\xa3toc\x81\xa1a\xc4\x02xx"
)


@pytest.mark.parametrize(
    ("data", "name", "kind", "expected"),
    [
        (Image(machine=190, flags=90).build(), "k", "cubin", ("elf", "sass", "sm_90")),
        (Image(machine=224, flags=0x4C).build(), "k", "hsaco", ("elf", "amdgcn", "gfx942")),
        (Image(machine=0x1029, flags=0x940000).build(), "k.o", "aicore", ("elf", "aicore", None)),
        (fat_binary(fat_entry(2, 80)), "k", "fatbin", ("nv-fatbin", "sass", "sm_80")),
        (
            bundle({"hipv4-amdgcn-amd-amdhsa--gfx90a": b"x"}),
            "k",
            "hipfb",
            ("hip-bundle", "amdgcn", "gfx90a"),
        ),
        (spirv(), "k", "spv", ("spirv", "spirv", "spirv64")),
        (spirv(SHADER), "k", "spv", ("spirv", "spirv", "spirv")),
        (
            b"//\n.version 8.0\n.target sm_90a, debug\n",
            "k.PTX",
            "ptx",
            ("ptx", "ptx", "compute_90a"),
        ),
        (bitcode("nvptx64-nvidia-cuda"), "k", "bc", ("bitcode", "bitcode", "nvptx64")),
        (
            b"\xde\xc0\x17\x0b" + struct.pack("<IIII", 0, 20, 4, 7) + bitcode("spir64-unknown"),
            "k",
            "bc",
            ("bitcode", "bitcode", "spir64"),
        ),
        (bitcode("amdgcn-amd-amdhsa"), "k", "bc", ("bitcode", "bitcode", "amdgcn")),
        (
            b'module attributes {"ttg.num-ctas" = 1, ttg.target = "cuda:90"} {',
            "add_kernel.ttgir",
            "ttgir",
            ("triton", "ir", "compute_90"),
        ),
        (
            b'module attributes {ttg.target = "hip:gfx942"} {',
            "add_kernel.ttgir",
            "ttgir",
            ("triton", "ir", "gfx942"),
        ),
        (
            b'\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942:sramecc+"\n',
            "k.amdgcn",
            "amdgcn",
            ("amdgcn", "amdgcn", "gfx942:sramecc+"),
        ),
        (
            # As Triton 3.9.0 wrote it.
            b'\t.amdgcn_target "amdgpu9.42-amd-amdhsa-unknown-gfx942"\n',
            "k.amdgcn",
            "amdgcn",
            ("amdgcn", "amdgcn", "gfx942"),
        ),
        (
            b'source_filename = "x"\ntarget triple = "amdgpu9.42-amd-amdhsa"\n',
            "k.llir",
            "llir",
            ("triton", "ir", "amdgpu9.42"),
        ),
        (
            bitcode("amdgpu9.42-amd-amdhsa"),
            "k",
            "bc",
            ("bitcode", "bitcode", "amdgpu9.42"),
        ),
    ],
)
def test_a_bare_file_of_device_code_names_its_architecture(
    data: bytes, name: str, kind: str, expected: tuple[str, str, str]
) -> None:
    assert known(data, name).kind == kind
    assert archs(data, name) == [expected]


def test_a_kpack_file_names_every_architecture_that_it_holds() -> None:
    data = b"KPAK" + struct.pack("<IQ", 1, 64) + bytes(48) + KPACK_TABLE
    assert archs(data) == [
        ("hip-kpack", "amdgcn", "gfx1100"),
        ("hip-kpack", "amdgcn", "gfx1101"),
    ]
    assert sum(code.size for code in known(data).device_code) == len(data)


@pytest.mark.parametrize(
    ("data", "name", "note"),
    [
        (b"KPAK" + struct.pack("<IQ", 1, 1 << 40), "a.kpack", "outside the file"),
        (b"KPAK" + struct.pack("<IQ", 1, 16) + b"\x81\xa1a", "a.kpack", "cut short"),
        (b"KPAK" + struct.pack("<IQ", 1, 16) + b"\x80", "a.kpack", "names no architecture"),
        (b"ftrt" + bytes(60), "model.engine", "does not say"),
        (b"\x85", "model.mxr", "does not say"),
        (b"encrypted", "k.ptx", "names no target"),
        (b"encrypted", "k.cubin", "not an ELF"),
        (b"encrypted", "k.fatbin", "no container"),
        (b"\x50\xed\x55\xba" + bytes(60), "k", "no container"),
        (b"\x07\x23\x02\x03" + bytes(60), "k", "not a SPIR-V module"),
        (b"BC\xc0\xde" + bytes(60), "k", "no target triple"),
    ],
)
def test_what_the_bytes_do_not_tell_is_unknown_with_the_reason(
    data: bytes, name: str, note: str
) -> None:
    (code,) = known(data, name).device_code
    assert code.arch is None
    assert note in (code.note or "")


def test_bitcode_of_the_host_is_no_device_code() -> None:
    assert known(bitcode("x86_64-unknown-linux-gnu")).device_code == ()


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("model.plan", b"terraform"),
        ("mod.py", b"import"),
        ("libx.so", Image().build()[:HEAD]),
        ("noise", b""),
        ("archive.zip", b"PK\3\4"),
    ],
)
def test_other_files_are_of_no_interest(name: str, head: bytes) -> None:
    assert detect_kind(name, head) is None
    assert read(head, name) is None


def test_the_members_of_an_archive_are_read_and_their_places_are_those_in_the_archive() -> None:
    mark = MARKS["cudart-error-string"]
    first = Image(type=1, parts=[Part("__nv_relfatbin", fat_binary(fat_entry(2, 80)))]).build()
    second = Image(
        type=1,
        parts=[Part("__nv_relfatbin", fat_binary(fat_entry(2, 80))), Part(".rodata", mark)],
    ).build()
    data = archive(
        (b"/", b"symbols!"),
        (b"//", b"a_very_long_name_of_an_object.o/\n"),
        (b"/0", first),
        (b"#1/8", b"bsd.o\0\0\0" + second),
        (b"notes.txt/", b"text"),
        (b"lto.o/", bitcode("amdgcn-amd-amdhsa")),
        (b"nested.a/", archive((b"x.o/", first))),
    )
    found = known(data, "libx.a")
    assert (found.kind, found.members, found.unread) == ("a", 5, ())
    lto, code = found.device_code
    assert (lto.kind, lto.arch) == ("bitcode", "amdgcn")
    assert (code.kind, code.arch, code.count, code.section) == (
        "sass",
        "sm_80",
        2,
        "__nv_relfatbin",
    )
    assert data[code.offset - 16 :].startswith(b"\x50\xed\x55\xba")
    (seen,) = found.marks
    assert data[seen.offset :].startswith(mark)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"!<thin>\n" + archive((b"a.o/", b""))[8:], "thin archive"),
        (archive((b"a.o/", b"x" * 10))[:-4], "cut short"),
        (archive((b"a.o/", b"")) + b"garbage", "damaged: there is no member at offset 68"),
        (archive((b"a.o/", b"\x7fELF")), "a member: the file ends inside"),
    ],
)
def test_an_archive_that_cannot_be_read_says_why(data: bytes, why: str) -> None:
    assert any(why in reason for reason in known(data).unread)


def test_spirv_in_data_of_the_host_is_found_and_a_parser_of_spirv_is_not() -> None:
    module = spirv()
    # The other one is followed by what looks like an instruction.
    for data in (b"x" * 333 + module + b"\0" * 40, module + b"\x11\0\2\0" + bytes(4)):
        image = Image(parts=[Part(".rodata", data)]).build()
        elf = read_elf(BytesSource(image), len(image))
        assert elf is not None
        (code,) = elf.device_code
        assert (code.format, code.arch, code.count, code.size) == (
            "spirv", "spirv64", 1, len(module),
        )  # fmt: skip
        assert image[code.offset :].startswith(module)
    table = struct.pack("<6I", 0x07230203, 0x00010000, 0x07230203, 0x00010100, 0, 0)
    image = Image(parts=[Part(".rodata", table, flags=ALLOC)]).build()
    elf = read_elf(BytesSource(image), len(image))
    assert elf is not None
    assert elf.device_code == ()


FUNCTIONS = struct.pack("<12I", *[5 << 16 | 54, 1, 2, 0, 3, 1 << 16 | 56] * 2)
#: OpName of an identifier with what looks like the end of a function in its text.
LIKE_AN_END = struct.pack("<5I", 5 << 16 | 5, 1, 1 << 16 | 56, 0x61616161, 0)


@pytest.mark.parametrize(
    "module",
    [
        spirv(),
        spirv().removesuffix(FUNCTIONS),
        spirv().removesuffix(FUNCTIONS) + LIKE_AN_END + FUNCTIONS,
        # One that takes more than is looked at at first, and one whose end is not aligned.
        spirv().removesuffix(FUNCTIONS) + LIKE_AN_END * 4000 + FUNCTIONS * 900,
        spirv() + FUNCTIONS * 2000,
    ],
    ids=["plain", "without a function", "a name like an end", "long names", "many functions"],
)
@pytest.mark.parametrize("behind", [b"", spirv(), b"\0" * 64, b"\0" * 64 + spirv(), b"\1" * 9])
def test_a_module_of_spirv_ends_where_its_instructions_do(module: bytes, behind: bytes) -> None:
    data = module + behind
    container = read_spirv(BytesSource(data), 0, len(data))
    assert container is not None
    assert container.end == len(module)


def test_a_bundle_with_nothing_but_code_of_the_host_holds_no_device_code() -> None:
    found = known(bundle({"host-x86_64-unknown-linux-gnu-": b"x" * 64}), "k.hipfb")
    assert (found.kind, found.device_code, found.unread) == ("hipfb", (), ())


def test_a_table_of_more_architectures_than_there_are_is_not_believed() -> None:
    names = b"".join(b"\xa7gfx" + b"%04d" % number for number in range(300))
    data = b"KPAK" + struct.pack("<IQ", 1, 16) + b"\x81\xaagfx_arches\xdc" + b"\x01\x2c" + names
    (code,) = known(data, "x.kpack").device_code
    assert (code.arch, code.note) == (
        None,
        "the table of contents names more than 256 architectures",
    )
