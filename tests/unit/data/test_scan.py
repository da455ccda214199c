"""Reading everything: broken records are named, whatever is around them."""

import pytest

from awe_server.data.scan import Malformed, Scanner
from awe_server.data.scan_fastq import FastqScanner
from awe_server.data.scan_lines import FastaScanner, LineScanner, SamScanner, TextScanner
from tests.unit.data.samples import READS, four_line_starts, scanned

STARTS = four_line_starts(READS)
LAST = STARTS[-1]
SAM_LINE = b"r1\t0\tchr1\t100\t60\t4M\t*\t0\t0\tACGT\tIIII\n"


def _error(data: bytes, scanner: Scanner, block: int = 1 << 20) -> tuple[int, int, str]:
    with pytest.raises(Malformed) as caught:
        scanned(data, scanner, block)
    return caught.value.record, caught.value.line, caught.value.problem


def test_F_02_a_read_file_cut_at_any_byte_of_its_last_record_is_refused_with_its_number() -> None:
    for end in range(LAST + 1, len(READS) - 1):
        record, line, _ = _error(READS[:end], FastqScanner())
        assert record == 250
        assert line == 996 + READS[LAST:end].count(b"\n") + (not READS[:end].endswith(b"\n"))


@pytest.mark.parametrize("end", [LAST, len(READS) - 1, len(READS)])
def test_a_read_file_that_ends_between_records_or_without_a_line_end_is_whole(end: int) -> None:
    assert scanned(READS[:end], FastqScanner(), 1 << 20) == [start for start in STARTS if start < end]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (
            b"@a\nAC\n+\nII\n@b\nACGT\n+\nIII\n@c\nAC\n+\nII\n",
            (2, 8, "quality has 3 symbols, the sequence has 4"),
        ),
        (b"@a\nAC\n+\nII\n@b\nACGT\n+\nIIIII\n@c\nAC\n+\nII\n", (2, 8, "quality has 5 symbols")),
        (b"@a\nAC\n+\nII\n@b\nACGT\n+\n\n@c\nAC\n+\nII\n", (2, 8, "quality has 0 symbols")),
        (b"@a\nAC\n@b\nAC\n+\nII\n", (1, 3, "no '\\+' line")),
        (b"@a\nAC\n+\nII\nACGT\n+\nIIII\n", (2, 5, "expected a header line")),
        (b"@a\nAC\n+\nII\n+\n+\n+\n+\n", (2, 5, "expected a header line")),
        (b"@a\nAC\n+\nII\n@b\n+\n+\n+\n", (3, 7, "expected a header line")),
        (b"@a\nAC\nGT\n+\nIII\nII\n", (1, 6, "quality has 5 symbols, the sequence has 4")),
        (b"@a\nAC\nGT\n+\nII\n\nII\n", (1, 6, "quality has 2 symbols")),
        (b"@a\nAC\n+\nII\n\n\n@b", (2, 7, "ends after the header line")),
        (b"@a\nAC\n+\nII\n@b\nAC", (2, 6, "ends after the sequence")),
        (b"@a\nAC\n+\nII\n@b\nAC\n+", (2, 7, "ends after 0 of 2 quality symbols")),
        (b"@a\nAC\r\n+\nII \n", (1, 4, "quality has 3 symbols")),
        (b"@a\nAC\r\n+\nIII\n", (1, 4, "quality has 3 symbols")),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_F_02_a_broken_fastq_record_is_named(data: bytes, where: tuple[int, int, str], block: int) -> None:
    record, line, problem = _error(data, FastqScanner(), block)
    assert (record, line) == where[:2]
    with pytest.raises(AssertionError, match=where[2]):
        raise AssertionError(problem)


def test_F_02_a_broken_record_deep_in_a_large_file_is_named() -> None:
    good = READS * 40
    record, line, problem = _error(good + b"@x\nACGT\n+\nII\n" + good, FastqScanner())
    assert (record, line) == (10_001, 40_004)
    assert problem == "the quality has 2 symbols, the sequence has 4"


def test_a_blank_line_or_a_wrapped_record_between_4_line_records_is_read_on_across() -> None:
    odd = b"\n@w\nAC\nGT\n+\n@I\n+I\n\n"
    data = READS * 20 + odd + READS * 20
    found = scanned(data, FastqScanner(), 1 << 20)
    assert len(found) == 20 * 250 + 1 + 20 * 250
    assert len(READS) * 20 + 1 in found
    assert len(READS) * 20 + len(odd) in found


def test_memory_stays_flat_over_a_very_long_line() -> None:
    scanner = FastqScanner()
    found = list(scanner.feed(b"@r1\nA\n+\nI\n@long\n"))
    for line in (b"A", b"I"):
        for _ in range(8):
            found += scanner.feed(line * (1 << 20))
            assert len(scanner._carry) <= 1 << 21
        found += scanner.feed(b"\n+\n" if line == b"A" else b"\n")
    found += scanner.feed(b"@r3\nA\n+\nI")
    found += scanner.finish()
    assert found == [10, 16 + (8 << 20) + 3 + (8 << 20) + 1]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (SAM_LINE + SAM_LINE[:20], (2, 2)),
        (b"@HD\tVN:1.6\n" + SAM_LINE + b"\n" + SAM_LINE[:20] + b"\n" + SAM_LINE, (2, 4)),
        (SAM_LINE + b"@HD\tVN:1.6\n", (2, 2)),
        (SAM_LINE * 3 + b"@HD" + SAM_LINE, (4, 4)),
    ],
)
@pytest.mark.parametrize("block", [9, 45, 1 << 20])
def test_a_broken_sam_line_is_named(data: bytes, where: tuple[int, int], block: int) -> None:
    assert _error(data, SamScanner(), block)[:2] == where


def test_lines_are_cut_at_line_feeds_only() -> None:
    assert scanned(b"a\rb\n\n\x0bc\r\nd", LineScanner(), 3) == [0, 4, 5, 9]
    assert scanned(b"\n", LineScanner(), 3) == [0]
    assert scanned(b"a\rb\rc", TextScanner(), 2) == [0]


def test_old_macintosh_line_ends_make_one_fasta_record() -> None:
    assert scanned(b">a\rAC\r>b\rGT\r", FastaScanner(), 4) == [0]
