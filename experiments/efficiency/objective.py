"""Block-eps-separable quadratic logits of any length, without an n x n matrix."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Objective(NamedTuple):
    r"""Logit of success $l(x) = l_0 + g \cdot x - x'Hx/2$ with $H = S \, ((I + \epsilon C) \otimes B) \, S$.

    B [b, b] is one block, the same K = n/b times, and C the ring of blocks, one half at both neighbours. Within a block
    anything goes; between blocks, $B^{-1/2} H_{off} B^{-1/2}$ has spectral norm $\epsilon$, and row sums of at most
    $\epsilon$ too (relative to the diagonal, where B is diagonal). H is positive definite for $\epsilon < 1$; its trace
    and its diagonal do not depend on $\epsilon$.

    Attributes:
        level: l_0, logit at the origin.
        slope: g [n], gradient at the origin.
        root: R [b, b] with B = R R'.
        eps: strength of the coupling.
        scales: diagonal [n] of S.
    """

    level: Any
    slope: Any
    root: Any
    eps: Any
    scales: Any

    def logit(self, X: Array) -> Array:
        """l [*P] of the rows of X [*P, n]."""
        Y = self._whitened(X)
        curved = jnp.sum(Y * Y, axis=(-2, -1)) + self.eps * jnp.sum(Y * jnp.roll(Y, 1, axis=-2), axis=(-2, -1))
        return self.level + X @ self.slope - curved / 2

    def gradient(self, x: Array) -> Array:
        """g - Hx [n]."""
        Y = self._whitened(x)
        Y = Y + self.eps / 2 * (jnp.roll(Y, 1, axis=-2) + jnp.roll(Y, -1, axis=-2))
        return self.slope - self.scales * (Y @ self.root.T).reshape(x.shape)

    def _whitened(self, X: Array) -> Array:
        return (self.scales * X).reshape(*X.shape[:-1], -1, len(self.root)) @ self.root


def block(size: int, condition: float, rng: np.random.Generator | None = None) -> Float[np.ndarray, "b b"]:
    """R of a block B = R R' of trace ``size`` with log-spaced eigenvalues, along the axes or in a random basis."""
    eigenvalues = np.geomspace(1.0, condition, size)
    root = np.diag(np.sqrt(eigenvalues / eigenvalues.mean()))
    if rng is None:
        return root
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    # The signs make the basis uniformly distributed.
    return (q * np.sign(np.diag(r))) @ root


def eigenvalues(root: Float[np.ndarray, "b b"], eps: float, n: int) -> Float[np.ndarray, " n"]:
    """Spectrum of H for S = I, in closed form: (1 + eps cos(2 pi j / K)) times that of B."""
    inner = np.linalg.eigvalsh(root @ root.T)
    blocks = n // len(root)
    return np.outer(1 + eps * np.cos(2 * np.pi * np.arange(blocks) / blocks), inner).ravel()


def hessian(objective: Objective) -> Float[np.ndarray, "n n"]:
    """H written out, in numpy; for small n."""
    root = np.asarray(objective.root)
    blocks = len(objective.slope) // len(root)
    ring = (np.roll(np.eye(blocks), 1, axis=0) + np.roll(np.eye(blocks), -1, axis=0)) / 2
    coupled = np.kron(np.eye(blocks) + objective.eps * ring, root @ root.T)
    return np.outer(objective.scales, objective.scales) * coupled


def sloped(
    root: Float[np.ndarray, "b b"], eps: float, G: float, level: float, slope: Float[np.ndarray, " n"]
) -> Objective:
    """A start on a slope: |g| = 1 in the direction of ``slope``, tr H = 1/G."""
    n = len(slope)
    return Objective(level, slope / np.linalg.norm(slope), root / np.sqrt(n * G), eps, np.ones(n))


def centred(root: Float[np.ndarray, "b b"], eps: float, scales: Float[np.ndarray, " n"], level: float) -> Objective:
    """The optimum at the origin, with success logit ``level`` there; tr H = n for scales of mean square 1."""
    return Objective(level, np.zeros(len(scales)), root, eps, scales)


def dense(objective: Objective) -> Objective:
    """The same as a single block [n, n]; for small n."""
    n = len(objective.slope)
    curvatures, basis = np.linalg.eigh(hessian(objective))
    return objective._replace(root=basis * np.sqrt(np.maximum(curvatures, 0)), eps=0.0, scales=np.ones(n))
