"""Paired reads: two files, or one of interleaved pairs, whose reads differ in length from pair to pair."""

from collections.abc import Callable

from tests.support.inputs import crlf, sequence, wrapped

COUNT = 500
_BASES = sequence(6000, 11)


def _bases(number: int, mate: int) -> bytes:
    """First mates are short, second ones up to 6,000 bases long, longer towards the end."""
    length = 20 + number % 7 if mate == 1 else 1 + number * 5999 // COUNT
    return _BASES[:length]


def fastq(number: int, mate: int) -> bytes:
    """One read; qualities look like headers wherever they can."""
    bases = _bases(number, mate)
    return b"@pair%d/%d\n%s\n+\n%s\n" % (number, mate, bases, (b"@+>I" * len(bases))[: len(bases)])


def fasta(number: int, mate: int) -> bytes:
    """One wrapped read."""
    return b">pair%d/%d >not me\n%s" % (number, mate, wrapped(_bases(number, mate), 50 + number % 30))


def _file(make: Callable[[int, int], bytes], mate: int) -> bytes:
    return b"".join(make(number, mate) for number in range(COUNT))


def _interleaved(make: Callable[[int, int], bytes]) -> bytes:
    return b"".join(make(number, mate) for number in range(COUNT) for mate in (1, 2))


#: Name → the two files.
PAIRS: dict[str, tuple[bytes, bytes]] = {
    "fastq": (_file(fastq, 1), _file(fastq, 2)),
    "crlf-fastq": (crlf(_file(fastq, 1)), _file(fastq, 2)),
    "wrapped-fasta": (_file(fasta, 1), _file(fasta, 2)),
    "crlf-fasta": (crlf(_file(fasta, 1)), crlf(_file(fasta, 2))),
    "fastq-and-fasta": (_file(fastq, 1), _file(fasta, 2).rstrip(b"\n")),
}

#: Name → both mates in turn.
INTERLEAVED: dict[str, bytes] = {
    "fastq": _interleaved(fastq),
    "fasta": _interleaved(fasta),
    "crlf-fastq": crlf(_interleaved(fastq)),
}
