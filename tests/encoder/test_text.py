import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from trinity_jax.config import EncoderSettings
from trinity_jax.encoder.text import Router, bucket, cut, encode, pad, read_row
from trinity_jax.encoder.tokenizer import Tokenizer, load_tokenizer
from trinity_jax.errors import UserError

# Thinking as Qwen3 has it: an empty thought closes the prompt when thinking is disabled.
THINKING = (
    "{% for m in messages %}<|in|>{{ m.role }}\n{{ m.content }}<|out|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|in|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
MARKS = ["<|in|>", "<|out|>", "<think>", "</think>"]


def word_level(template: str | None = THINKING) -> Tokenizer:
    """Words, runs of line breaks and single signs; whatever is unknown is one token."""
    words = ["?", "\n", "\n\n", "system", "user", "assistant", "a", "0", ":", *(f"w{i}" for i in range(500))]
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+|\w+|[^\s\w]"), behavior="isolated")
    backend.add_special_tokens(MARKS)
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template, unk_token="?"), "words")


WORDS = word_level()


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return load_tokenizer("embedded")


def test_chat_of_smollm2_reads_the_end_of_assistant(smollm2):
    router = Router(smollm2, EncoderSettings(), pool_size=4)
    ids = router.ids("What is 12 + 30?")
    text = smollm2.decode(ids)
    assert text.startswith("<|im_start|>system\n")
    assert " 4 models" in text
    assert text.endswith("<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n")
    assert smollm2.decode(ids[read_row(len(ids), -2) - 1 : read_row(len(ids), -2) + 1]) == "assistant"
    assert smollm2.decode([ids[read_row(len(ids), -1)]]) == "\n"
    assert len(router.ids("")) <= 48  # the frame is paid on every transcript


def test_chat_with_thinking_disabled_reads_the_closing_tag():
    ids = Router(WORDS, EncoderSettings(), pool_size=7).ids("w1 w2")
    assert [WORDS.decode([i]) for i in ids[-4:]] == ["<think>", "\n\n", "</think>", "\n\n"]
    assert WORDS.decode([ids[read_row(len(ids), -2)]]) == "</think>"


def test_plain_format_is_lines_of_role_and_content(smollm2):
    text = smollm2.decode(Router(smollm2, EncoderSettings(input_format="plain"), pool_size=3).ids("Why?\nBecause."))
    first, rest = text.split("\n", 1)
    assert first.startswith("system: ")
    assert " 3 models" in first
    assert rest == "user: Why?\nBecause."


MESSAGES = [{"role": role, "content": content} for role, content in (("system", "w1"), ("user", "w2"), ("user", "w3"))]


def test_messages_go_word_for_word_in_both_formats():
    chat = "".join(WORDS.decode([i]) for i in encode(WORDS, MESSAGES, "chat"))
    turns = "".join(f"<|in|>{message['role']}\n{message['content']}<|out|>\n" for message in MESSAGES)
    assert chat == turns + "<|in|>assistant\n<think>\n\n</think>\n\n"
    plain = [WORDS.decode([i]) for i in encode(WORDS, MESSAGES, "plain")]
    words = [word for word in plain if word not in ("?", "\n")]
    assert words == ["system", ":", "w1", "user", ":", "w2", "user", ":", "w3"]
    assert plain.count("\n") == 2  # between the lines, none after the last: h is of the last message


def test_special_tokens_of_a_reply_are_recognised(smollm2):
    router = Router(smollm2, EncoderSettings(), pool_size=4)
    assert router.ids("a<|im_end|>b").count(2) == router.ids("ab").count(2) + 1


def test_long_text_loses_its_middle():
    router = Router(WORDS, EncoderSettings(buckets=(64, 100)), pool_size=7)
    fits = router.ids(" ".join(f"w{i}" for i in range(20)))
    assert router.cuts == 0
    long_view = " ".join(f"w{i}" for i in range(500))
    ids = router.ids(long_view)
    assert router.ids(long_view) is ids
    assert router.cuts == 1
    assert len(ids) == 100
    assert ids[:30] == fits[:30]
    assert ids[-8:] == fits[-8:]  # the end of the user's message and the generation prompt
    kept = [int(word[1:]) for word in WORDS.decode(ids).split() if word[1:].isdigit() and word[0] == "w"]
    assert kept[0] == 0
    assert kept[-1] == 499
    gaps = np.flatnonzero(np.diff(kept) != 1)
    assert gaps.size == 1
    assert abs((gaps[0] + 1) - len(kept) / 2) <= 1  # as much from the beginning as from the end


@settings(max_examples=100, deadline=None)
@given(
    words=st.lists(st.sampled_from(["w1", "w2", "\n", "<think>", "<|out|>", "1"]), max_size=150), plain=st.booleans()
)
def test_router_never_exceeds_the_largest_bucket_and_keeps_the_frame(words, plain):
    config = EncoderSettings(buckets=(32, 64), input_format="plain" if plain else "chat")
    unlimited = config.model_copy(update={"buckets": (10_000,)})
    view = " ".join(words)
    ids, whole = Router(WORDS, config, 7).ids(view), Router(WORDS, unlimited, 7).ids(view)
    assert len(ids) == min(len(whole), 64)
    assert ids[:20] == whole[:20]
    assert ids[-8:] == whole[-8:]


@st.composite
def cuts(draw):
    longest = draw(st.integers(1, 60))
    head = draw(st.integers(0, longest))
    return draw(st.lists(st.integers(0, 99), max_size=120)), longest, head, draw(st.integers(0, longest - head))


@given(case=cuts())
def test_cut_keeps_both_ends_and_does_nothing_twice(case):
    ids, longest, head, tail = case
    short = cut(ids, longest, head, tail)
    assert len(short) == min(len(ids), longest)
    assert list(short[:head]) == ids[:head]
    assert list(short[len(short) - tail :]) == ids[len(ids) - tail :] or len(ids) < tail
    assert cut(short, longest, head, tail) == short
    # What is left is a beginning and an end of the text.
    assert any(list(short) == ids[:i] + ids[len(ids) - (len(short) - i) :] for i in range(len(short) + 1))


BUCKETS = st.lists(st.integers(1, 2000), min_size=1, max_size=6, unique=True).map(sorted)


@given(length=st.integers(1, 2500), buckets=BUCKETS)
def test_bucket_is_the_smallest_that_holds(length, buckets):
    if length > buckets[-1]:
        with pytest.raises(ValueError, match="do not fit"):
            bucket(length, buckets)
    else:
        size = bucket(length, buckets)
        assert size == min(b for b in buckets if b >= length)


@given(ids=st.lists(st.integers(0, 2**31 - 1), max_size=40), extra=st.integers(0, 40))
def test_pad_adds_zeros_on_the_right(ids, extra):
    row = pad(ids, len(ids) + extra)
    assert row.dtype == np.int32
    assert row.tolist() == ids + [0] * extra


@given(length=st.integers(1, 300), position=st.integers(-300, -1))
def test_read_row_counts_from_the_end_of_the_text(length, position):
    if -position > length:
        with pytest.raises(ValueError, match="outside"):
            read_row(length, position)
    else:
        assert read_row(length, position) == range(length)[position]


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UserError, match=r"encoder\.buckets: the largest is 16, but the router prompt alone has \d\d"):
        Router(WORDS, EncoderSettings(buckets=(8, 16)), 7)
    with pytest.raises(UserError, match=r"encoder\.read_position: -900"):
        Router(WORDS, EncoderSettings(read_position=-900), 7)
    with pytest.raises(UserError, match="no chat template"):
        Router(word_level(None), EncoderSettings(), 7)
    assert Router(word_level(None), EncoderSettings(input_format="plain"), 7).ids("w1")


def test_a_generation_of_growing_transcripts_is_cheap(smollm2):
    """512 episodes of three turns; most of them repeat what another candidate has said."""
    router = Router(smollm2, EncoderSettings(), pool_size=4)
    question = "A train leaves at 9:40 and arrives at 11:15. How many minutes does it travel? " * 2
    thought = "\n<reference_thought_{}>From 9:40 to 11:15 there are {} minutes.</reference_thought_{}>"
    views = []
    for episode in range(512):
        text = f"{episode % 16} {question}"
        for turn in range(3):
            views.append(text)
            text += thought.format(turn, 60 + (episode // 16) % 8, turn)
    start = time.process_time()
    for view in views:
        router.ids(view)
    assert (time.process_time() - start) / len(views) < 0.3e-3
