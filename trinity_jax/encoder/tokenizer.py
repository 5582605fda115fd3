"""Tokenizers: from a folder, a hub id, or the metadata of a GGUF file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity_jax.encoder.checkpoint import checkpoint_folder
from trinity_jax.encoder.gguf import embedded_path, read_gguf
from trinity_jax.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, str]

# How each family cuts text into words before merging bytes (`tokenizer.ggml.pre`). `None` is GPT-2's own split;
# "digits" adds a cut around every digit.
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_SPLITS: dict[str, str | None] = {
    "gpt-2": None,
    "smollm": "digits",
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
}
_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
_CONTROL, _USER_DEFINED = 3, 4  # `tokenizer.ggml.token_type`


class Tokenizer:
    """Text to token ids and back; special tokens that stand in the text become their single ids.

    Attributes:
        chat_template: Jinja source, or ``None`` where the model has none.
        vocab_size: one more than the largest id.
        name: where it came from, for messages.
    """

    def __init__(self, fast: "PreTrainedTokenizerBase", name: str):
        self._fast = fast
        self.name = name
        template = fast.chat_template  # some models have several, by name
        self.chat_template: str | None = template.get("default") if isinstance(template, dict) else template
        self.vocab_size: int = len(fast)

    def encode(self, text: str, bos: bool = False) -> list[int]:
        """Token ids; ``bos`` also adds what the model expects around a bare text (templates bring their own)."""
        return self._fast.encode(text, add_special_tokens=bos)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        text = self._fast.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def render(self, messages: Sequence[Message]) -> str:
        """Messages through the chat template, ready for the assistant to speak, thinking disabled.

        Raises:
            UserError: no chat template, or one that rejects these messages.
        """
        if self.chat_template is None:
            raise UserError(f"{self.name}: the tokenizer has no chat template; use encoder.input_format: plain")
        from jinja2 import TemplateError

        try:
            # Templates without a thinking mode ignore the variable.
            text = self._fast.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except (TemplateError, TypeError) as error:
            roles = [message["role"] for message in messages]
            raise UserError(
                f"{self.name}: the chat template does not accept the roles {roles} ({error}); "
                "use encoder.input_format: plain"
            ) from error
        assert isinstance(text, str)
        return text


def load_tokenizer(source: str, revision: str | None = None) -> Tokenizer:
    """Load the tokenizer that belongs to an encoder.

    Args:
        source: ``embedded``, a ``.gguf`` file, a folder with ``tokenizer.json``, or a hub id.
        revision: commit, tag or branch of a hub id.

    Raises:
        UserError: nothing there, or nothing that can be read.
    """
    if source == "embedded":
        return gguf_tokenizer(embedded_path())
    if source.endswith(".gguf"):
        return gguf_tokenizer(Path(source))
    folder = checkpoint_folder(source, revision)
    if not any((folder / name).is_file() for name in _FILES):
        # transformers would make an empty one up.
        raise UserError(f"{folder}: no tokenizer there (expected one of {', '.join(_FILES)})")
    _quiet()
    from transformers import AutoTokenizer

    try:
        fast = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the libraries below raise almost anything on a broken folder
        detail = " ".join(str(error).split())[:300]
        raise UserError(f"{folder}: no usable tokenizer there ({detail})") from error
    return Tokenizer(fast, source)


def gguf_tokenizer(path: Path) -> Tokenizer:
    """Build a byte-level BPE tokenizer from ``tokenizer.ggml.*``.

    Raises:
        UserError: not a GGUF file, another kind of vocabulary, or an unknown way of splitting words.
    """
    meta = read_gguf(path).metadata
    model, split = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    if model != "gpt2":
        raise UserError(f"{path}: tokenizer.ggml.model is {model!r}, expected 'gpt2' (byte-level BPE)")
    if split not in _SPLITS:
        raise UserError(f"{path}: tokenizer.ggml.pre is {split!r}, known are {', '.join(sorted(_SPLITS))}")
    tokens, merges = _required(meta, "tokens", path), _required(meta, "merges", path)
    kinds = meta.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if len(kinds) != len(tokens):
        raise UserError(f"{path}: {len(tokens)} tokens but {len(kinds)} token types")
    if len(set(tokens)) != len(tokens):
        raise UserError(f"{path}: tokenizer.ggml.tokens: the same token stands there twice")

    _quiet()
    from tokenizers import AddedToken, decoders, models, normalizers, processors
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    vocab = {token: i for i, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        backend = Backend(models.BPE(vocab, pairs, ignore_merges=split == "llama-bpe"))
    except Exception as error:  # tokenizers raises bare exceptions
        raise UserError(f"{path}: the merges do not fit the vocabulary ({error})") from error
    if _SPLITS[split] == _QWEN2:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(_SPLITS[split])
    backend.decoder = decoders.ByteLevel()
    added = [(t, k == _CONTROL) for t, k in zip(tokens, kinds, strict=True) if k in (_CONTROL, _USER_DEFINED)]
    backend.add_tokens([AddedToken(token, normalized=False, special=special) for token, special in added])

    named = {}
    for role, key in (("bos", "bos_token_id"), ("eos", "eos_token_id"), ("pad", "padding_token_id")):
        index = meta.get(f"tokenizer.ggml.{key}")
        if isinstance(index, int) and index < len(tokens):
            named[f"{role}_token"] = tokens[index]
    if meta.get("tokenizer.ggml.add_bos_token", split == "llama-bpe") and "bos_token" in named:
        bos = named["bos_token"]
        backend.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], pair=[bos, "$A", bos, "$B"], special_tokens=[(bos, vocab[bos])]
        )
    template = meta.get("tokenizer.chat_template")
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template, **named)
    return Tokenizer(fast, str(path))


def _pre_tokenizer(split: str | None) -> Any:
    from tokenizers import Regex, pre_tokenizers

    if split is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if split == "digits":
        parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        words = pre_tokenizers.Split(Regex(split), behavior="isolated")
        parts = [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    return pre_tokenizers.Sequence(parts)


def _required(meta: dict[str, Any], key: str, path: Path) -> list[str]:
    value = meta.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list) or not value:
        raise UserError(f"{path}: tokenizer.ggml.{key} is missing")
    return value


def _quiet() -> None:
    # Only tokenizers are used here, so its notice that PyTorch is absent would mislead.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
