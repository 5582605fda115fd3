"""What providers write when a call fails, word for word as they have been reported; when they ask to come back."""

import json
from typing import Any

import pytest

from trinity_jax.config import PriceSettings
from trinity_jax.pool.reply import Call, Message, Outcome, Sampling
from trinity_jax.pool.wire import FORMATS, Failed, header_wait, read_reply

OVERFLOW, FILTERED, RATE = Outcome.CONTEXT_OVERFLOW, Outcome.FILTERED, Outcome.RATE_LIMITED
ERROR, TIMEOUT = Outcome.ERROR, Outcome.TIMEOUT


def failed(status: int, body: Any, after: float | None = None, form: str = "chat") -> Failed:
    call = Call("http://a/v1", "m", "worker", (Message("user", "q"),), Sampling(format=form))
    text = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(Failed) as caught:
        read_reply(call, PriceSettings(), status, text.encode(), after)
    return caught.value


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def typed(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


GEMINI_DAY = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}
GEMINI_MINUTE = {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}


def gemini(code: int, status: str, message: str, *details: dict[str, Any]) -> dict[str, Any]:
    return error(message, code=code, status=status, details=list(details))


def quota(violation: dict[str, str]) -> dict[str, Any]:
    failure = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}
    words = "You exceeded your current quota, please check your plan and billing details."
    return gemini(429, "RESOURCE_EXHAUSTED", words, failure, info)


# status, body, outcome, whether again, seconds asked
ERRORS = {
    "OpenAI, overflow": (
        400,
        error("This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
        OVERFLOW,
        False,
        None,
    ),
    "Responses, overflow": (
        400,
        error("Your input exceeds the context window of this model. Please adjust your input and try again."),
        OVERFLOW,
        False,
        None,
    ),
    "vLLM, overflow": (
        400,
        {
            "object": "error",
            "message": "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
            "length is 4096 tokens and your request has 20 input tokens",
            "type": "BadRequestError",
            "code": 400,
        },
        OVERFLOW,
        False,
        None,
    ),
    "SGLang, overflow": (
        400,
        {"object": "error", "message": "The input (9000 tokens) is longer than the model's context length (4096)."},
        OVERFLOW,
        False,
        None,
    ),
    "llama.cpp, overflow": (
        400,
        error("request (9000 tokens) exceeds the available context size (4096 tokens)", code=400),
        OVERFLOW,
        False,
        None,
    ),
    "TGI, overflow": (
        422,
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096", "error_type": "x"},
        OVERFLOW,
        False,
        None,
    ),
    "LiteLLM, overflow": (400, error("litellm.ContextWindowExceededError: too long"), OVERFLOW, False, None),
    "xAI, overflow": (
        400,
        error("This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
        OVERFLOW,
        False,
        None,
    ),
    "Groq, overflow": (400, error("Please reduce the length of the messages or completion."), OVERFLOW, False, None),
    "Mistral, overflow": (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        },
        OVERFLOW,
        False,
        None,
    ),
    "Anthropic, overflow": (
        400,
        typed("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        OVERFLOW,
        False,
        None,
    ),
    "Anthropic, overflow with max_tokens": (
        400,
        typed("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        OVERFLOW,
        False,
        None,
    ),
    "Anthropic, overflow in bytes": (
        413,
        typed("request_too_large", "Request exceeds the maximum size"),
        OVERFLOW,
        False,
        None,
    ),
    "Gemini, overflow": (
        400,
        gemini(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
        ),
        OVERFLOW,
        False,
        None,
    ),
    "Gemini, overflow in a list": (
        400,
        [
            gemini(
                400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number of tokens allowed (8)."
            )
        ],
        OVERFLOW,
        False,
        None,
    ),
    "HTTP 200, overflow": (200, error("prompt is too long: 9000 tokens"), OVERFLOW, False, None),
    "Azure, filtered": (
        400,
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            code="content_filter",
        ),
        FILTERED,
        False,
        None,
    ),
    "Responses, filtered": (
        400,
        error(
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", code="invalid_prompt"
        ),
        FILTERED,
        False,
        None,
    ),
    "Anthropic, filtered": (
        400,
        typed("invalid_request_error", "Output blocked by content filtering policy"),
        FILTERED,
        False,
        None,
    ),
    "OpenRouter, filtered": (
        403,
        error("Input was flagged", code=403, metadata={"reasons": ["x"], "flagged_input": "..."}),
        FILTERED,
        False,
        None,
    ),
    "DeepSeek, filtered": (400, error("Content Exists Risk", type="invalid_request_error"), FILTERED, False, None),
    "OpenAI, rate": (
        429,
        error(
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000. Please try again in 1.2s.",
            code="rate_limit_exceeded",
        ),
        RATE,
        True,
        1.2,
    ),
    "OpenAI, rate in minutes": (429, error("Rate limit reached. Please try again in 6m0s."), RATE, True, 360.0),
    "OpenAI, rate in ms": (429, error("Rate limit reached. Please try again in 20ms."), RATE, True, 0.02),
    "Groq, rate": (429, error("Please try again in 2m59.5s. Visit https://x.y"), RATE, True, 179.5),
    "Azure, rate": (429, error("Please retry after 26 seconds.", code="429"), RATE, True, 26.0),
    "no number": (429, error("Please try again in a moment."), RATE, True, None),
    "Anthropic, rate": (
        429,
        typed("rate_limit_error", "This request would exceed your organization's rate limit"),
        RATE,
        True,
        None,
    ),
    "Gemini, a minute's quota": (429, quota(GEMINI_MINUTE), RATE, True, 34.07),
    "Anthropic, overloaded": (529, typed("overloaded_error", "Overloaded"), RATE, True, None),
    "Gemini, overloaded": (
        503,
        gemini(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
        RATE,
        True,
        None,
    ),
    "HTTP 200, rate": (200, error("Rate limit exceeded", code=429), RATE, True, None),
    "HTTP 200, overloaded": (200, typed("overloaded_error", "Overloaded"), RATE, True, None),
    "OpenAI, quota": (
        429,
        error(
            "You exceeded your current quota, please check your plan and billing details.", code="insufficient_quota"
        ),
        RATE,
        False,
        None,
    ),
    "OpenAI, larger than the limit": (
        429,
        error("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000."),
        RATE,
        False,
        None,
    ),
    "Groq, larger than the limit": (
        413,
        error("Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000"),
        RATE,
        False,
        None,
    ),
    "Anthropic, quota": (
        400,
        typed("invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
        RATE,
        False,
        None,
    ),
    "DeepSeek, quota": (402, error("Insufficient Balance"), RATE, False, None),
    "OpenRouter, quota": (402, error("Insufficient credits. Add more using https://x.y", code=402), RATE, False, None),
    "Gemini, a day's quota": (429, quota(GEMINI_DAY), RATE, False, None),
    "HTTP 200, broken upstream": (200, error("Provider returned error", code=502), ERROR, True, None),
    "HTTP 200, error as text": (200, {"error": "model not found"}, ERROR, False, None),
    "HTTP 200, error as an object": (200, {"object": "error", "message": "no", "code": 400}, ERROR, False, None),
    "Responses, failed": (
        200,
        {"object": "response", "status": "failed", "error": {"code": "server_error", "message": "x"}, "output": []},
        ERROR,
        True,
        None,
    ),
    "OpenAI, a limit above the model's": (
        400,
        error("max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
        ERROR,
        False,
        None,
    ),
    "a bad key": (401, error("prompt is too long for this key"), ERROR, False, None),
    "Gemini, a bad key": (400, gemini(400, "INVALID_ARGUMENT", "API key not valid."), ERROR, False, None),
    "a gateway's page": (502, "<html>bad gateway</html>", ERROR, True, None),
    "a gateway's time-out": (504, "<html>gateway timeout</html>", TIMEOUT, True, None),
    "nothing at all": (500, "", ERROR, True, None),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("status, body, outcome, again, after", ERRORS.values(), ids=ERRORS.keys())
def test_errors_in_each_providers_words(status, body, outcome, again, after, form):
    caught = failed(status, body, form=form)
    assert (caught.outcome, caught.again) == (outcome, again)
    assert caught.after == (pytest.approx(after) if after is not None else None)
    assert str(caught).startswith(f"HTTP {status}")


def test_a_choice_may_carry_the_error():
    caught = failed(200, {"choices": [{"error": {"message": "upstream died", "code": 502}}]})
    assert (caught.outcome, caught.again) == (ERROR, True)


def test_headers_go_before_the_body():
    assert failed(429, error("Please try again in 6m0s."), after=2.0).after == 2.0


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "7", "retry-after-ms": "6500"}, 6.5),
        ({"Retry-After": "7", "retry-after-ms": "soon"}, 7.0),
        ({"retry-after-ms": "-5"}, 0.0),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
    ],
)
def test_seconds_that_headers_ask(headers, seconds):
    assert header_wait(headers) == seconds
