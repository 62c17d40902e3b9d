"""Parsing with spaCy: a parser is trained here on four sentences, or trees are given."""

from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example

from factsweep.operators.engines.measuring import DependencyParser, heads
from factsweep.operators.errors import InputError
from tests.messages import naming

# Word, place of its head, relation.
TREES = [
    [("X", 1, "nsubj"), ("died", 1, "ROOT"), ("in", 1, "prep"), ("Y", 2, "pobj")],
    [("Y", 1, "nsubj"), ("saw", 1, "ROOT"), ("X", 3, "nsubj"), ("die", 1, "ccomp")],
    [("X", 1, "poss"), ("town", 2, "nsubj"), ("is", 2, "ROOT"), ("Y", 2, "attr")],
    [("the", 1, "det"), ("town", 3, "nsubj"), ("now", 3, "advmod"), ("sleeps", 3, "ROOT")],
]


def doc(nlp: spacy.Language, tree: list[tuple[str, int, str]]) -> Doc:
    words, places, relations = zip(*tree, strict=True)
    return Doc(nlp.vocab, words=list(words), heads=list(places), deps=list(relations))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a pipeline that has learnt the four trees by heart."""
    nlp = spacy.blank("en")
    # Relations seen fewer than 30 times are otherwise left out.
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    examples = [Example(nlp.make_doc(" ".join(w for w, *_ in t)), doc(nlp, t)) for t in TREES]
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(60):
        nlp.update(examples, sgd=optimizer)
    folder: Path = tmp_path_factory.mktemp("pipeline")
    nlp.to_disk(folder)
    return str(folder)


def test_parser_gives_the_trees_that_it_was_taught(pipeline: str) -> None:
    texts = [" ".join(word for word, *_ in tree) for tree in TREES]
    assert DependencyParser(pipeline)(texts) == [[head for _, head, _ in tree] for tree in TREES]


def test_parser_any_batch_gives_the_same_trees(pipeline: str) -> None:
    parser = DependencyParser(pipeline)
    texts = ["X died in Y", "the town now sleeps", "Y saw X die"]
    assert parser(texts) == [parser([text])[0] for text in texts]


def test_parser_pipeline_without_parser_is_said(tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.to_disk(tmp_path)
    message = r"has no dependency parser \(it has sentencizer\); name one that has, such as en_core"
    with pytest.raises(InputError, match=message):
        DependencyParser(str(tmp_path))(["X died in Y."])


def test_parser_not_installed_says_how_to_install_it() -> None:
    with pytest.raises(InputError, match=naming("'xx_no_such'", "xx_no")):
        DependencyParser("xx_no_such")(["X died in Y."])


def test_heads_several_sentences_keep_their_roots() -> None:
    tree = [("Who", 1, "nsubj"), ("died", 1, "ROOT"), ("?", 1, "punct"), ("Y", 3, "ROOT")]
    assert heads(doc(spacy.blank("en"), tree)) == [1, 1, 1, 3]


def test_heads_leading_white_space_is_no_word() -> None:
    tree = [(" ", 1, "dep"), ("X", 2, "nsubj"), ("died", 2, "ROOT"), ("\n", 2, "dep")]
    assert heads(doc(spacy.blank("en"), tree)) == [1, 1]
