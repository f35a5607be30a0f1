"""Every scenario file is a test; and so is the language.

``REWRITE_SCENARIOS=1 pytest tests/scenarios`` puts what was seen into the files. Read the
difference afterwards and keep only what you understand.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringcast.sim.scenario.commands import COMMANDS
from ringcast.sim.scenario.parser import ScenarioError, rewrite_file, run_file, run_text

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.txt"))
REWRITE = bool(os.environ.get("REWRITE_SCENARIOS"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_scenario(path: Path) -> None:
    result = rewrite_file(path) if REWRITE else run_file(path)
    assert not result.violations, "\n".join(v.explanation for v in result.violations)
    assert REWRITE or not result.diff, "\n" + result.diff


def test_a_difference_is_shown_and_can_be_taken_over() -> None:
    result = run_text("ring totem n=1\nlog views\nrun 1s\n----\nok\n")
    assert not result.ok
    assert "+p1 reg (8,1){1}" in result.diff
    assert "-ok" in result.diff
    assert run_text(result.text).ok


def test_the_same_text_shows_the_same_lines() -> None:
    text = "ring totem n=4 network=lossy seed=3\nlog views drops\nload poisson rate=500\nrun 1s\n"
    first, second = (run_text(f"{text}----\nok\n").text for _ in range(2))
    assert first == second
    assert len(first.splitlines()) > 10


def test_a_violation_fails_a_scenario_that_shows_what_it_should() -> None:
    result = run_text(
        "ring totem n=1\nrun 1s\n"
        "inject 1->1 boot=7 [6, [8, 1], 1]\n----\n"
        "p1 stopped: another processor uses the id 1 (totem R2)\n"
    )
    assert result.ok
    broken = run_text("ring totem n=2\nuntil operational\nstorage p1 ring_seq=0\n"
                      "crash p1\nrestart p1\nrun 1s\n----\nok\n")  # fmt: skip
    assert not broken.diff
    assert not broken.ok
    assert broken.violations


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("run 1s\n----\nok\n", "line 1: run 1s: the first command must be 'ring'"),
        ("ring totem n=3\njump p1\n----\nok\n", "line 2: jump p1: no command 'jump'"),
        ("ring totem n=3\n\nrun 3 s\n----\nok\n", "line 3: run 3 s: how long?"),
        ("ring totem n=3\nrun 3x\n----\nok\n", "neither a time"),
        ("ring totem n=3\ncrash p4\n----\nok\n", "no processor 'p4'"),
        ("ring totem n=3\ncut 1-2\n----\nok\n", "not of the form 1->2"),
        ("ring totem n=3\ncut 1->9\n----\nok\n", "no processor 9"),
        ("ring totem n=3\ndrop Tocken 1->2\n----\nok\n", "no message 'Tocken'"),
        ("ring totem n=3\ndrop Token\n----\nok\n", "which frames?"),
        ("ring totem n=3\ndrop Token 1->2 5ms\n----\nok\n", "delay does that"),
        ("ring totem n=3\ndelay Token 1->2 x3\n----\nok\n", "how much later?"),
        ("ring totem n=3\ndrop Token 1->2 after\n----\nok\n", "invalid literal"),
        ("ring totem n=3\ndelay Token 1->2 off\n----\nok\n", "no such delay is in force"),
        ("ring totem n=3\npartition 1,2 3\n----\nok\n", "not of the form {1,2}"),
        ("ring totem n=3\nshow p1 colour\n----\nok\n", "no 'colour' to show"),
        ("ring totem n=3\nlog everything\n----\nok\n", "no log of 'everything'"),
        ("ring totem n=3\nuntil doomsday\n----\nok\n", "no phase 'doomsday'"),
        ("ring totem n=3\nuntil\n----\nok\n", "until what?"),
        ("ring totem n=3\nstart p1\n----\nok\n", "p1 is up already"),
        ("ring totem n=3\nring totem n=3\n----\nok\n", "a scenario has one ring"),
        ("ring\n----\nok\n", "which protocol?"),
        ("ring totem three\n----\nok\n", "not of the form key=value"),
        ("ring totem n=3 colour=red\n----\nok\n", "totem has no setting colour"),
        ("ring tokem n=3\n----\nok\n", "no protocol called 'tokem'"),
        ("ring totem n=many\n----\nok\n", "Expected `int`"),
        ("ring totem n=3\nload rain\n----\nok\n", "Invalid value 'rain'"),
        ("ring totem n=3\ninject 1->2 [9]\n----\nok\n", "Invalid value 9"),
        ("ring totem n=3\nvisit p1\n----\nok\n", "words are missing; it is written ``visit p1 2``"),
        ("ring totem n=3\n", "commands without a line"),
        ("# only words\n", "nothing to do"),
    ],
)
def test_a_bad_file_is_told_what_is_wrong_and_where(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        run_text(text, "bad.txt")
    assert complaint in str(caught.value)
    assert str(caught.value).startswith("bad.txt")


def test_what_never_happens_is_a_line_of_the_output() -> None:
    result = run_text("ring totem n=2\nuntil ring {1,2}\ncrash p2\nuntil ring {1,2,3}\n----\nok\n")
    assert "never: ring {1,2,3}" in result.text


LOSES = """
ring totem n=3 hold_us=0
until operational
mark
drop Regular *->2 after 1 always
delay Token 3->1 100us always
submit p1 "a"
until delivered 1
submit p1 "b"
until delivered 2 p1
show p2 my_aru
{}
----
p2 my_aru={}
{}
"""


def test_frames_are_lost_from_the_second_on_until_the_loss_is_ended() -> None:
    (aru,) = (
        line for line in run_text(LOSES.format("", 0, "")).text.splitlines() if "aru=" in line
    )
    before = int(aru.partition("=")[2])
    after = "drop Regular *->2 off\nuntil delivered 2 p2\nshow p2 my_aru"
    result = run_text(LOSES.format(after, before, f"p2 my_aru={before + 1}"))
    assert result.ok, result.diff
    never = run_text(LOSES.format("run 1ms\nshow p2 my_aru", before, f"p2 my_aru={before}"))
    assert never.ok, never.diff


def test_lines_in_any_order() -> None:
    text = "ring totem n=2\nlog views\nuntil ring {1,2}\n---- in any order\nok\n"
    seen = run_text(text).text
    *head, first, second = seen.splitlines()
    turned = "\n".join([*head, second, first, ""])
    assert first != second and run_text(turned).ok and run_text(turned).text == turned
    assert not run_text(turned.replace(" in any order", "")).ok
    assert not run_text("\n".join([*head, first, first, ""])).ok


@pytest.mark.parametrize(
    ("protocol", "variables"),
    [
        (
            "totem",
            "new_memb trans_memb deliver_memb max_ring_seq last_aru_seen my_aru_count "
            "my_retrans_flg_count my_install_seq last_token_seq last_retrans",
        ),
        ("total", "next pending requests acks expected assigned missing stable"),
    ],
)
def test_variables_of_the_papers_can_be_shown(protocol: str, variables: str) -> None:
    result = run_text(f"ring {protocol} n=2\nuntil ring {{1,2}}\nshow p1 {variables}\n----\nok\n")
    assert all(f"{name}=" in result.text for name in variables.split())


def test_every_command_says_how_it_is_written() -> None:
    page = (FOLDER.parents[1] / "docs" / "scenarios.md").read_text("utf-8")
    for name, command in COMMANDS.items():
        assert f"``{name}" in (command.__doc__ or ""), name
        assert f"`{name}" in page, name


def test_the_example_of_the_page_is_true() -> None:
    page = (FOLDER.parents[1] / "docs" / "scenarios.md").read_text("utf-8")
    result = run_text(page.split("```\n")[1])
    assert result.ok, result.diff
