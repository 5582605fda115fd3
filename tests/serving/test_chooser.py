"""What the coordinator reads in service: as in training, in bounded time and memory."""

from trinity_jax.config import ServingSettings
from trinity_jax.coordinator.export import load_coordinator, write_coordinator
from trinity_jax.coordinator.pool_change import drop
from trinity_jax.coordinator.ready import make_ready
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
