"""A language model as coordinator: told who is there and what was said, it names the next model and role in words."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from trinity_jax.episode.episode import ROLES, EpisodeState, Role, allowed_roles
from trinity_jax.evaluation.bench import Bench
from trinity_jax.evaluation.scores import Scores, episode_keys, from_results
from trinity_jax.pool.reply import Message, Reply
from trinity_jax.reasoning import visible
from trinity_jax.rollout.decide import Decision, EpisodeKey
from trinity_jax.rollout.engine import rollout

ROLE = "coordinator"
"""Of its own calls in the journal."""

_DUTIES = {
    Role.WORKER: "solves the task, or makes a new attempt",
    Role.THINKER: "gives advice to the one who speaks next, without solving the task",
    Role.VERIFIER: "checks the latest worker's reply and ends the work if it accepts it",
}
_INSTRUCTION = (
    "You lead a team of language models that work on a task in turns, at most {calls} of them. You do not solve it "
    "yourself: you say which model speaks next, and in which role.\n\nModels:\n{models}\n\nRoles:\n{roles}\n\n"
    "Think about who is good at this kind of task. Reply with two lines and nothing else:\nMODEL: <name>\nROLE: <role>"
)
_FIELD = r"\b{name}\b\W{{0,6}}[:=]\s{{0,3}}([^\n,;}}]{{1,200}})"
_FIELDS = {name: re.compile(_FIELD.format(name=name), re.IGNORECASE) for name in ("model", "role")}


async def coordinate(bench: Bench, leader: int) -> Scores:
    """The protocol with a model of the pool as its decider; the leader's own calls are calls of the row.

    An episode in which a call of the leader failed has no reward.
    """
    decider = Prompted(bench, leader)
    keys = episode_keys(len(bench.questions), bench.repeats)
    played = await rollout(keys, bench.questions, decider, bench.pool, bench.terms.episode, bench.scope)
    results, own = [], 0
    for result in played:
        asked = decider.replies[result.key]
        own += len(asked)
        lost = result.reward is None or not all(reply.outcome.gradable for reply in asked)
        reward, grade = (None, None) if lost else (result.reward, result.grade)
        results.append(replace(result, reward=reward, grade=grade, replies=(*asked, *result.replies)))
    name = bench.pool.names[leader]
    note = f"{own / len(keys):.2f} of its calls a question are {name}'s as coordinator"
    note += f"; {decider.unread} of {own} of its replies named no model or role: then {name} works" * (own > 0)
    return from_results(f"{name} prompted as coordinator", results, note)


class Prompted:
    """The decider; keeps the leader's own replies by episode.

    What cannot be read is made good: no model is the leader itself, no role a Worker.

    Attributes:
        replies: of the leader, by episode, in order.
        unread: how many of them did not name both a model and a role.
    """

    def __init__(self, bench: Bench, leader: int):
        self.replies: defaultdict[EpisodeKey, list[Reply]] = defaultdict(list)
        self.unread = 0
        self._bench = bench
        self._leader = leader

    async def decide(self, key: EpisodeKey, state: EpisodeState) -> Decision:
        """Ask the leader and read its reply."""
        pool, settings = self._bench.pool, self._bench.terms.episode
        roles = roles_now(state)
        messages = question(state, pool.names, roles, settings.max_calls, settings.thought_chars)
        reply = await pool.call(self._leader, ROLE, messages, scope=self._bench.scope, repeat=key.repeat)
        self.replies[key].append(reply)
        model, role = parse(reply.text, pool.names, roles)
        self.unread += model is None or role is None
        return Decision(self._leader if model is None else model, Role.WORKER if role is None else role)


def roles_now(state: EpisodeState) -> tuple[Role, ...]:
    """The roles to choose from: the one that a Thinker asked for, and no Verifier where there is nothing to verify."""
    if state.forced_role is not None:
        return (state.forced_role,)
    return tuple(role for role, may in zip(ROLES, allowed_roles(state, True), strict=True) if may)


def question(
    state: EpisodeState, names: Sequence[str], roles: Sequence[Role], calls: int, limit: int
) -> tuple[Message, ...]:
    """What the leader reads: models, roles, the task, and every turn so far, each cut to ``limit`` characters."""
    listed = "\n".join(f"- {name}" for name in names)
    duties = "\n".join(f"- {role.value}: {_DUTIES[role]}" for role in roles)
    said = [
        f"Turn {i}, {names[turn.model]} as {turn.role.value}:\n{visible(turn.text).strip()[:limit]}"
        for i, turn in enumerate(state.turns, 1)
    ]
    parts = ["Task:\n" + state.prompt, *said, f"Who speaks on turn {len(state.turns) + 1}?"]
    return (
        Message("system", _INSTRUCTION.format(calls=calls, models=listed, roles=duties)),
        Message("user", "\n\n".join(parts)),
    )


def parse(text: str, names: Sequence[str], roles: Sequence[Role]) -> tuple[int | None, Role | None]:
    """Model and role that a reply names, ``None`` for each that it does not; total, linear in the reply.

    The last ``MODEL:`` and ``ROLE:`` count (a JSON object's fields are of this form too); without one, the only model
    or role that is mentioned at all.
    """
    said = visible(text)
    model = _named(_field(said, "model"), names)
    role = _named(_field(said, "role"), [role.value for role in roles])
    return model, None if role is None else roles[role]


def _field(text: str, name: str) -> str:
    """What stands behind the last ``name:``, else everything."""
    found = _FIELDS[name].findall(text)
    return found[-1] if found else text


def _named(text: str, names: Sequence[str]) -> int | None:
    """The only name that stands in a text as a word of its own; a longer name hides the shorter ones within it."""
    text, found = text.casefold(), []
    for index in sorted(range(len(names)), key=lambda i: -len(names[i])):
        pattern = rf"(?<![\w.-]){re.escape(names[index].casefold())}(?![\w-]|\.\w)"
        text, count = re.subn(pattern, " ", text)
        if count:
            found.append(index)
    return found[0] if len(found) == 1 else None
