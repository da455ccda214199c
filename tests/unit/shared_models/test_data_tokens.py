"""A data token stands in no text that people read, and takes no letters out of others."""

import pytest

from shared_models.data_tokens import without


@pytest.mark.parametrize(
    ("token", "text", "left"),
    [
        ("secret-1", "no secret-1 here", "no … here"),
        ("OAuth secret-1", "got OAuth secret-1, secret-1", "got …, …"),
        ("Basic first-word second-word", "first-word and second-word", "… and …"),
        ("a", "a bad answer", "a bad answer"),
        ("OAuth a", "a bad answer", "a bad answer"),
        ("Bearer secret-1", "the Bearer of secret-1", "the Bearer of …"),
        ("", "nothing", "nothing"),
    ],
)
def test_a_token_is_left_out_whole_and_in_its_words(token: str, text: str, left: str) -> None:
    assert without(token, text) == left
