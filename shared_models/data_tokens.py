"""A job's data token, as Shocks are sent it, and kept out of what people read."""

#: What a Shock answers to who may not read: without a token, or with one that it does not take.
WANTS_LOGIN = (401, 403)
MIN_SECRET_CHARS = 6


def authorization(token: str) -> str:
    """The header that shows the token: `OAuth`, unless it says itself what it is.

    Source: AWE lib/shock, AWE §12.4.
    """
    return token if " " in token else f"OAuth {token}"


def answer_to(token: str) -> str:
    """To what a Shock answered that gives nothing, for a sentence."""
    return "to the job's data token" if token else "and the job has no data token"


def without(token: str, text: str) -> str:
    """A text in which somebody may have repeated the token, whole or in its words, without it.

    What is shorter than MIN_SECRET_CHARS is no secret, and would take the letters out of other words.
    """
    words = token.split()
    secrets = [token, *(words[1:] if len(words) > 1 else words)]  # the first of several says what it is
    for secret in secrets:
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, "…")
    return text
