import asyncio
import time

import pytest

from trinity_jax.config import EpisodeSettings
from trinity_jax.coordinator.population import Choice
from trinity_jax.episode.episode import Role, start, step
from trinity_jax.errors import UserError
from trinity_jax.pool.journal import Journal
from trinity_jax.rollout.batcher import Batcher
from trinity_jax.rollout.decide import EpisodeKey

EPISODE = EpisodeSettings()


class Population:
    """Chooses by the row alone; remembers batches, and is slow enough that others come along."""

    def __init__(self, fail_first=False):
        self.batches, self.fail_first = [], fail_first

    def decide(self, rows, mode):
        time.sleep(0.01)
        self.batches.append(list(rows))
        if self.fail_first and len(self.batches) == 1:
            raise RuntimeError("device lost")
        return [Choice(sum(row.key) % 2, row.key[2] % 2, (0.5, 0.5), (0.4, 0.3, 0.3), "ab" * 8) for row in rows]


class Router:
    def ids(self, view):
        return tuple(view.encode()[:8])


def served(tmp_path, population, body, shared_keys=True):
    async def run():
        with Journal.open(tmp_path / "journal.sqlite") as journal:
            batcher = Batcher(population, Router(), EPISODE, journal, shared_keys)  # pyright: ignore[reportArgumentType]
            try:
                return await body(batcher)
            finally:
                batcher.close()

    return asyncio.run(run())


def test_decisions_that_wait_go_together(tmp_path):
    population = Population()

    async def body(batcher):
        first = [batcher.decide(EpisodeKey(0, p, 0, 0), start("q")) for p in range(5)]

        async def late(p):
            await asyncio.sleep(0.003)
            return await batcher.decide(EpisodeKey(0, p, 1, 0), start("q"))

        return await asyncio.gather(*first, *(late(p) for p in range(7)))

    decisions = served(tmp_path, population, body)
    assert [len(batch) for batch in population.batches] == [5, 7]
    assert [d.role for d in decisions] == [Role.WORKER] * 5 + [Role.THINKER] * 7


def test_recorded_decisions_are_read_and_not_made_again(tmp_path):
    key, other = EpisodeKey(4, 2, 1, 0), EpisodeKey(4, 3, 1, 0)

    async def before(batcher):
        batcher.recall(9)
        return await batcher.decide(key, start("q"))

    first = served(tmp_path, Population(), before)
    population = Population()

    async def body(batcher):
        batcher.recall(9)
        return await asyncio.gather(batcher.decide(key, start("q")), batcher.decide(other, start("q")))

    again, _ = served(tmp_path, population, body)
    assert again == first
    assert [[row.candidate for row in batch] for batch in population.batches] == [[3]]


def test_candidates_share_keys_only_under_common_random_numbers(tmp_path):
    for shared, wanted in ((True, 0), (False, 2)):
        folder = tmp_path / str(shared)
        folder.mkdir()
        population = Population()
        served(folder, population, lambda b: b.decide(EpisodeKey(0, 2, 1, 3), start("q")), shared)
        [[row]] = population.batches
        assert (row.candidate, row.key) == (2, (0, wanted, 1, 3, 0))


def test_the_turn_is_part_of_the_key(tmp_path):
    population = Population()
    state = step(start("q"), 0, Role.WORKER, "<answer>1</answer>", EPISODE)
    served(tmp_path, population, lambda b: b.decide(EpisodeKey(0, 0, 0, 0), state))
    assert population.batches[0][0].key[-1] == 1


def test_an_error_reaches_those_who_waited_and_not_the_next(tmp_path):
    async def body(batcher):
        with pytest.raises(RuntimeError, match="device lost"):
            await batcher.decide(EpisodeKey(0, 0, 0, 0), start("q"))
        return await batcher.decide(EpisodeKey(0, 0, 0, 0), start("q"))

    assert served(tmp_path, Population(fail_first=True), body).role is Role.WORKER


def test_a_journal_that_cannot_be_written_keeps_nobody_waiting(tmp_path):
    async def body(batcher):
        def full(rows):
            raise UserError("disk full")

        batcher._journal.record_decisions = full
        async with asyncio.timeout(5):
            return await asyncio.gather(
                *(batcher.decide(EpisodeKey(0, p, 0, 0), start("q")) for p in range(2)), return_exceptions=True
            )

    assert [str(error) for error in served(tmp_path, Population(), body)] == ["disk full"] * 2
