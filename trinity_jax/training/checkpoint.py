"""The learner's state after every generation, by orbax; the state and the generation are the whole checkpoint."""

import logging
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from trinity_jax.errors import UserError


class Checkpoints:
    """Checkpoints of one run; the two newest are kept. Step g is the state after g generations.

    Raises:
        UserError: something else stands at ``path``.
    """

    def __init__(self, path: Path):
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: expected a folder of checkpoints, found a file")
        logging.getLogger("absl").setLevel(logging.WARNING)
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
        self._path = path
        self._manager = ocp.CheckpointManager(path.resolve(), options=options)

    @property
    def empty(self) -> bool:
        """Whether nothing was saved yet, not even the start."""
        return self._manager.latest_step() is None

    def save(self, generations: int, state: Any) -> None:
        """Complete on disk when this returns; a process killed before that leaves the previous one.

        Raises:
            UserError: it cannot be written.
        """
        try:
            self._manager.save(generations, args=ocp.args.StandardSave(state))
        except Exception as error:  # a full disk comes out of orbax as many kinds
            raise UserError(
                f"{self._path}: checkpoint {generations} cannot be written: {_reason(error)}; what was paid for is "
                "kept: mend it and add --resume"
            ) from error

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
            raise UserError(
                f"{self._path}: checkpoint {step} cannot be read: {_reason(error)}; delete the folder and add "
                "--resume: the generations are played again from the journal, without calls"
            ) from error

    def close(self) -> None:
        """Let go of the folder."""
        self._manager.close()


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
