"""Settings, once and frozen: flags > environment AWE_* > config file > defaults. Units are in the names."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

GIB = 1024**3


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
    free_floor_bytes: int = Field(default=GIB // 4, ge=0)  #: below this much free disk uploads are refused
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
