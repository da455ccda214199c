"""The client's life with its server: leases, lost replies, restarts, pauses."""

import asyncio
import os
import random
import re
import socket
import threading
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from awe_client.daemon import logs
from awe_client.daemon.identity import WorkRoot
from awe_client.daemon.servers import BACKOFF_CAP_S, Patience
from shared_models.errors import Unavailable
from tests.support.eventually import eventually
from tests.support.fake_server import FakeServer, refusal
from tests.unit.client.conftest import MakeDaemon, settings_for

pytestmark = pytest.mark.anyio


async def test_registration_says_who_we_are(server: FakeServer, start: MakeDaemon) -> None:
    said = {"name": "node7", "domain": "lab", "user": "anna", "instance_id": "i-7", "instance_type": "m1"}
    start(slots=3, group="big", apps=("a", "b"), memory_bytes=2**30, **said)
    await server.until(lambda: bool(server.exchanges))
    profile = server.profiles[0]
    assert (profile["group"], profile["apps"]) == ("big", ["a", "b"])
    assert {key: profile[key] for key in said} == said
    assert profile["hostname"] == socket.gethostname()
    assert (profile["cores"], profile["memory_bytes"], profile["native"]) == (3, 2**30, True)
    assert profile["spooled"] == []
    assert profile["incarnation"] == server.exchanges[0]["incarnation"]


async def test_L_04_request_ids_grow_by_one_and_held_work_is_listed_in_every_stage(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(slots=1)
    works = await server.add_task(script=["sleep 0.3"], ranks=3)
    for work in works:
        await server.result(work)
    ids = [x["request_id"] for x in server.exchanges]
    assert ids == list(range(1, len(ids) + 1))
    # While the first ran, the one fetched ahead was listed too.
    assert any(len(x["holds"]) == 2 for x in server.exchanges)
    for x in server.exchanges:
        reported = {(r["work"], r["attempt"]) for r in x["reports"]}
        assert reported <= {(work, attempt) for work, attempt in x["holds"]}


async def test_work_that_appears_starts_at_once_without_polling(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    await server.until(lambda: len(server.exchanges) == 1)
    await asyncio.sleep(0.3)
    assert len(server.exchanges) == 1
    [work] = await server.add_task()
    await server.result(work, 2.0)


async def test_a_short_command_is_reported_with_the_next_request(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is sent meanwhile that would be given up for it."""
    monkeypatch.setattr("awe_client.daemon.exchange.SHORT_S", 60.0)
    start()
    await server.until(lambda: len(server.exchanges) == 1)
    for _ in range(3):
        before = len(server.exchanges)
        [work] = await server.add_task()
        await server.result(work)
        assert [[r["work"] for r in x["reports"]] for x in server.exchanges[before:][:1]] == [[work]]
        await server.until(lambda before=before: len(server.exchanges) == before + 2)  # type: ignore[misc]


async def test_a_command_that_takes_longer_keeps_no_request_back(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(slots=2)
    await server.add_task("sleep", "30")
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    assert server.exchanges[-1]["want"] > 0


async def test_a_finished_command_is_reported_while_another_request_waits(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(slots=2)
    [slow] = await server.add_task("sleep", "30")
    [quick] = await server.add_task("sleep", "0.2")
    await server.result(quick, 3.0)
    assert slow in server.leased


async def test_finished_work_is_reported_however_many_old_requests_still_wait(
    server: FakeServer, start: MakeDaemon
) -> None:
    server.ends_superseded = False
    start(slots=2)
    await server.add_task("sleep", "30")
    for _ in range(7):
        [quick] = await server.add_task("sleep", "0.1")
        await server.result(quick, 3.0)


async def test_L_07_grants_of_a_superseded_request_are_not_taken(
    server: FakeServer, start: MakeDaemon
) -> None:
    """Every reply repeats the work of all earlier ones: each attempt still runs once."""
    server.replay = True
    start(slots=2)
    works = await server.add_task(script=["echo $AWE_WORK_ID.$AWE_ATTEMPT"], ranks=8)
    for work in works:
        await server.result(work)
    ran = Counter((r["work"], r["attempt"]) for r in server.reports if r["outcome"] == "done")
    assert set(ran.values()) == {1}


async def test_L_07_lost_replies_lose_no_work_and_start_nothing_twice(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    server.drop_replies = lambda count: count % 3 == 0
    marks = tmp_path / "marks"
    marks.mkdir()
    start(slots=1)
    works = await server.add_task(script=[f"echo x >> {marks}/$AWE_WORK_ID.$AWE_ATTEMPT"], ranks=12)
    for work in works:
        assert (await server.result(work, 30.0))["outcome"] == "done"
    assert {path.read_text() for path in marks.iterdir()} == {"x\n"}


async def test_L_01_a_discarded_attempt_is_not_reported(server: FakeServer, start: MakeDaemon) -> None:
    start(slots=1)
    [work] = await server.add_task("sleep", "30")
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    await server.discard(work)
    await server.until(lambda: not server.exchanges[-1]["holds"])
    assert server.reports == []


async def test_L_01_a_result_of_a_lost_attempt_is_refused_once_and_forgotten(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(slots=1)
    [work] = await server.add_task(script=["sleep 0.3"])
    await server.until(lambda: work in server.leased)
    server.leased[work].token = "somebody else's"
    await server.until(lambda: bool(server.reports))
    await server.until(lambda: not server.exchanges[-1]["holds"])
    assert len(server.reports) == 1
    assert work not in server.results


async def test_a_server_that_forgot_us_is_told_again_and_work_goes_on(
    server: FakeServer, start: MakeDaemon
) -> None:
    start()
    [work] = await server.add_task(script=["sleep 0.5"])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    server.lose_memory()
    assert (await server.result(work))["outcome"] == "done"
    assert len(server.profiles) >= 2
    assert len({p["incarnation"] for p in server.profiles}) == 1


async def test_D_07_results_survive_a_server_that_is_away(server: FakeServer, start: MakeDaemon) -> None:
    start()
    out = server.output("out.txt")
    [work] = await server.add_task(script=["sleep 0.3; echo x > out.txt"], outputs=[out])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    await server.shut()
    await asyncio.sleep(0.8)
    await server.start()
    report = await server.result(work)
    assert (report["outcome"], report["attempt"]) == ("done", 1)
    assert server.uploads[out["node"], work, 1] == b"x\n"


async def test_a_result_with_outputs_arrives_as_soon_as_the_server_is_back(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its upload may be in a long pause by then."""
    server.lease_s = 1.0
    daemon = start()
    out = server.output("out.txt")
    [work] = await server.add_task(script=["sleep 0.3; echo x > out.txt"], outputs=[out])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    servers = daemon._servers
    pauses = partial(Patience, base_s=500.0, cap_s=500.0, back=lambda: servers.back)
    waiting = asyncio.Event()
    monkeypatch.setattr(servers, "patience", lambda: (waiting.set(), pauses())[1])
    await server.shut()
    await waiting.wait()
    await asyncio.sleep(0.3)
    await server.start()
    assert (await server.result(work, 20.0))["outcome"] == "done"


@pytest.mark.parametrize("away", ["refused", "503", "silent"])
async def test_a_result_is_soon_on_disk_also_while_no_server_answers(
    server: FakeServer, start: MakeDaemon, tmp_path: Path, away: str
) -> None:
    """It must outlive the client also then, and each by itself: they do not end in one moment."""
    start()
    gos = [tmp_path / "a", tmp_path / "b"]
    scripts = [f"until [ -e {go} ]; do sleep 0.02; done" for go in gos]
    works = [work for script in scripts for work in await server.add_task(script=[script])]
    await server.until(lambda: any(len(x["holds"]) == 2 for x in server.exchanges))
    if away == "refused":
        await server.shut()
    elif away == "503":
        server.refuse = refusal(503, "store_unavailable", "later", {"Retry-After": "30"})
    else:
        server.black_hole = True
    spool = tmp_path / "work" / "spool" / "reports.log"
    for go, work in zip(gos, works, strict=True):
        go.touch()
        await eventually(lambda work=work: work.encode() in spool.read_bytes(), within_s=10.0)  # type: ignore[misc]
    server.refuse, server.black_hole = None, False
    if away == "refused":
        await server.start()


async def test_a_second_server_is_tried_when_the_first_is_away(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    from awe_client.daemon.daemon import Daemon

    settings = settings_for("http://127.0.0.1:9", tmp_path / "w2")
    both = Daemon(type(settings)(servers=("http://127.0.0.1:9", server.url), work=tmp_path / "w2", slots=1))
    task = asyncio.ensure_future(both.run())
    [work] = await server.add_task()
    assert (await server.result(work))["outcome"] == "done"
    both.drain("test")
    assert await task == 0


async def test_a_second_server_is_tried_soon_when_the_first_takes_requests_and_never_answers(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is stopped, say: a registration is no transfer, which may be silent for a minute."""
    monkeypatch.setattr("awe_client.daemon.exchange.REPLY_MARGIN_S", 0.2)
    with socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        start(servers=(f"http://127.0.0.1:{hung.getsockname()[1]}", server.url), transfer_timeout_s=60.0)
        await server.until(lambda: bool(server.profiles), 20.0)


@pytest.mark.parametrize("away", ["refused", "503"])
async def test_Q_03_the_pauses_grow_while_no_server_answers(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """A minute in fast motion: sleeping is made 50 times shorter, times are counted as asked for."""
    asked: list[float] = []
    real_sleep = asyncio.sleep

    async def short_sleep(delay: float, *args: object) -> None:
        if delay > 0.1:
            asked.append(delay)
        await real_sleep(delay / 50)

    start()
    await server.until(lambda: bool(server.exchanges))
    monkeypatch.setattr("awe_client.daemon.exchange.asyncio.sleep", short_sleep)
    before = len(server.requests)
    if away == "refused":
        await server.shut()
    else:
        server.refuse = refusal(503, "store_unavailable", "later", {"Retry-After": "7"})
        await server.wake()
        # A waiting exchange was answered normally; the next ones are refused.
        [_] = await server.add_task("true")
    async with asyncio.timeout(10):
        while sum(asked) < 60:
            await real_sleep(0.02)
    assert len(asked) < 15
    assert max(asked) <= 31
    if away == "503":
        assert min(asked) >= 7
        assert len(server.requests) - before < 20
        server.refuse = None
    else:
        await server.start()
    monkeypatch.undo()


async def test_Q_03_a_server_that_never_answers_is_asked_seldom_and_work_goes_on(
    server: FakeServer, start: MakeDaemon
) -> None:
    server.lease_s = 0.6  # a request is given up after 1.2 s, a pause is 1 s at most
    start(slots=1)
    [work] = await server.add_task(script=["sleep 1; echo finished"])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    before = len(server.requests)
    server.black_hole = True
    await asyncio.sleep(6.0)
    asked = len(server.requests) - before
    server.black_hole = False
    assert asked < 10
    report = await server.result(work)
    assert (report["outcome"], report["attempt"], report["stdout_tail"]) == ("done", 1, "finished\n")


@pytest.mark.parametrize("asked_s", [0.0, 7.0], ids=["refused", "Retry-After"])
def test_Q_03_clients_that_lost_one_server_do_not_come_back_in_step(asked_s: float) -> None:
    """200 clients, one minute without a server."""
    random.seed(3)
    away = Unavailable("away")
    away.fields["retry_after_s"] = asked_s
    tries, back = list[int](), list[float]()
    for _ in range(200):
        patience, at_s, count = Patience(), 0.0, 0
        while at_s < 60:
            count += 1
            at_s += patience.delay_s(away)
        tries.append(count)
        back.append(at_s - 60)
    assert max(tries) < 15
    assert max(back) < 2 * BACKOFF_CAP_S
    assert max(Counter(int(late_s * 10) for late_s in back).values()) <= 0.2 * 200


async def test_L_05_a_lease_is_renewed_while_a_transfer_is_slow(
    server: FakeServer, start: MakeDaemon
) -> None:
    server.lease_s = 0.6
    server.download_delay_s = 0.15
    start()
    entry = server.input("big.bin", os.urandom(1_000_000))
    [work] = await server.add_task("true", inputs=[entry])
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    begin = len(server.requests)
    await server.result(work)
    times = [t for t, method, path, _ in server.requests[begin - 1 :] if path.endswith("/exchange")]
    assert max(b - a for a, b in pairwise(times)) < server.lease_s


async def test_L_05_a_disk_that_is_slow_to_take_a_result_stops_no_heartbeat_and_no_result(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow, waiting, sync = threading.Event(), threading.Event(), os.fdatasync

    def hanging(fd: int) -> None:
        waiting.set()
        slow.wait(20)
        sync(fd)

    server.lease_s = 0.6
    start(slots=2)
    [long] = await server.add_task("sleep", "30")
    await server.until(lambda: any(x["holds"] for x in server.exchanges))
    monkeypatch.setattr("awe_client.daemon.spool.os.fdatasync", hanging)
    try:
        [quick] = await server.add_task("true")
        assert (await server.result(quick))["outcome"] == "done"
        await eventually(waiting.is_set)
        seen = len(server.exchanges)
        await server.until(lambda: len(server.exchanges) >= seen + 5, 10.0)
        assert all([long, 1] in x["holds"] for x in server.exchanges[seen:])
        assert "spool_slow" in caplog.text
    finally:
        slow.set()
    await eventually(lambda: "spool_written" in caplog.text)


async def test_L_05_a_disk_that_hangs_while_the_lease_is_noted_stops_no_heartbeat(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow, noted, note = threading.Event(), list[float](), WorkRoot.remember_lease_s

    def hanging(root: WorkRoot, lease_s: float) -> None:
        noted.append(lease_s)
        slow.wait(20)
        note(root, lease_s)

    monkeypatch.setattr(WorkRoot, "remember_lease_s", hanging)
    server.lease_s = 0.6
    start()
    try:
        await server.until(lambda: len(server.exchanges) >= 3, 10.0)
        server.lease_s = 0.9
        begin = len(server.exchanges)
        await server.until(lambda: len(server.exchanges) >= begin + 3, 10.0)
        assert noted == [0.6], "one thread at a time"
    finally:
        slow.set()
    file = tmp_path / "work" / "lease"
    await eventually(lambda: file.exists() and file.read_text() == "0.9\n")


async def test_L_05_a_silent_foreign_host_is_the_inputs_fault_after_a_while(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awe_client.daemon.transfer.FOREIGN_ATTEMPTS", 2)
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    start(transfer_timeout_s=0.3)
    url = f"http://user:secret@127.0.0.1:{port}/x?key=secret"
    [work] = await server.add_task("true", inputs=[{"filename": "x", "url": url}])
    report = await server.result(work)
    assert report["kind"] == "input"
    assert f"http://127.0.0.1:{port}/x" in report["message"]
    assert "secret" not in report["message"]
    silent.close()


async def test_our_token_goes_to_our_server_only(server: FakeServer, start: MakeDaemon) -> None:
    start(authorization="CG_TOKEN top-secret")
    foreign = FakeServer()
    await foreign.start()
    node = foreign.add_node(b"hello")
    [work] = await server.add_task(
        "cat", "@x", inputs=[{"filename": "x", "url": f"{foreign.url}/node/{node}?download"}]
    )
    assert (await server.result(work))["stdout_tail"] == "hello"
    assert all(h["authorization"] == "CG_TOKEN top-secret" for _, _, _, h in server.requests)
    assert all("authorization" not in h for _, _, _, h in foreign.requests)
    await foreign.close()


async def test_a_suspended_client_asks_for_nothing_until_told_otherwise(
    server: FakeServer, start: MakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    server.suspended = True
    server.lease_s = 0.6
    caplog.set_level("INFO", "awe_client")
    start()
    await server.until(lambda: len(server.exchanges) >= 2)
    assert server.exchanges[1]["want"] == 0
    server.suspended = False
    [work] = await server.add_task()
    assert (await server.result(work))["outcome"] == "done"
    told = [r for r in caplog.records if r.getMessage() in ("suspended", "resumed")]
    assert [(r.getMessage(), r.levelname) for r in told] == [("suspended", "WARNING"), ("resumed", "INFO")]
    facts = logs.facts_of(told[0])
    assert facts["reason"] == "manually suspended"
    assert re.fullmatch(r"awe clients --resume [0-9a-f-]{36}", str(facts["resume_with"]))


async def test_the_first_registration_that_fails_is_no_alarm(
    server: FakeServer, start: MakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that is started beside its server may be there first."""
    caplog.set_level("INFO", "awe_client")
    server.refuse = refusal(503, "starting", "the server reads its state")
    start()
    await eventually(lambda: len(server.requests) >= 2)
    server.refuse = None
    await server.until(lambda: bool(server.exchanges))
    levels = [r.levelname for r in caplog.records if r.getMessage() == "not_registered"]
    assert levels[0] == "INFO"
    assert set(levels[1:]) == {"WARNING"}


async def test_stop_ends_the_daemon(server: FakeServer, start: MakeDaemon) -> None:
    daemon = start()
    await server.until(lambda: bool(server.exchanges))
    server.stop = True
    await server.wake()
    assert await asyncio.wait_for(daemon.task, 10) == 0  # type: ignore[attr-defined]


async def test_a_client_that_is_not_welcome_ends_with_the_servers_words(tmp_path: Path) -> None:
    from awe_client.daemon.daemon import Daemon
    from shared_models.errors import Forbidden

    fake = FakeServer(refuse=refusal(403, "forbidden", "not with this group"))
    await fake.start()
    with pytest.raises(Forbidden, match="not with this group"):
        await Daemon(settings_for(fake.url, tmp_path / "w")).run()
    await fake.close()


async def test_live_logs_are_sent_while_somebody_follows(server: FakeServer, start: MakeDaemon) -> None:
    start(slots=1)
    server.lease_s = 0.6
    [work] = await server.add_task(script=["echo first; sleep 0.4; echo second; sleep 2; echo last"])
    await server.until(lambda: work in server.leased)
    server.follow = [(work, 1)]
    await server.until(lambda: b"second" in server.logs.get((work, 1, "stdout"), b""))
    assert server.logs[work, 1, "stdout"] == b"first\nsecond\n"
    assert (await server.result(work))["stdout_tail"] == "first\nsecond\nlast\n"
    # What came last is not lost although the log is short and nothing failed.
    assert server.logs[work, 1, "stdout"] == b"first\nsecond\nlast\n"


async def test_a_wide_task_waits_for_enough_slots_and_memory_is_counted(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start(slots=2, memory_bytes=1000 << 20)
    log = tmp_path / "log"
    script = [f"echo + >> {log}; sleep 0.2; echo - >> {log}"]
    wide = {"cores": 2, "memory_bytes": 0, "disk_bytes": 0, "gpus": 0}
    heavy = {"cores": 1, "memory_bytes": 600 << 20, "disk_bytes": 0, "gpus": 0}
    works = [
        *await server.add_task(script=script, ranks=2, resources=heavy),
        *await server.add_task(script=script, ranks=2, resources=wide),
    ]
    for work in works:
        await server.result(work)
    assert log.read_text().split() == ["+", "-"] * 4


async def test_what_can_never_run_here_is_given_back_with_the_reason(
    server: FakeServer, start: MakeDaemon
) -> None:
    start(slots=2)
    huge = {"cores": 64, "memory_bytes": 0, "disk_bytes": 0, "gpus": 0}
    [work] = await server.add_task(resources=huge)
    report = await server.result(work)
    assert report["kind"] == "node"
    assert "needs 64 cores" in report["message"]


@pytest.mark.parametrize(("status", "code"), [(400, "invalid_document"), (500, "internal")])
async def test_one_report_that_the_server_cannot_take_does_not_hold_up_the_others(
    server: FakeServer, start: MakeDaemon, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    monkeypatch.setitem(Patience.__init__.__kwdefaults__, "base_s", 0.01)  # type: ignore[arg-type]
    server.poison = refusal(status, code, "reports[0].message: no")
    start()
    [bad] = await server.add_task(script=["echo poison"])
    good = await server.add_task(script=["echo fine"], ranks=10)
    for work in good:
        assert (await server.result(work))["outcome"] == "done"
    assert bad not in server.results


async def test_an_odd_task_name_makes_a_plain_directory(
    server: FakeServer, start: MakeDaemon, tmp_path: Path
) -> None:
    start()
    [work] = await server.add_task(script=["pwd"], task_name="a/../b c" + "ü" * 200)
    folder = Path((await server.result(work))["stdout_tail"].strip())
    assert folder.parent == tmp_path / "work" / "attempts" / work[0:2] / work[2:4] / work[4:6]
    assert len(os.fsencode(folder.name)) < 255
