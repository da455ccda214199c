"""The inputs of a task that are not in our node store: what is known of them, and where they may be cut.

Who wants a file whole needs to know nothing of it: what cannot be found out is noted. To be cut, a file has
to be read: a host that is away is asked again for a while, then the task is refused, for nobody who asked for
many workunits is helped by one that does it all.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from awe_server.data.ports import IndexFact, Unreadable
from awe_server.data.sinks.base import shown
from awe_server.data.source_indexes import SourceIndexes, key_of
from awe_server.data.sources.facts import (
    Fact,
    NoRanges,
    Place,
    SourceChanged,
    SourceMissing,
    SourceRefused,
    SourceUnreachable,
)
from awe_server.data.sources.shock import NotBuilt
from awe_server.runtime.clock import Clock
from awe_server.runtime.foreign import Away, ForeignFiles, Unknown, kind_of
from awe_server.runtime.refused import Refused
from awe_server.scheduler.facts import InputFact
from awe_server.scheduler.state import Task
from awe_server.store.base import Document
from shared_models.errors import Forbidden, InvalidData, NotCuttable
from shared_models.ids import TaskId
from shared_models.times import rfc3339

log = logging.getLogger(__name__)

LOOK_S = 60.0  #: for all foreign files of a task together; what is not known by then is as if it were away
INDEX_S = 5.0  #: for all indexes that a task wants in other Shocks; these build on, whoever waits
MAX_AT_ONCE = 8  #: of them asked for


class Uncut(Exception):
    """The file is not cut; the text says why."""


@dataclass(slots=True)
class Looked:
    """What one look at a task's foreign files found."""

    facts: dict[str, Fact] = field(default_factory=dict)  #: by filename
    reasons: dict[str, str] = field(default_factory=dict)  #: why there is no fact
    places: dict[str, tuple[str, Place]] = field(
        default_factory=dict
    )  #: of files that are cut, with their key
    indexed: set[tuple[str, str]] = field(default_factory=set)  #: files and kinds of which we have an index
    token: str = field(default="", repr=False)  #: the job's data token

    def unknown_sizes(self, files: Sequence[Document]) -> list[str]:
        """Notes that say so, and why."""
        names = [io["filename"] for io in files if io["filename"] in self.reasons]
        return [f"size of {name} is not known: {self.reasons[name]}" for name in names]

    def input(self, io: Document, kind: str = "") -> InputFact:
        """The fact for the scheduler, about a file that is cut by such an index, if it is cut."""
        name, fact = io["filename"], self.facts.get(io["filename"])
        if fact is None:
            return InputFact(name, io["node"], 0, url=io["url"])
        key = self.places[name][0] if (name, kind) in self.indexed else ""
        return InputFact(
            name, io["node"], fact.size_bytes, fact.md5, io["url"], version=fact.version, index=key
        )


class ForeignInputs:
    """Looks at them."""

    def __init__(self, foreign: ForeignFiles, indexes: SourceIndexes, clock: Clock, wait_s: float) -> None:
        self._foreign = foreign
        self._indexes = indexes
        self._clock = clock
        self._wait_s = wait_s
        self._since: dict[
            TaskId, tuple[int, float]
        ] = {}  #: tasks that wait for a host: generation, since when

    def lose_patience(self, task: Task, exc: SourceUnreachable) -> NoReturn:
        """Raises SourceUnreachable that says until when it is asked again; Refused if that is over."""
        now_s = self._clock.monotonic()
        generation, since_s = self._since.get(task.id, (-1, now_s))
        if generation != task.generation:
            since_s = now_s
        self._since[task.id] = (task.generation, since_s)
        if now_s - since_s >= self._wait_s:
            del self._since[task.id]
            raise Refused(f"{exc.message}; tried for {self._wait_s:g} s")
        until = rfc3339(self._clock.wall() + since_s + self._wait_s - now_s)[:19]
        then = f"it is asked again until {until}Z, then the job is suspended"
        raise SourceUnreachable(f"{exc.message}; {then}", **exc.fields) from exc

    def settled(self, task: Task) -> None:
        """The task waits no more."""
        self._since.pop(task.id, None)

    async def look(self, files: Sequence[Document], cut: Collection[str], token: str) -> Looked:
        """Look at all files at once; `token` is the job's data token.

        Raises Refused if one is not there; SourceUnreachable if nothing can be found out now about one of
        those that are to be cut. These are asked for first: a host with many files may not come to all.
        """
        looked = Looked(token=token)
        asked = sorted((io for io in files if not io["nofile"]), key=lambda io: io["filename"] not in cut)
        away: list[str] = []

        async def ask(io: Document) -> None:
            name = io["filename"]
            try:
                looked.facts[name] = await self._foreign.look(io, token=token, to_cut=name in cut)
            except SourceMissing as exc:
                refused.append(f"input file {name} not available: {exc.message} ({shown(io['url'])})")
            except Forbidden as exc:
                refused.append(f"input file {name} not available: {exc.message}")
            except Unknown as exc:
                looked.reasons[name] = str(exc)
                if isinstance(exc, Away):
                    away.append(name)

        refused: list[str] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S), asyncio.TaskGroup() as group:
                for io in asked:
                    group.create_task(ask(io))
        if refused:
            raise Refused(min(refused))
        for io in asked:
            name = io["filename"]
            if name not in looked.facts:
                if name not in looked.reasons:
                    looked.reasons[name] = f"not told within {LOOK_S:g} s"
                    away.append(name)
                log.info("input_size_unknown", extra={"file": name, "reason": looked.reasons[name]})
        for name in away:
            if name in cut:
                raise SourceUnreachable(f"input file {name}: {looked.reasons[name]}")
        return looked

    async def index(self, io: Document, kind: str, looked: Looked) -> IndexFact:
        """Where a file that was looked at can be cut: by the index of its Shock, or by one that is made here.

        Raises Uncut; Refused if its content is wrong or it is gone; SourceUnreachable if this may go better a
        little later.
        """
        name = io["filename"]
        fact = looked.facts.get(name)
        if fact is None:
            raise Uncut(f"nothing is known of {name}: {looked.reasons.get(name, 'it is not fetched')}")
        if not fact.ranged:
            raise Uncut(f"the host of {name} sends no pieces of it")
        if kind_of(io) == "shock":
            try:
                return IndexFact(kind, await self._foreign.shock_units(io, kind, looked.token), "")
            except NotBuilt as exc:
                log.info("shock_builds_no_index", extra={"file": name, "index": kind, "reason": str(exc)})
        index = await self._build(name, kind, *self._place(io, fact, looked))
        looked.indexed.add((name, kind))
        return index

    async def indexes_there(self, files: Sequence[Document], looked: Looked) -> list[str]:
        """Have other Shocks build the indexes that a document asks for; notes that say why there is none.

        Source: AWE §6.2 (the server asks before it cuts); differs: what cannot be had at once stops nobody.
        """
        wanted = [io for io in files if io["shockindex"]]
        why_not = {io["filename"]: f"its Shock has not built it within {INDEX_S:g} s" for io in wanted}
        turns = asyncio.Semaphore(MAX_AT_ONCE)

        async def ask(io: Document) -> None:
            async with turns:
                why_not[io["filename"]] = await self._index_there(io, looked)

        with suppress(TimeoutError):
            async with asyncio.timeout(INDEX_S), asyncio.TaskGroup() as group:
                for io in wanted:
                    group.create_task(ask(io))
        names = {io["filename"]: io["shockindex"] for io in wanted}
        return [
            f"no index '{kind}' for {name}: {why_not[name]}" for name, kind in names.items() if why_not[name]
        ]

    async def _index_there(self, io: Document, looked: Looked) -> str:
        """Why there is none; "" if there is."""
        name = io["filename"]
        fact = looked.facts.get(name)
        if kind_of(io) != "shock":
            return "only a Shock's node can have one"
        if name in looked.reasons:
            return looked.reasons[name]
        if fact is not None and fact.size_bytes == 0:
            return ""
        try:
            await self._foreign.shock_units(io, io["shockindex"], looked.token)
        except NotBuilt as exc:
            return str(exc)
        except SourceUnreachable as exc:
            return exc.message
        return ""

    def _place(self, io: Document, fact: Fact, looked: Looked) -> tuple[str, Place]:
        name = io["filename"]
        if name not in looked.places:
            place = self._foreign.place(io, fact, looked.token)
            looked.places[name] = (key_of(place, fact.md5), place)
        return looked.places[name]

    async def _build(self, name: str, kind: str, key: str, place: Place) -> IndexFact:
        try:
            return await self._indexes.build(key, place, kind, name)
        except NotCuttable as exc:
            raise Uncut(exc.message) from exc
        except (NoRanges, SourceRefused) as exc:
            raise Uncut(f"{name}: {exc.message}") from exc
        except (SourceChanged, SourceUnreachable) as exc:
            raise SourceUnreachable(f"input file {name}: {exc.message}") from exc
        except SourceMissing as exc:
            raise Refused(f"input file {name} not available: {exc.message} ({shown(place.url)})") from exc
        except (InvalidData, Unreadable, Forbidden) as exc:
            raise Refused(f"input file {name} not available: {exc.message}") from exc
