import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from scipy.stats import binomtest

from tests.report.conftest import EVALUATION
from trinity_jax.errors import UserError
from trinity_jax.report import write_report
from trinity_jax.report.conversations import CONVERSATIONS, choose, outcome
from trinity_jax.report.markup import clip, points
from trinity_jax.report.page import wilson

FIGURES = 14
VOID = {"meta", "br", "line", "path", "circle", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Checks that tags nest, and collects tags, ids, references and text."""

    def __init__(self, path: Path):
        super().__init__(convert_charrefs=True)
        self.html = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(self.html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def test_a_finished_run(make_run):
    run = make_run()
    path = write_report(run)
    assert path == run / "report.html"
    assert sorted(p.name for p in run.iterdir()) == [
        "config.yaml", "metrics.jsonl", "report.html", "summary.json", "transcripts.jsonl",
    ]  # fmt: skip
    assert path.stat().st_size < 300_000
    page = Page(path)
    for part in (
        "my run",
        "On 64 held-out questions the coordinator answered 71.9 % right.",
        "best fixed tri-role policy Worker small, Verifier large",
        "71.9 [61.9, 81.9]",
        "+21.9 [ +11.9, +31.9]".replace("[ ", "["),
        "chosen among 12 on 48 training questions (played 7 times each) with 1,234 calls (of which 321 had to be made)",
        "Calls in training 600",
        "Numbers evolved 19,456",
        "Calls without sharing 1,500",
        "Generation 0: every reward was the same",
        "40 of 40 recorded episodes",
        "Thinker - small",
        "✗ rejects",
        "✓ accepts",
        "Expected answer: 2",
        "seed: 1",
    ):
        assert part in page.text.replace("\N{EN DASH}", "-"), part
    assert "What is missing" not in page.html
    titles = ["Accuracy by method", "Learning curve", "sums", "words", "Models, all kinds", "Roles, all kinds"]
    titles += ["Step size sigma", "Norm of the mean", "Spread of the diagonal", "Calls per generation"]
    for title in [
        *titles,
        "Cost per generation",
        "Episodes without a plain outcome",
        "Transcripts read by the encoder",
    ]:
        assert f"<h3>{title}</h3>" in page.html


def test_self_contained_and_accessible(make_run):
    page = Page(write_report(make_run()))
    assert not re.search(r"https?://|url\((?!#)|@import|javascript:|\bsrc=", page.html)
    (policy,) = [a["content"] or "" for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert policy.endswith("connect-src 'none'")
    assert "unsafe" not in policy
    assert "prefers-color-scheme: dark" in page.html
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.tags:
        for reference in (attrs.get("aria-labelledby") or "").split():
            assert reference in ids
        if (attrs.get("href") or "").startswith("#"):
            assert (attrs["href"] or "")[1:] in ids
    figures = [a for a in page.all("svg") if a.get("role") == "img"]
    assert len(figures) == len(page.all("figure")) == FIGURES
    assert "fitness, mean: from 40 % to 45 %" in page.text
    assert len(page.all("h1")) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert page.all("html")[0]["lang"] == "en"
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.all("th"))


def test_colours_have_contrast(make_run):
    css = Page(write_report(make_run())).html

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a: str, b: str) -> float:
        high, low = sorted((luminance(a), luminance(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    palettes = [dict(re.findall(r"--(\w+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)]
    assert len(palettes) == 2
    for palette in palettes:
        for name, colour in palette.items():
            if name in ("ink", "soft", "link", "good", "bad", "unsure"):
                assert min(contrast(colour, palette["paper"]), contrast(colour, palette["panel"])) >= 4.5, name
            elif re.fullmatch(r"s\d", name):
                assert contrast(colour, palette["paper"]) >= 3, name


@pytest.mark.parametrize("generations", [1, 2, 700])
def test_any_number_of_generations(make_run, generations):
    path = write_report(make_run(generations))
    page = Page(path)
    assert path.stat().st_size < 1_000_000
    assert "nan" not in "".join(str(attrs) for _, attrs in page.tags)
    assert len(page.all("figure")) == FIGURES


def test_a_run_that_was_stopped(make_run):
    run = make_run(3, summary=None)
    (run / "transcripts.jsonl").unlink()
    page = Page(write_report(run))
    assert "This run has completed 3 generations and has not been compared" in page.text
    assert "no summary.json: the run was stopped" in page.text
    assert "There is no transcripts.jsonl" in page.text
    assert not any(attrs.get("id") in ("result", "conversations") for _, attrs in page.tags)


def test_a_run_without_a_generation(make_run):
    run = make_run(0, summary=None, transcripts=[])
    page = Page(write_report(run))
    assert "No generation has been completed" in page.text
    (run / "metrics.jsonl").unlink()
    assert "There is no metrics.jsonl" in Page(write_report(run)).text


def test_half_written_last_lines_are_skipped_and_said(make_run):
    run = make_run(3)
    for name in ("metrics.jsonl", "transcripts.jsonl"):
        with (run / name).open("a") as file:
            file.write('{"generation": 3, "fitn')
    (run / "summary.json").write_text('{"verdict": "The coord')
    page = Page(write_report(run))
    assert "The last line of metrics.jsonl is half-written and was skipped" in page.text
    assert "The last line of transcripts.jsonl is half-written and was skipped" in page.text
    assert "summary.json is half-written" in page.text
    assert "completed 3 generations" in page.text


def test_absurd_files_are_told(make_run):
    run = make_run(2)
    (run / "summary.json").write_text("[" * 100_000)
    assert "summary.json is half-written" in Page(write_report(run)).text
    lines = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("[" * 100_000 + "\n" + lines)
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 1 is not JSON"):
        write_report(run)
    (run / "config.yaml").write_text("a: 2024-99-99")
    with pytest.raises(UserError, match=r"config\.yaml: not valid YAML: month"):
        write_report(run)


def test_text_of_models_is_never_markup(make_run):
    evil = "</div></details><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }} & \u202e \ud800 \x00 ]]>"
    bad = {
        "question": evil,
        "kind": evil,
        "answer": evil,
        "reward": 0.0,
        "grade": evil,
        "end": evil,
        "turns": [{"model": evil, "role": evil, "text": evil, "verdict": None}],
    }
    run = make_run(1, transcripts=[bad, bad])
    line = json.loads((run / "metrics.jsonl").read_text())
    line |= {"model_share": {evil: 1.0}, "model_share_by_kind": {evil: {evil: 1.0}}, "alarms": [evil]}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    row = {"name": evil, "note": evil, "by_kind": {evil: 0.1, "b": 0.2}, "accuracy": {"mean": evil}}
    (run / "summary.json").write_text(json.dumps({"verdict": evil, "rows": [row]}))
    (run / "config.yaml").write_text(json.dumps({"encoder": {"source": evil}, "pool": {"models": [{"name": evil}]}}))
    page = Page(write_report(run))
    assert len(page.all("script")) == 1  # the page's own
    assert not page.all("img")
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text


def test_an_evaluation_stands_before_the_runs_own_table(make_run):
    run = make_run()
    (run / "evaluation").mkdir()
    (run / "evaluation" / "evaluation.json").write_text(json.dumps(EVALUATION))
    text = Page(write_report(run)).text
    for part in (
        "my run The coordinator beats the best single model by 9 points.",
        "64 questions, each played 4 times.",
        "coordinator 70.0 [60.0, 80.0] +10.0 [+0.0, +20.0] 3.25 1,234 0.00123 1.50 0.0 0.0",
        "large 60.0 [50.0, 70.0] +10.0 [+0.0, +20.0] 3.25",
        "Every method had 3.25 calls a question. No router: there are no training questions.",
        "sums only 90.0 [80.0, 100.0] 30.0 [20.0, 40.0] words only 20.0 [10.0, 30.0] -",
    ):
        assert part in text, part
    assert "best fixed tri-role policy" not in text
    (run / "evaluation" / "evaluation.json").write_text('{"verdict": "The coord')
    text = Page(write_report(run)).text
    assert "evaluation.json is half-written" in text
    assert "best fixed tri-role policy" in text


def test_shares_have_intervals():
    for right, n in ((0, 10), (7, 10), (320, 320)):
        expected = binomtest(right, n).proportion_ci(method="wilson")
        assert wilson(right / n, n) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_an_older_run_without_pairs_and_counts(make_run):
    run = make_run()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    newer = (
        "choice_share_by_kind",
        "fitness_low",
        "fitness_high",
        "validation_episodes",
        "failures",
        "no_response_share",
    )
    for line in lines:
        for key in newer:
            del line[key]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = Page(write_report(run))
    assert len(page.all("figure")) == FIGURES
    assert "large: 75 %" in page.text


@pytest.mark.parametrize("junk", [None, [], {}, "x", 1, {"turns": None}, {"turns": [None, {}]}])
def test_odd_values_do_not_stop_the_page(make_run, junk):
    odd: dict = dict.fromkeys(("model_share", "model_share_by_kind", "sigma", "seconds", "alarms", "generation"), junk)
    odd["fitness_mean"] = float("nan")
    run = make_run(
        2, summary={"rows": junk, "fixed_policy_search": junk, "transfer": junk}, transcripts=[{"turns": junk}, {}]
    )
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(odd) + "\n")
    Page(write_report(run))


@pytest.mark.parametrize("huge", [1e308, 10**400, -1e300])
def test_numbers_that_no_run_writes_do_not_stop_the_page(make_run, huge):
    row = {"name": "m", "accuracy": {"mean": 0.5, "low": 0.4, "high": huge}, "difference": None, "by_kind": {}}
    run = make_run(2, summary={"rows": [row]}, transcripts=[{"turns": [{"probability": huge}]}])
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"generation": huge, "fitness_mean": huge, "sigma": huge}) + "\n")
    Page(write_report(run))


def test_long_replies_keep_the_page_small(make_run):
    long = {
        "question": "<" * 10_000,
        "turns": [{"model": "m", "role": "worker", "text": '"' * 10_000, "verdict": None}] * 20,
    }
    path = write_report(make_run(60, transcripts=[long] * 12))
    assert path.stat().st_size < 1_000_000
    assert "more characters" in Page(path).text
    page = Page(path := write_report(make_run(60, transcripts=[long] * 200)))
    assert path.stat().st_size < 3_000_000
    (said,) = re.findall(r"(\d+) of 200 recorded episodes", page.text)
    assert 20 < int(said) == len([a for a in page.all("li") if "data-turns" in a]) < 120


def test_what_is_no_run_folder_is_the_users_to_fix(tmp_path, make_run):
    with pytest.raises(UserError, match="expected a run folder, found nothing"):
        write_report(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="found a file"):
        write_report(tmp_path / "file")
    with pytest.raises(UserError, match=r"no config\.yaml"):
        write_report(tmp_path)
    run = make_run()
    (run / "config.yaml").write_text("- 1")
    with pytest.raises(UserError, match="expected a mapping of settings, got list"):
        write_report(run)
    (run / "config.yaml").write_text("a: [")
    with pytest.raises(UserError, match="not valid YAML"):
        write_report(run)


@pytest.mark.parametrize(("line", "message"), [("{oops}", "line 1 is not JSON"), ("[1]", "line 1: expected an object")])
def test_a_broken_line_before_the_last_is_the_users_to_fix(make_run, line, message):
    run = make_run(2)
    (run / "metrics.jsonl").write_text(f'{line}\n{{"generation": 1}}\n')
    with pytest.raises(UserError, match=rf"metrics\.jsonl: {message}"):
        write_report(run)


def test_chosen_conversations_cover_kinds_and_outcomes():
    def episode(kind, grade, n):
        return {"kind": kind, "grade": grade, "reward": 1.0 if grade == "right" else 0.0, "n": n}

    many = [episode("a", "right", n) for n in range(50)] + [episode("b", "wrong", 50), episode("a", "wrong", 51)]
    chosen = choose([*many, {"kind": "a", "grade": None, "reward": None, "n": 52}])
    assert [e["n"] for e in chosen] == [0, 50, 51, 52, *range(1, 50)]
    assert len(choose([episode("a", "right", n) for n in range(500)])) == CONVERSATIONS
    assert outcome(chosen[3]) == "failed"


def test_small_words():
    assert points(-0.0512) == "-5.1"
    assert points(-1e-9) == "+0.0"
    assert points(None) == points(float("nan")) == "-"
    assert clip("abcdef", 3) == "abc … (3 more characters)"
    assert clip("abc", 3) == "abc"
