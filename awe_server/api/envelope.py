"""The reply everybody gets: `{"status", "data", "error"}`, lists with `limit`, `offset`, `total_count`."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from awe_server.store.base import Page
from shared_models.errors import AweError, BadRange, InvalidDocument, NotConfirmed, QuotaExceeded

JSON = "application/json"
MAX_SHOWN_CHARS = 1_000  #: of one error text: names in it come from outside
MAX_SHOWN_TEXTS = 50

T = TypeVar("T")


class Envelope(BaseModel, Generic[T]):
    """Every reply, for the OpenAPI document; replies do not go through these models."""

    status: int = 200
    data: T
    error: None = None


class Listing(Envelope[list[T]], Generic[T]):
    """A page of a list."""

    limit: int
    offset: int
    total_count: int = Field(description="everything that matches, not only this page")


class Refusal(BaseModel):
    """Every reply that is not 2xx: AWE's keys and a stable code."""

    status: int = Field(examples=[404])
    data: None = None
    error: list[str] = Field(examples=[["job not found:0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10"]])
    code: str = Field(examples=["job_not_found"])


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Name the errors of a route, for the OpenAPI document."""
    return {status: {"model": Refusal} for status in statuses}


Bad = refusals(400)
Missing = refusals(400, 404)


class _Json(Response):
    """Of status 200, and with no headers but those of its body: what most replies are."""

    def __init__(self, body: bytes) -> None:
        self.status_code = 200
        self.background = None
        self.body = body
        length = str(len(body)).encode("ascii")
        self.raw_headers = [(b"content-length", length), (b"content-type", JSON.encode("ascii"))]


def ok(data: Any, *, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """Answer 200 with data; `more` are further keys of the envelope."""
    body = orjson.dumps({"status": 200, "data": data, "error": None, **more})
    return Response(body, media_type=JSON, headers=dict(headers)) if headers else _Json(body)


def paged(rows: list[Any], page: Page, *, limit: int, offset: int) -> Response:
    """Answer 200 with one page of a list; total_count counts everything that matches."""
    return ok(rows, limit=limit, offset=offset, total_count=page.total)


def refusal(
    status: int, texts: list[str], code: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """Answer an error: AWE's three keys and a stable `code`."""
    shown = [text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…" for text in texts]
    shown = shown[:MAX_SHOWN_TEXTS]
    body = orjson.dumps({"status": status, "data": None, "error": shown, "code": code, **more})
    return Response(body, status, media_type=JSON, headers=dict(headers or {}))


def refused(error: AweError, *, status: int | None = None, prefix: str = "") -> Response:
    """Answer what an error says; `status` and `prefix` only where AWE's wire asks for others."""
    texts = error.problems if isinstance(error, InvalidDocument) else [error.message]
    may_repeat = error.retryable and not isinstance(error, NotConfirmed)  # who knows only HTTP must not
    headers = {"Retry-After": "1"} if may_repeat else {}
    if isinstance(error, BadRange) and "total" in error.fields:
        headers["Content-Range"] = f"bytes */{error.fields['total']}"
    more = error.fields if isinstance(error, QuotaExceeded) else {}
    return refusal(
        status or error.http_status, [prefix + text for text in texts], error.code, headers=headers, **more
    )
