"""The script of roles that warm-up episodes follow."""

import asyncio

import numpy as np

from trinity_jax.config import EpisodeSettings
from trinity_jax.episode.episode import Role, start, step
from trinity_jax.evaluation.deciders import ScriptedPolicy, script
from trinity_jax.rollout.decide import EpisodeKey


def test_roles_by_rule():
    settings, state = EpisodeSettings(), start("?")
    assert script(state) == (0.5, 0.5, 0.0)
    thought = step(
        state, 0, Role.THINKER, "<suggestion>a</suggestion><suggested_role>worker</suggested_role>", settings
    )
    assert script(thought) == (1.0, 0.0, 0.0)
    worked = step(state, 0, Role.WORKER, "<answer>1</answer>", settings)
    assert script(worked) == (0.0, 0.0, 1.0)
    assert script(step(worked, 1, Role.VERIFIER, "VERDICT: REJECT", settings)) == (1.0, 0.0, 0.0)


def test_draws_depend_on_the_key_alone_and_cover_models_and_first_roles():
    policy = ScriptedPolicy(3, seed=0)
    drawn = [asyncio.run(policy.decide(EpisodeKey(0, 0, question, 0), start("?"))) for question in range(120)]
    again = [asyncio.run(policy.decide(EpisodeKey(0, 0, question, 0), start("?"))) for question in range(120)]
    assert drawn == again
    assert min(np.bincount([one.model for one in drawn], minlength=3)) > 20
    assert {one.role for one in drawn} == {Role.WORKER, Role.THINKER}
