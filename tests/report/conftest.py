import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import browser

KINDS = ("sums", "words")


def metrics_line(generation: int) -> dict[str, Any]:
    share = {"small": 0.25, "large": 0.75}
    return {
        "generation": generation,
        "fitness_mean": 0.4 + 0.01 * generation,
        "fitness_best": 0.8,
        "reward_mean": 0.4,
        "validation_accuracy": 0.5 if generation % 2 else None,
        "sigma": 0.5,
        "mean_norm": 0.1 * generation,
        "diagonal_spread": 1.0 + 0.001 * generation,
        "model_share": share,
        "role_share": {"worker": 0.5, "thinker": 0.2, "verifier": 0.3},
        "model_share_by_kind": dict.fromkeys(KINDS, share),
        "choice_share_by_kind": {kind: {"small": {"worker": 0.25}, "large": {"verifier": 0.75}} for kind in KINDS},
        "fitness_low": 0.3,
        "fitness_high": 0.5 + 0.01 * generation,
        "validation_episodes": 32 if generation % 2 else 0,
        "failures": {"timeout": 2},
        "calls": 100,
        "calls_without_sharing": 250,
        "input_tokens": 1000,
        "output_tokens": 200,
        "cost": 0.5,
        "failed_share": 0.0,
        "no_response_share": 0.0,
        "undecided_share": 0.1,
        "distinct_transcripts": 40,
        "new_transcripts": 30,
        "seconds": {
            "ask": 0.1,
            "rollout": 2.0,
            "decide": 1.0,
            "tell": 0.1,
            "validate": 0.2,
            "total": 3,
        },
        "alarms": ["every reward was the same"] if generation == 0 else [],
    }


def episode(n: int, grade: str = "right", text: str = "<answer>2</answer>") -> dict[str, Any]:
    return {
        "question": f"Question {n}?",
        "kind": KINDS[n % 2],
        "answer": "2",
        "reward": float(grade == "right"),
        "grade": grade,
        "end": "accepted",
        "turns": [
            {"model": "small", "role": "thinker", "text": "Count.", "verdict": None},
            {"model": "large", "role": "worker", "text": text, "verdict": None},
            {"model": 0, "role": "verifier", "text": "VERDICT: REJECT", "verdict": False},
            {"model": "large", "role": "verifier", "text": "VERDICT: ACCEPT", "verdict": True},
        ],
    }


def estimate(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.1, "high": mean + 0.1}


SUMMARY = {
    "verdict": "On 64 held-out questions the coordinator answered 71.9 % right.",
    "n": 19456,
    "fixed_policy_search": {"policies": 12, "questions": 48, "repeats": 7, "calls": 1234, "calls_made": 321},
    "rows": [
        {
            "name": name,
            "accuracy": estimate(mean),
            "difference": None if name == "coordinator" else estimate(0.719 - mean),
            "calls_per_question": 3.25,
            "calls": 208,
            "undecided_share": 0.0,
            "incomplete_share": None,
            "by_kind": {"sums": mean, "words": None},
            "note": "Worker small, Verifier large" if name == "best fixed tri-role policy" else "",
        }
        for name, mean in (("coordinator", 0.719), ("best fixed tri-role policy", 0.5))
    ],
}


EVALUATION = {
    "verdict": "The coordinator beats the best single model by 9 points.",
    "questions": 64,
    "repeats": 4,
    "terms": ["Every method had 3.25 calls a question."],
    "left_out": ["No router: there are no training questions."],
    "rows": [
        {
            "name": name,
            "accuracy": estimate(mean),
            "difference": None if name == "coordinator" else estimate(0.7 - mean),
            "over_single": None if name == "large" else estimate(mean - 0.6),
            "calls_per_question": 3.25,
            "tokens_per_question": 1234.0,
            "cost_per_question": 0.00123,
            "seconds_per_question": 1.5,
            "undecided_share": 0.0,
            "incomplete_share": 0.0,
            "by_kind": {"sums": mean, "words": mean},
            "note": "",
        }
        for name, mean in (("coordinator", 0.7), ("large", 0.6))
    ],
    "transfer": {
        "rows": ["sums only", "words only"],
        "columns": list(KINDS),
        "accuracy": [[0.9, 0.3], [0.2, None]],
        "low": [[0.8, 0.2], [0.1, None]],
        "high": [[1.0, 0.4], [0.3, None]],
    },
}


@pytest.fixture
def make_run(tmp_path) -> Callable[..., Path]:
    def make(generations: int = 6, summary: Any = SUMMARY, transcripts: Any = None) -> Path:
        run = tmp_path / "my run"
        run.mkdir(exist_ok=True)
        (run / "config.yaml").write_text("seed: 1\npool:\n  simulated:\n  - name: small\n  - name: large\n")
        lines = "".join(json.dumps(metrics_line(g)) + "\n" for g in range(generations))
        (run / "metrics.jsonl").write_text(lines)
        if summary is not None:
            (run / "summary.json").write_text(json.dumps(summary))
        episodes = (
            [episode(n, ("right", "wrong")[n // 2 % 2]) for n in range(40)] if transcripts is None else transcripts
        )
        (run / "transcripts.jsonl").write_text("".join(json.dumps(e) + "\n" for e in episodes))
        return run

    return make


@pytest.fixture(scope="session")
def chromium() -> Iterator[browser.Browser]:
    if browser.found() is None:
        pytest.skip("chromium is not installed")
    with browser.chromium() as running:
        yield running


@pytest.fixture
def open_page(chromium) -> Iterator[Callable[..., browser.Tab]]:
    tabs: list[browser.Tab] = []

    def open_page(url: str, **options: Any) -> browser.Tab:
        tabs.append(browser.Tab(chromium, url, **options))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.close()
