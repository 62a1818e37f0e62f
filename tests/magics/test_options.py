from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from meshbook.magics.options import Command, GrammarError, HelpRequested, Option, columns, options_of, seconds


@dataclass(frozen=True)
class Brew:
    """Make tea."""

    kind: Annotated[Literal["green", "black"], Option("-k --kind", "which leaves")] = "green"
    is_iced: Annotated[bool, Option("--iced", "with ice")] = False
    steep: Annotated[float, Option("--steep", "how long", "S", seconds)] = 90.0
    guests: Annotated[tuple[str, ...], Option("--for", "who drinks", "NAME", lambda text: (text,))] = ()
    cups: int = 1


BREW = Command("%tea brew", Brew, "%tea brew --iced")


def test_the_fields_of_a_dataclass_are_its_options():
    assert list(options_of(Brew)) == ["kind", "is_iced", "steep", "guests"]
    assert BREW.name == "brew"
    assert BREW.read(["-kblack", "--iced", "--for", "a", "--for=b"]) == Brew("black", True, guests=("a", "b"))
    assert BREW.read([], cups=3) == Brew(cups=3)


def test_the_last_of_two_values_counts():
    assert BREW.read(["--steep", "3", "--steep", "4"]).steep == 4.0


def test_usage_shows_choices_defaults_and_the_example():
    with pytest.raises(HelpRequested) as caught:
        BREW.read(["--iced", "-h"])
    assert caught.value.text == (
        "usage: %tea brew [options]\n"
        "\n"
        "Make tea.\n"
        "\n"
        "options:\n"
        "  -k, --kind {green,black}  which leaves (default: green)\n"
        "  --iced                    with ice\n"
        "  --steep S                 how long (default: 90)\n"
        "  --for NAME                who drinks\n"
        "  -h, --help                this text\n"
        "\n"
        "example:\n"
        "  %tea brew --iced"
    )


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["--kind", "red"], "%tea brew: --kind: 'red' is not one of green, black"),
        (["--kind"], "%tea brew: --kind needs a value: --kind {green,black}"),
        (["now"], "%tea brew: 'now' is one word too many"),
        (["--ices"], "%tea brew: no option --ices: did you mean '--iced'?"),
        (["--q"], "%tea brew: no option --q: there are -k, --kind, --iced, --steep, --for, -h, --help"),
    ],
)
def test_a_mistake_names_the_command(tokens: list[str], expected: str):
    with pytest.raises(GrammarError) as caught:
        BREW.read(tokens)
    assert str(caught.value) == expected


def test_help_fits_a_notebook() -> None:
    long = "word " * 60
    told = columns([("-x", long.strip()), ("--an-option-with-a-very-long-name VALUE", "what it does")]).splitlines()
    assert max(map(len, told)) <= 104
    assert told[1].startswith(" " * 34 + "word"), "wrapped below where the text begins"
    assert told[-2:] == ["  --an-option-with-a-very-long-name VALUE", " " * 34 + "what it does"]
