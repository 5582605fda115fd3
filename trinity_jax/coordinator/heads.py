r"""Heads: from read-out coordinates z to L model logits and 3 role logits (paper section 3.2 and its table of heads).

A candidate's parameters are made into `Weights` once; `respond` then gives logits for as many z as there are. The
weights are a plain matrix where the head is linear in z and `Factors` where it is not.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from trinity_jax.config import HeadSettings
from trinity_jax.errors import UserError

ROLE_ROWS = ("Worker", "Thinker", "Verifier")

ELU_ALPHA, LOW_RANK_SCALE = 0.1, 3.0
"""Constants of the low-rank head: ELU(x) = x above zero and alpha (e^x - 1) below; s = 3."""


class Factors(NamedTuple):
    r"""Weights of $s V \mathrm{ELU}_{0.1}(U z + c)$; c is None until a read-out's mean is folded in."""

    u: Float[Array, "rank inputs"]
    v: Float[Array, "outputs rank"]
    c: Float[Array, " rank"] | None = None


Weights = Float[Array, "outputs inputs"] | Factors


def respond(weights: Weights, z: Float[Array, "*B inputs"]) -> Float[Array, "*B outputs"]:
    """Logits of one candidate for any number of z, without a bias."""
    if not isinstance(weights, Factors):
        return _product(weights, z)
    reduced = _product(weights.u, z)
    reduced = reduced if weights.c is None else reduced + weights.c
    return LOW_RANK_SCALE * _product(weights.v, jax.nn.elu(reduced, ELU_ALPHA))


@dataclass(frozen=True)
class Head(ABC):
    """A family of maps from ``inputs`` coordinates to ``outputs`` logits, bias apart; a subclass says which.

    Attributes:
        outputs: L + 3.
        inputs: D, or k of a whitened read-out.
        noisy: whether training draws noise; the others ignore a key.
    """

    outputs: int
    inputs: int
    noisy: ClassVar[bool] = False

    @property
    @abstractmethod
    def size(self) -> int:
        """How many parameters are evolved."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the parameters, where they have more of it than their number."""
        return (self.size,)

    @property
    def biases(self) -> int:
        """How many numbers make the bias, where there is one."""
        return self.outputs

    def bias(self, numbers: Float[Array, " biases"]) -> Float[Array, " outputs"]:
        """What is added to the logits."""
        return numbers

    @abstractmethod
    def weights(self, parameters: Float[Array, " size"], key: PRNGKeyArray | None = None) -> Weights:
        """What decides; zeros give finite weights.

        Args:
            parameters: of one candidate.
            key: of the noise in training, one per candidate and generation (one for all candidates under common
                random numbers); None in evaluation: no noise.
        """

    def logits(
        self, parameters: Float[Array, " size"], z: Float[Array, "*B inputs"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "*B outputs"]:
        """`weights` and `respond` in one."""
        return respond(self.weights(parameters, key), z)

    @abstractmethod
    def title(self, parameters: Float[Array, " size"]) -> str:
        """A few words for people."""


class Linear(Head):
    """W z with a full matrix W; parameters are its entries row by row."""

    @property
    def size(self) -> int:
        """Outputs x inputs."""
        return self.outputs * self.inputs

    @property
    def shape(self) -> tuple[int, int]:
        """Of W."""
        return self.outputs, self.inputs

    def weights(self, parameters: Float[Array, " size"], key: PRNGKeyArray | None = None) -> Weights:
        """W."""
        return parameters.reshape(self.shape)

    def title(self, parameters: Float[Array, " size"]) -> str:
        """A few words for people."""
        return "linear"


@dataclass(frozen=True)
class BlockDiagonal(Head):
    """W z with W zero outside ``blocks`` blocks on the diagonal.

    Block sizes differ by at most one, larger ones first, so all inputs and outputs are covered (1,024 inputs in
    10 blocks: four of 103, six of 102). Parameters are the blocks' entries in row-major order.

    Raises:
        UserError: more blocks than inputs or outputs.
    """

    blocks: int = 2

    def __post_init__(self) -> None:
        _check("blocks", self, self.blocks, min(self.outputs, self.inputs))

    @property
    def block_shapes(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of each block."""
        return tuple(zip(_shares(self.outputs, self.blocks), _shares(self.inputs, self.blocks), strict=True))

    @property
    def size(self) -> int:
        """Entries of all blocks."""
        return sum(rows * columns for rows, columns in self.block_shapes)

    def weights(self, parameters: Float[Array, " size"], key: PRNGKeyArray | None = None) -> Weights:
        """The whole matrix, zero outside the blocks."""
        ends = list(accumulate(rows * columns for rows, columns in self.block_shapes))
        parts = jnp.split(parameters, ends[:-1])
        return jax.scipy.linalg.block_diag(*(p.reshape(s) for p, s in zip(parts, self.block_shapes, strict=True)))

    def title(self, parameters: Float[Array, " size"]) -> str:
        """A few words for people."""
        return f"block-diagonal, {self.blocks} blocks"


@dataclass(frozen=True)
class LowRank(Head):
    r"""$s V \mathrm{ELU}_{0.1}(U z)$, s = 3; parameters are U [rank, inputs], then V [outputs, rank], row by row.

    At zero parameters neither a gradient nor a change of one coordinate moves any logit, since U and V are multiplied.
    Evolution can start there all the same: a mutation moves both at once, and its effect grows with sigma squared. A
    gradient learner must start elsewhere.

    Raises:
        UserError: a rank above the number of inputs.
    """

    rank: int = 20

    def __post_init__(self) -> None:
        _check("rank", self, self.rank, self.inputs)

    @property
    def size(self) -> int:
        """Entries of U and V."""
        return self.rank * (self.inputs + self.outputs)

    def weights(self, parameters: Float[Array, " size"], key: PRNGKeyArray | None = None) -> Weights:
        """U and V."""
        u, v = jnp.split(parameters, [self.rank * self.inputs])
        return Factors(u.reshape(self.rank, self.inputs), v.reshape(self.outputs, self.rank))

    def title(self, parameters: Float[Array, " size"]) -> str:
        """A few words for people."""
        return f"low-rank, rank {self.rank}"


@dataclass(frozen=True)
class Sparse(Head):
    r"""$W (z \odot a)$ with a mask a over the inputs that does not depend on them.

    Parameters are W row by row, a score per input, the log of a temperature and a sparsity logit l. The paper leaves
    the mask open; here

    - $k = \mathrm{round}(\mathrm{sigmoid}(l) \cdot \text{inputs})$, at least 1 and at most inputs - 1; half of them at
      l = 0. Rounding has no gradient, which evolution does not miss;
    - evaluation: a is 1 on the k largest scores and 0 elsewhere; of equal scores the first count;
    - training: Gumbel noise g is added to the scores, $t$ is the middle between the k-th and the next largest
      $s + g$, and $a = \mathrm{sigmoid}((s + g - t) / \tau)$ with $\tau = \max(e^\theta, 10^{-6})$: 1 at zero
      parameters, and the k largest noisy scores as $\tau$ goes to zero.

    The noise has a standard deviation of 1.28. Until the scores differ by about as much, chance picks the inputs that
    training uses, while evaluation goes by the scores.

    Raises:
        UserError: fewer than two inputs.
    """

    noisy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.inputs < 2:
            raise UserError(f"head.kind: sparse needs at least 2 inputs to choose from, got {self.inputs}")

    @property
    def size(self) -> int:
        """Entries of W, scores, temperature, sparsity."""
        return (self.outputs + 1) * self.inputs + 2

    def weights(self, parameters: Float[Array, " size"], key: PRNGKeyArray | None = None) -> Weights:
        """W with its columns scaled by the mask."""
        w = parameters[: self.outputs * self.inputs].reshape(self.outputs, self.inputs)
        return w * self.mask(parameters, key)

    def mask(self, parameters: Float[Array, " size"], key: PRNGKeyArray | None = None) -> Float[Array, " inputs"]:
        """The mask a: hard without a key, soft and noisy with one."""
        start = self.outputs * self.inputs
        scores, log_temperature = parameters[start : start + self.inputs], parameters[-2]
        kept = self.kept(parameters)
        if key is None:
            largest_first = jnp.argsort(-scores)  # stable
            chosen = (jnp.arange(self.inputs) < kept).astype(scores.dtype)
            return jnp.zeros_like(scores).at[largest_first].set(chosen)
        noisy = scores + jax.random.gumbel(key, scores.shape, scores.dtype)
        ascending = jnp.sort(noisy)
        threshold = (ascending[self.inputs - kept] + ascending[self.inputs - kept - 1]) / 2
        return jax.nn.sigmoid((noisy - threshold) / jnp.maximum(jnp.exp(log_temperature), 1e-6))

    def kept(self, parameters: Float[Array, " size"]) -> Int[Array, ""]:
        """How many inputs the mask keeps, k."""
        share = jax.nn.sigmoid(parameters[-1])
        return jnp.clip(jnp.round(share * self.inputs).astype(jnp.int32), 1, self.inputs - 1)

    def title(self, parameters: Float[Array, " size"]) -> str:
        """A few words for people."""
        return f"sparse, {int(self.kept(parameters))} of {self.inputs} inputs kept"


@dataclass(frozen=True)
class Profile(Head):
    r"""A model is known by its profile p, f numbers: $\mathrm{score}(m) = z^\top A\, p(m)$, roles as in a linear head.

    Parameters are A's columns (one row of ``inputs`` numbers a feature), then the role rows. A bias is spread in the
    same way. With one-hot profiles it is the linear head; with any others, a model that was never seen has a row too.

    Raises:
        UserError: not one profile a model, or profiles of different lengths.
    """

    profiles: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(profile) for profile in self.profiles}
        if len(self.profiles) != self.outputs - 3 or len(lengths) != 1 or 0 in lengths:
            raise UserError(
                f"head.profiles: expected {self.outputs - 3} of one length, a row for each model, got "
                f"{len(self.profiles)} of lengths {sorted(lengths)}"
            )

    @property
    def biases(self) -> int:
        """One a feature and role."""
        return len(self.profiles[0]) + 3

    @property
    def size(self) -> int:
        """(Features + 3) x inputs."""
        return self.biases * self.inputs

    @property
    def shape(self) -> tuple[int, int]:
        """Of A's columns with the role rows under them."""
        return self.biases, self.inputs

    def weights(self, parameters: Float[Array, " size"], key: PRNGKeyArray | None = None) -> Weights:
        """The plain matrix of this pool."""
        return spread(jnp.asarray(self.profiles), parameters.reshape(self.shape))

    def bias(self, numbers: Float[Array, " biases"]) -> Float[Array, " outputs"]:
        """One number a model and role."""
        return spread(jnp.asarray(self.profiles), numbers)

    def title(self, parameters: Float[Array, " size"]) -> str:
        """A few words for people."""
        return f"profile, {len(self.profiles[0])} features a model"


def spread(profiles: Float[Array, "L f"], numbers: Float[Array, "f+3 ..."]) -> Float[Array, "L+3 ..."]:
    """Numbers of features to numbers of models; the last three, of the roles, stay as they are."""
    models = jnp.einsum("lf,f...->l...", profiles, numbers[:-3], precision=jax.lax.Precision.HIGHEST)
    return jnp.concatenate([models, numbers[-3:]])


def make(settings: HeadSettings, outputs: int, inputs: int) -> Head:
    """The head that the settings ask for.

    Raises:
        UserError: a head that does not fit its inputs or outputs.
    """
    match settings.kind:
        case "linear":
            return Linear(outputs, inputs)
        case "block_diagonal":
            return BlockDiagonal(outputs, inputs, settings.blocks)
        case "low_rank":
            return LowRank(outputs, inputs, settings.rank)
        case "sparse":
            return Sparse(outputs, inputs)
        case "profile":
            return Profile(outputs, inputs, settings.profiles)


def _product(matrix: Float[Array, "O I"], z: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
    return jnp.einsum("oi,...i->...o", matrix, z, precision=jax.lax.Precision.HIGHEST)


def _check(name: str, head: Head, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UserError(
            f"head.{name}: expected 1 to {most} ({head.outputs} outputs, {head.inputs} inputs), got {value}"
        )


def _shares(total: int, parts: int) -> tuple[int, ...]:
    small, larger = divmod(total, parts)
    return (small + 1,) * larger + (small,) * (parts - larger)
