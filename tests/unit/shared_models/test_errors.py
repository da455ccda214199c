"""Server and client share one tree of errors, found again by code."""

import pytest

from shared_models.errors import (
    AweError,
    ClientNotFound,
    IllegalMove,
    InvalidDocument,
    JobNotFound,
    LeaseLost,
    error_classes,
    error_from_code,
)


def test_every_error_has_a_code_of_its_own() -> None:
    classes = error_classes()
    assert classes["internal"] is AweError
    assert classes["lease_lost"] is LeaseLost
    assert all(classes[cls.code] is cls for cls in classes.values())
    assert all(400 <= cls.http_status < 600 for cls in classes.values())


def test_the_default_message_is_the_docstring_with_the_fields_filled_in() -> None:
    assert JobNotFound(job_id="j1").message == "job not found:j1"
    assert JobNotFound().message == "job not found:?"
    assert ClientNotFound().message == "Client not found"
    assert IllegalMove("no", entity="job").fields == {"entity": "job"}


def test_a_document_may_have_several_problems() -> None:
    assert InvalidDocument(["a: x", "b: y"]).message == "a: x; b: y"
    assert InvalidDocument("a: x").problems == ["a: x"]


@pytest.mark.parametrize("code", sorted(error_classes()))
def test_an_error_is_found_again_by_its_code(code: str) -> None:
    error = error_from_code(code, "text")
    assert (type(error), error.message) == (error_classes()[code], "text")


def test_an_unknown_code_is_a_plain_error() -> None:
    assert type(error_from_code("from_the_future", "text")) is AweError
