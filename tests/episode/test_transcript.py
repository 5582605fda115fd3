from itertools import pairwise

from trinity_jax.config import EpisodeSettings
from trinity_jax.episode import episode
from trinity_jax.episode.episode import Role
from trinity_jax.episode.roles import COLLABORATION
from trinity_jax.episode.transcript import view

TURNS = (
    (3, Role.WORKER, "<idea>add them</idea><answer>5</answer>"),
    (1, Role.VERIFIER, "Lost a sign.\nVERDICT: REJECT"),
    (0, Role.THINKER, "<suggestion>add first</suggestion><suggested_role>worker</suggested_role>"),
    (2, Role.WORKER, "<idea>recount</idea><answer>4</answer>"),
    (2, Role.THINKER, "no tags"),
)


def states():
    state = episode.start("2+2?")
    yield state
    for model, role, text in TURNS:
        state = episode.step(state, model, role, text, EpisodeSettings())
        yield state


def test_worker_thoughts():
    *_, state = states()
    assert view(state, "worker_thoughts") == (
        f"2+2?\n\n{COLLABORATION}\n"
        "<reference_thought_0>add them</reference_thought_0>\n<reference_thought_1>recount</reference_thought_1>"
    )


def test_only_workers_change_the_worker_thoughts_and_every_turn_changes_the_full_view():
    seen = list(states())
    thoughts = [view(state, "worker_thoughts") for state in seen]
    assert [a != b for a, b in pairwise(thoughts)] == [r is Role.WORKER for _, r, _ in TURNS]
    assert len({view(state, "full") for state in seen}) == len(seen)


def test_full_names_who_said_what_as_what():
    *_, state = states()
    assert view(state, "full").splitlines()[3:] == [
        "<reference_thought_0>model 3 as worker: add them</reference_thought_0>",
        "<reference_thought_1>model 1 as verifier: REJECT Lost a sign.</reference_thought_1>",
        "<reference_thought_2>model 0 as thinker: add first (next: worker)</reference_thought_2>",
        "<reference_thought_3>model 2 as worker: recount</reference_thought_3>",
        "<reference_thought_4>model 2 as thinker: no suggestion</reference_thought_4>",
    ]


def test_each_view_extends_the_one_before():
    for mode in ("worker_thoughts", "full"):
        views = [view(state, mode) for state in states()]
        assert all(later.startswith(earlier) for earlier, later in pairwise(views))
