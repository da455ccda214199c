"""How people say when something may go: `<n>M`, `<n>H` or `<n>D`, minutes, hours or days from now.

Source: AWE lib/core/job.go SetExpiration.
"""

import re

MAX_EXPIRATION_S = 100 * 366 * 86_400  #: whoever wants more wants "never"

_EXPIRATION = re.compile(r"([0-9]{1,12})([MHD])")
_UNIT_S = {"M": 60, "H": 3_600, "D": 86_400}


def expiration_s(text: str) -> int | None:
    """Seconds from now; None if the text does not say so."""
    match = _EXPIRATION.fullmatch(text)
    seconds = int(match[1]) * _UNIT_S[match[2]] if match else -1
    return seconds if 0 <= seconds <= MAX_EXPIRATION_S else None
