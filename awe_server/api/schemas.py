"""What replies look like, for the OpenAPI document. Replies do not go through these models."""

from typing import Generic, TypeVar

from pydantic import BaseModel, Field

from shared_models.views import ClientView, Shown

T = TypeVar("T")


class Envelope(BaseModel, Generic[T]):
    """Every reply."""

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


class Registered(ClientView):
    """A client that has just registered."""

    server_uuid: str
    lease_s: float = Field(description="how long the server waits for a sign of life")


class QueueCounts(BaseModel):
    """How much there is of everything, by state."""

    jobs: dict[str, int]
    tasks: dict[str, int]
    workunits: dict[str, int]
    clients: dict[str, int]


class Stored(BaseModel):
    """What the server counted of an upload."""

    size: int
    md5: str
    sha256: str


class EventView(Shown):
    """Something that happened."""

    seq: int
    time: str
    code: str = Field(examples=["WD"])


class Health(BaseModel):
    """Whether this server works."""

    live: bool
    ready: bool
    store: str = Field(examples=["sqlite:/var/lib/awe/awe.db"])
    store_trouble: str = Field("", description="what the store answered last; empty when it works")
    lease: bool = Field(description="this server is the one that writes")
    version: str
    server_uuid: str
