"""Who is asking. Until logins are configured everybody is the local user, with all rights."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection


@dataclass(slots=True, frozen=True)
class Caller:
    """Whoever sent a request."""

    user: str  #: owner text of what this caller creates
    admin: bool = False


#: AWE's name for somebody who did not log in; such a job may be changed by anybody.
ANONYMOUS = Caller(user="public", admin=True)


async def who(request: HTTPConnection) -> Caller:
    """Tell who sent a request.

    Credentials that nothing can check are ignored, as AWE does for clients: a stock worker sends its data
    token to every node.
    """
    return ANONYMOUS
