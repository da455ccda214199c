"""What a head says about its file."""

import gzip

import pytest

from awe_server.data.formats import Format, Uncuttable, detect
from tests.unit.data.samples import READS

SAM_LINE = b"r1\t0\tchr1\t100\t60\t4M\t*\t0\t0\tACGT\tIIII\n"


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (READS, Format.FASTQ),
        (b"@r1\nACGT\n+\nII", Format.FASTQ),
        (b"@r1", Format.FASTQ),
        (b"@r1\nAC GT\n+\nIIIII\n", Format.FASTQ),
        (b"\r\n\r\n@r1\r\nACGT\r\n+\r\nIIII\r\n", Format.FASTQ),
        (b"@r1\nAC?GT\nAC?GT\n+\nIIIII\nIIIII\n", Format.FASTQ),
        (b"@solid\nT0123.1\n+\n!!!!!!!\n", Format.FASTQ),
        (b">seq\nACGT\n", Format.FASTA),
        (b"\n  \n>seq\nACGT\n", Format.FASTA),
        (b"; an old comment\n>seq\nACGT\n", Format.FASTA),
        (b"@HD\tVN:1.6\n@SQ\tSN:c\tLN:9\n" + SAM_LINE, Format.SAM),
        (b"@CO\tanything goes\n", Format.SAM),
        (b"@SQ\tSN:c\tLN:9", Format.SAM),
        (SAM_LINE, Format.SAM),
        (b"", Format.TEXT),
        (b"\n", Format.TEXT),
        (b"# only a comment\n", Format.TEXT),
        (b"; an ini file\n[section]\n", Format.TEXT),
        (b" >not in column 1\n", Format.TEXT),
        (b"@article{key,\n  title = {x}\n}\n", Format.TEXT),
        (b"@alice\n@bob\n@carol\n", Format.TEXT),
        (b"a\tb\tc\td\te\tf\tg\th\ti\tj\tk\n", Format.TEXT),
    ],
)
def test_formats_are_told_apart(head: bytes, form: Format) -> None:
    assert detect(head) is form


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (gzip.compress(READS), "packed with gzip"),
        (b"BZh91AY", "packed with bzip2"),
        (b"\xfd7zXZ\x00\x00", "packed with xz"),
        (b"\x28\xb5\x2f\xfd\x04", "packed with zstd"),
        (b"PK\x03\x04", "packed with zip"),
        (b"CRAM\x03", "packed with CRAM"),
        (b"\xef\xbb\xbf>seq\nACGT\n", "byte order mark"),
        (b"\xff\xfe>\x00s\x00", "byte order mark"),
        (b"\x7fELF\x00", "binary data"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_reason(head: bytes, reason: str) -> None:
    with pytest.raises(Uncuttable, match=reason):
        detect(head)
