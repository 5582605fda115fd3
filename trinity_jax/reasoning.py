"""Reasoning aloud in a reply: models think in tags, and neither protocol nor grader may take that for the answer."""

import re

_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE)


def visible(reply: str) -> str:
    """The reply without its reasoning: what follows the last ``</think>`` (or its like), up to one left open."""
    start, end = 0, len(reply)
    for tag in _TAG.finditer(reply):
        if tag[1]:
            start, end = tag.end(), len(reply)
        elif end == len(reply):
            end = tag.start()
    return reply[start:end]
