"""The learner's state after every generation, by orbax; the state and the generation are the whole checkpoint."""

import logging
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
        self._path = path

    @cached_property
    def _manager(self) -> ocp.CheckpointManager:
        # Of several processes, process 0 alone uses checkpoints: orbax must not wait for the others.
        logging.getLogger("absl").setLevel(logging.WARNING)
        alone = ocp.options.MultiprocessingOptions(active_processes={0}, barrier_sync_key_prefix="trinity")
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2, enable_async_checkpointing=False, multiprocessing_options=alone, create=False
        )
        self._path.mkdir(exist_ok=True)
        return ocp.CheckpointManager(self._path.resolve(), options=options)

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
            self._manager.save(generations, args=ocp.args.StandardSave(jax.tree.map(np.asarray, state)))
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
        abstract = jax.tree.map(np.asarray, like)
        try:
            found = self._manager.restore(step, args=ocp.args.StandardRestore(abstract))
            return step, jax.tree.map(jnp.asarray, found)
        except Exception as error:  # orbax raises many kinds for a damaged folder
            raise UserError(
                f"{self._path}: checkpoint {step} cannot be read: {_reason(error)}; delete the folder and add "
                "--resume: the generations are played again from the journal, without calls"
            ) from error

    def close(self) -> None:
        """Let go of the folder."""
        if "_manager" in self.__dict__:
            self._manager.close()


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
