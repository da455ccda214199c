"""What serves an address: what is counted, left alone and waited for together, and named in messages."""

from urllib.parse import urlsplit

from shared_models.file_urls import is_file_url
from shared_models.object_urls import is_object_url


def host_of(url: str) -> str:
    """The host of an address, without user and password; "" if there is no address, "?" if it makes no sense.

    A bucket is a host of its own, and so is each file system that files are shared on, as far as one can see.
    """
    if not url:
        return ""
    if is_file_url(url) or is_object_url(url):
        return "/".join(url.split("/", 4)[: 4 if is_file_url(url) else 3])
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower() or "?"
    except ValueError:
        return "?"
