"""Rows of a step come from a stated budget, and the estimate holds against what XLA plans."""

import jax
import jax.numpy as jnp
import pytest

from trinity_jax.encoder.decoder import Decoder, DecoderConfig, embed, run
from trinity_jax.encoder.memory import row_bytes, rows_per_step
from trinity_jax.errors import UserError

CONFIG = DecoderConfig(97, 64, 192, 2, 4, 2, 16, qk_norm=True, tie_embeddings=True)


@pytest.mark.parametrize("T", [256, 1024, 2048])
def test_the_estimate_covers_what_is_allocated(T):
    decoder = jax.eval_shape(lambda: Decoder.random(CONFIG, 0))
    tokens = jax.ShapeDtypeStruct((3, T), jnp.int32)
    program = jax.jit(jax.vmap(lambda model, ids: run(model, embed(model, ids), 0, 2), (None, 0)))
    memory = program.lower(decoder, tokens).compile().memory_analysis()
    assert memory is not None
    planned = memory.temp_size_in_bytes + memory.output_size_in_bytes
    need = 3 * row_bytes(CONFIG, T, 4)
    assert planned < 1.3 * need
    assert planned > 0.2 * need  # and is no wild guess


def test_fewer_rows_where_they_are_long():
    one = row_bytes(CONFIG, 2048, 4)
    budget = 8 * one // 2**20 + 1
    assert rows_per_step(CONFIG, 2048, 4, 32, budget) in (8, 9)
    assert rows_per_step(CONFIG, 128, 4, 32, budget) == 32


def test_a_budget_too_small_for_one_is_told():
    with pytest.raises(UserError, match=r"encoder.work_mb: one transcript of 40960 tokens needs \d+, got 1; raise it"):
        rows_per_step(CONFIG, 40_960, 4, 1, 1)
