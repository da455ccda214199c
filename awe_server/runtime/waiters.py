"""Who waits for what: clients for work, readers for a job's next revision."""

from shared_models.ids import ClientId, JobId


class Waiters:
    """Long-polls in progress."""

    async def work(self, client_id: ClientId, timeout_s: float) -> bool:
        """Wait until work may have appeared for this client.

        True = ask again; False = the time is over or a newer request of the client took over (`supersede`).
        """
        raise NotImplementedError

    def supersede(self, client_id: ClientId) -> None:
        """End this client's present wait: a newer exchange has come."""
        raise NotImplementedError

    async def job(self, job_id: JobId, revision: int, timeout_s: float) -> bool:
        """Wait until the job's durable revision differs from this one; False when the time is over."""
        raise NotImplementedError
