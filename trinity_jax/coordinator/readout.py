"""Read-out coordinates: where the head is evolved, and how it folds back into a plain matrix on h."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from trinity_jax.errors import UserError


class Readout(NamedTuple):
    r"""Coordinates $z = (h - \mu) B$ of the hidden vector h.

    ``mean`` is None for raw coordinates, ``basis`` None where the D axes are kept (raw, centred). A mean shared by all
    texts dominates raw states, so early selection acts on constant preferences; centring and whitening remove it.
    """

    mean: Float[Array, " D"] | None = None
    basis: Float[Array, "D K"] | None = None

    def width(self, d: int) -> int:
        """Number of coordinates K for states of width ``d``."""
        return d if self.basis is None else self.basis.shape[1]


def shapes(kind: Literal["raw", "centred", "whitened"], k: int, d: int) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor that a read-out of states of width ``d`` has."""
    return {"raw": {}, "centred": {"mean": (d,)}, "whitened": {"mean": (d,), "basis": (d, k)}}[kind]


def fit(kind: Literal["raw", "centred", "whitened"], k: int, states: Float[np.ndarray, "B D"]) -> Readout:
    """Fit coordinates to unlabelled states; ``whitened`` has mean 0 and variance 1 along the k principal directions.

    Computed in float64, stored in float32; each direction's largest component is positive.

    Raises:
        UserError: states that are not finite, or fewer than k directions in which they differ.
    """
    if kind == "raw":
        return Readout()
    h = np.asarray(states, np.float64)
    if not np.isfinite(h).all():
        raise UserError("read-out: the encoder's states are not finite; its weights or its config are damaged")
    mean = h.mean(axis=0)
    if kind == "centred":
        return Readout(jnp.asarray(mean, jnp.float32))
    _, s, directions = np.linalg.svd(h - mean, full_matrices=False)
    varied = int((s > 1e-6 * max(np.linalg.norm(h), 1e-30)).sum())
    if k > varied:
        raise UserError(
            f"readout.k: expected at most {varied}, the directions in which the {len(h)} fitted states differ, "
            f"got {k}; fit on more texts or lower readout.k"
        )
    basis = directions[:k].T
    basis = basis * np.sign(basis[np.abs(basis).argmax(axis=0), np.arange(k)])
    return Readout(jnp.asarray(mean, jnp.float32), jnp.asarray(basis * (np.sqrt(len(h)) / s[:k]), jnp.float32))


def coordinates(readout: Readout, h: Float[Array, "*B D"]) -> Float[Array, "*B K"]:
    """Map hidden vectors to the coordinates the head reads."""
    z = h.astype(jnp.float32)
    z = z if readout.mean is None else z - readout.mean
    return z if readout.basis is None else z @ readout.basis


def fold(
    readout: Readout, weights: ArrayLike, bias: ArrayLike | None
) -> tuple[Float[np.ndarray, "O D"], Float[np.ndarray, " O"] | None]:
    r"""Write $A z + b$ as $W h + b'$ with $W = A B^\top$ and $b' = b - W \mu$; b' is None where it would be zero.

    Args:
        readout: the coordinates.
        weights: A, [O, K].
        bias: b, [O].
    """
    w = np.asarray(weights, np.float64)
    w = w if readout.basis is None else w @ np.asarray(readout.basis, np.float64).T
    b = None if bias is None else np.asarray(bias, np.float64)
    if readout.mean is not None:
        b = (0.0 if b is None else b) - w @ np.asarray(readout.mean, np.float64)
    return w.astype(np.float32), None if b is None else b.astype(np.float32)
