"""Which prompts have the text of an earlier one; the answer to that one is theirs, too."""

import numpy as np
import numpy.typing as npt
import polars as pl

# A text is known by two 64-bit hashes of its context and query; that two of 10 M texts share both
# has a chance of 1e-25.
_TEXT = ("hash", "other_hash")


class Repeated:
    """The prompts so far, to find those whose text stands among them already."""

    def __init__(self) -> None:
        self._hashes: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)  # sorted, each once
        self._firsts: list[pl.DataFrame] = []

    def mark(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add `same_as`: the first prompt of the same text, null for the first itself."""
        text = pl.struct("context_id", "query")
        texts = rows.select("prompt_id", hash=text.hash(0), other_hash=text.hash(1))
        texts = texts.with_row_index("place")
        again = self._again(texts["hash"])
        same_as = self._same_as(texts.filter(pl.col("hash").is_in(again.implode())))
        marked = texts.join(same_as, on="place", how="left", maintain_order="left")
        self._firsts.append(marked.filter(pl.col("same_as").is_null()).drop("place", "same_as"))
        return rows.with_columns(marked["same_as"])

    def _again(self, hashes: pl.Series) -> pl.Series:
        """The hashes that stand here twice, or stood among the earlier ones; adds these to them."""
        # Most texts are new: to sort one number of each shows that faster than a join by both.
        merged = np.sort(np.concatenate([self._hashes, np.sort(hashes.to_numpy())]), kind="stable")
        again = merged[1:] == merged[:-1]
        self._hashes = np.concatenate([merged[:1], merged[1:][~again]])
        return pl.Series(merged[1:][again], dtype=pl.UInt64)

    def _same_as(self, suspects: pl.DataFrame) -> pl.DataFrame:
        """Those of some texts that stood earlier: place, same_as."""
        hashes = suspects["hash"].implode()
        earlier = [each.filter(pl.col("hash").is_in(hashes)) for each in self._firsts]
        firsts = pl.concat([*earlier, suspects.drop("place")]).unique(
            _TEXT, keep="first", maintain_order=True
        )
        found = suspects.join(firsts.rename({"prompt_id": "same_as"}), on=_TEXT)
        return found.filter(pl.col("prompt_id") != pl.col("same_as")).select("place", "same_as")
