"""The devices of this process as one mesh axis, "pop": weights on each, rows of a call shared out between them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trinity_jax.errors import UserError

AXIS = "pop"
SPREAD, SAME = PartitionSpec(AXIS), PartitionSpec()
"""An argument whose leading axis is shared out between devices, or that is the same on all."""


class Devices:
    """Local devices that share the rows of a call.

    A row is a (candidate, transcript) pair or a transcript, so any population fits on any number of devices: shares
    differ by one row at most. Rows are computed by one program of a fixed shape on each device, so a result depends
    neither on its device nor on its company.

    Args:
        count: how many; None for all.

    Attributes:
        shares: how many.

    Raises:
        UserError: more than there are.
    """

    def __init__(self, count: int | None = None):
        local = jax.local_devices()
        if count is not None and count > len(local):
            kinds = ", ".join(sorted({device.device_kind for device in local}))
            raise UserError(f"encoder.devices: expected at most {len(local)} (here: {kinds}), got {count}")
        self._mesh = Mesh(local[:count], (AXIS,))
        self.shares = self._mesh.size

    def put(self, tree: Any) -> Any:
        """The same arrays on every device."""
        return tree if self.shares == 1 else jax.device_put(tree, NamedSharding(self._mesh, SAME))

    def jit(
        self, program: Callable[..., Any], takes: Sequence[PartitionSpec], gives: PartitionSpec, **options: Any
    ) -> Callable[..., Any]:
        """`jax.jit` of a program that each device runs on its share of the rows.

        Args:
            program: of positional arguments.
            takes: `SPREAD` or `SAME` for each of them.
            gives: the same for the result.
            options: of `jax.jit`.
        """
        if self.shares > 1:
            # The check cannot follow loops with a device's own trip count.
            program = jax.shard_map(program, mesh=self._mesh, in_specs=tuple(takes), out_specs=gives, check_vma=False)
        return jax.jit(program, **options)
