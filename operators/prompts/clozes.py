"""Clozes, and the entities that are compared as their continuations (section 3).

    cloze        The capital of France is
    candidates   Paris, and its distractors

A cloze is a template with [X] filled in and cut before [Y], without a blank at its end: the blank
belongs to what follows. Only templates that end in [Y], with or without a full stop, give one.

**Candidate sets.** For random, semantic and temporal, a set belongs to one fact and is named after
it: rank 0 is the right answer, 1 to n are its distractors. For optimal and exact, the model itself
finds the distractors; a set then holds all entities that share a type with the answer, has no
ranks, and is shared by all facts whose answers have the same types, after which it is named.
`left_out` names what in such a set is no distractor of the fact. A fact whose answer has no type
keeps a set of its own, with the answer alone.

**Chance** (for KaRR) is measured by clozes of another subject, or of another relation.

    The capital of France is      the fact's own cloze
    The capital of Spain is       another subject, its relation
    France lies in                its subject, another relation

How likely the right answer is behind these says how likely it is whatever is asked. Other subjects
are those of the relation's other facts. Of other relations, those come first that the answer is an
object of: what the answer can never be an object of says little.

Where people wrote sentences in place of templates, a sentence of another relation becomes an
opening: its subject's label, where it stands in the sentence, makes room for the fact's own.
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
from factsweep.operators.prompts.expansion import Expansion, bare, crossed, names, places
from factsweep.operators.prompts.retrieval import kinds, resolved, retrieved
from factsweep.operators.schemas import empty, refuse, schema

Ending = Literal["eos", "sentence"]
Retrieval = Literal["random", "semantic", "temporal", "optimal", "exact"]

CONTEXT = "cloze"  # the one context: no text
SENTENCE = "[X]"  # the opening of a relation whose facts are asked in sentences of their own
_MOST = 100_000  # distractors or clozes of a fact
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
    behind = tokenizer.batch_decode(
        [[anchor, each] for each in range(len(tokenizer))], clean_up_tokenization_spaces=False
    )
    begin = len(tokenizer.decode([anchor], clean_up_tokenization_spaces=False))
    return tuple(i for i, text in enumerate(behind) if i == eos or _SENTENCE.match(text[begin:]))


@dataclass(frozen=True)
class Distractors:
    """What determines the clozes and their candidates, apart from the facts and the seed.

    `n` is the most distractors of a fact. `ending` says how a name may end: `eos` as in the paper,
    `sentence` by a full stop, a line end or EOS, summed. `n_clozes` is the most clozes of a fact,
    drawn by seed, fewer among more; null takes all.
    """

    retrieval: Retrieval
    n: Annotated[int, Field(ge=1, le=_MOST)] = 100
    ending: Ending = "sentence"
    n_clozes: Annotated[int, Field(ge=1, le=_MOST)] | None = None

    @property
    def name(self) -> str:
        """As the setting stands in tables: the retrieval."""
        return self.retrieval

    @property
    def variant(self) -> str | None:
        """The departures from the defaults, as they stand in the column `variant`."""
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
    asked = resolved(answers(facts), facts.knowledge_base)
    turn = places(seed, "calibration", asked["pair_id"]).alias("turn")
    turn_of = asked.select("pair_id", "answer_id", turn)
    candidates, of_facts = _candidates(facts.knowledge_base, asked, setting, seed)
    for relation_id in facts.relations["relation_id"]:
        rows = clozes(facts.of(relation_id))
        drawn = pl.Series("place", seeds.keys(seed, "clozes", rows["prompt_id"]), pl.UInt64)
        place = pl.col("place").rank("ordinal").over("pair_id")
        rows = rows.with_columns(drawn).with_columns(place)
        rows = (
            rows if setting.n_clozes is None else rows.filter(pl.col("place") <= setting.n_clozes)
        )
        for each in (turn_of, of_facts):
            rows = rows.join(each, on="pair_id", maintain_order="left")
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
    """Each usable template of one relation with each name of each pair.

    Columns: prompt_id, pair_id, template_id, subject_index, query.

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
    return crossed(templates, names(facts.pairs), text)


def openings(templates: pl.DataFrame) -> pl.DataFrame:
    """What clozes begin with, [X] for the subject: template_id, relation_id, cut.

    A template that does not end in [Y], the only one in it, is left out.
    """
    cut = pl.col("text").str.extract(_CLOZE)
    usable = cut.is_not_null() & ~cut.str.contains("[Y]", literal=True)
    return templates.filter(usable).select("template_id", "relation_id", cut=cut)


def _candidates(
    base: KnowledgeBase, asked: pl.DataFrame, setting: Distractors, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table candidate_sets, and what each fact has of it (_OF_FACTS).

    A set for each fact has the answer, then its distractors in the retriever's order; one for all
    facts whose answers have the same types has everything that shares one of them.
    """
    labels = base.entities.select("entity_id", "labels")
    if setting.retrieval != "optimal" and setting.retrieval != "exact":
        found = retrieved(base, asked, setting.retrieval, setting.n, seed=seed)
        found = found.join(labels, on="entity_id", maintain_order="left")
        found = found.with_columns(candidates_id="pair_id")
        own_sets = pl.concat([_answer_alone(asked, labels), _as_sets(found)])
        of_facts = asked.select("pair_id", candidates_id="pair_id", left_out=_NONE)
        return own_sets.sort("candidates_id", "rank"), of_facts
    by_types = [("+".join(kind.types), kind) for kind in kinds(base, asked)]
    sets = [
        _as_sets(labels[kind.members].with_columns(candidates_id=pl.lit(name), rank=None))
        for name, kind in by_types
    ]
    rows = [
        (question.pair_id, name, labels["entity_id"][question.left_out].to_list())
        for name, kind in by_types
        for question in kind.questions
    ]
    of_facts = pl.DataFrame(rows, _OF_FACTS, orient="row")
    alone = asked.join(of_facts, on="pair_id", how="anti", maintain_order="left")
    own = alone.select("pair_id", candidates_id="pair_id", left_out=_NONE)
    lonely = _answer_alone(alone, labels).with_columns(rank=pl.lit(None, pl.UInt32))
    return pl.concat([*sets, lonely]), pl.concat([of_facts, own])


def _answer_alone(asked: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Each fact's answer as rank 0 of its set; its own labels where `labels` has none of it."""
    known = labels.rename({"entity_id": "answer_id", "labels": "known"})
    rows = asked.join(known, on="answer_id", how="left", maintain_order="left")
    rows = rows.with_columns(entity_id="answer_id", labels=pl.coalesce("known", "labels"), rank=0)
    return _as_sets(rows.with_columns(candidates_id="pair_id"))


def _as_sets(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(pl.col(n).cast(t) for n, t in empty("candidate_sets").schema.items())


class Chance(NamedTuple):
    """The clozes of other subjects, and those of other relations."""

    subjects: Sequence[str]
    relations: Sequence[str]


def chances(facts: Facts, relation_id: str, n: int, *, seed: int) -> Mapping[str, Chance]:
    """At most n clozes of either kind for each pair of a relation, by pair_id.

    Each is of a subject or relation of its own. `facts` are all that are asked, with one object a
    pair; where people wrote sentences, they need a knowledge base, which knows subjects' labels.
    """
    mine, texts = facts.of(relation_id), _openings(facts)
    rows = clozes(mine).join(mine.pairs.select("pair_id", "subject_id"), on="pair_id")
    by_subject = rows.sort("prompt_id").group_by("subject_id", maintain_order=True)
    asked = dict(by_subject.agg(pl.col("query").unique(maintain_order=True)).iter_rows())
    names = mine.pairs.select("subject_id", pl.col("subjects").list.first())
    labels = _labels(facts) if _is_written(mine) else dict(names.iter_rows())
    circle = sorted(asked, key=lambda subject: (seeds.key(seed, "chance", subject), subject))
    places = {subject: place for place, subject in enumerate(circle)}
    objects = facts.pairs.select("relation_id", "objects").explode("objects").unnest("objects")
    relations = objects.group_by("object_id").agg(pl.col("relation_id").unique())
    relations_of = dict(relations.iter_rows())

    def drawn(texts: Mapping[str, Sequence[str]], names: Iterable[str], pair_id: str) -> list[str]:
        """One text of each name."""
        keys = {each: seeds.key(seed, "chance cloze", pair_id, each) for each in names}
        return [texts[each][key % len(texts[each])] for each, key in keys.items()]

    found = {}
    pairs = mine.pairs.select("pair_id", "subject_id", "objects")
    for pair_id, subject_id, answers in pairs.iter_rows():
        place, label = places[subject_id], labels.get(subject_id)
        others = (*circle[place + 1 : place + 1 + n], *circle[:place])[:n]
        known = relations_of[answers[0]["object_id"]]
        order = sorted(
            texts.keys() - {relation_id},
            key=lambda each: (each not in known, seeds.key(seed, "chance", pair_id, each)),
        )
        of_relations = [] if label is None else drawn(texts, order[:n], pair_id)
        named = [each.replace(SENTENCE, str(label)) for each in of_relations]
        found[pair_id] = Chance(drawn(asked, others, pair_id), named)
    return found


def _openings(facts: Facts) -> Mapping[str, Sequence[str]]:
    """What a cloze of each relation begins with, [X] for its subject; relations without are out."""
    rows = openings(facts.templates).filter(pl.col("cut") != SENTENCE).sort("template_id")
    texts = [*rows.select("relation_id", "cut").iter_rows()]
    if _is_written(facts):  # of sentences those that name their subject, with room for another
        labels = _labels(facts)
        sentences = facts.pairs.sort("pair_id").select("relation_id", "subject_id", "subjects")
        texts += [
            (relation_id, sentence.replace(label, SENTENCE, 1).rstrip())
            for relation_id, subject_id, sentence in sentences.explode("subjects").iter_rows()
            if (label := labels.get(subject_id, SENTENCE)) in sentence
        ]
    found: dict[str, list[str]] = {}
    for relation_id, text in texts:
        found.setdefault(relation_id, []).append(text)
    return found


def _is_written(facts: Facts) -> bool:
    """Whether some cloze is a sentence that somebody wrote for its fact."""
    return bool((openings(facts.templates)["cut"] == SENTENCE).any())


def _labels(facts: Facts) -> Mapping[str, str]:
    """The first label of each subject that the knowledge base knows."""
    assert facts.knowledge_base is not None, "sentences need a knowledge base"
    subjects = facts.pairs.select(entity_id="subject_id").unique()
    known = facts.knowledge_base.entities.join(subjects, on="entity_id", how="semi")
    return dict(known.select("entity_id", pl.col("labels").list.first()).iter_rows())
