"""The paper's own ablations (arXiv 2512.04695): percent on LiveCodeBench v6, MATH500, MMLU, RLPR."""

from experiments.ablation.arms import NO_ROLES, NO_THINKER

Scores = tuple[float, float, float, float]

BENCHMARKS = ("LCB", "MATH", "MMLU", "RLPR")
TRINITY: Scores = (61.46, 88.00, 91.56, 40.72)
"""Linear head, second-to-last token, scales of the second-to-last layer, all roles."""

HEAD_SCORES: dict[str, Scores] = {
    "linear": TRINITY,
    "low-rank": (59.7, 77.0, 91.4, 34.4),
    "sparse": (40.0, 81.1, 91.7, 37.2),
    "block-diagonal-2": (33.6, 77.6, 89.7, 37.8),
    "block-diagonal-10, argmax": (55.1, 81.2, 80.2, 37.6),
}
PROTOCOL_SCORES: dict[str, Scores] = {NO_THINKER: (57.80, 86.20, 92.75, 38.00), NO_ROLES: (58.28, 82.00, 91.64, 36.15)}
LAST_TOKEN: Scores = (50.85, 87.00, 82.19, 38.60)
WITHOUT_SCALES: Scores = (55.68, 85.85, 90.10, 39.77)
WIDTH, MODELS = 1024, 7


def cells(scores: Scores | None) -> list[str]:
    """The four numbers, and their mean less Trinity's in points; empty where the paper has no such row."""
    if scores is None:
        return ["", ""]
    change = sum(scores) / len(scores) - sum(TRINITY) / len(TRINITY)
    return [" / ".join(f"{score:.1f}" for score in scores), f"{change:+.1f}" if scores != TRINITY else "0"]


COLUMNS = [f"paper: {' / '.join(BENCHMARKS)}", "paper: mean less Trinity"]
