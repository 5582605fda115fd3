"""A coordinator folder together with its encoder, ready to decide."""

from dataclasses import dataclass

import jax.numpy as jnp

from trinity_jax.coordinator.export import UNKNOWN, Coordinator
from trinity_jax.coordinator.heads import Factors
from trinity_jax.coordinator.population import PopulationEncoder
from trinity_jax.coordinator.transcripts import TranscriptEncoder
from trinity_jax.encoder import svf
from trinity_jax.encoder.checkpoint import load_checkpoint
from trinity_jax.encoder.decoder import cut
from trinity_jax.encoder.text import Router
from trinity_jax.encoder.tokenizer import load_tokenizer
from trinity_jax.errors import UserError


@dataclass(frozen=True)
class Ready:
    """One coordinator on the device.

    Attributes:
        coordinator: what was read from disk.
        router: text to token ids.
        population: with the coordinator's vector loaded as candidate 0; its ``encoder.states`` are those of the
            encoder without singular-value changes.
    """

    coordinator: Coordinator
    router: Router
    population: PopulationEncoder


def make_ready(coordinator: Coordinator, source: str | None = None, seed: int = 0) -> Ready:
    """Load the encoder that a coordinator was trained on, and the coordinator onto it.

    Args:
        coordinator: from `load_coordinator` or `import_released`.
        source: where the encoder is, if it is not where the coordinator says.
        seed: root of the sampling keys.

    Raises:
        UserError: encoder weights that are missing or do not belong to the coordinator.
    """
    described = coordinator.description
    settings = described.encoder.model_copy(update={"source": source, "revision": None} if source else {})
    decoder, digest = load_checkpoint(settings.source, dtype=jnp.dtype(settings.dtype), revision=settings.revision)
    if described.checkpoint not in (digest, UNKNOWN):
        raise UserError(f"{settings.source}: expected the weights {described.checkpoint}, got {digest}")
    decoder = decoder if settings.layers is None else cut(decoder, settings.layers)
    sizes = {name: svf.rank(name, decoder.config) for name in svf.targets(described.svf, decoder.config)}
    weights = coordinator.weights
    width = (weights.u if isinstance(weights, Factors) else weights).shape[1]
    expected = {block.name: block.size for block in coordinator.layout.svf}
    if sizes != expected or width != decoder.config.hidden_size:
        raise UserError(
            f"{settings.source}: the coordinator scales {expected} and reads {width} numbers, this encoder has {sizes} "
            f"and {decoder.config.hidden_size}"
        )
    router = Router(load_tokenizer(settings.source, settings.revision), settings, described.named_pool)
    encoder = TranscriptEncoder(decoder, described.svf, settings, 1)
    population = PopulationEncoder(encoder, coordinator.layout, coordinator.head, coordinator.readout, seed)
    population.load(coordinator.vector)
    return Ready(coordinator, router, population)
