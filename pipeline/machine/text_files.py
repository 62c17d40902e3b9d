"""Text files of users: compressed or not, in UTF-8 or UTF-16.

Other files, recognised by their first bytes, are refused with a command that converts them.
"""

import bz2
import gzip
import lzma
import shlex
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from factsweep.operators.errors import DamagedFileError, InputError, reason

FIX = "fetch or copy it again"
_HEAD = 512  # bytes


def _open_zstd(path: Path) -> Any:
    import pyarrow as pa  # slow, and few files need it

    return pa.input_stream(path, compression="zstd")


_OPENERS: Mapping[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x28\xb5\x2f\xfd": _open_zstd,
}
_ENCODINGS: Mapping[bytes, str] = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_SPREADSHEET = (
    "a spreadsheet; save it as CSV in UTF-8, or run `soffice --headless --convert-to "
    "'csv:Text - txt - csv (StarCalc):44,34,76' {path}`"
)
_REFUSED: Mapping[bytes, str] = {  # by the suffix, if it is one of a spreadsheet
    b"PK\x03\x04": "a ZIP archive; unpack it with `unzip {path}` and give the file in it",
    b"\xd0\xcf\x11\xe0": _SPREADSHEET,
    b"SQLite format 3": "a database; write the table as CSV: `sqlite3 -csv -header {path} "
    "'SELECT * FROM facts' > facts.csv`",
    b"%PDF": "a PDF; copy its table to a CSV file",
    b"version https://git-lfs": "a pointer of git-lfs, not the file itself; run `git lfs pull`",
}
_SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods")


def text(path: Path) -> str:
    """A file's text, unpacked and without a byte order mark; each line ends with a line feed."""
    return read_decoded(path).replace("\r\n", "\n").replace("\r", "\n")


def unreadable(path: Path, error: BaseException) -> DamagedFileError:
    """The error of a file that a library cannot read."""
    return DamagedFileError(f"{path} cannot be read ({reason(error)}); {FIX}.")


def head_of(path: Path) -> bytes:
    """The first bytes of a file that may be a table; files that must be converted are refused."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise unreadable(path, error) from error
    for magic, kind in _REFUSED.items():
        if head.startswith(magic):
            is_sheet = magic == b"PK\x03\x04" and path.suffix.lower() in _SPREADSHEETS
            fix = (_SPREADSHEET if is_sheet else kind).format(path=shlex.quote(str(path)))
            raise InputError(f"{path} is {fix}.")
    return head


def read_unpacked(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is compressed."""
    head = head_of(path)
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
    try:
        if opener is None:
            return path.read_bytes()
        with opener(path) as file:
            data: bytes = file.read()
            return data
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise unreadable(path, error) from error


def read_decoded(path: Path) -> str:
    """The text of a file with its own line ends."""
    data = read_unpacked(path)
    encoding = _find_encoding(data, path)
    try:
        return data.decode(encoding).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        place = f"byte 0x{data[error.start]:02x} in line {line}"
        problem = f"{path} is no complete {encoding.upper()} ({place}); {FIX}."
        if encoding == "utf-8":
            problem = (
                f"{path} is not UTF-8 ({place}); save it as UTF-8, or name its encoding "
                f"(WINDOWS-1252, ISO-8859-1, …): `{_iconv('WINDOWS-1252', path)}`."
            )
        raise DamagedFileError(problem) from error


def check_utf8(path: Path) -> None:
    """Refuse a file that is not UTF-8, for libraries that read nothing else."""
    read_decoded(path)
    if (encoding := _find_encoding(path.read_bytes(), path)) != "utf-8":
        fix = _iconv(encoding.upper(), path)
        raise InputError(f"{path} is {encoding.upper()}; save it as UTF-8: `{fix}`.")


def _find_encoding(data: bytes, path: Path) -> str:
    marked = next((name for mark, name in _ENCODINGS.items() if data.startswith(mark)), None)
    if marked is None and b"\0" in data[:_HEAD]:
        guess = _guess_encoding(data[:_HEAD])
        raise DamagedFileError(
            f"{path} holds NUL bytes: it is no text, or {guess} without a byte order mark, which "
            f"`{_iconv(guess, path)}` converts."
        )
    return marked or "utf-8"


def _guess_encoding(head: bytes) -> str:
    """The encoding of a text that holds NUL bytes, by their places.

    >>> [_guess_encoding("a,ä".encode(name)) for name in ("utf-16-le", "utf-16-be", "utf-32-be")]
    ['UTF-16LE', 'UTF-16BE', 'UTF-32BE']
    """
    has_text = [any(head[place::4]) for place in range(4)]
    if not any(has_text[2:]) or not any(has_text[:2]):
        return "UTF-32BE" if any(has_text[2:]) else "UTF-32LE"
    return "UTF-16LE" if head[1::2].count(0) >= head[::2].count(0) else "UTF-16BE"


def _iconv(encoding: str, path: Path) -> str:
    converted = path.with_name(f"{path.stem}-utf8{path.suffix}")
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > {shlex.quote(str(converted))}"
