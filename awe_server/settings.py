"""Settings, once and frozen: flags > environment AWE_* > config file > defaults. Units are in the names."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from shared_models.limits import MAX_FILE_ROOTS
from shared_models.roots import normal_root, root_problem

GIB = 1024**3


def read_roots(given: object) -> tuple[str, ...]:
    """Read directories: a list, or text with `:` between them. Raises ValueError."""
    texts = [text for text in given.split(":") if text] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple):
        raise ValueError("must be a list of directories")
    if len(texts) > MAX_FILE_ROOTS:
        raise ValueError(f"has more than {MAX_FILE_ROOTS} directories")
    for text in texts:
        problem = root_problem(text) if isinstance(text, str) else "must be text"
        if problem:
            raise ValueError(problem)
    return tuple(dict.fromkeys(normal_root(text) for text in texts))


_SIZE_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": GIB, "T": 1024 * GIB}


def read_size(given: object) -> object:
    """Read a size such as `500G` (powers of 1024); what is no text is left for the next check.

    Raises PydanticCustomError.
    """
    if not isinstance(given, str):
        return given
    match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)", given)
    if match is None:
        raise PydanticCustomError("size", "expected bytes, or a size such as 500G (K, M, G or T)")
    return int(match[1]) * _SIZE_UNITS[match[2]]


class Settings(BaseSettings):
    """How this server runs."""

    model_config = SettingsConfigDict(env_prefix="AWE_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    port: int = Field(default=8001, ge=0, le=65535)  #: 0 = any free port; the chosen one is printed
    data_dir: Path = Path("awe-data")
    store_url: str = ""  #: "" = SQLite in data_dir; mongodb://… = MongoDB; memory: = nothing is kept
    public_url: str = ""  #: how clients reach the server; "" = as they asked
    standby: bool = False  #: wait while another server owns the store, then take over
    policy: Literal["fcfs", "fair"] = "fcfs"
    lease_s: float = Field(default=60.0, gt=0)
    max_work_failure: int = Field(default=3, ge=1)
    max_client_failure: int = Field(default=5, ge=1)
    max_lost: int = Field(default=5, ge=1)
    retry_base_s: float = Field(default=1.0, ge=0)
    retry_cap_s: float = Field(default=300.0, ge=0)
    tick_s: float = Field(default=0.5, gt=0)
    commit_wait_s: float = Field(
        default=10.0, gt=0
    )  #: how long a request waits for a store that does not answer
    expire_wait_s: float = Field(default=60.0, gt=0)  #: pause between two sweeps for expired jobs
    source_wait_s: float = Field(
        default=120.0, ge=0
    )  #: how long a file elsewhere is asked for that is to be cut and whose host is away
    file_roots: Annotated[tuple[str, ...], NoDecode, BeforeValidator(read_roots)] = ()  #: open to jobs
    free_floor_bytes: int = Field(default=GIB // 4, ge=0)  #: below this much free disk uploads are refused
    quota_bytes: Annotated[int, BeforeValidator(read_size)] = Field(default=0, ge=0)  #: 0 = none
    dedup_nodes: bool = False  #: nodes of equal content share its bytes, also when nobody asks for it
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["human", "json"] = "human"

    @classmethod
    def load(cls, config: Path | None, flags: Mapping[str, Any]) -> Self:
        """Join the sources.

        Raises ValidationError for a bad value, OSError or ValueError for a file that is missing or no
        settings.
        """
        stored = {} if config is None else tomllib.loads(config.read_text(encoding="utf-8"))
        unknown = sorted(stored.keys() - cls.model_fields.keys())
        if unknown:
            raise ValueError(f"unknown setting '{unknown[0]}'")
        return cls(**{**stored, **EnvSettingsSource(cls)(), **flags})
