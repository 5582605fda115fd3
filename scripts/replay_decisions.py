"""Does a coordinator folder decide as recorded? For whoever has the authors' weights, or an earlier version of ours.

    python scripts/replay_decisions.py COORDINATOR FIXTURE.json [--source FOLDER]

The fixture is one JSON object:

    {"cases": [{"conversation": ..., "model": "gpt-5", "role": "worker"}, ...]}

- ``conversation``: a list of ``{"role": ..., "content": ...}`` messages, read word for word in the coordinator's
  ``input_format``; or a string, which is what an episode shows: it gets the router's instruction, and loses its middle
  where it is too long.
- ``model``: the name or the number (from 0) of the most probable model.
- ``role``: the most probable of worker, thinker, verifier; all three are allowed.

Prints every decision that differs, with the probability of what was expected, and how many agree. Exit code 0 where all
do, 1 where one does not, 2 where something is wrong with the input.
"""

import argparse
import sys
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from trinity_jax.config import Group
from trinity_jax.coordinator.export import Coordinator, load_coordinator
from trinity_jax.coordinator.population import Choice, Row
from trinity_jax.coordinator.ready import make_ready
from trinity_jax.encoder.text import TextTokenizer, encode
from trinity_jax.errors import UserError

ROLES = ("worker", "thinker", "verifier")


class Message(Group):
    """One message of a conversation."""

    role: str
    content: str


class Case(Group):
    """A conversation and what was decided on it."""

    conversation: str | tuple[Message, ...] = Field(min_length=1)
    model: int | str
    role: Literal["worker", "thinker", "verifier"]


class Fixture(Group):
    """The whole file."""

    cases: tuple[Case, ...] = Field(min_length=1)


def main(arguments: list[str] | None = None) -> int:
    """Replay; the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/replay_decisions.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("coordinator", type=Path, help="the folder coordinator/ of a run, or of import-released")
    parser.add_argument("fixture", type=Path)
    parser.add_argument("--source", help="the encoder's folder or .gguf file, if it is not where the coordinator says")
    options = parser.parse_args(arguments)
    try:
        coordinator = load_coordinator(options.coordinator)
        cases = read(options.fixture, coordinator.description.pool)
        choices = replay(coordinator, [case.conversation for case in cases], options.source)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if report(cases, choices, coordinator.description.pool) else 1


def read(path: Path, pool: tuple[str, ...]) -> list[Case]:
    """The cases of a fixture, models as names.

    Raises:
        UserError: no such file, another form, a model that the pool does not have.
    """
    try:
        fixture = Fixture.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    cases = []
    for i, case in enumerate(fixture.cases):
        name = dict(enumerate(pool)).get(case.model) if isinstance(case.model, int) else case.model
        if name not in pool:
            known = f"one of {', '.join(pool)}, or 0 to {len(pool) - 1}"
            raise UserError(f"{path}: cases.{i}.model: expected {known}, got {case.model!r}")
        cases.append(case.model_copy(update={"model": name}))
    return cases


def replay(
    coordinator: Coordinator, conversations: list[str | tuple[Message, ...]], source: str | None = None
) -> list[Choice]:
    """The most probable choice on each conversation.

    Raises:
        UserError: encoder weights that are missing or do not belong to the coordinator, a conversation too long.
    """
    ready = make_ready(coordinator, source)
    settings, router = coordinator.description.encoder, ready.router
    rows = []
    for i, conversation in enumerate(conversations):
        ids = (
            router.ids(conversation)
            if isinstance(conversation, str)
            else word_for_word(router.tokenizer, conversation, settings.input_format)
        )
        if not -settings.read_position <= len(ids) <= settings.buckets[-1]:
            raise UserError(
                f"cases.{i}: expected {-settings.read_position} to {settings.buckets[-1]} tokens, got {len(ids)}"
            )
        rows.append(Row(0, ids, (0, 0, i, 0, 0)))
    return ready.population.decide(rows, "argmax")


def word_for_word(
    tokenizer: TextTokenizer, messages: tuple[Message, ...], input_format: Literal["chat", "plain"]
) -> tuple[int, ...]:
    """Token ids of messages with nothing added but the format."""
    return encode(tokenizer, [message.model_dump() for message in messages], input_format)


def report(cases: list[Case], choices: list[Choice], pool: tuple[str, ...]) -> bool:
    """Print what differs; whether nothing does."""
    models = roles = both = 0
    for i, (case, choice) in enumerate(zip(cases, choices, strict=True)):
        model, role = pool[choice.model], ROLES[choice.role]
        models, roles = models + (model == case.model), roles + (role == case.role)
        if (model, role) == (case.model, case.role):
            both += 1
            continue
        chances = choice.model_probs[pool.index(str(case.model))], choice.role_probs[ROLES.index(case.role)]
        print(
            f"case {i}: expected {case.model} as {case.role} (probabilities {chances[0]:.3f} and {chances[1]:.3f}), "
            f"got {model} as {role} ({max(choice.model_probs):.3f} and {max(choice.role_probs):.3f})"
        )
    print(f"{both} of {len(cases)} agree (model {models}, role {roles})")
    return both == len(cases)


if __name__ == "__main__":
    sys.exit(main())
