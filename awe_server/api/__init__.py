"""HTTP, one router per resource: parse, authorise, ask the engine, wrap. AWE's own wire lives only here."""

from awe_server.api.build import build_api

__all__ = ["build_api"]
