"""`/docs` and `/openapi.json`, complete without the internet: Swagger's files come from a package."""

import mimetypes
from functools import reduce
from importlib.resources import files
from operator import or_
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, create_model
from starlette.requests import Request
from starlette.responses import Response

from awe_server.api.envelope import Envelope, Refusal
from shared_models.errors import NotFound
from shared_models.messages import ReplyMessage, RequestMessage

_ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png")
_DESCRIPTION = """
A job is a DAG of tasks; a task is cut into workunits; clients check workunits out, run them and report.

Every reply is `{"status", "data", "error"}`; lists add `limit`, `offset`, `total_count`; errors add a stable
`code`. `HEAD` works wherever `GET` does. Unknown query parameters are refused.
"""


def install(app: FastAPI) -> None:
    """Serve the documents."""
    app.description = _DESCRIPTION
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.add_route("/docs", _page, include_in_schema=False)
    app.add_route("/docs/{name}", _asset, include_in_schema=False)


async def _page(request: Request) -> Response:
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="AWE API",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
        swagger_ui_parameters={"defaultModelsExpandDepth": 0, "tryItOutEnabled": True},
    )


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise NotFound(f"Resource /docs/{name[:100]} unknown")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    content = files("fastapi_offline").joinpath("static", name).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "max-age=86400"})


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The schema: what the routes declare, and the exchange, which is served without FastAPI."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = schema["components"]["schemas"]
        schema["paths"]["/client/{client_id}/exchange"] = {"post": _exchange(components)}
        for path in schema["paths"].values():
            for operation in path.values():
                # FastAPI's own validation errors are answered as 400 here (errors.py).
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            components.pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema


def _exchange(components: dict[str, Any]) -> dict[str, Any]:
    template = "#/components/schemas/{model}"
    request = _model(RequestMessage).model_json_schema(ref_template=template)
    reply = Envelope[_model(ReplyMessage)].model_json_schema(ref_template=template)  # type: ignore[misc]
    refusal = Refusal.model_json_schema(ref_template=template)
    for schema in (request, reply, refusal):
        components.update(schema.pop("$defs", {}))

    def body(schema: dict[str, Any]) -> dict[str, Any]:
        return {"application/json": {"schema": schema}}

    return {
        "tags": ["client"],
        "summary": "Report, renew and fetch in one round trip",
        "description": "The one request of native clients; see the wire contract for its rules.",
        "operationId": "exchange",
        "parameters": [{"name": "client_id", "in": "path", "required": True, "schema": {"type": "string"}}],
        "requestBody": {"required": True, "content": body(request)},
        "responses": {
            "200": {"description": "what to do", "content": body(reply)},
            "404": {"description": "register first", "content": body(refusal)},
            "409": {"description": "a newer exchange was served", "content": body(refusal)},
        },
    }


def _model(message: Any) -> type[BaseModel]:
    """A TypedDict as a model: pydantic reads the standard library's own only from Python 3.12 on."""
    optional: frozenset[str] = message.__optional_keys__
    hints = get_type_hints(message, include_extras=True)
    fields = {key: (_plain(hint), None if key in optional else ...) for key, hint in hints.items()}
    made: type[BaseModel] = create_model(message.__name__, __doc__=message.__doc__, **fields)  # type: ignore[call-overload]
    return made


def _plain(hint: Any) -> Any:
    """A type in which every TypedDict is a model."""
    origin, args = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        return _model(hint)
    if origin is NotRequired:
        return _plain(args[0])
    if origin is None or origin is Literal:
        return hint
    if origin in (Union, UnionType):
        return reduce(or_, map(_plain, args))
    return origin[tuple(map(_plain, args))]
