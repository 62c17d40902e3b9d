"""Values: the digest of what stands in a table, however it is stored.

The same rows may have other bytes: another version of pyarrow packs them otherwise.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

Bytes = bytes | memoryview


def digest(table: pa.Table) -> str:
    """The SHA-256 of the columns' names and types, and of every value.

    >>> whole = pa.table({"a": ["b", None, "c"]})
    >>> digest(whole.slice(1)) == digest(pa.table({"a": [None, "c"]})) != digest(whole)
    True
    """
    found = hashlib.sha256()
    for name in table.column_names:
        found.update(name.encode())
        column = table[name]  # joining one chunk would copy it
        whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for each in _bytes(whole):
            found.update(each)
    return found.hexdigest()


def _bytes(array: pa.Array) -> Iterator[Bytes]:
    """Its length, where nulls stand, then all other values: what lies under a null is chance."""
    yield f"{_kind(array.type)} {len(array)} {array.null_count} ".encode()
    if array.null_count == len(array):
        return
    if array.null_count:
        yield array.is_null().to_numpy(zero_copy_only=False).data
        array = array.drop_null()
    if pa.types.is_struct(array.type):
        for each in array.flatten():
            yield from _bytes(each)
    elif pa.types.is_list(array.type):
        yield array.value_lengths().to_numpy().data
        yield from _bytes(array.flatten())
    elif pa.types.is_string(array.type):
        _, ends, text = array.buffers()
        ends = np.frombuffer(ends, np.int32)[array.offset :][: len(array) + 1]
        yield (ends - ends[0]).data
        yield memoryview(text or b"")[ends[0] : ends[-1]]
    else:
        yield array.to_numpy(zero_copy_only=False).data


def _kind(kind: pa.DataType) -> str:
    """A type's name, of our own where Arrow's changed already: a list's items were elements."""
    if pa.types.is_struct(kind):
        return f"{{{', '.join(f'{each.name} {_kind(each.type)}' for each in kind)}}}"
    if pa.types.is_list(kind):
        return f"{_kind(kind.value_type)}[]"
    if pa.types.is_string(kind) or pa.types.is_primitive(kind):
        return str(kind)
    raise TypeError(f"no table has a column of type {kind}")
