"""Each kind of fault of a line between a real client and its server, where it reports and where it uploads:
whatever goes wrong once, the command runs once and its output is whole.
"""

import hashlib
from collections.abc import Callable, Iterator

import pytest

from tests.support.env import AweEnv
from tests.support.eventually import eventually_sync
from tests.support.fault_proxy import KINDS, FaultProxy, ProxyFaults

SIZE = 1_000_000
#: How each kind is asked for, of a method with a piece of the path.
ARMED: dict[str, Callable[[ProxyFaults, str, str], None]] = {
    "repeat": lambda faults, method, where: faults.repeat(method=method, where=where),
    "cut": lambda faults, method, where: faults.cut(20, method=method, where=where),
    "cut-request": lambda faults, method, where: faults.cut_request(20, method=method, where=where),
    "drop-reply": lambda faults, method, where: faults.drop_reply(method=method, where=where),
    "stall": lambda faults, method, where: faults.stall(method=method, where=where),
    "503": lambda faults, method, where: faults.fail(503, method=method, where=where),
    "503-retry-after": lambda faults, method, where: faults.fail(
        503, method=method, where=where, headers={"Retry-After": "1"}
    ),
    "reset": lambda faults, method, where: faults.reset(method=method, where=where),
}
assert set(ARMED) == KINDS


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[AweEnv, FaultProxy]]:
    """A server, and one client that reaches it through a proxy."""
    with AweEnv.temporary(flags=["--lease-s", "60"]) as env:
        env.server.start()
        with FaultProxy(env.server.url) as proxy:
            env.start_client(slots=1, server=proxy.url)
            yield env, proxy


@pytest.mark.parametrize("where", ["POST /exchange", "PUT /node/"])
@pytest.mark.parametrize("kind", ARMED)
def test_a_fault_of_the_line_costs_no_attempt_and_no_byte(
    site: tuple[AweEnv, FaultProxy], kind: str, where: str
) -> None:
    """It hits the exchange that brings the report, or the upload of the output."""
    env, proxy = site
    method, path = where.split()
    before = proxy.counts[kind]
    go = env.home / f"go-{kind}-{method}"
    script = [
        f"until [ -e {go} ]; do sleep 0.02; done",
        f"head -c {SIZE} /dev/urandom > out.bin",
        f"echo $AWE_ATTEMPT >> {go}",
        f"md5sum < out.bin >> {go}",
    ]
    task = {"taskid": "0", "cmd": {"cmd_script": script}, "outputs": [{"filename": "out.bin"}]}
    job_id = env.submit({"tasks": [task]})
    env.wait_for(job_id, "in-progress")
    ARMED[kind](proxy.faults, method, path)
    go.touch()
    if kind == "stall":
        eventually_sync(lambda: proxy.faults.stalled == 1, show=env.clients[0].output)
        proxy.faults.release()
    job = env.wait_for(job_id)
    proxy.faults.clear()
    assert proxy.counts[kind] == before + 1
    output = job["tasks"][0]["outputs"][0]
    content = env.http.get(f"/node/{output['node']}?download").content
    attempt, md5 = go.read_text().splitlines()
    assert (attempt, len(content)) == ("1", SIZE), "one attempt, and it ran once"
    assert hashlib.md5(content).hexdigest() == md5.split()[0]
    work = env.data("GET", f"/work/{job_id}_0_0")
    assert (work["state"], work["attempt"], work["failed"], work["lost"]) == ("completed", 1, 0, 0)
