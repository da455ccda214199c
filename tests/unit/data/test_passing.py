"""What may pass by itself means the same for what is read and what is written, wherever it is."""

import errno
import os
from pathlib import Path
from unittest import mock

import pytest
from obstore.exceptions import GenericError

from awe_server.data import objects
from awe_server.data.objects import ObjectBusy, ObjectRefused
from awe_server.data.passing import is_passing, is_passing_errno
from awe_server.data.sources import shared
from awe_server.data.sources.facts import SourceRefused, SourceUnreachable
from shared_models.errors import AweError
from shared_models.object_urls import object_place


def test_answers_that_may_be_others_a_little_later() -> None:
    passing = [status for status in range(200, 600) if is_passing(status)]
    assert passing == [408, 425, 429, 500, *range(502, 505), *range(506, 600)]


@pytest.mark.parametrize(("status", "error"), [(503, ObjectBusy), (501, ObjectRefused), (400, ObjectRefused)])
def test_what_an_object_store_answers(status: int, error: type[AweError]) -> None:
    found = objects._error_of(GenericError(f"status code: {status} Words"), object_place("s3://bucket/key"))
    assert type(found) is error


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EIO, SourceUnreachable),
        (errno.ESTALE, SourceUnreachable),
        (errno.EMFILE, SourceUnreachable),
        (errno.ENOMEM, SourceUnreachable),
        (errno.EACCES, SourceRefused),
        (errno.ENXIO, SourceRefused),
    ],
)
def test_a_shared_file_that_cannot_be_opened(tmp_path: Path, number: int, error: type[AweError]) -> None:
    assert is_passing_errno(number) is (error is SourceUnreachable)
    trouble = OSError(number, os.strerror(number))
    with mock.patch("awe_server.data.sources.shared.open_allowed", side_effect=trouble), pytest.raises(error):
        shared.look(f"file://{tmp_path}/x", [str(tmp_path)])
