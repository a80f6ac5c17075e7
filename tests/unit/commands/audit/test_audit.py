"""An audit of wheels on a loopback index, from their lists of files to their last byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from audit_index import HASTY, Locked, embedded, library, noise
from elf_images import Image, Part
from index import ignoring_ranges
from loopback import Misdeed, answering, cut_after, redirecting, with_headers

from buildmatrix.base.data import replace
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.locks.index.client import Client
from buildmatrix.locks.index.reading import CachingReader
from buildmatrix.locks.index.wheels import WheelReader
from buildmatrix.locks.model import Staleness
from buildmatrix.reports.run import Report, exit_code


def verdicts(report: Report, backend: str = "cpu") -> dict[str, Verdict]:
    return {one.name: one for one in report.distributions if one.backend == backend}


def rules(report: Report, target: str = "cpu") -> list[str]:
    return [
        f"{one.rule} {one.distribution}"
        for one in report.findings
        if one.target == target and one.severity != "note"
    ]


def only(report: Report, rule: str, target: str = "cpu") -> Finding:
    (one,) = [one for one in report.findings if (one.rule, one.target) == (rule, target)]
    return one


def add_embeddings(locked: Locked) -> None:
    """A clean package that brings a vendor's library by way of a framework."""
    locked.add("embeddings 1.0", "requirements.in:3", requires=["framework"])
    locked.add("framework 2.0", "embeddings", requires=["nvidia-cublas-cu12"])
    locked.add(
        "nvidia-cublas-cu12 12.8",
        "framework",
        {"nvidia/cublas/lib/libcublas.so.12": library(size=400_000)},
    )


def test_the_chain_the_bytes_and_the_verdicts_of_a_package_that_brings_cuda_a10(
    locked: Locked,
) -> None:
    add_embeddings(locked)
    report = locked.audit("cpu")
    one = only(report, "BM101")
    assert one.chain == (
        "requirements.in:3",
        "embeddings 1.0",
        "framework 2.0",
        "nvidia-cublas-cu12 12.8",
    )
    found = verdicts(report)
    assert {name: one.verdict for name, one in found.items()} == {
        "embeddings": "bloat",
        "framework": "bloat",
        "nvidia-cublas-cu12": "bloat",
    }
    size = (locked.folder / "nvidia_cublas_cu12-12.8-py3-none-any.whl").stat().st_size
    totals = report.targets[0].audit
    assert totals is not None
    assert totals.foreign_download == found["nvidia-cublas-cu12"].foreign_download == size
    assert totals.download == sum(path.stat().st_size for path in locked.folder.iterdir())
    assert 400_000 < totals.foreign_installed < totals.installed
    assert report.targets[0].gates["lock"] == "failed"
    assert exit_code(report) == 1


def test_the_same_lock_is_fine_where_it_belongs(locked: Locked) -> None:
    add_embeddings(locked)
    report = locked.audit("cuda")
    assert report.findings == ()
    assert report.targets[0].gates["lock"] == "passed"
    assert exit_code(report) == 0


def test_a_name_that_says_all_costs_no_more_than_its_list_of_files(locked: Locked) -> None:
    add_embeddings(locked)
    report = locked.audit("cpu")
    depths = {one.name: one.depth for one in report.distributions}
    assert depths["nvidia-cublas-cu12"] == "listing"
    assert report.stats.bytes_read < 100_000


def test_device_code_that_no_name_tells_of_is_found_in_the_first_part_of_its_file(
    locked: Locked,
) -> None:
    locked.add("demo 1.0", files={"demo/libdemo.so": embedded()})
    report = locked.audit("cpu")
    assert rules(report) == ["BM201 demo", "BM401 demo"]
    assert "sm_80" in only(report, "BM401").message
    assert "static cudart" in only(report, "BM201").message
    found = verdicts(report)["demo"]
    assert found.depth == "heads"
    assert "--deep" in (found.open or "")
    # Its first piece of device code could still pack to little: a second look settles the verdict.
    assert found.certain
    assert report.stats.bytes_read < report.stats.bytes_total * 0.8


def test_device_code_behind_most_of_a_file_is_found_where_there_is_enough_to_spend(
    locked: Locked, tmp_path: Path
) -> None:
    # ctranslate2: 70 % of its library is code of the host, and lies before the device code.
    binary = embedded(before=16_000_000, section_headers=False)
    locked.add("demo 1.0", files={"demo/libdemo.so": binary})
    report = locked.audit("cpu", cache=tmp_path)
    assert rules(report) == ["BM201 demo", "BM401 demo"]
    assert verdicts(report)["demo"].verdict == "bloat"
    warm = locked.audit("cpu", cache=tmp_path)
    assert (warm.findings, warm.distributions) == (report.findings, report.distributions)


def test_device_code_behind_most_of_a_file_is_found_by_the_names_of_sections(
    locked: Locked, monkeypatch
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 20_000_000)
    locked.add("demo 1.0", files={"demo/libdemo.so": embedded(before=16_000_000)})
    report = locked.audit("cpu")
    assert rules(report) == ["BM401 demo"]
    assert (verdicts(report)["demo"].verdict, verdicts(report)["demo"].certain) == ("bloat", True)
    assert report.stats.bytes_read < 16_000_000


def test_what_was_not_reached_leaves_a_verdict_open(locked: Locked, monkeypatch) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 20_000_000)
    binary = embedded(before=16_000_000, section_headers=False)
    locked.add("demo 1.0", files={"demo/libdemo.so": binary})
    report = locked.audit("cpu")
    found = verdicts(report)["demo"]
    assert (found.verdict, found.certain) == ("ok", False)
    assert "the verdict may change" in (found.open or "")
    assert exit_code(report, "error", strict=True) == 1


def test_a_strict_audit_reads_until_it_is_certain_and_no_further(
    locked: Locked, monkeypatch
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 300_000)
    clean = Image(parts=(Part(".data", noise(9_000_000)),)).build()
    locked.add("clean 1.0", files={"clean/lib.so": clean})
    locked.add("pure 1.0")
    loose, strict = locked.audit("cpu"), locked.audit("cpu", strict=True)
    assert not verdicts(loose)["clean"].certain
    assert verdicts(strict)["clean"].certain
    assert {name: one.depth for name, one in verdicts(strict).items()} == {
        "clean": "whole",
        "pure": "heads",
    }
    assert exit_code(strict, "error", strict=True) == 0


def test_what_an_installer_adds_to_pinned_requirements_is_undecided_and_named(
    locked: Locked,
) -> None:
    # Pinned on another platform: what is required on this one is not in the file.
    requires = ['nvidia-cublas-cu12; platform_system == "Linux"', 'colorama; os_name == "nt"']
    # The image has a late patch of its Python, for which a tool pins nothing here.
    requires.append('async-timeout; python_full_version < "3.11.3"')
    locked.add("torch 2.10.0+cpu", requires=[*requires, 'pytest; extra == "test"'])
    assert exit_code(locked.audit("cpu"), "error") == 1
    locked.is_completed = True
    report = locked.audit("cpu")
    assert exit_code(report, "error") == 3
    (item,) = report.unread
    assert item.path == "torch"
    assert item.why.startswith("it requires nvidia-cublas-cu12, which the file does not pin")
    locked.add("nvidia-cublas-cu12 12.8.4.1")
    assert locked.audit("cpu").unread == ()


def test_a_strict_audit_does_not_read_on_where_a_finding_fails_already(
    locked: Locked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildmatrix.locks.index.model.FLOOR", 300_000)
    for number, name in enumerate(("one", "two", "three")):
        data = Image(parts=(Part(".data", noise(9_000_000, number)),)).build()
        shared = {"shared/data.so": library(size=1000 + number)} if name != "three" else {}
        locked.add(f"{name} {number + 1}.0", files={f"{name}/lib.so": data, **shared})
    report = locked.audit("cpu", strict=True)
    assert rules(report) == ["BM204 one, two", "BM902 one"]
    assert {name: (one.depth, one.certain) for name, one in verdicts(report).items()} == {
        "one": ("heads", False),
        "two": ("heads", False),
        "three": ("whole", True),
    }
    assert exit_code(report, "error", strict=True) == 1


def test_deep_without_an_index_still_says_what_an_earlier_look_found(
    locked: Locked, tmp_path: Path
) -> None:
    locked.add("demo 1.0", files={"demo/lib.so": embedded()})
    before = locked.audit("cpu", cache=tmp_path / "facts")
    locked.server.misbehave(locked.server.path_of("demo-1.0-py3-none-any.whl"), answering(403))
    report = locked.audit("cpu", cache=tmp_path / "facts", deep=True)
    assert verdicts(report)["demo"].depth == verdicts(before)["demo"].depth == "heads"
    assert only(report, "BM401").distribution == "demo"
    assert exit_code(report, "never") == 3


def test_a_reader_that_keeps_what_it_read_reads_on_when_more_is_allowed(locked: Locked) -> None:
    locked.add("demo 1.0", files={"demo/libdemo.so": embedded(before=2_000_000)})
    (wheel,) = locked.packages[0].wheels
    with Client(patience=HASTY) as client:
        kept = CachingReader(WheelReader(client, None))
        little = kept.read(wheel, "heads", most=300_000)
        assert not little.inventory.binaries[0].elf.device_code
        assert kept.read(wheel, "heads", most=200_000).bytes_read == 0
        much = kept.read(wheel, "heads", most=30_000_000)
        assert much.inventory.binaries[0].elf.device_code
        assert kept.recall_facts(wheel, "heads", most=30_000_000) == replace(much, bytes_read=0)


def test_a_wheel_that_cannot_be_read_counts_with_the_bytes_that_the_lock_says(
    locked: Locked,
) -> None:
    locked.add("nvidia-nccl-cu12 2.27", files={"nvidia/nccl/lib/libnccl.so.2": b"x" * 90_000})
    wheel = locked.packages[0].wheels[0]
    locked.server.misbehave(locked.server.path_of(wheel.filename), answering(403))
    report = locked.audit("cpu")
    totals = report.targets[0].audit
    assert totals is not None
    assert (totals.download, totals.foreign_download) == (wheel.size, wheel.size)
    fix = only(report, "BM902").fix
    assert fix is not None
    assert "its contents are unknown" in fix.text


def test_wheels_that_one_cause_keeps_unread_are_one_finding_with_a_count(locked: Locked) -> None:
    for number in range(5):
        locked.add(f"demo-{number} 1.0")
    alone = locked.packages[4].wheels[0].filename
    locked.server.misbehave(locked.server.path_of(alone), answering(401))
    for package in locked.packages[:4]:
        (wheel,) = package.wheels
        locked.server.misbehave(locked.server.path_of(wheel.filename), answering(404))
    report = locked.audit("cpu")
    many, one = sorted(report.findings, key=lambda finding: finding.message)
    assert many.message.startswith(
        "4 wheels (demo_0-1.0-py3-none-any.whl, demo_1-1.0-py3-none-any.whl and 2 more) could not "
        "be read: it answers 404"
    )
    assert one.path == alone
    assert [item.path for item in report.unread] == [many.path, one.path]
    assert many.fix is not None
    assert many.fix.patch is None
    assert exit_code(report, "never") == 3
    # Another wheel with the same cause changes nothing in a baseline.
    locked.add("demo-5 1.0")
    (wheel,) = locked.packages[5].wheels
    locked.server.misbehave(locked.server.path_of(wheel.filename), answering(404))
    assert many.fingerprint in {finding.fingerprint for finding in locked.audit("cpu").findings}


def test_deep_reads_the_rest_and_nothing_stays_open(locked: Locked) -> None:
    locked.add("demo 1.0", files={"demo/libdemo.so": embedded()})
    shallow, deep = locked.audit("cpu"), locked.audit("cpu", deep=True)
    assert "at least" in only(shallow, "BM401").message
    assert "at least" not in only(deep, "BM401").message
    found = verdicts(deep)["demo"]
    assert (found.depth, found.open, found.verdict) == ("whole", None, "bloat")
    assert found.architectures == {"nvidia": ("sm_80", "sm_90")}


def test_deep_does_not_read_what_has_to_go_anyway(locked: Locked) -> None:
    add_embeddings(locked)
    report = locked.audit("cpu", deep=True)
    assert verdicts(report)["nvidia-cublas-cu12"].depth == "listing"


def test_what_links_a_library_that_nothing_brings_is_broken_a6(locked: Locked) -> None:
    locked.add(
        "cache 1.0",
        files={
            "cache/__init__.py": b"from cache import _C\n",
            "cache/_C.so": library("libcudart.so.13"),
        },
    )
    report = locked.audit("rocm")
    assert verdicts(report, "rocm")["cache"].verdict == "broken"
    assert "this lock does not have libcudart.so.13" in only(report, "BM301", "rocm").message


def test_two_wheels_that_write_one_path_with_other_bytes_are_found_b11(locked: Locked) -> None:
    for number, name in enumerate(("onnx-like", "onnx-like-gpu")):
        locked.add(f"{name} 1.0", files={"onnx_like/capi.so": library(size=1000 + number)})
    assert rules(locked.audit("cpu")) == ["BM204 onnx-like-gpu, onnx-like"] or rules(
        locked.audit("cpu")
    ) == ["BM204 onnx-like, onnx-like-gpu"]


def test_a_path_with_the_same_bytes_in_both_is_a_namespace(locked: Locked) -> None:
    for name in ("one", "two"):
        locked.add(
            f"{name} 1.0", files={"shared/__init__.py": b"", f"shared/{name}.py": b"a = 1\n"}
        )
    assert locked.audit("cpu").findings == ()


def test_four_backends_read_each_wheel_once(locked: Locked) -> None:
    add_embeddings(locked)
    locked.add("demo 1.0", files={"demo/libdemo.so": embedded(section_headers=False)})
    one = locked.audit("cpu").stats.bytes_read
    asked = len(locked.server.requests)
    four = locked.audit("cpu", "rocm", "oneapi", "cuda")
    assert four.stats.bytes_read <= one * 1.1
    assert len(locked.server.requests) - asked <= asked + 2
    assert [one.gates["lock"] for one in four.targets] == ["failed", "failed", "failed", "passed"]


def test_four_backends_read_no_more_than_the_one_that_asks_for_most(locked: Locked) -> None:
    # That a section is for device code settles it on cpu; cuda asks for which architectures.
    backends = ("cpu", "rocm", "oneapi", "cuda")
    add_embeddings(locked)
    locked.add("demo 1.0", files={"demo/libdemo.so": embedded()})
    alone = {backend: locked.audit(backend).stats.bytes_read for backend in backends}
    assert alone["cuda"] == max(alone.values()) > alone["cpu"]
    assert locked.audit(*backends).stats.bytes_read <= alone["cuda"] * 1.1


def test_the_same_lock_gives_the_same_report_with_a_cold_and_a_warm_cache(
    locked: Locked, tmp_path: Path
) -> None:
    add_embeddings(locked)
    locked.add("demo 1.0", files={"demo/libdemo.so": embedded()})
    cold = locked.audit("cpu", "cuda", cache=tmp_path / "cache")
    asked = len(locked.server.requests)
    warm = locked.audit("cpu", "cuda", cache=tmp_path / "cache")
    assert len(locked.server.requests) == asked
    assert (warm.stats.bytes_read, warm.stats.cached) == (0, 4)
    assert warm.findings == cold.findings
    assert warm.distributions == cold.distributions


def test_an_index_without_ranges_says_the_same_and_more(locked: Locked) -> None:
    path = locked.add("demo 1.0", files={"demo/libdemo.so": embedded(behind=1000)})
    locked.server.misbehave(locked.server.path_of(path.name), ignoring_ranges())
    report = locked.audit("cpu")
    assert verdicts(report)["demo"].depth == "whole"
    assert "BM401 demo" in rules(report)


def test_a_wheel_that_cannot_be_reached_is_undecided_and_costs_no_other(locked: Locked) -> None:
    gone = locked.add("gone 1.0", "requirements.in:1")
    locked.add("clean 1.0", "requirements.in:2")
    locked.server.misbehave(locked.server.path_of(gone.name), answering(404))
    report = locked.audit("cpu")
    assert report.targets[0].gates["lock"] == "undecided"
    assert exit_code(report) == 3
    (unread,) = report.unread
    assert unread.path == gone.name
    assert verdicts(report)["clean"].verdict == "ok"
    assert "gone" not in verdicts(report)


@pytest.mark.parametrize("after", [0, 2, 3])
@pytest.mark.parametrize(
    "misdeed",
    [
        pytest.param(answering(404), id="404"),
        pytest.param(answering(429, retry_after="0"), id="429"),
        pytest.param(answering(500), id="500"),
        pytest.param(answering(503, retry_after="86400"), id="503"),
        pytest.param(redirecting("/files/demo-1.0-py3-none-any.whl"), id="redirects in a circle"),
        pytest.param(redirecting("ftp://example.com/x.whl"), id="a redirect to nowhere"),
        pytest.param(ignoring_ranges(), id="a range ignored"),
        pytest.param(cut_after(100), id="a range cut short"),
        pytest.param(cut_after(100, reset=True), id="a connection reset"),
        pytest.param(with_headers(etag='"other"'), id="a file that changes"),
        pytest.param(with_headers(content_range="bytes 0-9/10"), id="a length that lies"),
        pytest.param(with_headers(content_encoding="gzip"), id="compressed on the way"),
    ],
)
def test_whatever_an_index_does_while_a_wheel_is_read_is_told_in_one_sentence(
    locked: Locked, misdeed: Misdeed, after: int
) -> None:
    parts = (
        Part(".text", noise(600_000), flags=6),
        Part(".rodata", noise(20_000)),
        Part(".eh_frame", noise(2_000_000, 2)),
    )
    library = Image(needed=("libc.so.6",), parts=parts).build()
    path = locked.add("demo 1.0", files={"demo/lib.so": library})
    locked.server.misbehave(locked.server.path_of(path.name), misdeed, after=after)
    report = locked.audit("cpu")
    # A wheel is opened twice. What an index gives from there on in one way may be enough.
    struck = len(locked.server.requests) > after and (after > 1 or bool(report.unread))
    assert exit_code(report) == (3 if struck else 0)
    assert verdicts(report).get("demo") is not None or struck
    for one in report.unread:
        assert one.path == path.name
        assert one.why.count("\n") == 0
        assert 20 < len(one.why) < 300


def test_a_wheel_that_cannot_be_reached_does_not_hide_what_was_found(locked: Locked) -> None:
    add_embeddings(locked)
    gone = locked.add("gone 1.0")
    locked.server.misbehave(locked.server.path_of(gone.name), answering(404))
    report = locked.audit("cpu")
    assert "BM101 nvidia-cublas-cu12" in rules(report)
    assert exit_code(report) == 1


def test_a_distribution_without_a_wheel_for_the_target_is_said_not_skipped(locked: Locked) -> None:
    locked.add("demo 1.0", tag="cp311-cp311-macosx_11_0_arm64")
    report = locked.audit("cpu")
    one = only(report, "BM107")
    assert (one.distribution, one.severity) == ("demo", "warning")
    assert "macosx_11_0_arm64" in one.message
    assert report.stats.files == 0


def test_a_lock_older_than_its_inputs_fails_whatever_it_holds_a11(locked: Locked) -> None:
    locked.add("clean 1.0")
    report = locked.audit("cpu", stale=Staleness("requirements.in has changed"))
    assert rules(report) == ["BM106 None"]
    assert exit_code(report) == 1


def test_pure_python_is_certain_once_it_was_read(locked: Locked) -> None:
    locked.add("clean 1.0")
    report = locked.audit("cpu", "cuda", "rocm", "oneapi")
    assert report.findings == ()
    assert all(one.certain and one.depth == "heads" for one in report.distributions)
    assert exit_code(report, strict=True) == 0


def test_binaries_that_are_clean_get_certain_by_a_look(locked: Locked) -> None:
    locked.add("clean 1.0", files={f"clean/_{n}.abi3.so": library("libc.so.6") for n in range(9)})
    report = locked.audit("cpu")
    assert report.findings == ()
    found = verdicts(report)["clean"]
    assert (found.depth, found.certain, found.open) == ("heads", True, None)


def test_a_target_that_could_not_be_resolved_is_undecided_beside_one_that_was(
    locked: Locked,
) -> None:
    from datetime import date

    from buildmatrix.base.errors import UndecidedError
    from buildmatrix.base.progress import Silent
    from buildmatrix.commands.audit import audit, judge_for
    from buildmatrix.matrix.model import bare_target
    from buildmatrix.sources.resolved import Resolved, Unresolved

    class NoReader:
        """Nothing has to be read."""

        def read(self, *_: object, **__: object) -> None:
            raise AssertionError("there is no wheel")

    good = Resolved(bare_target("cpu", "cpu", python="3.11"), locked.lock(), None, "pylock.toml")
    bad = Unresolved(bare_target("rocm", "rocm"), UndecidedError("rocm: torch has no version"))
    judge = judge_for(None, (), "error", date(2026, 11, 21), ())
    report = audit("x", [good, bad], NoReader(), judge, Silent())  # type: ignore[arg-type]
    assert [one.gates["lock"] for one in report.targets] == ["passed", "undecided"]
    assert report.targets[1].error == "torch has no version"
    assert exit_code(report) == 3


def test_of_several_wheels_the_installers_choice_is_read(locked: Locked) -> None:
    other = locked.add("demo 1.0", tag="cp39-cp39-manylinux_2_28_x86_64")
    fitting = locked.add("demo 1.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    first, second = locked.packages
    locked.packages = [replace(first, wheels=(*first.wheels, *second.wheels))]
    locked.audit("cpu")
    assert locked.server.count(locked.server.path_of(fitting.name)) > 0
    assert locked.server.count(locked.server.path_of(other.name)) == 0
