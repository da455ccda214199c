"""Tokens and ids: well formed, and none twice."""

import uuid

from awe_server.runtime.random_ids import DRAWN, Tokens, Uuids


def test_ids_are_random_uuids_and_none_comes_twice() -> None:
    new = Uuids()
    drawn = [new() for _ in range(3 * DRAWN)]
    assert len(set(drawn)) == len(drawn)
    for text in drawn:
        id = uuid.UUID(text)
        assert (str(id), id.version, id.variant) == (text, 4, uuid.RFC_4122)


def test_tokens_have_128_bits_and_none_comes_twice() -> None:
    new = Tokens()
    drawn = [new() for _ in range(3 * DRAWN)]
    assert len(set(drawn)) == len(drawn)
    assert {len(bytes.fromhex(text)) for text in drawn} == {16}
