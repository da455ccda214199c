"""Find the job that somebody means."""

from awe_client.api import AweClient
from shared_models.errors import JobNotFound


def job_id_of(awe: AweClient, text: str) -> str:
    """Turn a jid (`10007`) into a job id; an id is returned as it is.

    Raises JobNotFound when no job has this jid.
    """
    if not text.isdigit():
        return text
    page = awe.list_jobs(where={"jid": text}, limit=1)
    if not page.documents:
        raise JobNotFound(job_id=text)
    return str(page.documents[0]["id"])
