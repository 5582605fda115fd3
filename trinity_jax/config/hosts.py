"""Where a run's processes meet when there are several."""

from pydantic import Field, model_validator

from trinity_jax.config.base import Count, Group


class HostsSettings(Group):
    """One process a host, all with the same command but for ``process``; one process alone needs none of it."""

    coordinator: str | None = Field(
        default=None, description="host:port of process 0, as the others reach it; the next port is used too"
    )
    processes: Count = 1
    process: int = Field(default=0, ge=0, description="which of them this is")
    timeout_seconds: float = Field(
        default=60.0, gt=0, description="one that does not join, or is not heard of, for so long ends the run"
    )

    @model_validator(mode="after")
    def _can_meet(self) -> "HostsSettings":
        if self.process >= self.processes:
            raise ValueError(f"hosts.process: expected a number below hosts.processes {self.processes}")
        host, _, port = (self.coordinator or "").rpartition(":")
        usable = host and port.isdecimal() and 0 < int(port) < 65_535
        if self.coordinator is not None and not usable:
            raise ValueError("hosts.coordinator: expected host:port, such as 10.0.0.1:7000 (a port below 65535)")
        if self.processes > 1 and self.coordinator is None:
            raise ValueError("hosts.coordinator: several processes need the host:port of process 0")
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of process 0."""
        host, _, port = (self.coordinator or "").rpartition(":")
        return host.strip("[]"), int(port)
