"""docs/wire.md says what the code does: every route, every parameter, every error code.

`python -m tests.architecture.test_wire_document` prints the table of codes anew.
"""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Route

import awe_client
import awe_server
from awe_server.api import build_api
from awe_server.app import build_services
from awe_server.runtime.clock import Clock
from awe_server.settings import Settings
from shared_models.errors import AweError, error_classes

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "wire.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")

#: Codes that are no class of the tree.
OTHER_CODES = {
    "method_not_allowed": (405, "no", "the path exists, this method of it does not"),
    "no_work": (400, "yes", "checkout: nothing for this client; `skipped` counts why"),
}
#: What a code means where its class's own words are for people or have fields in them.
MEANINGS = {
    "already_exists": "the Idempotency-Key was used for another document",
    "bad_range": "nothing of the file lies in that range; `Content-Range` says how long it is",
    "client_not_found": "no such client: it has to register",
    "client_suspended": "the client gets no work until it is resumed",
    "conflict": "it cannot be done in the present state",
    "forbidden": "not this caller, or not for a page of another site",
    "unreadable_node": "the stored document of this node makes no sense; `DELETE /node/{id}` removes it",
    "unreadable_job": "the stored documents of this job make no sense; `DELETE /job/{id}?full` removes it",
    "illegal_move": "it cannot go from its state to that one",
    "internal": "a fault of the server, with an incident id",
    "invalid_data": "the file is damaged at that record",
    "invalid_document": "each problem of a document with its field path",
    "invalid_request": "the request makes no sense",
    "job_not_found": "no such job",
    "lead_in_doubt": "another server may lead by now, so this one knows nothing for sure: nothing was begun; "
    "ask again, or ask the other one",
    "lease_lost": "the attempt is not held any more, or not by this caller",
    "missing_part": "a part was never uploaded",
    "no_file": "the node is empty",
    "no_index": "the node has no such index: build it first",
    "no_space": "the server's disk is nearly full",
    "node_not_found": "no such node",
    "not_an_awe_server": "something else answers there; said by our client, never sent",
    "not_confirmed": "accepted, but the store has not confirmed it: it may still be carried out",
    "not_cuttable": "the file cannot be cut there",
    "not_found": "no such resource",
    "quota_exceeded": "`wanted_bytes` do not fit into the quota: `used_bytes` of `limit_bytes` are taken",
    "queue_suspended": "nothing is handed out at the moment",
    "server_unreachable": "no server answers; said by our client, never sent",
    "shutting_down": "the server stops",
    "stale_exchange": "a newer exchange was served, or another incarnation registered: register again",
    "starting": "the server reads its state, or stands by: ask the other one",
    "store_unavailable": "the store does not answer; nothing was begun",
    "task_not_found": "no such task",
    "too_large": "larger than a limit",
    "unauthenticated": "the credentials are not valid",
    "unavailable": "not now",
    "unknown_parameter": "a query parameter that this route does not know",
    "workunit_not_found": "no such workunit",
}  # fmt: skip


def known_classes() -> dict[str, type[AweError]]:
    """The whole tree: rooms add to it when they are imported."""
    for package in (awe_server, awe_client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    ours = ("shared_models.", "awe_server.", "awe_client.")
    return {code: cls for code, cls in error_classes().items() if cls.__module__.startswith(ours)}


def code_table() -> str:
    """What belongs between the markers of the page."""
    rows = dict(OTHER_CODES)
    for code, cls in known_classes().items():
        # Others of status 500 are told as `internal`: they mean something inside the process alone.
        if cls.http_status != 500 or code == "internal":
            rows[code] = (cls.http_status, "yes" if cls.retryable else "no", MEANINGS.get(code, "?"))
    lines = ["| code | status | try again | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{code}` | {status} | {again} | {meaning} |"
        for code, (status, again, meaning) in sorted(rows.items(), key=lambda row: (row[1][0], row[0]))
    ]
    return "\n".join(lines)


def test_every_error_code_is_listed_with_its_status() -> None:
    listed = TEXT.partition("<!-- codes -->")[2].partition("<!-- /codes -->")[0].strip()
    assert listed == code_table()


def test_every_code_that_is_sent_is_known_to_the_client() -> None:
    sent = [cls for code, cls in known_classes().items() if cls.http_status != 500 or code == "internal"]
    assert [cls.__qualname__ for cls in sent if cls.__module__ != "shared_models.errors"] == []


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), store_url="memory:")
    return build_api(build_services(settings, clock=Clock(lambda: 0.0, lambda: 0.0), fatal=lambda _: None))


def routes(app: FastAPI) -> set[str]:
    """Every route as `GET /job/{job_id}`."""
    found: set[str] = set()

    def collect(rows: Any) -> None:
        for route in rows:
            if isinstance(route, APIRoute | Route):
                path = route.path.replace(":path}", "}")
                found.update(f"{method} {path}" for method in (route.methods or ()) if method != "HEAD")
            else:
                collect(getattr(route, "routes", None) or route.original_router.routes)

    collect(app.router.routes)
    return found


def described() -> dict[str, str]:
    """Each route of the page and the section that describes it."""
    found = {}
    for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]:
        for route in re.findall(r"^\| `((?:GET|PUT|POST|DELETE) /[^`]*)` \|", section, re.MULTILINE):
            assert route not in found
            found[route] = section
    return found


def test_every_route_is_named_and_nothing_else(app: FastAPI) -> None:
    assert set(described()) == routes(app)


def test_every_parameter_is_named_in_its_section(app: FastAPI) -> None:
    sections = described()
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            section = sections[f"{method.upper()} {path}"].lower()
            for parameter in operation.get("parameters", []):
                name = parameter["name"].lower()
                known = re.search(rf"`{re.escape(name)}[`=]", section) or parameter["in"] == "path"
                assert known, f"{method.upper()} {path}: {name}"


def test_its_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (DOCUMENT.parent / target.partition("#")[0]).exists(), target


if __name__ == "__main__":
    print(code_table())
