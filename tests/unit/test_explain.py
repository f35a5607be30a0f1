"""Errors about names and choices name what there is."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import msgspec
import pytest

from ringcast.core.explain import explained, known


class Colour(Enum):
    RED, BLUE = "red", "blue"


class Box(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    its_colour: Colour = Colour.RED
    form: Literal["round", "square"] = "round"


class Shelf(msgspec.Struct, forbid_unknown_fields=True):
    box: Box = msgspec.field(default_factory=Box)
    boxes: tuple[Box, ...] = ()
    count: int = 0


def test_the_nearest_name_comes_first_however_it_is_written() -> None:
    assert known("ITSCOLOR", ["form", "itsColour"]) == (
        "did you mean itsColour? known: form, itsColour"
    )
    assert known("x", ["form", "itsColour"]) == "known: form, itsColour"
    assert known("x", []) == "known: none"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bx": {}}, "unknown field `bx`; did you mean box? known: box, boxes, count"),
        ({"box": {"forn": 1}}, "at `$.box`; did you mean form? known: itsColour, form"),
        ({"box": {"itsColour": "bleu"}}, "at `$.box.itsColour`; did you mean blue? known: red, bl"),
        ({"box": {"form": "rond"}}, "at `$.box.form`; did you mean round? known: round, square"),
        ({"boxes": [{"form": "rond"}]}, "'rond' - at `$.boxes[0].form`"),
        ({"count": "many"}, "Expected `int`, got `str` - at `$.count`"),
    ],
)
def test_what_msgspec_says_is_completed(given: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Shelf)
    assert words in explained(caught.value, Shelf)
