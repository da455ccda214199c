"""Marks of crash tests."""

import pytest

#: Run a test on SQLite and on a server that speaks MongoDB's protocol.
on_both_stores = pytest.mark.parametrize("store", ["sqlite", "mongodb"], indirect=True)
