from collections.abc import Callable, Sequence

import pytest

from trinity_jax.config import BudgetSettings, PoolSettings
from trinity_jax.pool.journal import Journal
from trinity_jax.pool.ledger import Ledger
from trinity_jax.pool.pool import Pool, Seat
from trinity_jax.pool.simulated import SimulatedModel, SimulatedQuestion
from trinity_jax.tasks.question import Question


@pytest.fixture
def make_questions() -> Callable[..., list[Question]]:
    def make(kinds: Sequence[str], start: int = 0) -> list[Question]:
        return [
            Question(f"q{n}", kind, f"[{n}] What is {n} + 1?", str(n + 1), "numeric", wrong=(str(n), str(n + 2)))
            for n, kind in enumerate(kinds, start)
        ]

    return make


@pytest.fixture
def make_pool(tmp_path) -> Callable[[PoolSettings, Sequence[Question]], Pool]:
    def make(settings: PoolSettings, questions: Sequence[Question]) -> Pool:
        known = {q.prompt: SimulatedQuestion(q.kind, q.answer, q.wrong, q.id) for q in questions}
        return Pool(
            [SimulatedModel(model, settings, known, seed=0) for model in settings.simulated],
            Journal.open(tmp_path / "journal.sqlite"),
            Ledger(BudgetSettings()),
            [Seat("simulated", model.name) for model in settings.simulated],
        )

    return make
