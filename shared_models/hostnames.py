"""Names of hosts in web addresses: what no resolver and no HTTP library would take is none.

Only the form is looked at. What is refused here would be found out by each client anew, once an attempt.
"""

import ipaddress
import re
import unicodedata

from shared_models.limits import MAX_NAME_CHARS

_MAX_LABEL_CHARS = 63
_PLAIN = re.compile(r"[\x21-\x7e]+")
_NUMBERS = re.compile(r"\d+\.\d+\.\d+\.\d+")
#: Letters of any alphabet, their marks, and digits (RFC 5892); and what stands between them.
_LETTERS = frozenset({"Ll", "Lo", "Lm", "Mn", "Mc", "Nd"})
_BETWEEN = "-\u00b7\u0375\u05f3\u05f4\u200c\u200d\u30fb"


def is_host(host: str, *, bracketed: bool = False) -> bool:
    """Whether a URL's host, without brackets and in lower case, may be one."""
    try:
        if bracketed:
            ipaddress.IPv6Address(host)
        elif _NUMBERS.fullmatch(host):
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    if bracketed:
        return True
    return len(host) <= MAX_NAME_CHARS and all(
        _is_label(label) for label in host.removesuffix(".").split(".")
    )


def _is_label(label: str) -> bool:
    if not 0 < len(label) <= _MAX_LABEL_CHARS:
        return False
    if not _PLAIN.fullmatch(label):
        return _is_international(label)
    if not label.startswith("xn--"):
        return True
    try:
        return _is_international(label[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return False


def _is_international(label: str) -> bool:
    """Whether a label is written in letters, marks and digits, and not in ASCII alone."""
    if label.isascii() or unicodedata.normalize("NFKC", label) != label:
        return False
    return all(
        (char.isascii() and char.isalnum()) or char in _BETWEEN or unicodedata.category(char) in _LETTERS
        for char in label
    )
