"""Clozes, and the entities that are compared as their continuations (section 3).

    cloze        The capital of France is
    candidates   Paris, and its distractors

A cloze is a template with [X] filled in, cut before [Y] without the blank there; only templates
that end in [Y], with or without a full stop, give one.

**Candidate sets.** For random, semantic and temporal, a set belongs to one fact and has its id:
rank 0 is the right answer, 1 to n are its distractors. For optimal and exact, where the model finds
the distractors, a set has all entities that share a type with the answer, no ranks, and the types
as its id; facts whose answers have the same types share it. `left_out` names entities of such a set
that are no distractors of the fact. A fact whose answer has no type has a set of its own, with the
answer alone.

**Chance** (for KaRR) is measured by clozes of another subject of the relation, or of another
relation, first of one that has the answer as an object. A sentence that people wrote for a fact of
another relation becomes an opening, with the fact's subject in place of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import polars as pl
from pydantic import Field

from factsweep.operators import seeds
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.knowledge_base import KnowledgeBase
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.chat import variant_of
from factsweep.operators.prompts.expansion import Expansion, bare, cross_templates, names, places
from factsweep.operators.prompts.retrieval import kinds, resolve_ids, retrieve_distractors
from factsweep.operators.schemas import empty, refuse, schema

Ending = Literal["eos", "sentence"]
Retrieval = Literal["random", "semantic", "temporal", "optimal", "exact"]

CONTEXT = "cloze"  # the one context: no text
SENTENCE = "[X]"  # the opening of a relation whose facts have sentences of their own
_MAX = 100_000  # distractors or clozes of a fact
_NONE = pl.lit([], pl.List(pl.String))
_OF_FACTS = schema("pair_id text, candidates_id text, left_out text[]")
_CLOZE = r"^([^\x00]*?)\s*\[Y\]\s*\.?\s*$"
_SENTENCE = re.compile(r"""\.[.…"'’”»)\]]*\s*\Z|[ \t]*[\r\n]""")


def ending_tokens(tokenizer: Any, ending: Ending) -> tuple[int, ...]:
    """The tokens that begin an ending, in ascending order.

    `eos` is the end of the text, the paper's. `sentence` is a full stop, a line end, or the end of
    the text; behind a stop may be more stops, closing quotes, brackets and blanks: not `.com`.

    Raises:
        InputError: the tokenizer has no token for the end of a text.
    """
    eos = tokenizer.eos_token_id
    if eos is None:
        raise InputError(
            f"the tokenizer of {tokenizer.name_or_path} has no token for the end of a text "
            f"(eos_token), which prompt.ending={ending} asks for; take a model that has one."
        )
    if ending == "eos":
        return (int(eos),)
    # Behind a word: by itself, some tokenizers drop the blank before a token.
    (anchor,) = tokenizer("a", add_special_tokens=False).input_ids[-1:]
    pairs = [[anchor, token] for token in range(len(tokenizer))]
    texts = tokenizer.batch_decode(pairs, clean_up_tokenization_spaces=False)
    start = len(tokenizer.decode([anchor], clean_up_tokenization_spaces=False))
    return tuple(i for i, text in enumerate(texts) if i == eos or _SENTENCE.match(text[start:]))


@dataclass(frozen=True)
class Distractors:
    """The setting of clozes and their candidates, apart from the facts and the seed.

    `n` is the maximum of a fact's distractors. A name ends by `ending`: `eos` as in the paper,
    `sentence` by a full stop, a line end or EOS, summed. `n_clozes` is the maximum of a fact's
    clozes, drawn by seed, fewer among more; null takes all.
    """

    retrieval: Retrieval
    n: Annotated[int, Field(ge=1, le=_MAX)] = 100
    ending: Ending = "sentence"
    n_clozes: Annotated[int, Field(ge=1, le=_MAX)] | None = None

    @property
    def name(self) -> str:
        """The setting's name in tables: the retrieval."""
        return self.retrieval

    @property
    def variant(self) -> str | None:
        """The column `variant`: the differences from the defaults."""
        return variant_of(self, "ending", "n", "n_clozes")


def expand(facts: Facts, setting: Distractors, *, seed: int) -> Iterator[Expansion]:
    """All clozes of a setting with their candidates, a relation at a time.

    Prompts are sorted by (candidate set, template, pair, name), so that an engine finds all clozes
    of a set together. One prompt per pair has a calibration rank.

    Raises:
        InputError: the facts have no knowledge base, or a relation no template that ends in [Y].
    """
    if facts.knowledge_base is None:
        raise InputError("distractors need a knowledge base, and these facts have none; run again.")
    pairs = resolve_ids(answers(facts), facts.knowledge_base)
    turn = places(seed, "calibration", pairs["pair_id"]).alias("turn")
    turns = pairs.select("pair_id", "answer_id", turn)
    candidates, of_facts = _candidates(facts.knowledge_base, pairs, setting, seed)
    for relation_id in facts.relations["relation_id"]:
        rows = clozes(facts.of(relation_id))
        keys = pl.Series("place", seeds.keys(seed, "clozes", rows["prompt_id"]), pl.UInt64)
        place = pl.col("place").rank("ordinal").over("pair_id")
        rows = rows.with_columns(keys).with_columns(place)
        if setting.n_clozes is not None:
            rows = rows.filter(pl.col("place") <= setting.n_clozes)
        rows = rows.join(turns, on="pair_id", maintain_order="left")
        rows = rows.join(of_facts, on="pair_id", maintain_order="left")
        rows = rows.with_columns(
            context_id=pl.lit(CONTEXT),
            calibration_rank=pl.when(pl.col("place") == 1).then("turn").cast(pl.UInt32),
        ).drop("place", "turn")
        rows = rows.sort("candidates_id", "template_id", "pair_id", "subject_index")
        sets = candidates.join(rows, on="candidates_id", how="semi", maintain_order="left")
        yield Expansion(relation_id, rows, bare(CONTEXT), candidate_sets=sets)


def answers(facts: Facts) -> pl.DataFrame:
    """The one object of each pair: pair_id, subject_id, relation_id, answer_id, labels.

    Raises:
        InputError: a pair has several.
    """
    several = "pair {pair_id} has several objects; make a fact of each."
    refuse(facts.pairs, {several: pl.col("objects").list.len() != 1}, ["pair_id"])
    rows = facts.pairs.explode("objects").unnest("objects")
    return rows.select("pair_id", "subject_id", "relation_id", "labels", answer_id="object_id")


def clozes(facts: Facts) -> pl.DataFrame:
    """Each usable template of one relation with each name of each pair (columns of `crossed`).

    Raises:
        InputError: no template ends in [Y], the only one in it.
    """
    templates = openings(facts.templates).drop("relation_id")
    if templates.is_empty():
        raise InputError(
            f"relation {facts.relations['relation_id'][0]} has no template that ends in [Y] and "
            "holds it once; add one or leave the relation out."
        )
    text = pl.col("cut").str.replace_all("[X]", pl.col("name"), literal=True)
    return cross_templates(templates, names(facts.pairs), text)


def openings(templates: pl.DataFrame) -> pl.DataFrame:
    """The beginnings of clozes, [X] for the subject: template_id, relation_id, cut.

    A template that does not end in [Y], the only one in it, is left out.
    """
    cut = pl.col("text").str.extract(_CLOZE)
    usable = cut.is_not_null() & ~cut.str.contains("[Y]", literal=True)
    return templates.filter(usable).select("template_id", "relation_id", cut=cut)


def _candidates(
    base: KnowledgeBase, pairs: pl.DataFrame, setting: Distractors, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table candidate_sets, and the set and left-out entities of each fact (_OF_FACTS)."""
    labels = base.entities.select("entity_id", "labels")
    if setting.retrieval != "optimal" and setting.retrieval != "exact":
        distractors = retrieve_distractors(base, pairs, setting.retrieval, setting.n, seed=seed)
        distractors = distractors.join(labels, on="entity_id", maintain_order="left")
        distractors = distractors.with_columns(candidates_id="pair_id")
        own_sets = pl.concat([_answer_alone(pairs, labels), _as_sets(distractors)])
        of_facts = pairs.select("pair_id", candidates_id="pair_id", left_out=_NONE)
        return own_sets.sort("candidates_id", "rank"), of_facts
    sets, rows = [], []
    for kind in kinds(base, pairs):
        name = "+".join(kind.types)
        members = labels[kind.members].with_columns(candidates_id=pl.lit(name), rank=None)
        sets.append(_as_sets(members))
        for question in kind.questions:
            left_out = labels["entity_id"][question.left_out].to_list()
            rows.append((question.pair_id, name, left_out))
    of_facts = pl.DataFrame(rows, _OF_FACTS, orient="row")
    untyped = pairs.join(of_facts, on="pair_id", how="anti", maintain_order="left")
    of_untyped = untyped.select("pair_id", candidates_id="pair_id", left_out=_NONE)
    own_sets = _answer_alone(untyped, labels).with_columns(rank=pl.lit(None, pl.UInt32))
    return pl.concat([*sets, own_sets]), pl.concat([of_facts, of_untyped])


def _answer_alone(pairs: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Each fact's answer as rank 0 of its set; its own labels where `labels` has none of it."""
    of_base = labels.select(answer_id="entity_id", of_base="labels")
    rows = pairs.join(of_base, on="answer_id", how="left", maintain_order="left")
    rows = rows.with_columns(entity_id="answer_id", labels=pl.coalesce("of_base", "labels"), rank=0)
    return _as_sets(rows.with_columns(candidates_id="pair_id"))


def _as_sets(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(n).cast(t) for n, t in empty("candidate_sets").schema.items())


class Chance(NamedTuple):
    """The clozes of other subjects, and the clozes of other relations."""

    subjects: Sequence[str]
    relations: Sequence[str]


def chances(facts: Facts, relation_id: str, n: int, *, seed: int) -> Mapping[str, Chance]:
    """At most n clozes of either kind for each pair of a relation, by pair_id.

    Each is of a subject or relation of its own. `facts` are all facts, with one object per pair;
    where people wrote sentences, they need a knowledge base, which has the subjects' labels.
    """
    of_relation, texts = facts.of(relation_id), _openings(facts)
    subject_ids = of_relation.pairs.select("pair_id", "subject_id")
    rows = clozes(of_relation).join(subject_ids, on="pair_id").sort("prompt_id")
    by_subject = rows.group_by("subject_id", maintain_order=True)
    clozes_of = dict(by_subject.agg(pl.col("query").unique(maintain_order=True)).iter_rows())
    names = of_relation.pairs.select("subject_id", pl.col("subjects").list.first())
    labels = _labels(facts) if _is_written(of_relation) else dict(names.iter_rows())
    circle = sorted(clozes_of, key=lambda subject: (seeds.key(seed, "chance", subject), subject))
    places = {subject: place for place, subject in enumerate(circle)}
    objects = facts.pairs.select("relation_id", "objects").explode("objects").unnest("objects")
    relations = objects.group_by("object_id").agg(pl.col("relation_id").unique())
    relations_of = dict(relations.iter_rows())

    def draw(texts: Mapping[str, Sequence[str]], ids: Iterable[str], pair_id: str) -> list[str]:
        """One text of each id."""
        keys = {name: seeds.key(seed, "chance cloze", pair_id, name) for name in ids}
        return [texts[name][key % len(texts[name])] for name, key in keys.items()]

    chances = {}
    pairs = of_relation.pairs.select("pair_id", "subject_id", "objects")
    for pair_id, subject_id, answers in pairs.iter_rows():
        place, label = places[subject_id], labels.get(subject_id)
        neighbours = (*circle[place + 1 : place + 1 + n], *circle[:place])[:n]
        of_answer = relations_of[answers[0]["object_id"]]
        order = sorted(
            texts.keys() - {relation_id},
            key=lambda other: (other not in of_answer, seeds.key(seed, "chance", pair_id, other)),
        )
        openings = [] if label is None else draw(texts, order[:n], pair_id)
        of_relations = [opening.replace(SENTENCE, str(label)) for opening in openings]
        chances[pair_id] = Chance(draw(clozes_of, neighbours, pair_id), of_relations)
    return chances


def _openings(facts: Facts) -> Mapping[str, Sequence[str]]:
    """The openings of clozes by relation, [X] for the subject; relations without any are absent."""
    rows = openings(facts.templates).filter(pl.col("cut") != SENTENCE).sort("template_id")
    openings_of: dict[str, list[str]] = {}
    for relation_id, text in rows.select("relation_id", "cut").iter_rows():
        openings_of.setdefault(relation_id, []).append(text)
    if _is_written(facts):  # sentences that name their subject have room for another
        labels = _labels(facts)
        sentences = facts.pairs.sort("pair_id").select("relation_id", "subject_id", "subjects")
        for relation_id, subject_id, sentence in sentences.explode("subjects").iter_rows():
            if (label := labels.get(subject_id, SENTENCE)) in sentence:
                opening = sentence.replace(label, SENTENCE, 1).rstrip()
                openings_of.setdefault(relation_id, []).append(opening)
    return openings_of


def _is_written(facts: Facts) -> bool:
    return bool((openings(facts.templates)["cut"] == SENTENCE).any())


def _labels(facts: Facts) -> Mapping[str, str]:
    assert facts.knowledge_base is not None, "sentences need a knowledge base"
    subjects = facts.pairs.select(entity_id="subject_id").unique()
    rows = facts.knowledge_base.entities.join(subjects, on="entity_id", how="semi")
    return dict(rows.select("entity_id", pl.col("labels").list.first()).iter_rows())
