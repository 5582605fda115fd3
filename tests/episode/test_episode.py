import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trinity_jax.config import EpisodeSettings
from trinity_jax.episode import episode, roles
from trinity_jax.episode.episode import ROLES, End, Role

WORK = "<idea>add them</idea>\n<answer>{}</answer>"
PLAN = "<suggestion>add first</suggestion><suggested_role>{}</suggested_role>"
ACCEPT, REJECT = "Holds.\nVERDICT: ACCEPT", "Lost a sign.\nVERDICT: REJECT"
SETTINGS = EpisodeSettings()


def play(*turns: tuple[Role, str | None], rules: EpisodeSettings = SETTINGS):
    state = episode.start("2+2?")
    for model, (role, text) in enumerate(turns):
        state = episode.step(state, model, role, text, rules)
    return state


def user(state, role):
    (system, instruction), (wire, content) = episode.messages(state, role)
    assert (system, wire, instruction) == ("system", "user", roles.INSTRUCTIONS[role])
    return content


def test_work_verify_accept():
    state = play((Role.WORKER, WORK.format(4)), (Role.VERIFIER, ACCEPT))
    assert state.end is End.ACCEPTED
    assert state.response == WORK.format(4)
    assert state.thoughts == ("add them",)
    assert [(turn.model, turn.role, turn.thought, turn.verdict) for turn in state.turns] == [
        (0, Role.WORKER, "add them", None),
        (1, Role.VERIFIER, "Holds.", True),
    ]


def test_rejection_goes_on_and_a_second_worker_replaces_the_response():
    state = play((Role.WORKER, WORK.format(5)), (Role.VERIFIER, REJECT), (Role.WORKER, WORK.format(4)))
    assert state.end is None
    assert state.response == WORK.format(4)
    assert state.thoughts == ("add them", "add them")


def test_verifier_without_response_ends_without_a_turn_and_without_reading_text():
    state = episode.start("2+2?")
    assert episode.ends_without_call(state, Role.VERIFIER)
    assert not episode.ends_without_call(state, Role.WORKER)
    for text in (None, ACCEPT):
        ended = episode.step(state, 0, Role.VERIFIER, text, SETTINGS)
        assert (ended.end, ended.turns, ended.response) == (End.NO_RESPONSE, (), None)
    assert not episode.ends_without_call(play((Role.WORKER, "4")), Role.VERIFIER)


def test_failed_call_ends_the_episode_and_keeps_what_was_said():
    state = play((Role.WORKER, WORK.format(4)), (Role.VERIFIER, None))
    assert (state.end, state.response, len(state.turns)) == (End.FAILED, WORK.format(4), 1)


def test_forced_role_replaces_the_next_sample_only():
    state = play((Role.THINKER, PLAN.format("worker")))
    assert [episode.role_for(state, sampled) for sampled in ROLES] == [Role.WORKER] * 3
    with pytest.raises(ValueError, match="asked for worker"):
        episode.step(state, 0, Role.THINKER, "x", SETTINGS)
    state = episode.step(state, 1, Role.WORKER, WORK.format(4), SETTINGS)
    assert [episode.role_for(state, sampled) for sampled in ROLES] == list(ROLES)


def test_thinker_may_force_the_verifier_into_an_empty_episode_unless_masked():
    state = play((Role.THINKER, PLAN.format("verifier")))
    assert state.forced_role is Role.VERIFIER
    assert episode.ends_without_call(state, episode.role_for(state, Role.WORKER))
    masked = play((Role.THINKER, PLAN.format("verifier")), rules=EpisodeSettings(verifier_needs_response=True))
    assert (masked.forced_role, masked.suggestion) == (None, None)


def test_allowed_roles():
    fresh, worked = episode.start("q"), play((Role.WORKER, "4"))
    assert episode.allowed_roles(fresh, True) == (True, True, False)
    assert episode.allowed_roles(fresh, False) == episode.allowed_roles(worked, True) == (True, True, True)


def test_who_reads_what():
    planned = play((Role.WORKER, WORK.format(5)), (Role.THINKER, PLAN.format("worker")))
    base = roles.conversation("2+2?", ("add them",))
    quoted = f"<current_response>\n{WORK.format(5)}\n</current_response>"
    plan = "<suggestion>add first</suggestion>"
    assert user(planned, Role.WORKER) == f"{base}\n\n{plan}"
    assert user(planned, Role.THINKER) == f"{base}\n\n{quoted}"
    assert user(planned, Role.VERIFIER) == f"{base}\n\n{quoted}\n\n{plan}"
    assert user(episode.start("2+2?"), Role.WORKER) == roles.conversation("2+2?")


def test_thoughts_and_suggestions_are_cut():
    rules = EpisodeSettings(thought_chars=3)
    assert play((Role.WORKER, "abcdef"), rules=rules).thoughts == ("abc",)
    assert play((Role.THINKER, PLAN.format("worker")), rules=rules).suggestion == "add"


def test_a_reply_with_nothing_to_show_adds_no_thought():
    state = play((Role.WORKER, "<think>endless"))
    assert (state.thoughts, state.turns[0].thought, state.response) == ((), None, "<think>endless")


TEXTS = st.one_of(
    st.sampled_from([WORK.format(4), PLAN.format("worker"), PLAN.format("verifier"), ACCEPT, REJECT, "<idea></idea>"]),
    st.text(max_size=20),
)


class Protocol(RuleBasedStateMachine):
    """Plays episodes with arbitrary samples and replies beside a plain record of what was said."""

    def __init__(self):
        super().__init__()
        self.begin(3, False)

    def begin(self, max_calls: int, masked: bool):
        self.settings = EpisodeSettings(max_calls=max_calls, verifier_needs_response=masked)
        self.state = episode.start("q")
        self.said: list[tuple[Role, str]] = []
        self.forced: Role | None = None

    @precondition(lambda self: self.state.end is not None)
    @rule(max_calls=st.integers(1, 5), masked=st.booleans())
    def restart(self, max_calls, masked):
        self.begin(max_calls, masked)

    @precondition(lambda self: self.state.end is not None)
    @rule(role=st.sampled_from(ROLES), text=TEXTS)
    def an_ended_episode_never_steps(self, role, text):
        with pytest.raises(ValueError, match="has ended"):
            episode.step(self.state, 0, role, text, self.settings)

    @precondition(lambda self: self.state.end is None)
    @rule(model=st.integers(0, 6), sampled=st.sampled_from(ROLES), text=TEXTS, fails=st.integers(0, 9))
    def turn(self, model, sampled, text, fails):
        if not episode.allowed_roles(self.state, self.settings.verifier_needs_response)[ROLES.index(sampled)]:
            sampled = Role.WORKER
        role = episode.role_for(self.state, sampled)
        assert role is (self.forced or sampled)
        before = self.state
        self.state = episode.step(before, model, role, None if fails == 0 else text, self.settings)
        self.forced = None
        if role is Role.VERIFIER and before.response is None:
            assert not self.settings.verifier_needs_response
            assert self.state.end is End.NO_RESPONSE
            return
        if fails == 0:
            assert self.state.end is End.FAILED
            return
        self.said.append((role, text))
        plan = roles.suggestion(text) if role is Role.THINKER else None
        wanted = plan and plan[1]
        if wanted is Role.VERIFIER and before.response is None and self.settings.verifier_needs_response:
            wanted = None
        self.forced = wanted
        accepted = role is Role.VERIFIER and roles.verdict(text)
        spent = len(self.said) == self.settings.max_calls
        assert self.state.end is (End.ACCEPTED if accepted else End.CALLS_SPENT if spent else None)

    @invariant()
    def the_state_is_what_was_said(self):
        state = self.state
        assert [(turn.role, turn.text) for turn in state.turns] == self.said
        assert len(state.turns) <= self.settings.max_calls
        work = [text for role, text in self.said if role is Role.WORKER]
        assert state.response == (work[-1] if work else None)
        assert state.thoughts == tuple(thought for text in work if (thought := roles.idea(text, 2000)))
        assert state.forced_role is self.forced
        assert (state.suggestion is None) == (state.forced_role is None)


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(max_examples=60, stateful_step_count=20)


@given(TEXTS, TEXTS, st.sampled_from(ROLES))
def test_steps_are_pure(first, second, role):
    state = play((Role.WORKER, first))
    assert episode.step(state, 1, role, second, SETTINGS) == episode.step(state, 1, role, second, SETTINGS)
    assert state == play((Role.WORKER, first))
