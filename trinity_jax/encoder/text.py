"""What the encoder reads: router prompt, token ids, the row that is read out, length buckets."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from trinity_jax.config import EncoderSettings
from trinity_jax.errors import UserError

_INSTRUCTION = "You are a dispatcher. Pick which of {n} models speaks next, and as what: worker, thinker or verifier."


class TextTokenizer(Protocol):
    """The part of a tokenizer that the router needs."""

    def encode(self, text: str, bos: bool = False) -> list[int]:
        """Token ids of a text."""
        ...

    def render(self, messages: Sequence[dict[str, str]]) -> str:
        """Messages through the chat template, ready for the assistant to speak."""
        ...


class Router:
    """Turns what an episode shows the coordinator into token ids.

    Two messages, a short system instruction and the user's text, go through the chat template
    (``input_format: chat``) or become ``role: content`` lines (``plain``). A transcript longer than the largest bucket
    loses the middle of its user text; the question's beginning and the latest thoughts stay.

    Attributes:
        cuts: how many transcripts have been cut so far.
    """

    def __init__(self, tokenizer: TextTokenizer, settings: EncoderSettings, pool_size: int, cache: int = 16_384):
        """Measure the frame around the user's text.

        Args:
            tokenizer: the encoder's.
            settings: input format, buckets, read position.
            pool_size: L, named in the instruction.
            cache: how many transcripts are remembered.

        Raises:
            UserError: no room for any user text in the largest bucket, a read position before the first token, or a
                chat template that is missing or rejects a system message.
        """
        self.tokenizer = tokenizer
        self._input_format: Literal["chat", "plain"] = settings.input_format
        self._instruction = _INSTRUCTION.format(n=pool_size)
        self._longest = settings.buckets[-1]
        self.cuts = 0
        # Two texts that differ everywhere: what their ids share is the frame.
        one, other = self._encode("a"), self._encode("0")
        self._head = _shared(one, other)
        self._tail = _shared(one[::-1], other[::-1])
        frame = self._head + self._tail
        if frame >= self._longest:
            raise UserError(
                f"encoder.buckets: the largest is {self._longest}, but the router prompt alone has {frame} tokens"
            )
        if -settings.read_position > frame:
            raise UserError(
                f"encoder.read_position: {settings.read_position} can lie before the first of {frame + 1} tokens"
            )
        self._cached = lru_cache(cache)(self._cut)

    def ids(self, view: str) -> tuple[int, ...]:
        """Token ids of at most the largest bucket for one transcript (pure; remembered by text)."""
        return self._cached(view)

    def _cut(self, view: str) -> tuple[int, ...]:
        ids = self._encode(view)
        self.cuts += len(ids) > self._longest
        return cut(ids, self._longest, self._head, self._tail)

    def _encode(self, view: str) -> tuple[int, ...]:
        messages = [{"role": "system", "content": self._instruction}, {"role": "user", "content": view}]
        return encode(self.tokenizer, messages, self._input_format)


def encode(
    tokenizer: TextTokenizer, messages: Sequence[dict[str, str]], input_format: Literal["chat", "plain"]
) -> tuple[int, ...]:
    """Token ids of messages: through the chat template, or as ``role: content`` lines and nothing after the last."""
    if input_format == "chat":
        return tuple(tokenizer.encode(tokenizer.render(messages)))
    lines = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
    return tuple(tokenizer.encode(lines, bos=True))


def cut(ids: Sequence[int], longest: int, head: int, tail: int) -> tuple[int, ...]:
    """Shorten to ``longest`` tokens by leaving out the middle of what lies between frame and frame.

    Whole tokens go, so a special token is never halved. The room left by the frame is shared evenly: its first half is
    spent after the ``head`` first tokens, the rest before the ``tail`` last.

    Returns:
        ids unchanged where they fit, else exactly ``longest`` of them.
    """
    if len(ids) <= longest:
        return tuple(ids)
    room = longest - head - tail
    if room < 0:
        raise ValueError(f"a frame of {head} + {tail} tokens does not fit into {longest}")
    front = head + room // 2
    return (*ids[:front], *ids[len(ids) - (longest - front) :])


def bucket(length: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds ``length`` tokens.

    Raises:
        ValueError: it is longer than the largest bucket.
    """
    for size in buckets:
        if length <= size:
            return size
    raise ValueError(f"{length} tokens do not fit into any of the buckets {list(buckets)}")


def read_row(length: int, read_position: int) -> int:
    """The row of h for a transcript of ``length`` tokens (unpadded) and a position counted from its end.

    Raises:
        ValueError: the row would lie before the first token, or the position is not negative.
    """
    row = length + read_position
    if not 0 <= row < length:
        raise ValueError(f"read position {read_position} lies outside {length} tokens")
    return row


def pad(ids: Sequence[int], size: int) -> np.ndarray:
    """Right-pad to one bucket: int32 ``[size]``, zeros after the text.

    Under a causal mask no earlier position sees the padding, so its value is free.
    """
    if len(ids) > size:
        raise ValueError(f"{len(ids)} tokens do not fit into {size}")
    row = np.zeros(size, np.int32)
    row[: len(ids)] = ids
    return row


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
