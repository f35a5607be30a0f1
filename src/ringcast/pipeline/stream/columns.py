"""``bodySchema`` in Spark's words, as for a table.

Spark itself would read it, but only together with all other columns, and then say of a typing error
that it is somewhere among those. So it is read here, where the error can name it.
"""

from __future__ import annotations

import re

from pyspark.sql import types as T

from ringcast.core.explain import known
from ringcast.pipeline.errors import PipelineError

EXAMPLE = "id BIGINT NOT NULL, price DECIMAL(9,2), tags ARRAY<STRING>"

PLAIN: dict[str, T.DataType] = {
    "BOOLEAN": T.BooleanType(),
    "TINYINT": T.ByteType(),
    "BYTE": T.ByteType(),
    "SMALLINT": T.ShortType(),
    "SHORT": T.ShortType(),
    "INT": T.IntegerType(),
    "INTEGER": T.IntegerType(),
    "BIGINT": T.LongType(),
    "LONG": T.LongType(),
    "FLOAT": T.FloatType(),
    "REAL": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "STRING": T.StringType(),
    "BINARY": T.BinaryType(),
    "DATE": T.DateType(),
    "TIMESTAMP": T.TimestampType(),
    "TIMESTAMP_LTZ": T.TimestampType(),
    "TIMESTAMP_NTZ": T.TimestampNTZType(),
}
OTHERS = ("DECIMAL", "ARRAY", "MAP", "STRUCT")

PIECES = re.compile(r"`(?:[^`]|``)+`|'[^']*'|\w+|\S")
NAME = re.compile(r"`(?:[^`]|``)+`|\w+")


def body_columns(text: str) -> T.StructType:
    """The columns; PipelineError says what is wrong with them."""
    try:
        words = _Words(PIECES.findall(text))
        found = words.columns()
        words.need("")
    except ValueError as error:
        raise PipelineError(
            f"bodySchema {text!r}: {error}; write it as for a table, such as {EXAMPLE!r}"
        ) from None
    return found


class _Words:
    """What was written, read from left to right; ValueError says where it is no schema."""

    def __init__(self, words: list[str]) -> None:
        self._left = list(reversed(words))

    def _take(self) -> str:
        return self._left.pop() if self._left else ""

    def _skip(self, word: str) -> bool:
        """Whether this is the next word; then it is taken."""
        found = bool(self._left) and self._left[-1].upper() == word
        return bool(found and self._left.pop())

    def need(self, word: str) -> None:
        """Take this word, or, if it is empty, find the end."""
        found = self._take()
        if found.upper() != word:
            there = f"before {found!r}" if found else "at the end"
            raise ValueError(f"{word!r} is missing {there}" if word else f"{found!r} is too much")

    def columns(self) -> T.StructType:
        """One column or more."""
        found = [self._column()]
        while self._skip(","):
            found.append(self._column())
        names = [each.name for each in found]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"column {name!r} is there twice")
        return T.StructType(found)

    def _column(self) -> T.StructField:
        word = self._take()
        if not NAME.fullmatch(word):
            raise ValueError(f"a column is missing {f'before {word!r}' if word else 'at the end'}")
        name = word[1:-1].replace("``", "`") if word.startswith("`") else word
        self._skip(":")
        kind, nullable = self._kind(f"column {name!r}"), True
        if self._skip("NOT"):
            self.need("NULL")
            nullable = False
        if self._skip("COMMENT"):
            self._take()
        return T.StructField(name, kind, nullable)

    def _kind(self, of: str) -> T.DataType:
        word = self._take()
        match word.upper():
            case "ARRAY":
                self.need("<")
                found: T.DataType = T.ArrayType(self._kind(of))
                self.need(">")
            case "MAP":
                self.need("<")
                key = self._kind(of)
                self.need(",")
                found = T.MapType(key, self._kind(of))
                self.need(">")
            case "STRUCT":
                self.need("<")
                found = self.columns()
                self.need(">")
            case "DECIMAL" | "DEC" | "NUMERIC":
                found = self._decimal(of)
            case upper if upper in PLAIN:
                found = PLAIN[upper]
            case upper if NAME.fullmatch(word):
                raise ValueError(f"{of} has no type {word}; {known(upper, (*PLAIN, *OTHERS))}")
            case _:
                raise ValueError(f"{of} has no type")
        return found

    def _decimal(self, of: str) -> T.DecimalType:
        digits = ["10", "0"]
        if self._skip("("):
            digits[0] = self._take()
            if self._skip(","):
                digits[1] = self._take()
            self.need(")")
        precision, scale = (int(each) if each.isdecimal() else -1 for each in digits)
        if not 0 <= scale <= precision <= 38 or not precision:
            raise ValueError(
                f"{of}: DECIMAL({','.join(digits)}) is not possible; 38 digits are the most"
            )
        return T.DecimalType(precision, scale)
