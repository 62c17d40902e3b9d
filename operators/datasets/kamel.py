"""KAMEL: its authors' files → the canonical tables, and back.

The authors' layout (KAMEL, section 3.1): one query per line, of which train and dev may show less.

    question-templates.csv           P36, What is the capital of [S]?
    P36/train.jsonl, P36/dev.jsonl   {"sub_label": "Bolivia", "obj_label": ["Sucre", "La Paz"]}
    P36/test.jsonl                   {"sub_label": "France", "obj_uri": ["Q90"], "obj_label":
                                      [{"rdf": "Paris", "alternative": [], "chosen": "Paris"}]}

In the table `pairs`, an answer's first label is its rdf label. A literal has none: its first label
is its first alternative (of a date the full date), as in the authors' scorer. Its id says that it
is one (`is_literal`) and of which type: XMLSchema#dateTime. The authors name no subject ids, and
different subjects share a label: a subject_id is the row's split and number.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.datasets import facts as facts_module
from factsweep.operators.datasets.columns import check_fields
from factsweep.operators.datasets.facts import Facts, Relations, Slice, checked
from factsweep.operators.datasets.table_files import check, parsed
from factsweep.operators.errors import InputError
from factsweep.operators.matching.answer_set import answer_forms, without_marks_around
from factsweep.operators.schemas import empty

QUESTIONS = "question-templates.csv"
SPLITS = ("train", "dev", "test")
LITERAL = "XMLSchema#"
DATE = f"{LITERAL}dateTime"
NUMBER = f"{LITERAL}decimal"
_UNTYPED = f"{LITERAL}anySimpleType"
_FIELDS = ("sub_label", "obj_label")


class _Row(NamedTuple):
    """A query as it was read, and where it stands."""

    where: str
    relation_id: str
    split: str
    fields: Mapping[str, Any]

    def check(self, fits: object, problem: str) -> None:
        """Refuse the row where it does not fit."""
        check(self.where, fits, problem, self.fields)


def is_literal(object_id: pl.Expr) -> pl.Expr:
    """Whether an answer is a date or a number, by its object_id; False where that is null."""
    return object_id.str.starts_with(LITERAL).fill_null(False)


def facts_from_files(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of the authors' files: their path in the set → their content.

    Questions without rows are left out, and so are files of other layouts. `relation_labels` names
    all relations that may be there; without it every one is taken, and its label is its id.

    Raises:
        InputError: an unfit file, line or row, or what `checked` refuses.
    """
    questions = [path for path in sorted(files) if PurePosixPath(path).name == QUESTIONS]
    if not questions:
        raise InputError(f"{QUESTIONS} is missing; put it next to the folders of the relations.")
    if len(questions) > 1:
        raise InputError(f"{' and '.join(questions)} are two; leave one out.")
    paths = (path for path in sorted(files) if path.endswith(".jsonl"))
    rows = (row for path in paths for row in _lines(PurePosixPath(path), files[path]))
    numbers = Counter[tuple[str, str]]()
    read = []
    for row in rows:
        if relation_labels is not None and row.relation_id not in relation_labels:
            raise InputError(
                f"{row.where}: the catalog entry does not name its relation {row.relation_id}; "
                "add it to the entry or leave the relation out."
            )
        subject_id = f"{row.split}.{numbers[row.relation_id, row.split]:04d}"
        numbers[row.relation_id, row.split] += 1
        row.check(_is_text(row.fields["sub_label"]), "sub_label is empty")
        answers, ids = row.fields["obj_label"], row.fields.get("obj_uri")
        row.check(isinstance(answers, list) and answers, "obj_label is no list")
        ids = [None] * len(answers) if ids is None else ids
        same = isinstance(ids, list) and len(ids) == len(answers)
        row.check(same, "obj_uri and obj_label differ in length")
        objects = [_object(row, *each) for each in zip(ids, answers, strict=True)]
        pair = (row.relation_id, subject_id, [row.fields["sub_label"]], objects, row.split)
        read.append((f"{row.relation_id}.{subject_id}", *pair))
    pairs = pl.DataFrame(read, empty("pairs").schema, orient="row")
    return facts_of(pairs, questions_of(questions[0], files[questions[0]]), relation_labels)


def _lines(path: PurePosixPath, content: str) -> Iterator[_Row]:
    relation_id, split = path.parent.name, path.stem
    if split not in SPLITS or not relation_id:
        expected = ", ".join(f"P…/{each}.jsonl" for each in SPLITS)
        raise InputError(f"{path} is none of {expected}; rename or remove it.")
    # Not splitlines: a label may hold a character that Unicode counts as a line end.
    for number, line in enumerate(content.rstrip("\r\n").split("\n")):
        where = f"{path}, row {number} (counted from 0)"
        fields = parsed(line, where, "correct or drop the row")
        check(where, isinstance(fields, dict), "no JSON object", fields)
        check_fields(where, fields, _FIELDS, "KAMEL's files")
        yield _Row(where, relation_id, split, fields)


def questions_of(path: str, content: str) -> dict[str, str]:
    """The question of each relation; there is no header, and a question may hold commas.

    Raises:
        InputError: a line without a relation, a comma or [S], or a relation with two questions; the
            same line twice is one, as in the authors' file.
    """
    questions: dict[str, str] = {}
    for where, line in lines(path, content):
        relation_id, comma, question = (part.strip() for part in line.partition(","))
        if not (relation_id and comma and question):
            raise InputError(f"{where}: {line!r} is not `P36, question`; write it so.")
        if (known := questions.setdefault(relation_id, question)) != question:
            raise InputError(
                f"{where}: {relation_id} has another question already ({known!r}); leave one out."
            )
        if "[S]" not in question:
            raise InputError(f"{where}: {question!r} has no [S]; put it where the subject belongs.")
    return questions


def lines(path: str, content: str) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, each behind where it stands."""
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def facts_of(
    pairs: pl.DataFrame, questions: Mapping[str, str], relation_labels: Relations
) -> Facts:
    """The facts of pairs, each relation with its question and the answer after it.

    Raises:
        InputError: what `checked` refuses: a relation without a question, say.
    """
    ids = pairs["relation_id"].unique(maintain_order=True).to_list()
    asked = templates({each: questions[each] for each in ids if each in questions})
    return checked(Facts(facts_module.named(ids, relation_labels), asked, pairs))


def templates(questions: Mapping[str, str]) -> pl.DataFrame:
    """Each relation's question with its answer after it, as every question template has it."""
    texts = [(each, f"{text.replace('[S]', '[X]')} [Y]") for each, text in questions.items()]
    manual = facts_module.numbered(facts_module.manual(texts))
    return manual.with_columns(style=pl.lit("question"))


def _object(row: _Row, object_id: object, answer: Any) -> dict[str, Any]:
    row.check(object_id is None or _is_text(object_id), "obj_uri holds no text")
    if isinstance(answer, str):
        row.check(_is_text(answer), "obj_label has an empty label")
        return {"object_id": object_id, "labels": [answer]}
    row.check(isinstance(answer, dict), "obj_label holds no text and no labels")
    main, chosen, others = answer.get("rdf"), answer.get("chosen"), answer.get("alternative") or []
    row.check(isinstance(others, list), "alternative is no list")
    # A literal has no main label: its first one is the first alternative.
    names = [*others, chosen] if main is None else [main, chosen, *others]
    texts = all(name is None or isinstance(name, str) for name in names)
    row.check(texts, "obj_label holds a label that is no text")
    labels = list(dict.fromkeys(filter(_is_text, names)))
    row.check(labels, "obj_label has an answer without a label")
    if object_id is None and main is None:
        object_id = _UNTYPED
    return {"object_id": object_id, "labels": labels}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def sliced(facts: Facts, part: Slice) -> Facts:
    """The chosen part of the facts: all that may be shown, and the first queries that are asked.

    `part.pairs_per_relation` counts the pairs of dev and of test, not of train, so that
    demonstrations do not change with it.

    Raises:
        InputError: a relation that the set does not have, or a part without pairs or names.
    """
    facts = facts_module.sliced(facts, replace(part, pairs_per_relation=None))
    if part.pairs_per_relation is None:
        return facts
    place = pl.int_range(pl.len()).over("relation_id", "split")
    kept = (pl.col("split") == "train") | (place < part.pairs_per_relation)
    return checked(replace(facts, pairs=facts.pairs.filter(kept)))


def counts(facts: Facts) -> dict[str, float]:
    """The set's size: its relations, its rows of each split, and Table 1 of its test queries."""
    sizes = {row["split"]: row for row in split_sizes(facts).iter_rows(named=True)}
    test = sizes["test"]
    return {
        "relations": facts.relations.height,
        **{f"{split}_rows": sizes[split]["queries"] for split in SPLITS},
        "test_queries_of_several_answers": test["several"],
        "test_labels_per_answer": round(test["labels"] or 0.0, 2),
    }


def split_sizes(facts: Facts) -> pl.DataFrame:
    """Each split: relations, queries, answers, queries of several, and mean labels of an answer.

    Source: KAMEL, Table 1.
    """
    n_answers = pl.col("objects").list.len()
    n_labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.len())
    numbers = {
        "relations": pl.n_unique("relation_id"),
        "queries": pl.len(),
        "answers": n_answers.sum(),
        "several": (n_answers > 1).sum(),
    }
    labels = n_labels.list.sum().sum() / n_answers.sum()
    sizes = facts.pairs.group_by("split").agg(**numbers, labels=labels)
    splits = pl.DataFrame({"split": SPLITS}, schema={"split": pl.String})
    found = splits.join(sizes, on="split", how="left", maintain_order="left")
    return found.with_columns(pl.col(list(numbers)).fill_null(0).cast(pl.Int64))


def shown(answers: pl.DataFrame) -> pl.Series:
    """The form of each right answer (object_id, labels) that an example shows.

    That of a literal is its shortest, any other its main label.

    >>> answers = pl.DataFrame({
    ...     "object_id": ["Q90", DATE], "labels": [["Paris", "Rom"], ["16 December 1949", "1949"]],
    ... })
    >>> shown(answers).to_list()
    ['Paris', '1949']
    """
    shortest = pl.element().sort_by(pl.element().str.len_chars(), maintain_order=True).first()
    return answers.select(
        pl.when(is_literal(pl.col("object_id")))
        .then(pl.col("labels").list.eval(shortest).list.first())
        .otherwise(pl.col("labels").list.first())
        .alias("shown")
    )["shown"]


def told_apart(pairs: pl.DataFrame) -> pl.DataFrame:
    """The labels that keep their special characters: relation_id, bare, full (`answer_forms`).

    A label keeps them if it would be equal, without them, to another label of another object of its
    relation, or if nothing would be left of it. Two answers without an id, and two literals, are
    one object if their first labels are equal.

    Source: KAMEL, section 3.2, which removes all special characters; kept here, or "C" would be
    right for C++ and C#.

    >>> objects = [[{"object_id": q, "labels": [name]}] for q, name in (("Q1", "C"), ("Q2", "C++"))]
    >>> told_apart(pl.DataFrame({"relation_id": ["P277"] * 2, "objects": objects})).rows()
    [('P277', 'c', 'c'), ('P277', 'c', 'c++')]
    """
    objects = pairs.select("relation_id", "objects").explode("objects").unnest("objects")
    first = pl.col("labels").list.first().str.to_lowercase()
    object_id = pl.col("object_id").cast(pl.String)
    named = object_id.is_not_null() & ~is_literal(object_id)
    labels = objects.select(
        "relation_id", "labels", object=pl.when(named).then("object_id").otherwise(first)
    ).explode("labels")
    parts = labels.select("relation_id", "object", part=answer_forms(pl.col("labels")))
    forms = parts.explode("part").unnest("part").filter(pl.col("full") != "")
    same = ["relation_id", "bare"]
    several = (pl.n_unique("object") > 1) & (pl.n_unique("full") > 1)
    shared = forms.group_by(same).agg(several=several)
    kept = shared.filter(pl.col("several") | (pl.col("bare") == ""))
    found = forms.join(kept, on=same, how="semi").select("relation_id", "bare", "full")
    return found.unique().sort(found.columns)


def answers_told_apart(texts: pl.DataFrame, apart: pl.DataFrame) -> pl.DataFrame:
    """The strictly read answers of texts (relation_id, text, others): a row each, in `answer`.

    An answer has no special characters, unless `apart` (`told_apart`) has its bare form in its
    relation. What has nothing but special characters, and is none of those labels, is no answer.
    Marks around an answer count only where one of these labels has them: "(C#)." is C#.
    """
    forms = texts.select(pl.exclude("text"), part=answer_forms(pl.col("text")))
    forms = forms.explode("part").unnest("part").drop_nulls("full")
    # The longest label that has the same between its marks stands in place of `full`.
    full, label = pl.col("full"), pl.col("label")
    core = without_marks_around(full)
    labels = apart.select("relation_id", "bare", core=core, label="full")
    near = forms.select("relation_id", "bare", "full", core=core).unique()
    near = near.join(labels, on=["relation_id", "bare", "core"])
    near = near.filter(full.str.contains(label, literal=True))
    longest = label.sort_by(label.str.len_chars()).last()
    near = near.group_by("relation_id", "bare", "full").agg(longest)
    forms = forms.join(near, on=["relation_id", "bare", "full"], how="left", maintain_order="left")
    # A label that ends with a stop may have that of a sentence behind it.
    stopped = apart.select("relation_id", "bare", label_before_stop="full", full=full + ".")
    stopped = stopped.join(apart, on=["relation_id", "bare", "full"], how="anti")
    forms = forms.join(stopped, on=["relation_id", "bare", "full"], how="left")
    forms = forms.with_columns(full=pl.coalesce("label_before_stop", "label", "full"))
    forms = forms.drop("label_before_stop", "label")
    same = ["relation_id", "bare"]
    marked = apart.select(same).unique().with_columns(apart=pl.lit(value=True))
    known = apart.filter(pl.col("bare") == "").with_columns(known=pl.lit(value=True))
    forms = forms.join(marked, on=same, how="left").join(known, on=[*same, "full"], how="left")
    keeps = pl.when(pl.col("bare") == "").then("known").otherwise("apart").fill_null(value=False)
    answers = forms.with_columns(answer=pl.when(keeps).then("full").otherwise("bare"))
    return answers.filter(pl.col("answer") != "").drop("full", "bare", "apart", "known").unique()


def files_from_facts(facts: Facts) -> dict[str, str]:
    """The authors' files of canonical tables: the inverse of `facts_from_files`.

    Train and dev rows show an answer's first label alone, of a literal the shortest form, as the
    authors' do.
    """
    asked = facts.templates["text"].str.replace(" [Y]", "", literal=True)
    questions = asked.str.replace_all("[X]", "[S]", literal=True)
    lines = zip(facts.templates["relation_id"], questions, strict=True)
    files = {QUESTIONS: "".join(f"{relation_id}, {question}\n" for relation_id, question in lines)}
    groups = facts.pairs.group_by("relation_id", "split", maintain_order=True)
    for (relation_id, split), rows in groups:
        lines_of_pairs = []
        for pair in rows.iter_rows(named=True):
            answers = [_answer(**each) for each in pair["objects"]]
            fields: dict[str, Any] = {"sub_label": pair["subjects"][0]}
            if split == "test":
                fields["obj_uri"] = [each["object_id"] for each in pair["objects"]]
                fields["obj_label"] = answers
            else:
                fields["obj_label"] = [each["chosen"] for each in answers]
            lines_of_pairs.append(json.dumps(fields, ensure_ascii=False) + "\n")
        files[f"{relation_id}/{split}.jsonl"] = "".join(lines_of_pairs)
    return files


def _answer(object_id: str | None, labels: Sequence[str]) -> dict[str, Any]:
    """An answer as test rows have it; examples show the main label, of a literal the shortest."""
    if (object_id or "").startswith(LITERAL):
        return {"rdf": None, "alternative": list(labels), "chosen": min(labels, key=len)}
    return {"rdf": labels[0], "alternative": list(labels[1:]), "chosen": labels[0]}
