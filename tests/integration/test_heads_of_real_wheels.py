"""The beginnings of the libraries of real wheels say nothing that the whole files would not say."""

from __future__ import annotations

import zipfile

import pytest
from corpus_fetch import fetch, wheel_folder
from corpus_truth import read_truth
from headcases import assert_says_no_more, fed, whole

from buildmatrix.base.data import replace

pytestmark = pytest.mark.network


@pytest.mark.parametrize("name", ["rmm-cu12", "torchao", "xgboost-cpu", "cryptography"])
def test_libraries_of_real_wheels_say_the_same_in_part_and_as_a_whole(name: str) -> None:
    wheel = next(one for one in read_truth() if one.name == name)
    with zipfile.ZipFile(fetch(wheel, wheel_folder())) as archive:
        members = [
            one.filename
            for one in archive.infolist()
            if ".so" in one.filename and 5000 < one.file_size < 30 << 20
        ]
        assert members
        for member in members[:6]:
            data = archive.read(member)
            full = whole(data)
            for size in (65_536, 1 << 20):
                if size < len(data):
                    head = fed(data, size, 50_000).elf
                    # A tool may take a name out of .dynamic and leave it in the table; and which
                    # section a module of SPIR-V is in, only section headers tell.
                    code = tuple(one for one in head.device_code if one.kind != "spirv")
                    assert_says_no_more(replace(head, linked_names=(), device_code=code), full)
