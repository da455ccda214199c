"""A server whose store another one took over stops: one clear line, an exit code, nothing more written."""

import contextlib
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from tests.crash.documents import plain
from tests.support.env import AweEnv
from tests.support.mongo import MongoServer

STATE_LOST = 70


@pytest.mark.parametrize("busy", [True, False])
def test_a_server_that_lost_its_lease_stops_with_one_line(mongo_server: MongoServer, busy: bool) -> None:
    url = mongo_server.url()
    with AweEnv.temporary(store=url) as env, MongoClient[dict[str, Any]](url) as mongo:
        env.server.start()
        kept = env.submit(plain("kept"))
        database = mongo.get_default_database()
        thief = {"owner": {"host": "other", "pid": 1, "place": "elsewhere", "nonce": "n"}}
        database["meta"].update_one({"_id": "lease"}, {"$inc": {"epoch": 1}, "$set": thief})
        with contextlib.suppress(httpx.TransportError):
            if busy:
                assert env.http.post("/job", json=plain("late")).status_code == 503
        assert env.server.running.wait() == STATE_LOST
        said = env.server.running.stderr.read_text()
        [line] = [line for line in said.splitlines() if "server_stops" in line]
        assert "Another server took over this store" in line
        assert "Traceback" not in said
        assert [job["_id"] for job in database["jobs"].find()] == [kept]
        assert (database["meta"].find_one({"_id": "lease"}) or {})["owner"] == thief["owner"]
