"""A BERT of one layer that has read some of myriadlama-mini: right on some prompts, not on all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch.nn.functional import cross_entropy
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    get_linear_schedule_with_warmup,
)

from factsweep.operators.datasets.facts import Facts

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class TinyBert(NamedTuple):
    """A trained model and its tokenizer."""

    model: Any
    tokenizer: Any

    def save(self, folder: Path) -> None:
        """Write both, so that transformers loads them from the folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def sentences(facts: Facts) -> pl.DataFrame:
    """Each fact by its first name and label under each template: query with [MASK], label."""
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    pairs = facts.pairs.select("relation_id", name=pl.col("subjects").list.first(), label=label)
    asked = pl.col("text").str.replace_all("[Y]", "[MASK]", literal=True)
    return facts.templates.join(pairs, on="relation_id", maintain_order="left_right").select(
        "label", query=asked.str.replace_all("[X]", pl.col("name"), literal=True)
    )


def tokenizer(texts: list[str]) -> Any:
    """An uncased WordPiece tokenizer that knows each word of the texts; others are in parts.

    (The library's trainer learns another vocabulary of the same texts each time.)
    """
    normalizer = normalizers.BertNormalizer(lowercase=True)
    splits = pre_tokenizers.BertPreTokenizer()
    folded = (normalizer.normalize_str(text) for text in texts)
    words = {word for text in folded for word, _ in splits.pre_tokenize_str(text)}
    letters = {letter for word in words for letter in word}
    known = sorted({*words, *letters, *(f"##{letter}" for letter in letters)})
    ids = {token: i for i, token in enumerate((*SPECIAL, *known))}
    backend = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizer, splits
    backend.decoder = decoders.WordPiece()
    ends = [(token, ids[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **dict(zip(names, SPECIAL, strict=True)), model_max_length=128
    )


def train(facts: Facts, *, n_steps: int = 150, batch: int = 64, seed: int = 0) -> TinyBert:
    """Teach a new model to fill in the labels that are one token, on half of the sentences."""
    with one_thread():
        return _train(facts, n_steps, batch, seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """On a busy machine, threads that wait for each other make small matrices slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train(facts: Facts, n_steps: int, batch: int, seed: int) -> TinyBert:
    torch.manual_seed(seed)
    rows = sentences(facts)
    filled = [q.replace("[MASK]", label) for q, label in rows.select("query", "label").iter_rows()]
    reads = tokenizer(filled)
    labels = reads(rows["label"].to_list(), add_special_tokens=False).input_ids
    known = [i for i, ids in enumerate(labels) if len(ids) == 1 and i % 2]
    asked = reads([rows["query"][i] for i in known], padding=True, return_tensors="pt")
    at_mask = asked.input_ids == reads.mask_token_id
    targets = torch.tensor([labels[i][0] for i in known])
    model = BertForMaskedLM(_config(len(reads))).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    # Slow at first: else it learns which answers are common, and never to read the question.
    rates = get_linear_schedule_with_warmup(optimiser, n_steps // 10, n_steps)
    for _ in range(n_steps):
        chosen = torch.randint(len(known), (batch,))
        some = {name: each[chosen] for name, each in asked.items()}
        at_masks = model.bert(**some).last_hidden_state[at_mask[chosen]]
        cross_entropy(model.cls(at_masks), targets[chosen]).backward()
        optimiser.step()
        rates.step()
        optimiser.zero_grad()
    return TinyBert(model.eval(), reads)


def _config(vocabulary: int) -> Any:
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=128,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
