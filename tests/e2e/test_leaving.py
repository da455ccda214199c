"""Who stops in good order is gone at once, says so, and leaves nothing.

AweEnv looks for the latter: no file is half-made, and the claim on the database was given back.
"""

from collections.abc import Callable

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync


def test_a_client_that_was_told_to_stop_is_offline_at_once(new_store: Callable[[], str]) -> None:
    with AweEnv.temporary(store=new_store()) as site:
        site.server.start()
        client = site.start_client(slots=1)
        eventually_sync(lambda: bool(site.data("GET", "/client")))
        client.stop()
        (shown,) = site.data("GET", "/client")
        assert shown["Status"] == "offline"
        job_id = site.submit({"tasks": [{"taskid": "0", "cmd": {"name": "true"}}]})
        reasons = [row["reason"] for row in site.data("GET", f"/job/{job_id}?why")]
        assert "no live client (1 offline)" in reasons
        site.server.stop()
        assert "server_stopped" in site.server.running.output().splitlines()[-1]


def test_parts_on_two_slots_take_one_attempt_each() -> None:
    """A command that ends while a request is under way gives up the reply, not the work in it."""
    with AweEnv.temporary() as site:
        site.server.start()
        site.start_client(slots=2)
        eventually_sync(lambda: bool(site.data("GET", "/client")))
        script = ["sleep 0.0$AWE_RANK", "echo $AWE_RANK > out"]
        task = {
            "taskid": "0",
            "cmd": {"cmd_script": script},
            "totalwork": 4,
            "outputs": [{"filename": "out"}],
        }
        jobs = [site.submit({"tasks": [task]}) for _ in range(25)]
        for job_id in jobs:
            site.wait_for(job_id)
        shown = [site.data("GET", f"/work/{job_id}_0_{rank}") for job_id in jobs for rank in range(1, 5)]
        assert [work["id"] for work in shown if work["attempt"] > 1] == []
