"""What time alone brings about."""

from heapq import heappop

from awe_server.scheduler.clients import reap
from awe_server.scheduler.demands import clear_empty_demands, release_due
from awe_server.scheduler.progress import advance_job
from awe_server.scheduler.state import Context, State


def tick(state: State, ctx: Context) -> None:
    """Reap silent clients, offer retries whose delay is over, start jobs whose time has come, let go of those
    that left memory.
    """
    reap(state, ctx)
    release_due(state, ctx.now_s)
    while state.starting and state.starting[0][0] <= ctx.now_s:
        job = heappop(state.starting)[2]
        if state.jobs.get(job.id) is job:
            advance_job(state, ctx, job)
    clear_empty_demands(state)
    state.take_apart()
