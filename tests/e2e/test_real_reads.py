"""F-01 at size: 100,000 real reads, many of them with a quality that begins with '@', cut in every way."""

import gzip
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path

import pytest

from awe_server.data.formats import Format
from awe_server.data.records import CHUNK_BYTES, chunk_starts
from awe_server.data.scan import scan
from awe_server.data.scan_fastq import FastqScanner
from tests.support.packages import file_of_package, shared
from tests.unit.data.samples import Bytes, assert_4_line_fastq, flat, four_line_starts, naive_cuts, parts

pytestmark = pytest.mark.slow

FOLDER = "/usr/share/doc/trim-galore/examples"
RECORDS = 100_000


@dataclass(frozen=True)
class Reads:
    """A file, where its records begin, and what the field report says of it."""

    data: bytes
    starts: list[int]
    at_qualities: int  #: so many quality lines begin with '@'
    naive_wrong: int  #: of 63 cuts at the next such line


@pytest.fixture(
    scope="module", params=[("nextera_100K", 1736, 2), ("smallRNA_100K", 2041, 5)], ids=itemgetter(0)
)
def reads(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reads:
    """Reads of the Debian package trim-galore, as the examples get theirs."""
    name, at_qualities, naive_wrong = request.param
    inputs, scratch = shared(tmp_path_factory, "packages"), tmp_path_factory.mktemp("scratch")
    path: Path = file_of_package("trim-galore", f"{FOLDER}/{name}.fastq.gz", inputs, scratch)
    data = gzip.decompress(path.read_bytes())
    assert assert_4_line_fastq(data) == RECORDS
    return Reads(data, four_line_starts(data), at_qualities, naive_wrong)


def test_F_01_large_real_reads_are_ones_that_a_naive_rule_cuts_wrongly(reads: Reads) -> None:
    assert sum(line.startswith(b"@") for line in reads.data.split(b"\n")[3::4]) == reads.at_qualities
    assert len(set(naive_cuts(reads.data, 64)) - set(reads.starts)) == reads.naive_wrong


def test_F_01_large_real_reads_split_into_2_to_64_parts_are_whole_records_in_order(reads: Reads) -> None:
    starts = flat(scan(Bytes(reads.data), FastqScanner()))
    assert starts == reads.starts
    begins = set(starts)
    for wanted in range(2, 65):
        dealt = parts(reads.data, starts, wanted)
        assert b"".join(dealt) == reads.data
        assert all(dealt)
        assert begins.issuperset(list(accumulate(map(len, dealt), initial=0))[:-1])
        assert sum(part.count(b"\n") // 4 for part in dealt) == RECORDS


@pytest.mark.parametrize("most", [4096, 65_536, CHUNK_BYTES, 5 * CHUNK_BYTES])
def test_F_01_large_real_reads_split_by_size_are_whole_records_in_order(reads: Reads, most: int) -> None:
    found = list(chunk_starts(Bytes(reads.data), Format.FASTQ, most))
    assert set(reads.starts).issuperset(found)
    assert all(0 < end - start <= most for start, end in pairwise([*found, len(reads.data)]))
