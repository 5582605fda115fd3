"""A trained coordinator on disk: ``coordinator.json`` says what it is, ``coordinator.safetensors`` has the numbers."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from trinity_jax.config import (
    EncoderSettings,
    EpisodeSettings,
    Group,
    HeadSettings,
    PolicySettings,
    ReadoutSettings,
    Settings,
    SvfSettings,
)
from trinity_jax.coordinator import familiar as familiars
from trinity_jax.coordinator import layout as layouts
from trinity_jax.coordinator.familiar import Familiar
from trinity_jax.coordinator.heads import Factors, Head, Weights
from trinity_jax.coordinator.layout import Layout
from trinity_jax.coordinator.lineage import Step
from trinity_jax.coordinator.profile import Profile
from trinity_jax.coordinator.readout import Readout, fold, shapes
from trinity_jax.errors import UserError

_JSON, _TENSORS = "coordinator.json", "coordinator.safetensors"
UNKNOWN = "unknown"
"""Stands for the hash of weights that are not at hand."""


class Description(BaseModel):
    """What ``coordinator.json`` says.

    Attributes:
        pool: model names in head order.
        targets: scaled matrices in vector order.
        evolved_n: length of the evolved vector.
        folded_n: numbers that decide once the head is folded: scales, plain head or factors, bias.
        checkpoint: hash of the encoder weights it was trained on, or `UNKNOWN`.
        sha256: of the tensor file.
        fallback: the model that was best alone; None where that was not found out.
        router_pool: how many models the router's instruction names, if not as many as the pool has: what it was
            trained with, so that h stays the same when the pool changes.
        lineage: changes of the pool since the training, oldest first.
        profile: what the models made of a set of anchor questions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    pool: tuple[str, ...]
    head: HeadSettings
    readout: ReadoutSettings
    svf: SvfSettings
    targets: tuple[str, ...]
    encoder: EncoderSettings
    policy: PolicySettings
    episode: EpisodeSettings
    evolved_n: int
    folded_n: int
    checkpoint: str
    sha256: str
    fallback: str | None = None
    router_pool: int | None = None
    lineage: tuple[Step, ...] = ()
    profile: Profile | None = None

    @property
    def named_pool(self) -> int:
        """How many models the router's instruction names."""
        return self.router_pool or len(self.pool)


@dataclass(frozen=True)
class Coordinator:
    """Everything needed to decide as the trained coordinator does, encoder weights apart.

    Attributes:
        description: pool, settings, hashes.
        vector: the evolved coordinates, float64 [n].
        layout: of the vector.
        head: from coordinates to logits.
        readout: coordinates the head was evolved in.
        weights: the head folded onto h: a matrix [L+3, D], or factors [rank, D] and [L+3, rank].
        bias: added to their logits, [L+3], None where it is zero.
        deltas: relative changes of singular values by target.
        familiar: the training questions' states; None in a coordinator that does not have them.
    """

    description: Description
    vector: Float[np.ndarray, " n"]
    layout: Layout
    head: Head
    readout: Readout
    weights: Weights
    bias: Float[np.ndarray, " O"] | None
    deltas: dict[str, np.ndarray]
    familiar: Familiar | None = None


def assemble(
    settings: Mapping[str, Group],
    checkpoint: str,
    layout: Layout,
    head: Head,
    readout: Readout,
    vector: Float[np.ndarray, " n"],
    familiar: Familiar | None = None,
    fallback: str | None = None,
) -> Coordinator:
    """A coordinator from its parts.

    Args:
        settings: the groups head, readout, svf, encoder, policy and episode.
        checkpoint: hash of the encoder weights, or `UNKNOWN`.
        layout: of the vector.
        head: from coordinates to logits; a noisy one is kept as it is in evaluation.
        readout: coordinates it was evolved in.
        vector: usually the distribution mean.
        familiar: states of the training questions.
        fallback: the model that is best alone.

    Raises:
        UserError: a vector that does not fit the layout.
    """
    vector = layout.checked(np.asarray(vector, np.float64))
    parameters, folded = layout.split(vector), _folded(vector, layout, head, readout)
    deltas = {block.name: parameters[block.name].astype(np.float32) for block in layout.svf}
    described = Description.model_validate(
        {
            **settings,
            "pool": layout.rows[:-3],
            "targets": tuple(deltas),
            "evolved_n": layout.size,
            "folded_n": sum(array.size for array in (*deltas.values(), *folded.values())),
            "checkpoint": checkpoint,
            "sha256": "",
            "fallback": fallback,
        }
    )
    weights, bias = _weights(folded)
    whole = Coordinator(described, vector, layout, head, readout, weights, bias, deltas, familiar)
    sha256 = hashlib.sha256(_tensors(whole)).hexdigest()
    return replace(whole, description=described.model_copy(update={"sha256": sha256}))


def save_coordinator(
    folder: Path,
    settings: Settings,
    checkpoint: str,
    layout: Layout,
    head: Head,
    readout: Readout,
    vector: Float[np.ndarray, " n"],
    familiar: Familiar | None = None,
    fallback: str | None = None,
) -> None:
    """`assemble` and `write_coordinator` with the settings of a run."""
    kept = {name: getattr(settings, name) for name in ("head", "readout", "svf", "encoder", "policy", "episode")}
    write_coordinator(folder, assemble(kept, checkpoint, layout, head, readout, vector, familiar, fallback))


def write_coordinator(folder: Path, coordinator: Coordinator) -> None:
    """Write the coordinator folder; it appears whole or not at all, and replaces an older one.

    Args:
        folder: the folder to make; its parent exists.
        coordinator: what goes into it.

    Raises:
        UserError: a file is in the way, or no folder can be made there.
    """
    partial, old = (folder.with_name(f".{folder.name}.{suffix}") for suffix in ("partial", "old"))
    for left_over in (partial, old):
        if left_over.is_file():
            left_over.unlink()
        shutil.rmtree(left_over, ignore_errors=True)
    if folder.is_file():
        raise UserError(f"{folder}: expected a folder, found a file")
    try:
        partial.mkdir()
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror})") from error
    (partial / _TENSORS).write_bytes(_tensors(coordinator))
    (partial / _JSON).write_text(coordinator.description.model_dump_json(indent=2) + "\n", encoding="utf-8")
    if folder.exists():
        os.replace(folder, old)
    os.replace(partial, folder)
    shutil.rmtree(old, ignore_errors=True)


def load_coordinator(folder: Path) -> Coordinator:
    """Read a coordinator folder and check it against its own description.

    Raises:
        UserError: a missing or damaged file, another format, a hash or a vector length that does not fit.
    """
    where = folder / _JSON
    try:
        described = Description.model_validate_json(_bytes(where))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {key + ': ' if key else ''}{first['msg']}") from error
    tensors = _checked_tensors(folder / _TENSORS, described.sha256)
    try:
        vector, main = tensors["vector"], tensors["head.u" if described.head.kind == "low_rank" else "head.weight"]
        deltas = {name: tensors[f"svf.{name}"] for name in described.targets}
    except KeyError as error:
        raise UserError(f"{folder / _TENSORS}: has no tensor {error}, which {_JSON} asks for") from error
    if main.ndim != 2 or vector.ndim != 1:
        raise UserError(f"{folder / _TENSORS}: expected the head as a matrix and a flat vector; the file is damaged")
    width = main.shape[1]
    expected = shapes(described.readout.kind, described.readout.k, width)
    arrays = {name: tensors[f"readout.{name}"] for name in Readout._fields if f"readout.{name}" in tensors}
    if {name: array.shape for name, array in arrays.items()} != expected:
        raise UserError(f"{folder / _TENSORS}: expected read-out tensors {expected}; the file is damaged")
    readout = Readout(**{name: jnp.asarray(array) for name, array in arrays.items()})
    sizes = {name: delta.size for name, delta in deltas.items()}
    head, layout = layouts.plan(sizes, described.svf.scale, described.head, described.readout, width, described.pool)
    layout.checked(vector, str(folder))
    parts = {name.removeprefix("head."): array for name, array in tensors.items() if name.startswith("head.")}
    found = {name: array.shape for name, array in parts.items()}
    expected = {name: array.shape for name, array in _folded(vector, layout, head, readout).items()}
    if found != expected:
        pool = ", ".join(described.pool)
        raise UserError(f"{folder / _TENSORS}: expected head tensors {expected} for the pool {pool}, got {found}")
    known = None
    if "familiar.states" in tensors and "familiar.threshold" in tensors:
        threshold = tensors["familiar.threshold"]
        known = familiars.checked(tensors["familiar.states"], threshold, width, str(folder / _TENSORS))
    return Coordinator(described, vector, layout, head, readout, *_weights(parts), deltas, known)


def describe(coordinator: Coordinator) -> str:
    """A few lines for people: pool, head, scales, encoder, vector lengths, hash."""
    d = coordinator.description
    bias = "" if coordinator.bias is None else " and a bias"
    kind = coordinator.head.title(_head_parameters(coordinator.vector, coordinator.layout))
    coordinates = {"whitened": f"whitened, {coordinator.head.inputs} directions"}.get(d.readout.kind, d.readout.kind)
    matrices = [leaf for leaf in jax.tree.leaves(coordinator.weights) if leaf.ndim == 2]
    folded = " and ".join(" x ".join(map(str, matrix.shape)) for matrix in matrices)
    scales = f"{d.svf.preset}: {', '.join(d.targets)}" if d.targets else "none"
    cut = "" if d.encoder.layers is None else f", first {d.encoder.layers} layers"
    known = coordinator.familiar
    questions = (
        "no states of training questions" if known is None else f"{len(known.states)} states of training questions"
    )
    lines = {
        "pool": ", ".join(d.pool),
        "head": f"{kind}, evolved in {coordinates} coordinates, folds to {folded}{bias}",
        "svf": f"{scales} ({sum(delta.size for delta in coordinator.deltas.values())} scales)",
        "encoder": f"{d.encoder.source}{cut}, {d.encoder.input_format} input, weights {d.checkpoint}",
        "alone": f"best model {d.fallback or 'unknown'}; {questions}",
        "policy": f"{d.policy.evaluate} in evaluation, at most {d.episode.max_calls} calls",
        "vector": f"n = {d.evolved_n} evolved, {d.folded_n} folded, norm {np.linalg.norm(coordinator.vector):.4g}",
        "sha256": d.sha256,
    }
    if d.lineage:
        lines["lineage"] = "; ".join(
            f"{step.action} {', '.join(step.models)} ({step.calls} calls)" for step in d.lineage
        )
    return "\n".join(f"{name:<8} {text}" for name, text in lines.items())


def _folded(vector: np.ndarray, layout: Layout, head: Head, readout: Readout) -> dict[str, np.ndarray]:
    """The head on plain h by tensor name: ``weight``, or ``u``, ``v`` and ``c`` of `Factors`; ``bias``."""
    parameters = layout.split(vector)
    weights = head.weights(_head_parameters(vector, layout))
    bias = parameters.get(layouts.BIAS)
    bias = None if bias is None else np.asarray(head.bias(jnp.asarray(bias, jnp.float32)))
    if isinstance(weights, Factors):
        u, c = fold(readout, weights.u, None)
        tensors = {"u": u, "v": np.asarray(weights.v), "c": c, "bias": bias}
    else:
        matrix, bias = fold(readout, weights, bias)
        tensors = {"weight": matrix, "bias": bias}
    return {name: array for name, array in tensors.items() if array is not None}


def _weights(folded: Mapping[str, np.ndarray]) -> tuple[Weights, Float[np.ndarray, " O"] | None]:
    """Weights and bias out of the tensors of `_folded`."""
    matrices = {name: jnp.asarray(array) for name, array in folded.items() if name != "bias"}
    weights = matrices["weight"] if "weight" in matrices else Factors(**matrices)
    return weights, folded.get("bias")


def _tensors(coordinator: Coordinator) -> bytes:
    """The tensor file; the same bytes for the same coordinator."""
    weights = coordinator.weights
    folded = weights._asdict() if isinstance(weights, Factors) else {"weight": weights}
    tensors = {"vector": coordinator.vector}
    tensors |= {f"head.{name}": array for name, array in {**folded, "bias": coordinator.bias}.items()}
    tensors |= {f"svf.{name}": delta for name, delta in coordinator.deltas.items()}
    tensors |= {f"readout.{name}": array for name, array in coordinator.readout._asdict().items()}
    if coordinator.familiar is not None:
        threshold = np.float32(coordinator.familiar.threshold)
        tensors |= {"familiar.states": coordinator.familiar.states, "familiar.threshold": threshold}
    return write_tensors({n: np.ascontiguousarray(array) for n, array in tensors.items() if array is not None})


def _head_parameters(vector: np.ndarray, layout: Layout) -> Float[Array, " size"]:
    return jnp.asarray(layout.split(vector)[layouts.HEAD].reshape(-1), jnp.float32)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected a coordinator folder of a run") from error


def _checked_tensors(path: Path, sha256: str) -> dict[str, np.ndarray]:
    data = _bytes(path)
    found = hashlib.sha256(data).hexdigest()
    try:
        tensors = read_tensors(data)
    except SafetensorError as error:
        raise UserError(f"{path}: not a whole safetensors file ({error})") from error
    if found != sha256:
        raise UserError(
            f"{path}: expected SHA-256 {sha256} as {_JSON} says, got {found}: the two do not belong together"
        )
    return tensors
