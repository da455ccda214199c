"""Fixtures of the test aids themselves."""

from tests.support.s3 import s3_bucket, s3_server

__all__ = ["s3_bucket", "s3_server"]
