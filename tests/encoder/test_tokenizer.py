import json
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from trinity_jax.encoder.tokenizer import Tokenizer, load_tokenizer
from trinity_jax.errors import UserError

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["1 2", "12 3", "123 4", "h i", "Ġ hi", "Ċ Ċ"]
SPECIAL = {"<|bos|>": 3, "<|end|>": 3, "<think>": 4}
TOKENS = [*BYTES, *(merge.replace(" ", "") for merge in MERGES), *SPECIAL]


def write(path: Path, pre: str = "gpt-2", **changes: object) -> Path:
    """A byte-level BPE vocabulary and nothing else; a change of ``None`` leaves a key out."""
    writer = gguf.GGUFWriter(path, "llama")
    kinds = [SPECIAL.get(token, 1) for token in TOKENS]
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": TOKENS,
        "token_type": kinds,
        "merges": MERGES,
        "bos_token_id": TOKENS.index("<|bos|>"),
        "eos_token_id": TOKENS.index("<|end|>"),
    } | changes
    for key, value in keys.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


@pytest.mark.parametrize(
    "pre, digits, spaced",
    [
        ("gpt-2", ["1234"], [" hi", "\n", "\n", "hi"]),  # the last of several blanks goes to the word
        ("smollm", ["1", "2", "3", "4"], [" hi", "\n", "\n", "hi"]),
        ("qwen2", ["1", "2", "3", "4"], [" hi", "\n\n", "hi"]),
        ("llama-bpe", ["123", "4"], [" hi", "\n\n", "hi"]),
    ],
)
def test_words_are_split_as_the_family_does(tmp_path, pre, digits, spaced):
    tokenizer = load_tokenizer(str(write(tmp_path / "t.gguf", pre)))
    assert pieces(tokenizer, "1234") == digits
    assert pieces(tokenizer, " hi\n\nhi") == spaced


def test_special_tokens_stand_alone_wherever_they_are(tmp_path):
    tokenizer = load_tokenizer(str(write(tmp_path / "t.gguf")))
    assert pieces(tokenizer, "hi<think>hi<|end|>") == ["hi", "<think>", "hi", "<|end|>"]
    assert tokenizer.vocab_size == len(TOKENS)


def test_bos_only_where_the_file_says_so(tmp_path):
    bos = TOKENS.index("<|bos|>")
    without = load_tokenizer(str(write(tmp_path / "a.gguf", add_bos_token=False)))
    with_bos = load_tokenizer(str(write(tmp_path / "b.gguf", add_bos_token=True)))
    assert without.encode("hi", bos=True) == without.encode("hi") == with_bos.encode("hi")
    assert with_bos.encode("hi", bos=True) == [bos, *with_bos.encode("hi")]
    # llama.cpp gives Llama 3 a BOS where the key is absent.
    assert load_tokenizer(str(write(tmp_path / "c.gguf", "llama-bpe"))).encode("hi", bos=True)[0] == bos


def test_bad_files_are_explained(tmp_path):
    def load(name: str, **changes: object) -> Tokenizer:
        return load_tokenizer(str(write(tmp_path / name, **changes)))  # type: ignore[arg-type]

    with pytest.raises(UserError, match=r"tokenizer\.ggml\.pre is 'viking', known are .*gpt-2.*qwen2.*smollm"):
        load("a.gguf", pre="viking")
    with pytest.raises(UserError, match=r"tokenizer\.ggml\.model is 'llama'"):
        load("b.gguf", model="llama")
    with pytest.raises(UserError, match=r"tokenizer\.ggml\.merges is missing"):
        load("c.gguf", merges=None)
    with pytest.raises(UserError, match="merges do not fit the vocabulary"):
        load("d.gguf", merges=["h i", "no such"])
    with pytest.raises(UserError, match="tokens but 2 token types"):
        load("e.gguf", token_type=[1, 1])
    with pytest.raises(UserError, match="twice"):
        load("f.gguf", tokens=[*TOKENS[:-1], "a"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=r"no tokenizer there \(expected one of tokenizer\.json"):
        load_tokenizer(str(tmp_path / "folder"))
    (tmp_path / "folder" / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="no usable tokenizer there"):
        load_tokenizer(str(tmp_path / "folder"))
    with pytest.raises(UserError, match=r"encoder\.source"):
        load_tokenizer(str(tmp_path / "nowhere"))


def test_a_folder_gives_the_same_tokens(tmp_path):
    built = load_tokenizer(str(write(tmp_path / "t.gguf", "smollm")))
    built._fast.save_pretrained(tmp_path / "folder")
    config = json.loads((tmp_path / "folder" / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ enable_thinking }}"
    (tmp_path / "folder" / "tokenizer_config.json").write_text(json.dumps(config))
    folder = load_tokenizer(str(tmp_path / "folder"))
    text = " hi 1234\n\n<think>hi<|end|>é"
    assert folder.encode(text) == built.encode(text)
    assert folder.decode(folder.encode(text)) == text
    assert folder.render([{"role": "user", "content": "hi"}]) == "<user>hiFalse"
    with pytest.raises(UserError, match=r"no chat template; use encoder\.input_format: plain"):
        built.render([{"role": "user", "content": "hi"}])


def test_a_template_that_rejects_system_messages_is_explained(tmp_path):
    tokenizer = load_tokenizer(str(write(tmp_path / "t.gguf")))
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    strict = Tokenizer(tokenizer._fast, "strict")
    strict._fast.chat_template = strict.chat_template = template
    with pytest.raises(UserError, match=r"does not accept the roles \['system', 'user'\] \(no system\)"):
        strict.render([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return load_tokenizer("embedded")


def test_embedded_tokenizer_is_smollm2s(smollm2):
    assert smollm2.encode("Hello world") == [19556, 905]
    assert pieces(smollm2, " 3456 it's") == [" ", "3", "4", "5", "6", " it", "'s"]
    assert smollm2.encode("<|im_start|>user\n") == [1, 4093, 198]
    assert smollm2.encode("Hello", bos=True) == smollm2.encode("Hello")
    assert smollm2.vocab_size == 49_152


# Its vocabulary lacks the bytes of some control characters and of the planes beyond U+3FFFF.
ENCODABLE = st.characters(exclude_categories=("Cc", "Cs"), max_codepoint=0x3FFFF, include_characters="\n\t")


@settings(max_examples=200, deadline=None)
@given(text=st.text(ENCODABLE, max_size=60))
def test_embedded_tokenizer_loses_nothing(smollm2, text):
    assert smollm2.decode(smollm2.encode(text)) == text
