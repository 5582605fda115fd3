"""A request that cannot be answered, in OpenAI's error form."""

from typing import Any

from trinity_jax.pool.reply import Outcome, Reply

_MOST_CHARS = 1000  # a message may name what the client sent, and is kept in traces


class Refused(Exception):  # noqa: N818 (an answer to a client, not an error of this program)
    """Why a request gets no answer.

    Args:
        status: HTTP status.
        message: what was expected and what came.
        kind: OpenAI's ``type``: ``invalid_request_error``, ``rate_limit_error``, ``server_error``.
        code: for programs.
        param: the field of the request that is meant.
        after: seconds after which another try may go better.
    """

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        after: float | None = None,
    ):
        super().__init__(message[:_MOST_CHARS])
        self.status, self.kind, self.code, self.after = status, kind, code, after
        self.param = param and param[:_MOST_CHARS]

    def body(self) -> dict[str, Any]:
        """The JSON object to send."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


def internal() -> Refused:
    """A fault of this program."""
    return Refused(500, "internal error; the server's log has it", "server_error", "internal_error")


_FAILURES = {
    Outcome.RATE_LIMITED: (429, "rate_limit_error", "rate_limit_exceeded"),
    Outcome.TIMEOUT: (504, "server_error", "timeout"),
    Outcome.CONTEXT_OVERFLOW: (400, "invalid_request_error", "context_length_exceeded"),
    Outcome.FILTERED: (400, "invalid_request_error", "content_filter"),
    Outcome.REFUSED_BUDGET: (429, "insufficient_quota", "insufficient_quota"),
}


def failed(replies: list[tuple[str, Reply]]) -> Refused:
    """No model could answer; the first one's failure decides the status."""
    said = "; ".join(f"{name}: {reply.outcome} ({reply.detail or 'no detail'})" for name, reply in replies)
    outcome = replies[0][1].outcome
    status, kind, code = _FAILURES.get(outcome, (502, "server_error", "pool_unavailable"))
    after = 5.0 if outcome is Outcome.RATE_LIMITED else None
    return Refused(status, f"no model of the pool could answer: {said}", kind, code, after=after)
