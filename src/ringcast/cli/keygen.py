"""``ringcast keygen``: make a group key, and change it while the group runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ringcast.console.options import fail
from ringcast.console.output import say
from ringcast.core.errors import KeyFileError
from ringcast.journal.format.layout import NAME
from ringcast.wire import keys

STEPS = {
    "--add": (
        keys.add,
        "the new key is accepted but not used yet; when all members have this file: "
        "ringcast keygen {file} --promote",
    ),
    "--promote": (
        keys.promote,
        "the newest key seals from now on; when all members have this file: "
        "ringcast keygen {file} --retire",
    ),
    "--retire": (keys.retire, "the old keys are gone; copy this file to all members and be done"),
}
"""The steps of a rotation, each with what to do next. Running members see a changed file."""


def group_keys(file: Path) -> dict[int, bytes]:
    """The keys of a group. What is made of a guest's would look like a group's, and is none."""
    found = keys.KeyFile(file)
    if found.grant:
        fail(f"{file} is a guest's; name the group's key file")
    return found.keys


def refuse_out_of_turn(file: Path, step: str, found: dict[int, bytes]) -> None:
    """A step taken twice, or too early, would change nothing or undo the one before."""
    alone, waiting = len(found) == 1, keys.waiting(found)
    if step == "--add" and waiting:
        fail(f"{file}: a new key is waiting already; the next step is --promote")
    if step == "--promote" and not waiting:
        then = "--add makes a new one" if alone else "the next step is --retire"
        fail(f"{file}: nothing to promote, the newest key seals already; {then}")
    if step == "--retire" and alone:
        fail(f"{file}: nothing to retire, it holds one key only; --add begins a rotation")


def make_guest(
    file: Path, read: Path | None, write: Path | None, name: str, network: str, force: bool
) -> None:
    """A key file for somebody who is no member."""
    if read and write:
        fail("--read and --write cannot be combined; make a key for each")
    if not re.fullmatch(NAME, name):
        fail("--name: name the reader or writer, such as --name dashboard")
    if file.exists() and not force:
        fail(f"{file} exists; --force replaces it")
    source, right = (read, "read") if read else (write, "write")
    assert source is not None
    group = group_keys(source)
    if file.exists() and file.samefile(source):
        fail(f"{file} is the group's key file; name another one for the guest")
    grant = keys.Grant(right, name)
    derived = {id: keys.guest_key(key, grant, network) for id, key in group.items()}
    keys.write(file, derived, grant)
    say(f"{file}: may {right} as {name}, until the keys of {source} are changed")


def command(
    file: Annotated[Path, typer.Argument(help="The key file.")],
    add: Annotated[
        bool, typer.Option("--add", help="Rotation, step 1: add a key that is accepted.")
    ] = False,
    promote: Annotated[
        bool, typer.Option("--promote", help="Step 2: let the newest key seal.")
    ] = False,
    retire: Annotated[
        bool, typer.Option("--retire", help="Step 3: leave only the key that seals.")
    ] = False,
    read: Annotated[
        Path | None,
        typer.Option(help="Make a key for a guest that reads, from this group's key file."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="Make a key for a guest that writes, from this group's key file."),
    ] = None,
    name: Annotated[str, typer.Option(help="Under which name it reads or writes.")] = "",
    network: Annotated[
        str, typer.Option(help="Of which network it is a guest: as the nodes' setting network.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing file by a new key.")
    ] = False,
) -> None:
    """Make a key file for a group, or take its keys through one step of a rotation."""
    given = {"--add": add, "--promote": promote, "--retire": retire, "--force": force}
    chosen = [step for step, wanted in given.items() if wanted]
    if len(chosen) > 1:
        fail(f"{' and '.join(chosen)} cannot be combined; take one step at a time")
    for option, value in (("--name", name), ("--network", network)):
        if value and not (read or write):
            fail(f"{option} is for a guest's key; add --read or --write with the group's key file")
    if file.is_dir():
        fail(f"{file} is a directory; name the key file in it, such as {file / 'group.key'}")
    try:
        if chosen and not force:
            step, then = STEPS[chosen[0]]
            found = group_keys(file)
            refuse_out_of_turn(file, chosen[0], found)
            keys.write(file, step(found))
            say(f"{file}: {then.format(file=file)}")
            return
        if read or write:
            make_guest(file, read, write, name, network, force)
            return
        if file.exists() and not force:
            fail(f"{file} exists; --add begins a rotation, --force replaces it by a new key")
        keys.write(file, keys.add({}))
    except KeyFileError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    say(f"{file}: a new key; copy it to every member, unseen by others, and name it as key_file")
