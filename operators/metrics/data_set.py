"""How many and how different the prompts of a set are (BELIEF, appendix B.1)."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import schema

# Texts → the place of each word's head, for each text; a root is its own head.
Parse = Callable[[Sequence[str]], Sequence[Sequence[int]]]
# Texts → (texts, dimensions).
Encode = Callable[[Sequence[str]], NDArray[np.floating]]

DIVERSITY = schema("""
    relation_id text, n_pairs int, n_templates int, quantity float, lexicon float, syntax float,
    semantics float
""")
_WORD = re.compile(r"\[[XY]\]|\w+")


def lexicon(texts: Sequence[str]) -> float | None:
    """Average over all pairs of texts the Jaccard distance (0 to 1) of their sets of words.

    None for fewer than two texts. Source: BELIEF, appendix B.1, "Lexicon", which does not say what
    a word is; see `words`.

    >>> lexicon(["[X] died in [Y].", "[X] died at [Y].", "[X] died in [Y]"])
    0.26666666666666666
    """
    sets = [words(text) for text in texts]
    vocabulary = {word: column for column, word in enumerate(sorted(set().union(*sets)))}
    table = np.zeros((len(sets), len(vocabulary)), dtype=bool)
    for row, words_of_text in enumerate(sets):
        table[row, [vocabulary[word] for word in words_of_text]] = True
    return _mean_distance(table, "jaccard")


def _mean_distance(points: NDArray[Any], metric: Literal["jaccard", "euclidean"]) -> float | None:
    """The mean distance over the unordered pairs of rows; two empty sets are at distance 0."""
    from scipy.spatial.distance import pdist

    return float(pdist(points, metric).mean()) if len(points) > 1 else None


def words(text: str) -> frozenset[str]:
    """The words of a template: runs of letters, digits and _, with [X] and [Y]; case counts.

    With these words, ParaRel's templates have .4868 (39 relations); the paper has .4860.

    >>> sorted(words("[X]'s capital is [Y]."))
    ['[X]', '[Y]', 'capital', 'is', 's']
    """
    return frozenset(_WORD.findall(text))


def semantics(embeddings: NDArray[np.floating]) -> float | None:
    """Average over all pairs of texts the L2 distance of their embeddings (texts, dimensions).

    None for fewer than two texts. In units of the encoder: numbers of two encoders cannot be
    compared. Source: BELIEF, appendix B.1, "Semantics" (there of BERT-large).

    >>> semantics(np.array([[0.0, 0.0], [3.0, 4.0]]))
    5.0
    """
    return _mean_distance(embeddings, "euclidean")


class Centrality(NamedTuple):
    """The most central word of a tree: of all words, the highest degree and closeness (0 to 1)."""

    degree: float
    closeness: float


def syntax(trees: Sequence[Sequence[int]]) -> float | None:
    """Average over all pairs of trees the Euclidean distance of their `centrality` (0 to √2).

    A tree is the place of each word's head; a root is its own head. None for fewer than two trees.
    Source: BELIEF, appendix B.1, "Syntax", after Oya 2020; docs/metrics.md says how we read it.

    >>> chain, star = [1, 2, 3, 4, 4], [0, 0, 0, 0, 0]
    >>> round(syntax([chain, star]), 4)
    0.6009
    """
    return _mean_distance(np.array([centrality(heads) for heads in trees]), "euclidean")


def centrality(heads: Sequence[int]) -> Centrality:
    """Where a tree lies between a chain and a star.

    Of n words, a word's degree centrality is its heads and dependents / (n - 1), and its closeness
    centrality (n - 1) / the sum of its distances to all other words (Freeman 1978). A later
    sentence's root hangs from the first root. A tree of one word has 0 and 0.

    Raises:
        InputError: the heads make no tree.

    >>> centrality([1, 2, 3, 4, 4])
    Centrality(degree=0.5, closeness=0.6666666666666666)
    """
    n = len(heads)
    if n < 2:
        return Centrality(0.0, 0.0)
    words = np.arange(n)
    head = np.asarray(heads)
    roots = words[head == words]
    if not roots.size:
        raise InputError(f"heads {list(heads)} have no root; a root is its own head.")
    head = np.where(head == words, roots[0], head)
    children = words[words != roots[0]]
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    edges = csr_array((np.ones(n - 1), (children, head[children])), shape=(n, n))
    distances = shortest_path(edges, directed=False, unweighted=True)
    if not np.isfinite(distances).all():
        raise InputError(f"heads {list(heads)} make no tree; they have a circle.")
    degrees = np.bincount(children, minlength=n) + np.bincount(head[children], minlength=n)
    return Centrality(float(degrees.max() / (n - 1)), float((n - 1) / distances.sum(axis=1).min()))


def diversity(
    facts: Facts, *, parse: Parse | None = None, encode: Encode | None = None
) -> pl.DataFrame:
    """Measure each relation, and the set: one row per relation and a last one, relation_id null.

    Columns out: DIVERSITY. `quantity` is the number of prompts per pair: names × templates,
    averaged over the pairs; `lexicon`, `syntax` and `semantics` are mean distances of two templates
    of the relation, in the last row averaged over the relations that have two. Null: fewer than two
    templates, without `parse` or `encode`, or a set without pairs (`quantity`).

    Source: BELIEF, appendix B.1, Table 8.

    >>> from factsweep.operators.schemas import empty
    >>> texts = ["[X] died in [Y].", "[X] died at [Y]."]
    >>> templates = pl.DataFrame({"relation_id": "P20", "text": texts})
    >>> diversity(Facts(empty("relations"), templates, empty("pairs"))).row(0)
    ('P20', 0, 2, None, 0.4, None, None)
    """
    relations = facts.templates.group_by("relation_id", maintain_order=True).agg("text")
    texts = [templates.to_list() for templates in relations["text"]]
    # A parser and an encoder read X and Y without brackets.
    plain_texts = [
        [text.replace("[X]", "X").replace("[Y]", "Y") for text in templates] for templates in texts
    ]
    names = facts.pairs.group_by("relation_id").agg(
        n_pairs=pl.len().cast(pl.Int64), n_names=pl.col("subjects").list.len().mean()
    )
    joined = relations.join(names, on="relation_id", how="left", maintain_order="left")
    measured = joined.with_columns(
        pl.col("n_pairs").fill_null(0),
        n_templates=pl.col("text").list.len().cast(pl.Int64),
        lexicon=_floats(map(lexicon, texts)),
        syntax=_floats(syntax(parse(plain)) if parse else None for plain in plain_texts),
        semantics=_floats(semantics(encode(plain)) if encode else None for plain in plain_texts),
    )
    by_relation = measured.with_columns(quantity=pl.col("n_names") * pl.col("n_templates"))
    prompts = pl.col("quantity") * pl.col("n_pairs")
    of_set = by_relation.select(
        pl.lit(None, pl.String).alias("relation_id"),
        pl.sum("n_pairs", "n_templates"),
        pl.mean("lexicon", "syntax", "semantics"),
        quantity=pl.when(pl.sum("n_pairs") > 0).then(prompts.sum() / pl.sum("n_pairs")),
    )
    return pl.concat(rows.select(list(DIVERSITY)) for rows in (by_relation, of_set))


def _floats(values: Iterable[float | None]) -> pl.Series:
    return pl.Series(list(values), dtype=pl.Float64)
