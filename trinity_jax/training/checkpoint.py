"""The strategy's state after every generation, by orbax; the state and the generation are the whole checkpoint."""

import logging
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from trinity_jax.errors import UserError


class Checkpoints:
    """Checkpoints of one run; the two newest are kept. Step g is the state after g generations."""

    def __init__(self, path: Path):
        logging.getLogger("absl").setLevel(logging.WARNING)
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
        self._path = path
        self._manager = ocp.CheckpointManager(path.resolve(), options=options)

    def save(self, generations: int, state: Any) -> None:
        """Complete on disk when this returns; a process killed before that leaves the previous one."""
        self._manager.save(generations, args=ocp.args.StandardSave(state))

    def latest(self, like: Any) -> tuple[int, Any]:
        """Number of generations done and the state; 0 and ``like`` where nothing was saved yet.

        Raises:
            UserError: a checkpoint that cannot be read, or one of another shape.
        """
        step = self._manager.latest_step()
        if step is None:
            return 0, like
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        try:
            return step, self._manager.restore(step, args=ocp.args.StandardRestore(abstract))
        except Exception as error:  # orbax raises many kinds for a damaged folder
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"{self._path}: checkpoint {step} cannot be read: {reason}") from error

    def close(self) -> None:
        """Let go of the folder."""
        self._manager.close()
