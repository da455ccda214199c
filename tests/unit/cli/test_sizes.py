"""Sizes and ranges as people write them."""

import pytest

from awe_client.cli.sizes import format_bytes, parse_array, parse_megabytes, parse_size
from shared_models.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("4096", 4096), ("1K", 1024), ("50MB", 50 << 20), ("1.5GiB", 3 << 29), (" 2 tb ", 2 << 40)],
)
def test_a_size_is_read_in_powers_of_1024(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e9", "10 parsecs", "1,5G"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", "100K", "1.5MB"])
def test_inputs_are_split_by_whole_megabytes(text: str) -> None:
    with pytest.raises(BadRequest, match="whole number of MB"):
        parse_megabytes(text)


def test_an_array_is_a_range_or_a_single_index() -> None:
    assert parse_array("1-100") == (1, 100)
    assert parse_array("7") == (7, 7)


@pytest.mark.parametrize("text", ["", "a-b", "5-1", "1-99999999999", "1-2-3"])
def test_what_is_not_a_range_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_array(text)


def test_sizes_are_written_for_people() -> None:
    assert [format_bytes(n) for n in (0, 1023, 89_000, 5 << 30)] == ["0 B", "1023 B", "86.9 KB", "5.0 GB"]
