"""Windows into files: real reads, and the shapes that break naive cutting."""

import bisect
from itertools import pairwise

import pytest

from awe_server.data.formats import Format
from awe_server.data.records import CHUNK_BYTES, FastqCutter, MarkCutter, Unclear, chunk_starts
from awe_server.data.scan import Malformed, scan
from awe_server.data.scan_fastq import FastqScanner
from awe_server.data.scan_lines import FastaScanner
from tests.unit.data.samples import (
    READS,
    Bytes,
    assert_4_line_fastq,
    flat,
    four_line_starts,
    naive_cuts,
    parts,
)

STARTS = four_line_starts(READS)


def _with_qualities(first: bytes) -> bytes:
    """The real reads, every quality line beginning with `first`, every '+' line repeating the name."""
    lines = READS.split(b"\n")
    for at in range(0, len(lines) - 1, 4):
        lines[at + 2] = b"+" + lines[at][1:]
        lines[at + 3] = first + lines[at + 3][len(first) :]
    return b"\n".join(lines)


VARIANTS = {"real": READS, **{first.decode(): _with_qualities(first) for first in (b"@", b"+", b">", b"@+")}}


def test_F_01_the_reads_are_ones_that_a_naive_rule_cuts_wrongly() -> None:
    qualities = READS.split(b"\n")[3::4]
    assert (len(qualities), sum(line.startswith(b"@") for line in qualities)) == (250, 109)
    wrong = {wanted: sum(cut not in STARTS for cut in naive_cuts(READS, wanted)) for wanted in (2, 4, 64)}
    assert wrong == {2: 1, 4: 2, 64: 17}


@pytest.mark.parametrize("data", VARIANTS.values(), ids=VARIANTS.keys())
def test_F_01_reads_split_into_2_to_64_parts_are_whole_records_in_order(data: bytes) -> None:
    starts = flat(scan(Bytes(data), FastqScanner()))
    assert len(starts) == 250
    for wanted in range(2, 65):
        dealt = parts(data, starts, wanted)
        assert b"".join(dealt) == data
        assert all(dealt)
        assert sum(map(assert_4_line_fastq, dealt)) == 250


@pytest.mark.parametrize("data", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("most", [1, 356, 357, 1000, 4096, 20_000, 88_999, 89_000, CHUNK_BYTES])
def test_F_01_reads_split_by_size_are_whole_records_in_order(data: bytes, most: int) -> None:
    edges = [*chunk_starts(Bytes(data), Format.FASTQ, most), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert sum(map(assert_4_line_fastq, pieces)) == 250
    assert all(len(piece) <= most or assert_4_line_fastq(piece) == 1 for piece in pieces)


def test_F_01_the_next_read_is_found_from_every_offset() -> None:
    cuts = FastqCutter(Bytes(READS))
    for offset in range(1, len(READS), 5):
        at = bisect.bisect_left(STARTS, offset)
        assert cuts.next_start(offset) == [*STARTS, len(READS)][at]


def test_only_windows_of_a_large_file_are_read() -> None:
    class Counted(Bytes):
        read = 0

        def read_at(self, offset: int, length: int) -> bytes:
            data = super().read_at(offset, length)
            type(self).read += len(data)
            return data

    large = Counted(READS * 400)
    assert len(list(chunk_starts(large, Format.FASTQ))) == 34
    assert Counted.read < large.size / 10


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"@r1\nACGT\n", id="one broken record"),
        pytest.param(b"@r1\nACGT\n+\nIIII\n" * 9 + b"@r2\nACGT\n+\nIII", id="short quality at the end"),
        pytest.param(b"@r1\nACGT\n+\nIIII\n" * 9 + b"@r2\nACGT", id="no '+' line at the end"),
        pytest.param(b"@r1\nACGT\n+\nIIII\n" * 9 + b"@r2", id="only a header at the end"),
        pytest.param(b"@r1\nACGT\n+\nIII\n" + b"@r2\nACGT\n+\nIIII\n" * 9, id="broken at the beginning"),
        pytest.param(b"@r1\nAC\nGT\n+\nII\nII\n" * 9, id="wrapped"),
        pytest.param(b"@r1\nACGT\n+\nIIII\n" * 9 + b"x\n", id="something after the last record"),
        pytest.param(b"x\n" + b"@r1\nACGT\n+\nIIII\n" * 9, id="something before the first record"),
    ],
)
def test_fastq_that_windows_cannot_explain_is_left_to_a_scan(data: bytes) -> None:
    with pytest.raises(Unclear):
        list(chunk_starts(Bytes(data), Format.FASTQ, 20))


def test_a_record_larger_than_every_window_is_left_to_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("awe_server.data.records.MAX_WINDOW_BYTES", 20_000)
    long = b"@r\n" + b"A" * 100_000 + b"\n+\n" + b"I" * 100_000 + b"\n"
    with pytest.raises(Unclear):
        list(chunk_starts(Bytes(long * 3), Format.FASTQ))


def test_long_reads_are_cut_between_reads() -> None:
    long = b"@r\n" + b"A" * 300_000 + b"\n+\n" + b"@" * 300_000 + b"\n"
    assert list(chunk_starts(Bytes(long * 5), Format.FASTQ)) == [len(long) * at for at in range(5)]


@pytest.mark.parametrize("form", [Format.FASTA, Format.TEXT])
def test_F_05_a_record_larger_than_a_unit_stays_whole(form: Format) -> None:
    long = b">one line\n" if form is Format.FASTA else b""
    long += b"A" * (5 * CHUNK_BYTES) + b"\n"
    data = b">small\nA\n" + long + b">last\nC\n"
    assert list(chunk_starts(Bytes(data), form)) == [0, 9, 9 + len(long)]


def test_a_file_that_is_one_giant_line_is_one_unit() -> None:
    assert list(chunk_starts(Bytes(b"A" * (3 * CHUNK_BYTES)), Format.TEXT)) == [0]


def test_F_05_one_fasta_record_is_one_unit() -> None:
    data = b">lambda some words\n" + (b"ACGT" * 15 + b"\n") * 50_000
    assert list(chunk_starts(Bytes(data), Format.FASTA)) == [0]


def test_F_05_a_greater_sign_inside_a_line_starts_no_record() -> None:
    data = b"\n\n>a x>y\tz \xc3\xa9\nAC\n\nGT\n >still a\n>a x>y\nAC"
    assert list(chunk_starts(Bytes(data), Format.FASTA, 1)) == [0, data.rindex(b">a")]


def test_F_05_blank_lines_belong_to_the_record_before_and_leading_ones_to_the_first() -> None:
    data = b"\n\n>a\nAC\n\n\n>b\nGT\n\n\n"
    assert list(chunk_starts(Bytes(data), Format.FASTA, 1)) == [0, data.index(b">b")]
    assert list(chunk_starts(Bytes(b"\n\n\n"), Format.TEXT, 1)) == [0]


#: Names that come again, blank lines everywhere, and headers with blanks, tabs and a '>'.
DUPLICATES = (
    b"\n \n>alpha\nACGTA\n>beta one\nCGTC\n\n>gamma\nCCGCC\n\n\n>alpha again - a duplicate,  to\ttest >\n"
    b"AC\n\nGTA\n>beta one\nCGTC\n>alpha\nACGTA\n>delta \xce\xb2 2\nCGCGC\n\n"
)


def test_F_05_duplicate_names_blank_lines_and_headers_with_spaces_are_kept_byte_for_byte() -> None:
    starts = flat(scan(Bytes(DUPLICATES), FastaScanner()))
    headers = [line for line in DUPLICATES.split(b"\n") if line.startswith(b">")]
    assert len(starts) == len(headers) == 7
    for wanted in range(1, 8):
        dealt = parts(DUPLICATES, starts, wanted)
        assert b"".join(dealt) == DUPLICATES
        assert all(part.lstrip(b" \n").startswith(b">") for part in dealt)
        assert [line for part in dealt for line in part.split(b"\n") if line[:1] == b">"] == headers
    for most in range(1, len(DUPLICATES) + 1):
        assert set(chunk_starts(Bytes(DUPLICATES), Format.FASTA, most)) <= set(starts)


def test_F_05_parts_of_reads_of_one_length_differ_by_no_more_than_a_read_in_bytes() -> None:
    for wanted in range(2, 65):
        sizes = [len(part) for part in parts(READS, STARTS, wanted)]
        assert max(sizes) - min(sizes) <= 356


#: Records that are not what the format says, in ways that leave the next one to be found.
BROKEN = {
    "short quality": b"@x\nACGT\n+\nII\n",
    "long quality": b"@x\nACGT\n+\nIIIIIIII\n",
    "no quality": b"@x\nACGT\n+\n",
    "no plus line": b"@x\nACGT\n@III\n",
    "no sequence": b"@x\n+\n@III\n",
    "no header": b"ACGT\n+\n@III\n",
    "only a header": b"@x\n",
    "two qualities": b"@x\nACGT\n+\n@III\n@+II\n",
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_F_02_a_broken_record_is_found_or_stays_whole_wherever_it_is(broken: bytes) -> None:
    found = 0
    for at in [*STARTS[1:], len(READS)]:
        data = READS[:at] + broken + READS[at:]
        whole = {start if start < at else start + len(broken) for start in STARTS} | {at}
        try:
            assert set(chunk_starts(Bytes(data), Format.FASTQ, 20_000)) <= whole
        except Unclear:
            found += 1
            with pytest.raises(Malformed) as caught:
                flat(scan(Bytes(data), FastqScanner()))
            assert caught.value.record - bisect.bisect_left(STARTS, at) in (1, 2)
    assert 0 < found < 250


LINE = b"r1\t0\tchr1\t100\t60\t4M\t*\t0\t0\tACGT\tIIII\n"
HEADER = b"@HD\tVN:1.6\n" + b"@SQ\tSN:c\tLN:9\n" * 40


def test_a_sam_header_stays_with_the_first_alignment() -> None:
    starts = list(chunk_starts(Bytes(HEADER + LINE * 3), Format.SAM, len(LINE)))
    assert starts == [0, len(HEADER) + len(LINE), len(HEADER) + 2 * len(LINE)]
    assert list(chunk_starts(Bytes(HEADER), Format.SAM, 10)) == [0]
    assert list(chunk_starts(Bytes(LINE * 3), Format.SAM, 10)) == [0, len(LINE), 2 * len(LINE)]


@pytest.mark.parametrize(
    "data", [LINE * 3 + LINE[:20], LINE[:20] + b"\n" + LINE, LINE + LINE[:9] + b"\n" + LINE]
)
def test_a_sam_line_with_too_few_fields_is_left_to_a_scan(data: bytes) -> None:
    with pytest.raises(Unclear):
        list(chunk_starts(Bytes(data), Format.SAM, len(LINE)))


def test_fields_of_a_very_long_sam_line_are_all_counted() -> None:
    long = b"r\t0\tc\t1\t9\t*\t*\t0\t0\t" + b"A" * 50_000 + b"\t" + b"I" * 50_000 + b"\n"
    assert MarkCutter(Bytes(long * 2), Format.SAM).next_start(1) == len(long)
