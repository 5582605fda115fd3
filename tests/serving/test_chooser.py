"""What the coordinator reads in service: as in training, in bounded time and memory."""

import random

from tests.serving.served import chooser, ready
from trinity_jax.config import ServingSettings
from trinity_jax.coordinator.export import load_coordinator, write_coordinator
from trinity_jax.coordinator.pool_change import drop
from trinity_jax.coordinator.ready import make_ready
from trinity_jax.episode.episode import start
from trinity_jax.episode.transcript import view
from trinity_jax.serving.chooser import Chooser


def test_a_changed_pool_is_served_the_prompt_that_it_was_trained_with(coordinator, tmp_path):
    write_coordinator(tmp_path / "dropped", drop(load_coordinator(coordinator), "bo"))
    ready = make_ready(load_coordinator(tmp_path / "dropped"))
    chooser = Chooser(ready, ServingSettings())
    try:
        assert chooser.names == ("ada",)
        assert chooser._router.ids("Say 42") == ready.router.ids("Say 42")
    finally:
        chooser.close()


def test_a_long_text_is_cut_before_it_is_encoded_and_reads_the_same(coordinator):
    draw = random.Random(0)
    text = " ".join("".join(draw.choices("abcdefgh", k=draw.randint(1, 9))) for _ in range(50_000))
    made = chooser(coordinator)
    whole, short = (view(start(said), made.coordinator.description.episode.transcript) for said in (text, "short"))
    shown = made._shown(start(text))
    assert len(shown) <= 16 * 512 < len(whole)
    assert made._router.ids(shown) == ready(coordinator).router.ids(whole)
    assert made._shown(start("short")) == short
    made.close()
