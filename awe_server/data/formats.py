"""What kind of records a file holds, told from its first bytes. Pure; when in doubt, text or refused.

Records: FASTA = from a '>' in column 1 to the next; FASTQ = header, sequence, '+' line, quality;
SAM = one line after the header; text = one line. What stands before the first record (blank lines, ';'
comments, a SAM header) belongs to it, blank lines after a record belong to that record: units leave no gaps.
"""

import re
from enum import StrEnum

HEAD_BYTES = 64 * 1024  #: how much `detect` wants to see
SAM_FIELDS = 11  #: a SAM line has at least so many

_PACKED = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x1f\x9d", "compress"),
    (b"\x1f\xa0", "compress"),
    (b"CRAM", "CRAM"),
)
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_BLANK_LINES = re.compile(rb"(?:[ \t]*\r?\n)*")
_FASTA = re.compile(rb"(?:(?:[ \t]*|;[^\n]*)\r?\n)*>")
_SAM_HEADER = re.compile(rb"@(?:HD|SQ|RG|PG)(?:\t[A-Za-z][A-Za-z0-9]:[^\t\r\n]*)+\r?(?:\n|\Z)|@CO\t")
_SAM_LINE = re.compile(
    rb"[!-?A-~]{1,254}\t\d{1,5}\t[^\t\n]+\t\d+\t\d{1,3}\t(?:\*|(?:\d+[MIDNSHPX=])+)\t[^\t\n]+\t\d+\t-?\d+\t"
    rb"[A-Za-z=.*]+\t[!-~]+"
)
_SEQUENCE_SYMBOLS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-.*=~"


class Format(StrEnum):
    """Formats whose records can be told apart."""

    FASTA = "fasta"
    FASTQ = "fastq"
    SAM = "sam"
    TEXT = "text"


class Uncuttable(Exception):
    """The file has no records that could be told apart; the text says why."""


def refuse_packed(head: bytes) -> None:
    """Raise Uncuttable if the bytes are compressed or not text at all."""
    for magic, what in _PACKED:
        if head.startswith(magic):
            raise Uncuttable(f"it is packed with {what}")
    if head.startswith(_BYTE_ORDER_MARKS):
        raise Uncuttable("it begins with a byte order mark, which would be in the first part only")
    if b"\0" in head:
        raise Uncuttable("it is binary data")


def detect(head: bytes) -> Format:
    """The format of a file that begins with `head`. Raises Uncuttable."""
    refuse_packed(head)
    if _FASTA.match(head):
        return Format.FASTA
    first = _BLANK_LINES.match(head).end()  # type: ignore[union-attr]  # it matches the empty text, too
    if _SAM_HEADER.match(head, first) or _SAM_LINE.match(head, first):
        return Format.SAM
    if head.startswith(b"@", first) and _may_be_fastq(head[first:]):
        return Format.FASTQ
    return Format.TEXT


def is_sequence(line: bytes) -> bool:
    """Whether a line (without its end) can be a line of a sequence; an empty one can."""
    return not line.translate(None, _SEQUENCE_SYMBOLS)


def _may_be_fastq(head: bytes) -> bool:
    """A broken first record is still FASTQ (and refused later); prose or code with an '@' in front is not."""
    lines = head.split(b"\n", 2)
    return b"\n+" in head or len(lines) < 2 or is_sequence(lines[1].rstrip(b"\r"))
