"""Wire formats as pure functions: a call to a request body, a response body to a reply.

Reasoning never goes back to a server: a call of ours is one system and one user message, and what a transcript takes
from a reply is its text. So no message can carry reasoning, and no format has a rule for it.
"""

from typing import Any

from trinity_jax.config import PriceSettings
from trinity_jax.pool.reply import Call, Outcome, Reply
from trinity_jax.pool.wire.anthropic import ANTHROPIC
from trinity_jax.pool.wire.chat import CHAT
from trinity_jax.pool.wire.common import Failed, Format, clashes, fit, parsed, reply_of, short, split_reasoning
from trinity_jax.pool.wire.errors import error_in, failure, header_wait
from trinity_jax.pool.wire.gemini import GEMINI
from trinity_jax.pool.wire.responses import RESPONSES

__all__ = [
    "FORMATS",
    "Failed",
    "Format",
    "clashes",
    "fit",
    "header_wait",
    "read_reply",
    "request_body",
    "split_reasoning",
]

FORMATS = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI}


def request_body(call: Call) -> dict[str, Any]:
    """The JSON object to send in the call's format."""
    return FORMATS[call.sampling.format].body(call)


def read_reply(call: Call, price: PriceSettings, status: int, body: bytes, after: float | None = None) -> Reply:
    """The reply in a complete HTTP response.

    Args:
        call: what was asked: its format, and what bounds the tokens where the server does not count them.
        price: prices per million tokens.
        status: HTTP status.
        body: the body's bytes.
        after: seconds that the response's headers ask to wait (`header_wait`).

    Raises:
        Failed: there is none.
    """
    form = FORMATS[call.sampling.format]
    text = body.decode("utf-8", "replace")
    data = parsed(text)
    if isinstance(data, list) and len(data) == 1:
        data = data[0]  # Google wraps errors so
    error = error_in(data) if isinstance(data, dict) else None
    if error or not 200 <= status < 300:
        raise failure(error, text, status, after)
    if not isinstance(data, dict):
        # A cut object is worth another attempt, a page of HTML is not.
        cut = data is None and text.lstrip().startswith("{")
        what = "JSON that breaks off" if cut else "something other than a JSON object"
        raise Failed(Outcome.MALFORMED, f"HTTP {status} with {what}: {short(text)}", again=cut, billed=True)
    answer = form.read(data)
    if answer is None:
        raise Failed(Outcome.MALFORMED, f"HTTP {status} without {form.holds}: {short(text)}", billed=True)
    return reply_of(call, price, answer)
