"""Inputs that have broken splitters elsewhere; each is small enough to make on the fly, and deterministic."""

from collections.abc import Callable
from pathlib import Path

DATA = Path(__file__).resolve().parents[1] / "data"
MIB = 1024 * 1024


def real_reads() -> bytes:
    """250 real reads; 109 of the quality lines begin with '@'."""
    return (DATA / "emp_reads.fastq").read_bytes()


def many_reads() -> bytes:
    """The real reads often enough to be larger than 4 MB, each copy under names of its own."""
    block = real_reads()
    return b"".join(block.replace(b"@M00176", b"@R%d_M00176" % number) for number in range(50))


def sequence(length: int, seed: int) -> bytes:
    """A reproducible stretch of bases."""
    bases = bytearray()
    value = seed or 1
    for _ in range(length):
        value = (value * 1103515245 + 12345) % 2147483648
        bases += b"ACGT"[value >> 16 & 3 : (value >> 16 & 3) + 1]
    return bytes(bases)


def wrapped(bases: bytes, width: int = 60) -> bytes:
    """Sequence lines of at most `width` bases."""
    return b"".join(bases[at : at + width] + b"\n" for at in range(0, len(bases), width))


def wrapped_fasta(records: int = 300, length: int = 700) -> bytes:
    """Wrapped records with '>' inside a description, blank lines and very uneven lengths."""
    pieces = []
    for number in range(records):
        bases = sequence(1 + (number * 37) % length, number + 7)
        blank = b"\n" if number % 50 == 49 else b""
        pieces.append(b">seq%d len>%d\tnote\n%s%s" % (number, len(bases), wrapped(bases), blank))
    return b"".join(pieces)


def leading_blank_fasta() -> bytes:
    """Blank lines before the first record, names that come again, blanks and tabs in headers."""
    return b"\n \n\n" + b">alpha of  two\twords > one\nACGTA\n\n>beta\nCG\nTC\n>alpha\n\nACGTA\n" * 20


def big_wrapped_fasta() -> bytes:
    """More than 3 MB of wrapped records."""
    block = wrapped_fasta(records=200)
    return b"".join(block.replace(b">seq", b">copy%d_seq" % number) for number in range(42))


def crlf(text: bytes) -> bytes:
    """The same lines, ended as on Windows."""
    return text.replace(b"\n", b"\r\n")


def no_final_newline(text: bytes) -> bytes:
    """The same text without its last line end."""
    return text.rstrip(b"\n")


def giant_record() -> bytes:
    """A record of 2.5 MB, larger than any part of 1 MB, between small ones."""
    return b">small1\nACGT\n>giant\n" + wrapped(sequence(64_000, 5) * 39) + b">small2\nTTTT\n>small3\nGGGG\n"


def three_records() -> bytes:
    """Fewer records than parts."""
    return b"@a\nACGT\n+\n@@@@\n@b\nGG\n+b\n+@\n@c\nTTT\n+\n>>>\n"


#: Name → how to make it, the suffix its file name gets, and whether it is larger than 2 MB.
INPUTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "real-reads": (real_reads, "fastq"),
    "wrapped-fasta": (wrapped_fasta, "fasta"),
    "leading-blank-fasta": (leading_blank_fasta, "fasta"),
    "crlf-fastq": (lambda: crlf(real_reads()), "fastq"),
    "crlf-fasta": (lambda: crlf(wrapped_fasta()), "fasta"),
    "no-final-newline-fastq": (lambda: no_final_newline(real_reads()), "fastq"),
    "no-final-newline-fasta": (lambda: no_final_newline(wrapped_fasta()), "fasta"),
    "empty": (lambda: b"", "fastq"),
    "giant-record": (giant_record, "fasta"),
    "fewer-records-than-parts": (three_records, "fastq"),
    "many-reads": (many_reads, "fastq"),
    "big-wrapped-fasta": (big_wrapped_fasta, "fasta"),
    "crlf-many-reads": (lambda: crlf(many_reads()), "fastq"),
    "no-final-newline-many-reads": (lambda: no_final_newline(many_reads()), "fastq"),
}
