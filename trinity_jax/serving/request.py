"""What a client may ask of one request, whatever the wire form."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from trinity_jax.config import Group, Positive
from trinity_jax.serving.conversation import Conversation


class Wishes(Group):
    """The object ``trinity`` in a request's body: caps, a mask over the pool, and whether to call anybody at all."""

    max_calls: Positive | None = Field(default=None, le=1000)
    max_cost: float | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, gt=0)
    models: tuple[Annotated[str, Field(max_length=200)], ...] | None = Field(
        default=None, min_length=1, max_length=1000
    )
    dry_run: bool = False


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        conversation: what was said.
        wishes: caps, mask, dry run.
        form: fields of chat completions that go to the Worker: ``tools``, ``tool_choice``, ``parallel_tool_calls``,
            ``response_format``.
        max_tokens: bounds every reply of a Worker, beside the pool's own setting.
        temperature: of a Worker, where the pool sets one at all.
        stop: the answer ends before the first of these.
        seed: equal seeds draw equal choices; None draws a new one.
        streamed: counted apart in metrics.
    """

    conversation: Conversation
    wishes: Wishes = field(default_factory=Wishes)
    form: dict[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    streamed: bool = False

    @property
    def formed(self) -> bool:
        """Whether the reply's form is the client's."""
        return bool(self.form.get("tools") or self.form.get("response_format"))

    @property
    def rich(self) -> bool:
        """Whether it needs a wire format that carries more than texts."""
        return bool(self.form) or self.conversation.images or self.conversation.tools
