"""Connections that all jobs share keep no cookies."""

from http.cookiejar import CookieJar, DefaultCookiePolicy


def no_cookies() -> CookieJar:
    """What takes no cookie: what a host tells one job is not sent to it with the requests of others."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))
