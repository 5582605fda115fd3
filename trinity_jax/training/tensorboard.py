"""The numbers of metrics.jsonl once more as TensorBoard event files, where ``training.tensorboard`` asks for them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trinity_jax.errors import UserError


def check() -> None:
    """Before anything is paid for.

    Raises:
        UserError: the package that writes the files is not installed.
    """
    if find_spec("tensorboardX") is None:
        raise UserError(
            "training.tensorboard: expected the package tensorboardX, found none: pip install trinity-jax[tensorboard]"
        )


@contextmanager
def events(folder: Path | None, done: int) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """What takes a generation's line and is read by ``tensorboard --logdir RUN/tensorboard``.

    Args:
        folder: of the event files; None where they are not wanted.
        done: generations that an earlier process has played; TensorBoard forgets what it wrote from there on.
    """
    if folder is None:
        yield lambda line: None
        return
    from tensorboardX import SummaryWriter  # here: it takes a second, which runs without it need not wait

    with SummaryWriter(str(folder), purge_step=done or None) as writer:

        def write(line: Mapping[str, Any]) -> None:
            for name, value in scalars(line):
                writer.add_scalar(name, value, int(line["generation"]))
            writer.flush()

        yield write


def scalars(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a line by its path (``role_share/worker``), ``generation`` apart."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and f"{prefix}{name}" != "generation":
            yield f"{prefix}{name}", float(value)
