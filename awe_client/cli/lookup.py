"""Find the job, workunit or client that somebody means."""

from awe_client.api import AweClient
from shared_models.errors import BadRequest, JobNotFound


def job_id_of(awe: AweClient, text: str) -> str:
    """Turn a jid (`10007`) into a job id; an id is returned as it is.

    Raises JobNotFound when no job has this jid.
    """
    if not text.isdecimal():
        return text
    page = awe.list_job_rows(where={"jid": text}, limit=1)
    if not page.items:
        raise JobNotFound(job_id=text)
    return page.items[0].id


def work_or_job_id_of(awe: AweClient, text: str) -> tuple[str, bool]:
    """The id of a workunit (True) or of a job (False); a jid may stand for the job's id in both.

    Raises JobNotFound when no job has this jid.
    """
    job, task_and_rank = text.partition("_")[::2]
    if "_" not in task_and_rank:
        return job_id_of(awe, text), False
    return f"{job_id_of(awe, job)}_{task_and_rank}", True


def client_id_of(awe: AweClient, text: str) -> str:
    """The id of the client of this name; what is no client's name is returned as it is.

    Raises BadRequest when several have the name.
    """
    clients = awe.list_clients().items
    if any(client.id == text for client in clients):
        return text
    ids = [client.id for client in clients if client.name == text]
    if len(ids) > 1:
        raise BadRequest(f"{len(ids)} clients are named {text}; give an id: {', '.join(ids)}")
    return ids[0] if ids else text
