"""Whether a machine says who it is to an object store: what its environment has of what obstore reads."""

import os

#: Any one of them says who asks; docs/settings.md says what they hold.
CREDENTIALS = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "gs": (
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_BEARER_TOKEN",
    ),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_CLIENT_ID",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
}
SECTION = "docs/settings.md, Object stores"


def used_by(who: str, scheme: str) -> str:
    """With what a store was asked that refused: `who` is `this server`, or `this machine`."""
    if any(os.environ.get(name) for name in CREDENTIALS[scheme]):
        return f"with the credentials of {who}"
    return f"and {who} has no credentials for it ({CREDENTIALS[scheme][0]} …: {SECTION})"
