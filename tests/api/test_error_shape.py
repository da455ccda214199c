"""Every route answers errors in one shape: status, data null, a list of texts, a known code."""

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from shared_models.errors import error_classes
from tests.api.conftest import Api

pytestmark = pytest.mark.anyio

#: Codes that are no class of the tree: what the framework refuses, and AWE's empty checkout.
OTHER_CODES = {"method_not_allowed", "no_work"}
#: Codes of errors that other rooms add to the tree are found there once those rooms are imported.
PATHS = re.compile(r"\{(\w+)(?::path)?\}")


def routes(api: Api) -> list[tuple[str, str]]:
    found = []

    def collect(rows: Any) -> None:
        for route in rows:
            if isinstance(route, APIRoute | Route):
                found.extend(
                    (method, route.path) for method in sorted(route.methods or ()) if method != "HEAD"
                )
            else:
                collect(getattr(route, "routes", None) or route.original_router.routes)

    collect(api.app.router.routes)
    return found


def check(reply: Any, where: str) -> None:
    envelope = reply.json()
    assert envelope["status"] == reply.status_code, where
    assert envelope["data"] is None, where
    assert isinstance(envelope["error"], list), where
    assert envelope["error"], where
    assert all(isinstance(text, str) and text for text in envelope["error"]), where
    assert envelope["code"] in error_classes().keys() | OTHER_CODES, where
    assert reply.status_code < 500, (where, reply.text)


async def test_all_routes_are_walked(api: Api) -> None:
    found = routes(api)
    assert len(found) > 30
    for wanted in [
        ("POST", "/job"),
        ("PUT", "/work/{work_id:path}"),
        ("POST", "/client/{client_id}/exchange"),
    ]:
        assert wanted in found


async def test_unknown_parameters_are_refused_everywhere(api: Api) -> None:
    for method, path in routes(api):
        if path.startswith(("/docs", "/openapi")) or path.endswith("/exchange"):
            continue
        url = PATHS.sub("0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_0", path)
        headers = {"Awe-Lease": "t"}
        params: dict[str, Any] = {"no_such_parameter": "1"}
        if "/log/" in path:
            url = url.rpartition("/")[0] + "/stdout"
            params["attempt"] = "1"
        if "/index/" in path:
            url = url.rpartition("/")[0] + "/record"
        reply = await api.http.request(method, url, params=params, headers=headers)
        where = f"{method} {path}"
        check(reply, where)
        assert reply.json()["code"] == "unknown_parameter", (where, reply.text)
        assert "no_such_parameter" in reply.json()["error"][0], where


async def test_senseless_ids_and_bodies_are_4xx_in_the_one_shape(api: Api) -> None:
    odd = [
        "nope",
        "%00",
        "..",
        "a" * 3000,
        "é",
        "0c61cd2f-7f0b-4c0e-93b3-8d6f4d6f5a10_0_0",
        "base64:AAAA",
        "%2e%2e%2f",
    ]
    bodies: list[dict[str, Any]] = [
        {},
        {"content": b"\xff\xfe"},
        {"content": b"{}", "headers": {"Content-Type": "application/json"}},
        {"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=B"}},
    ]
    for method, path in routes(api):
        if path.startswith("/openapi"):
            continue
        for id in odd if "{" in path else [""]:
            for body in bodies if method in ("POST", "PUT") else [{}]:
                reply = await api.http.request(method, PATHS.sub(id, path), **body)
                where = f"{method} {path} {id[:20]} {body}"
                assert reply.status_code < 500, (where, reply.text)
                if reply.status_code >= 400:
                    check(reply, where)


async def test_unknown_paths_and_methods(api: Api) -> None:
    for method, path, status in [
        ("GET", "/nope", 404),
        ("POST", "/nope", 404),
        ("GET", "/job/x/y", 404),
        ("PATCH", "/job", 405),
        ("POST", "/queue", 405),
        ("DELETE", "/work/x", 405),
        ("OPTIONS", "/job", 405),
    ]:
        reply = await api.http.request(method, path)
        assert reply.status_code == status, (method, path, reply.text)
        check(reply, path)
