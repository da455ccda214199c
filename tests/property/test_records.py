"""Cutting covers the file, cuts only between records, and does not depend on how the file was read."""

from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from awe_server.data import records, scan_fastq
from awe_server.data.build import record_units
from awe_server.data.formats import Format, detect
from awe_server.data.records import Unclear, chunk_starts, cutter
from awe_server.data.scan import Scanner, grouped, starts
from awe_server.data.scan_fastq import FastqScanner
from awe_server.data.scan_lines import FastaScanner, LineScanner, SamScanner, TextScanner
from tests.unit.data.samples import Bytes, flat, parts, scanned

SCANNERS: dict[Format, type[Scanner]] = {
    Format.FASTA: FastaScanner,
    Format.FASTQ: FastqScanner,
    Format.SAM: SamScanner,
    Format.TEXT: TextScanner,
}
Sample = tuple[Format, bytes, list[int]]  #: format, file, where its records may be cut

line_end = st.sampled_from([b"\n", b"\r\n"])
blank_lines = st.integers(0, 2)
name = st.text("abAB01 @>+\t|", max_size=8).map(str.encode)
bases = st.text("ACGTNacgtn-.*", min_size=0, max_size=30).map(str.encode)


def _quality(length: int) -> st.SearchStrategy[bytes]:
    """Any quality, but often one that looks like another line of a record."""
    nasty = st.sampled_from([b"@", b"+", b">", b"@+", b"@A", b"+A"])
    plain = st.text("@+>!IJACGT5", min_size=length, max_size=length).map(str.encode)
    return st.tuples(nasty, plain).map(lambda both: (both[0] + both[1])[:length])


@st.composite
def fastq_records(draw: st.DrawFn, end: bytes) -> bytes:
    sequence = draw(bases)
    header = draw(name)
    plus = draw(st.sampled_from([b"+", b"+" + header]))
    return end.join([b"@" + header, sequence, plus, draw(_quality(len(sequence))), b""])


@st.composite
def wrapped_fastq_records(draw: st.DrawFn, end: bytes) -> bytes:
    sequence = draw(st.text("ACGTN", min_size=4, max_size=30).map(str.encode))
    width = draw(st.integers(2, len(sequence) - 1))
    quality = draw(_quality(len(sequence)))
    lines = [b"@" + draw(name), *_wrap(sequence, width), b"+", *_wrap(quality, width), b""]
    return end.join(lines)


@st.composite
def fasta_records(draw: st.DrawFn, end: bytes) -> bytes:
    sequence = draw(bases)
    return end.join([b">" + draw(name), *_wrap(sequence, draw(st.integers(1, 40))), b""])


@st.composite
def sam_records(draw: st.DrawFn, end: bytes) -> bytes:
    sequence = draw(st.text("ACGT", min_size=1, max_size=9).map(str.encode))
    tags = draw(st.sampled_from([b"", b"\tNM:i:0", b"\tCO:Z:@SQ"]))
    quality = draw(_quality(len(sequence)))
    return b"r%d\t0\tc\t1\t9\t%dM\t*\t0\t0\t%b%b%b" % (
        draw(st.integers(0, 99)), len(sequence), sequence + b"\t", quality + tags, end
    )  # fmt: skip


def _text_records(end: bytes) -> st.SearchStrategy[bytes]:
    return st.text("ab @>+\t;", min_size=1, max_size=12).map(lambda text: b"x" + text.encode() + end)


def _wrap(text: bytes, width: int) -> list[bytes]:
    return [text[at : at + width] for at in range(0, len(text), width)]


@st.composite
def samples(draw: st.DrawFn, form: Format, wrapped: bool = False) -> Sample:
    """A file of some records, with blank lines between them and perhaps none at its end."""
    end = draw(line_end)
    one = {
        Format.FASTA: fasta_records(end),
        Format.FASTQ: wrapped_fastq_records(end) if wrapped else fastq_records(end),
        Format.SAM: sam_records(end),
        Format.TEXT: _text_records(end),
    }[form]
    data = draw(blank_lines) * end
    if form is Format.SAM and draw(st.booleans()):
        data += b"@HD\tVN:1.6" + end + b"@SQ\tSN:c\tLN:9" + end + b"@CO\tr\t0\tc" + end
    at = []
    for record in draw(st.lists(one, min_size=1, max_size=25)):
        at.append(len(data))
        data += record + draw(blank_lines) * end
    if draw(st.booleans()):
        data = _without_last_end(data, end, form)
    return form, data, [0, *at[1:]]


def _without_last_end(data: bytes, end: bytes, form: Format) -> bytes:
    """Cut the last line end off, unless an empty quality line would vanish with it."""
    return data if form is Format.FASTQ and data.endswith(end + end) else data.removesuffix(end)


plain_samples = st.sampled_from(list(Format)).flatmap(samples)
all_samples = st.one_of(plain_samples, samples(Format.FASTQ, wrapped=True))


@given(all_samples)
def test_the_format_is_told_from_the_head(sample: Sample) -> None:
    form, data, _ = sample
    assert detect(data) is form


@given(all_samples, st.integers(1, 60))
def test_a_scan_finds_every_record_whatever_the_blocks(sample: Sample, block: int) -> None:
    form, data, expected = sample
    assert scanned(data, SCANNERS[form](), block) == expected


@given(samples(Format.FASTQ) | samples(Format.FASTQ, wrapped=True), st.integers(1, 60), st.integers(0, 40))
def test_records_longer_than_what_is_carried_are_found_too(sample: Sample, block: int, carry: int) -> None:
    _, data, expected = sample
    with mock.patch.object(scan_fastq, "CARRY_BYTES", carry):
        assert scanned(data, FastqScanner(), block) == expected


@given(plain_samples, st.integers(1, 120), st.integers(1, 80))
@settings(max_examples=200)
def test_windows_find_the_same_units_as_a_scan_of_everything(sample: Sample, chunk: int, window: int) -> None:
    form, data, expected = sample
    with mock.patch.object(records, "WINDOW_BYTES", window):
        by_windows = list(chunk_starts(Bytes(data), form, chunk))
    assert by_windows == flat(grouped([starts(expected)], len(data), chunk))


@given(samples(Format.FASTQ, wrapped=True), st.integers(1, 120), st.integers(1, 80))
@settings(max_examples=200)
def test_wrapped_fastq_is_never_cut_inside_a_record(sample: Sample, chunk: int, window: int) -> None:
    form, data, expected = sample
    with mock.patch.object(records, "WINDOW_BYTES", window):
        try:
            found = list(chunk_starts(Bytes(data), form, chunk))
        except Unclear:
            found = flat(record_units(Bytes(data), form, "chunkrecord")[0])
    assert set(found) <= set(expected)


@given(plain_samples, st.integers(1, 80))
def test_a_unit_is_longer_than_asked_for_only_if_it_is_one_record(sample: Sample, chunk: int) -> None:
    form, data, expected = sample
    found = [*chunk_starts(Bytes(data), form, chunk), len(data)]
    assert found == sorted(set(found))
    for start, end in pairwise(found):
        assert end - start <= chunk or not set(range(start + 1, end)) & set(expected)


@given(plain_samples, st.data())
def test_the_next_start_is_right_from_every_offset(sample: Sample, draw: st.DataObject) -> None:
    form, data, expected = sample
    offset = draw.draw(st.integers(1, len(data)))
    with mock.patch.object(records, "WINDOW_BYTES", draw.draw(st.integers(1, 80))):
        found = cutter(Bytes(data), form).next_start(offset)
    assert found == min([start for start in expected if start >= offset], default=len(data))


@given(all_samples, st.integers(1, 12))
def test_parts_cover_the_file_and_are_files_of_their_own(sample: Sample, wanted: int) -> None:
    form, data, _ = sample
    found = flat(record_units(Bytes(data), form, "record")[0])
    dealt = parts(data, found, min(wanted, len(found)))
    assert b"".join(dealt) == data
    assert all(dealt)
    assert sum(len(scanned(part, SCANNERS[form](), 1000)) for part in dealt) == len(found)


def _longest_and_shortest(found: list[int], size: int) -> tuple[int, int]:
    lengths = [end - start for start, end in pairwise([*found, size])]
    return max(lengths), min(lengths)


def _difference(data: bytes, units: list[int], wanted: int) -> tuple[int, int, int]:
    """By how many bytes parts differ, and the least and the greatest number of units in one."""
    sizes = [len(part) for part in parts(data, units, wanted)]
    return max(sizes) - min(sizes), len(units) // wanted, -(-len(units) // wanted)


@given(all_samples, st.integers(1, 12))
def test_F_05_parts_by_record_differ_by_no_more_than_a_record_and_uneven_lengths_in_bytes(
    sample: Sample, wanted: int
) -> None:
    _, data, expected = sample
    longest, shortest = _longest_and_shortest(expected, len(data))
    difference, fewest, most = _difference(data, expected, min(wanted, len(expected)))
    assert difference <= most * longest - fewest * shortest <= fewest * (longest - shortest) + longest


@given(plain_samples, st.integers(1, 120), st.integers(1, 12))
@settings(max_examples=200)
def test_F_05_parts_by_chunkrecord_differ_by_less_than_two_units_and_a_record_each_in_bytes(
    sample: Sample, chunk: int, wanted: int
) -> None:
    form, data, expected = sample
    longest, _ = _longest_and_shortest(expected, len(data))
    units = list(chunk_starts(Bytes(data), form, chunk))
    assert all(chunk - longest < end - start <= max(chunk, longest) for start, end in pairwise(units))
    difference, fewest, _ = _difference(data, units, min(wanted, len(units)))
    assert difference < 2 * max(chunk, longest) + (fewest - 1) * longest


@given(st.text("a\r\n", max_size=30).map(str.encode), st.integers(1, 7))
def test_every_line_is_a_unit_of_the_line_index(data: bytes, block: int) -> None:
    lines = data.split(b"\n") if data else [b""]
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    found = scanned(data, LineScanner(), block)
    assert [end - start for start, end in pairwise([*found, len(data) + (not data.endswith(b"\n"))])] == [
        len(line) + 1 for line in lines
    ]


@pytest.mark.parametrize("form", list(Format))
def test_F_04_empty_input_is_one_empty_unit(form: Format) -> None:
    assert list(chunk_starts(Bytes(b""), form)) == [0]
    assert scanned(b"", SCANNERS[form](), 1) == [0]
