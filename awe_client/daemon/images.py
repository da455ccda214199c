"""Images of containers: here before a command starts, so that fetching one counts against no time limit.

One that the engine has is taken as it is. Otherwise `Dockerimage` is looked for in the server's own node
store (`type=dockerimage`, `name=<image>`, what `docker save` wrote), and if that has none, or the task says
`dockerPull`, the engine fetches it from its registry.
Source: AWE lib/worker/processor.go and lib/shock docker images; differs: no version is guessed for `:latest`,
and what is not in the store is fetched.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from awe_client.daemon.attempt import TaskSpec
from awe_client.daemon.container import Engine, check_image
from awe_client.daemon.copies import remove_file
from awe_client.daemon.disk import BeforeRemoval
from awe_client.daemon.engine import Called, Containers
from awe_client.daemon.servers import Servers
from awe_client.daemon.transfer import Sources, StepError
from awe_client.sdk.download import known_of
from awe_client.sdk.threads import file_work, to_its_end
from shared_models.errors import AweError, InvalidDocument, ServerUnreachable
from shared_models.states import FailureKind
from shared_models.views import NodeView

log = logging.getLogger(__name__)

#: An image that takes longer to arrive has failed.
FETCH_S = 3600.0
_LOADED = "Loaded image"


class Images:
    """Brings images, each once however many attempts want it. `folder` keeps those of apptainer."""

    def __init__(
        self,
        containers: Containers,
        servers: Servers,
        sources: Sources,
        folder: Path,
        before_removal: BeforeRemoval = lambda: None,
    ) -> None:
        """`before_removal` is called before an archive or what is left of a try is removed."""
        self._before_removal = before_removal
        self._containers = containers
        self._servers = servers
        self._sources = sources
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}

    def open(self) -> None:
        """Remove what was only half fetched."""
        for leftover in (*self._folder.glob("*.part"), *self._folder.glob("*.tar")):
            leftover.unlink(missing_ok=True)

    @property
    def can_bring(self) -> bool:
        """Whether there is an engine at all."""
        return self._containers.engine is not None

    async def bring(self, task: TaskSpec) -> str:
        """Have the task's image here; what the engine knows it by. Raises StepError."""
        image, engine = task.image, self._containers.engine
        assert engine is not None
        try:
            check_image(image)
        except InvalidDocument as exc:
            raise StepError(FailureKind.COMMAND, str(exc)) from exc
        async with self._alone_with(image):
            if engine.keeps_containers:
                await self._into_store(engine, task)
                return image
            return await self._into_file(engine, task)

    @asynccontextmanager
    async def _alone_with(self, image: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault(image, asyncio.Lock())
        self._waiting[image] = self._waiting.get(image, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._waiting[image] -= 1
            if not self._waiting[image]:
                del self._waiting[image], self._locks[image]

    async def _into_store(self, engine: Engine, task: TaskSpec) -> None:
        """docker and podman keep images themselves."""
        image = task.image
        if await self._has(engine, image):
            return
        if node := await self._node_with(task):
            archive = await self._download(node)
            try:
                loaded = await self._call(engine, image, "load", "--input", str(archive))
            finally:
                await to_its_end(remove_file, archive, self._before_removal)
            if not await self._has(engine, image):
                await self._call(engine, image, "tag", _loaded_name(loaded.output), image)
            return
        await self._call(engine, image, "pull", image)

    async def _has(self, engine: Engine, image: str) -> bool:
        looked = await self._containers.call(
            [engine.program, "image", "inspect", "--format", "{{.Id}}", image]
        )
        return looked.exit_code == 0

    async def _into_file(self, engine: Engine, task: TaskSpec) -> str:
        """apptainer runs files, made from images once."""
        image = task.image
        source = image if "://" in image else f"docker://{image}"
        file = self._folder / f"{hashlib.sha256(source.encode()).hexdigest()}.sif"
        if await file_work(file.exists):
            return str(file)
        part = file.with_suffix(".part")
        node = await self._node_with(task)
        archive = await self._download(node) if node else None
        try:
            source = f"docker-archive:{archive}" if archive else source
            await self._call(engine, image, "build", "--force", str(part), source)
            await to_its_end(part.rename, file)
        finally:
            for leftover in (part, archive):
                if leftover is not None:
                    await to_its_end(remove_file, leftover, self._before_removal)
        return str(file)

    async def _call(self, engine: Engine, image: str, *words: str) -> Called:
        log.info("image_wanted", extra={"image": image, "how": words[0]})
        called = await self._containers.call([engine.program, *words], timeout_s=FETCH_S, fetches=True)
        if called.exit_code != 0:
            message = f"{engine.name} cannot {words[0]} the image {image}: {called.last_words}"
            raise StepError(FailureKind.NODE, message)
        return called

    async def _node_with(self, task: TaskSpec) -> NodeView | None:
        """The newest node of the server that holds the image, if the task asks for one of these."""
        image = task.message["cmd"].get("Dockerimage")
        if not image:
            return None
        wanted = {"attributes.type": "dockerimage", "attributes.name": image}
        patience = self._servers.patience()
        while True:
            server = self._servers.current
            try:
                page = await server.list_nodes(where=wanted, limit=1)
            except AweError as exc:
                if not (exc.retryable or isinstance(exc, ServerUnreachable)):
                    log.warning("images_not_listed", extra={"reason": str(exc)})
                    return None
                self._servers.failed(server, exc)
                await patience.wait(exc)
            else:
                return page.items[0] if page.items and page.items[0].file else None

    async def _download(self, node: NodeView) -> Path:
        archive = self._folder / f"{node.id}.tar"
        await self._sources.get(f"/node/{node.id}?download", archive, known_of(node.file))
        return archive


def _loaded_name(output: str) -> str:
    """What an archive's image is called: `Loaded image: NAME`, `Loaded image ID: sha256:…`."""
    found = [line.rpartition(": ")[2].strip() for line in output.splitlines() if line.startswith(_LOADED)]
    return found[-1] if found else ""
