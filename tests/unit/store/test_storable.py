"""What every store refuses can be asked before a batch is made."""

import pytest

from awe_server.store.base import Delete, Operation, Put, check_storable
from shared_models.errors import InvalidDocument


@pytest.mark.parametrize("document", [{}, {"id": ""}, {"id": "a", "x": object()}, {"id": "a", "x": 2**70}])
def test_a_document_that_no_store_takes_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidDocument):
        check_storable([Put("nodes", {"id": "fine"}), Put("nodes", document)])


def test_what_can_be_stored_is_let_through() -> None:
    operations: list[Operation] = [Put("nodes", {"id": "a", "n": 2**63 - 1}), Delete("nodes", "b")]
    check_storable(operations)
