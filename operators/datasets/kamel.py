"""KAMEL: its authors' files (KAMEL, section 3.1; docs/data.md) → the canonical tables, and back.

An answer's first label is its rdf label. A literal has none: its first label is its first
alternative (of a date the full date), as in the authors' scorer, and its id is its type:
XMLSchema#dateTime. There are no ids of subjects: a subject_id is the row's split and number.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from factsweep.operators.datasets import facts as facts_module
from factsweep.operators.datasets.columns import check_fields
from factsweep.operators.datasets.facts import Facts, Relations, Slice, check_facts
from factsweep.operators.datasets.table_files import check, parse_json
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


def is_literal(object_id: pl.Expr) -> pl.Expr:
    """Whether an answer is a date or a number, by its object_id; False where that is null."""
    return object_id.str.starts_with(LITERAL).fill_null(False)


def facts_from_files(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of the authors' files: their path in the set → their content.

    Questions without rows are left out, and so are files of other layouts. `relation_labels` names
    all relations that may be there; without it every one is taken, and its label is its id.

    Raises:
        InputError: an unfit file, line or row, or a flaw that `check_facts` refuses.
    """
    questions = [path for path in sorted(files) if PurePosixPath(path).name == QUESTIONS]
    if not questions:
        raise InputError(f"{QUESTIONS} is missing; put it next to the folders of the relations.")
    if len(questions) > 1:
        raise InputError(f"{' and '.join(questions)} are two; leave one out.")
    rows = []
    for path in (name for name in sorted(files) if name.endswith(".jsonl")):
        relation_id, split = PurePosixPath(path).parent.name, PurePosixPath(path).stem
        if split not in SPLITS or not relation_id:
            expected = ", ".join(f"P…/{name}.jsonl" for name in SPLITS)
            raise InputError(f"{path} is none of {expected}; rename or remove it.")
        if relation_labels is not None and relation_id not in relation_labels:
            raise InputError(
                f"{path}: the catalog entry does not name its relation {relation_id}; "
                "add it to the entry or leave the relation out."
            )
        # Not splitlines: a label may hold a character that Unicode counts as a line end.
        for number, line in enumerate(files[path].rstrip("\r\n").split("\n")):
            subject, objects = _query(line, f"{path}, row {number} (counted from 0)")
            subject_id = f"{split}.{number:04d}"
            pair_id = f"{relation_id}.{subject_id}"
            rows.append((pair_id, relation_id, subject_id, [subject], objects, split))
    pairs = pl.DataFrame(rows, empty("pairs").schema, orient="row")
    return facts_of(pairs, questions_of(questions[0], files[questions[0]]), relation_labels)


def _query(line: str, place: str) -> tuple[str, list[dict[str, Any]]]:
    row = parse_json(line, place, "correct or drop the row")
    check(place, isinstance(row, dict), "no JSON object", row)
    check_fields(place, row, _FIELDS, "KAMEL's files")
    check(place, _is_text(row["sub_label"]), "sub_label is empty", row)
    answers, ids = row["obj_label"], row.get("obj_uri")
    check(place, isinstance(answers, list) and answers, "obj_label is no list", row)
    ids = [None] * len(answers) if ids is None else ids
    are_parallel = isinstance(ids, list) and len(ids) == len(answers)
    check(place, are_parallel, "obj_uri and obj_label differ in length", row)
    objects = []
    for object_id, answer in zip(ids, answers, strict=True):
        fits = object_id is None or _is_text(object_id)
        check(place, fits, "obj_uri holds no text", row)
        if isinstance(answer, str):
            check(place, _is_text(answer), "obj_label has an empty label", row)
            objects.append({"object_id": object_id, "labels": [answer]})
            continue
        fits = isinstance(answer, dict)
        check(place, fits, "obj_label holds no text and no labels", row)
        main, alternatives = answer.get("rdf"), answer.get("alternative") or []
        check(place, isinstance(alternatives, list), "alternative is no list", row)
        chosen = answer.get("chosen")
        # A literal has no main label: its first one is the first alternative.
        names = [*alternatives, chosen] if main is None else [main, chosen, *alternatives]
        are_texts = all(name is None or isinstance(name, str) for name in names)
        check(place, are_texts, "obj_label holds a label that is no text", row)
        labels = list(dict.fromkeys(filter(_is_text, names)))
        check(place, labels, "obj_label has an answer without a label", row)
        is_untyped = object_id is None and main is None
        objects.append({"object_id": _UNTYPED if is_untyped else object_id, "labels": labels})
    return row["sub_label"], objects


def questions_of(path: str, content: str) -> dict[str, str]:
    """The question of each relation; there is no header, and a question may hold commas.

    Raises:
        InputError: a line without a relation, a comma or [S], or a relation with two questions; the
            same line twice is one, as in the authors' file.
    """
    questions: dict[str, str] = {}
    for place, line in lines(path, content):
        relation_id, comma, question = (part.strip() for part in line.partition(","))
        if not (relation_id and comma and question):
            raise InputError(f"{place}: {line!r} is not `P36, question`; write it so.")
        if (earlier := questions.setdefault(relation_id, question)) != question:
            raise InputError(
                f"{place}: {relation_id} has another question already ({earlier!r}); leave one out."
            )
        if "[S]" not in question:
            raise InputError(f"{place}: {question!r} has no [S]; put it where the subject belongs.")
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
        InputError: a flaw that `check_facts` refuses: a relation without a question, say.
    """
    ids = pairs["relation_id"].unique(maintain_order=True).to_list()
    texts = {relation_id: questions[relation_id] for relation_id in ids if relation_id in questions}
    return check_facts(
        Facts(facts_module.relation_table(ids, relation_labels), templates(texts), pairs)
    )


def templates(questions: Mapping[str, str]) -> pl.DataFrame:
    """Each relation's question with its answer after it, as every question template has it."""
    texts = ((id_, f"{text.replace('[S]', '[X]')} [Y]") for id_, text in questions.items())
    numbered = facts_module.number_templates(facts_module.manual_templates(texts))
    return numbered.with_columns(style=pl.lit("question"))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def slice_queries(facts: Facts, part: Slice) -> Facts:
    """The chosen part of the facts: all examples of `train`, and the first queries.

    `part.pairs_per_relation` counts the pairs of dev and of test, not of train, so that
    demonstrations do not change with it.

    Raises:
        InputError: a relation that the set does not have, or a part without pairs or names.
    """
    facts = facts_module.slice_facts(facts, replace(part, pairs_per_relation=None))
    if part.pairs_per_relation is None:
        return facts
    place = pl.int_range(pl.len()).over("relation_id", "split")
    is_kept = (pl.col("split") == "train") | (place < part.pairs_per_relation)
    return check_facts(replace(facts, pairs=facts.pairs.filter(is_kept)))


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
    sizes = splits.join(sizes, on="split", how="left", maintain_order="left")
    return sizes.with_columns(pl.col(list(numbers)).fill_null(0).cast(pl.Int64))


def shown_forms(answers: pl.DataFrame) -> pl.Series:
    """The form of each right answer (object_id, labels) that an example shows.

    That of a literal is its shortest, any other its main label.

    >>> answers = pl.DataFrame({
    ...     "object_id": ["Q90", DATE], "labels": [["Paris", "Rom"], ["16 December 1949", "1949"]],
    ... })
    >>> shown_forms(answers).to_list()
    ['Paris', '1949']
    """
    shortest = pl.element().sort_by(pl.element().str.len_chars(), maintain_order=True).first()
    return answers.select(
        pl.when(is_literal(pl.col("object_id")))
        .then(pl.col("labels").list.eval(shortest).list.first())
        .otherwise(pl.col("labels").list.first())
        .alias("shown")
    )["shown"]


def find_marked_labels(pairs: pl.DataFrame) -> pl.DataFrame:
    """The labels that keep their special characters: relation_id, bare, full (`answer_forms`).

    A label keeps them if it would be equal, without them, to another label of another object of its
    relation, or if nothing would be left of it. Two answers without an id, and two literals, are
    one object if their first labels are equal.

    Source: KAMEL, section 3.2, which removes all special characters; kept here, or "C" would be
    right for C++ and C#.

    >>> objects = [[{"object_id": q, "labels": [name]}] for q, name in (("Q1", "C"), ("Q2", "C++"))]
    >>> find_marked_labels(pl.DataFrame({"relation_id": ["P277"] * 2, "objects": objects})).rows()
    [('P277', 'c', 'c'), ('P277', 'c', 'c++')]
    """
    objects = pairs.select("relation_id", "objects").explode("objects").unnest("objects")
    first = pl.col("labels").list.first().str.to_lowercase()
    object_id = pl.col("object_id").cast(pl.String)
    has_id = object_id.is_not_null() & ~is_literal(object_id)
    labels = objects.select(
        "relation_id", "labels", object=pl.when(has_id).then("object_id").otherwise(first)
    ).explode("labels")
    parts = labels.select("relation_id", "object", part=answer_forms(pl.col("labels")))
    forms = parts.explode("part").unnest("part").filter(pl.col("full") != "")
    several = (pl.n_unique("object") > 1) & (pl.n_unique("full") > 1)
    shared = forms.group_by("relation_id", "bare").agg(several=several)
    shared = shared.filter(pl.col("several") | (pl.col("bare") == ""))
    apart = forms.join(shared, on=["relation_id", "bare"], how="semi")
    columns = ["relation_id", "bare", "full"]
    return apart.select(columns).unique().sort(columns)


def read_answers(texts: pl.DataFrame, apart: pl.DataFrame) -> pl.DataFrame:
    """The strictly read answers of texts (relation_id, text, and others): one per row, in `answer`.

    An answer has no special characters, unless `apart` (`find_marked_labels`) has its bare form in
    its relation; a text of special characters that is none of these labels is no answer. Marks
    around an answer count only where one of these labels has them: "(C#)." is C#.
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
    keys = ["relation_id", "bare"]
    marked = apart.select(keys).unique().with_columns(apart=pl.lit(value=True))
    bare_labels = apart.filter(pl.col("bare") == "").with_columns(known=pl.lit(value=True))
    forms = forms.join(marked, on=keys, how="left").join(
        bare_labels, on=[*keys, "full"], how="left"
    )
    keeps_marks = (
        pl.when(pl.col("bare") == "").then("known").otherwise("apart").fill_null(value=False)
    )
    answers = forms.with_columns(answer=pl.when(keeps_marks).then("full").otherwise("bare"))
    return answers.filter(pl.col("answer") != "").drop("full", "bare", "apart", "known").unique()


def files_from_facts(facts: Facts) -> dict[str, str]:
    """The authors' files of canonical tables: the inverse of `facts_from_files`.

    Train and dev rows show an answer's first label alone, of a literal the shortest form, as the
    authors' do.
    """
    files = {QUESTIONS: ""}
    for relation_id, text in facts.templates.select("relation_id", "text").iter_rows():
        question = text.replace(" [Y]", "", 1).replace("[X]", "[S]")
        files[QUESTIONS] += f"{relation_id}, {question}\n"
    lines = defaultdict[str, list[str]](list)
    for pair in facts.pairs.iter_rows(named=True):
        ids, answers = [], []
        for object_id, labels in (entity.values() for entity in pair["objects"]):
            ids.append(object_id)
            has_literal = (object_id or "").startswith(LITERAL)
            answers.append(
                {"rdf": None, "alternative": labels, "chosen": min(labels, key=len)}
                if has_literal
                else {"rdf": labels[0], "alternative": labels[1:], "chosen": labels[0]}
            )
        row: dict[str, Any] = {"sub_label": pair["subjects"][0]}
        if pair["split"] == "test":
            row |= {"obj_uri": ids, "obj_label": answers}
        else:
            row["obj_label"] = [answer["chosen"] for answer in answers]
        name = f"{pair['relation_id']}/{pair['split']}.jsonl"
        lines[name].append(json.dumps(row, ensure_ascii=False) + "\n")
    return files | {name: "".join(of_file) for name, of_file in lines.items()}
