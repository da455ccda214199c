"""What serves an address."""

import pytest

from awe_server.data.hosts import host_of


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("", ""),
        ("http://user:secret@Data.example:81/a", "data.example:81"),
        ("https://data.example/node/n?download", "data.example"),
        ("http://[::1]:8000/a", "[::1]:8000"),
        ("http://[::1", "?"),
        ("s3://bucket/a/b", "s3://bucket"),
        ("file:///data/a/b", "file:///data"),
    ],
)
def test_a_host_is_named_without_user_password_and_path(url: str, host: str) -> None:
    assert host_of(url) == host
