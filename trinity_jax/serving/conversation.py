"""A client's conversation: what the coordinator reads of it, and what a model reads of it in each role.

The last user message is the question; it is what the roles' prompts wrap, in its place. What stands before and behind
it (a tool's results) goes to the model as it is. The client's system messages follow the role's instruction in one
system message, since many chat templates take one only. A coordinator was trained on bare questions: one user message
without anything else is read exactly as in training; any other conversation is read as labelled lines.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from trinity_jax.episode.episode import EpisodeState, Role, messages
from trinity_jax.pool.reply import Message, RichMessage

FORMED = (
    "You are the Worker. Solve the task. Use a reference thought or the suggestion only where it holds up. Reply in "
    "exactly the form that is asked for, and with nothing else."
)
"""A Worker's instruction where the reply's form is the client's: a JSON schema, or tools."""

_CLIENTS = "What follows are the user's own instructions."
_LABELS = {"user": "User", "assistant": "Assistant", "tool": "Tool"}


@dataclass(frozen=True)
class Said:
    """One message of a client, checked.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        text: its text, parts joined.
        images: its image parts as chat completions have them.
        calls: an assistant's tool calls.
        answers: the id of the tool call that a tool's message answers.
    """

    role: str
    text: str
    images: tuple[dict[str, Any], ...] = ()
    calls: tuple[dict[str, Any], ...] = ()
    answers: str | None = None


@dataclass(frozen=True)
class Conversation:
    """What a client sends, at least one user message in it.

    Attributes:
        said: all but system messages.
        system: their texts, joined.
    """

    said: tuple[Said, ...]
    system: str = ""

    @property
    def place(self) -> int:
        """Where the question stands."""
        return max(i for i, one in enumerate(self.said) if one.role == "user")

    @property
    def images(self) -> bool:
        """Whether there are any."""
        return any(one.images for one in self.said)

    @property
    def tools(self) -> bool:
        """Whether tools were called in it."""
        return any(one.calls or one.role == "tool" for one in self.said)

    def read(self) -> str:
        """What the coordinator reads in place of a training question."""
        if len(self.said) == 1 and not self.system and not self.images:
            return self.said[0].text
        lines = [f"System: {self.system}"] if self.system else []
        return "\n\n".join(lines + [f"{_LABELS[one.role]}: {_flat(one)}" for one in self.said])

    def for_role(self, state: EpisodeState, role: Role, formed: bool) -> tuple[Message, ...]:
        """What a model reads in a role; ``formed``: the reply's form is the client's. Only a Worker sees tool calls."""
        place = self.place
        question = self.said[place]
        (_, instruction), (_, wrapped) = messages(replace(state, prompt=question.text), role)
        if formed and role is Role.WORKER:
            instruction = FORMED
        system = f"{instruction}\n\n{_CLIENTS}\n\n{self.system}" if self.system else instruction
        working = role is Role.WORKER
        before, after = (
            [_message(one, working) for one in part] for part in (self.said[:place], self.said[place + 1 :])
        )
        return (Message("system", system), *before, _message(replace(question, text=wrapped), True), *after)

    def alone(self) -> tuple[Message, ...]:
        """What a single model reads that answers without coordination: the conversation as it is."""
        system = (Message("system", self.system),) if self.system else ()
        return (*system, *(_message(one, True) for one in self.said))


def _message(said: Said, rich: bool) -> Message:
    if not rich and (said.calls or said.role == "tool"):
        return Message("assistant" if said.calls else "user", _flat(replace(said, images=())))
    fields: dict[str, Any] = {}
    if said.images:
        fields["content"] = [{"type": "text", "text": said.text}, *said.images]
    if said.calls:
        fields |= {"content": said.text or None, "tool_calls": list(said.calls)}
    if said.answers is not None:
        fields["tool_call_id"] = said.answers
    if not fields:
        return Message(said.role, said.text)
    return RichMessage(said.role, said.text, json.dumps(fields), len(said.images))


def _flat(said: Said) -> str:
    """A message as text alone."""
    called = [f"[calls {call['function']['name']}({call['function']['arguments']})]" for call in said.calls]
    return "\n".join(filter(None, (said.text, *called, *("[image]" for _ in said.images))))
