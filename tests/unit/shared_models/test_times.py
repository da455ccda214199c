"""Times of documents go out and come back."""

import pytest

from shared_models.times import ZERO_TIME, parse_rfc3339, rfc3339


def test_never_is_the_zero_time() -> None:
    assert rfc3339(0.0) == ZERO_TIME
    assert parse_rfc3339(ZERO_TIME) == 0.0


@pytest.mark.parametrize("wall_s", [1.0, 1_700_000_000.123456, 4_000_000_000.5])
def test_microseconds_survive(wall_s: float) -> None:
    assert parse_rfc3339(rfc3339(wall_s)) == pytest.approx(wall_s, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    ["2026-11-30T08:56:08.539063Z", "2026-11-30T08:56:08.539063+00:00", "2026-11-30T10:56:08.539063+02:00"],
)
def test_every_zone_is_understood(text: str) -> None:
    assert rfc3339(parse_rfc3339(text)) == "2026-11-30T08:56:08.539063Z"


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-11-30T08:56:08", "2026-13-01T00:00:00Z"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rfc3339(text)
