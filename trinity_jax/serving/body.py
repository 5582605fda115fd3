"""A request's body as a JSON object: bounded in bytes and time, and nothing in it that JSON or UTF-8 does not have."""

import asyncio
import json
from collections.abc import Callable
from math import isfinite
from typing import Any

from aiohttp import ClientPayloadError, web

from trinity_jax.serving.refused import Refused

_READ_SECONDS = 60.0


async def read_body(request: web.Request, hold: Callable[[int], None]) -> dict[str, Any]:
    """The JSON object in a request's body, without halves of surrogate pairs (neither UTF-8 nor tokenizers take them).

    Args:
        request: whose body.
        hold: told how many bytes more have come; may refuse them.

    Raises:
        CancelledError: the client has gone.
        Refused: there is none.
    """
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(_READ_SECONDS):
            async for part in request.content.iter_any():
                hold(len(part))
                parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the body did not come within {_READ_SECONDS:g} s", code="timeout") from None
    except ConnectionError:
        raise asyncio.CancelledError from None
    except (web.RequestPayloadError, ClientPayloadError) as error:
        raise Refused(400, f"the body cannot be read: {error}") from None
    try:
        # Strictly: json.loads would guess the encoding and let halves of pairs through.
        text = b"".join(parts).decode("utf-8")
        found = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        if "\\u" in text:
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"We could not parse the JSON body of your request ({error})") from None
    if not isinstance(found, dict):
        raise Refused(400, f"body: expected a JSON object, got {type(found).__name__}")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    if not isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is larger than any number here")
    return number
