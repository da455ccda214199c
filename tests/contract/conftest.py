"""Fixtures of the contract tests."""

from tests.support.mongo import mongo_server, mongo_url

__all__ = ["mongo_server", "mongo_url"]
