"""Labels that are one token of a model: the objects that a masked model can name."""

from collections.abc import Callable

from factsweep.operators.errors import InputError, reason


def one_token(model: str) -> Callable[[str], bool]:
    """Whether a label is one known token of the model (a folder, or an id on the hub).

    A label is encoded as it stands in a sentence, after a space. Source: BELIEF, footnote 6.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--one-token {model}: its tokenizer cannot be loaded ({reason(error)}); "
            "give a folder with a tokenizer, or an id on the hub that can be reached."
        ) from error

    def fits(label: str) -> bool:
        ids = tokenizer(f" {label}", add_special_tokens=False).input_ids
        return len(ids) == 1 and ids[0] != tokenizer.unk_token_id

    return fits
