"""Key files, rotation, sealing and what is refused."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.core.errors import KeyFileError
from ringcast.wire import keys
from ringcast.wire.keys import WINDOW, KeyFile, Opener, Peer, Sealer

KEY = bytes(range(32))
CODED = base64.b64encode(KEY).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "group.key"
    keys.write(place, {1: KEY})
    return place


# --- the file ------------------------------------------------------------------------------


def test_written_keys_are_read_again_in_order(tmp_path: Path) -> None:
    made = keys.add(keys.add({7: KEY}))
    keys.write(tmp_path / "k", made)
    read = KeyFile(tmp_path / "k")
    assert list(read.keys.items()) == list(made.items())
    assert read.sealing == 7
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no key; make one with: ringcast keygen"),
        ("# only a comment\n\n", "holds no key"),
        ("1\n", "line 1: expected '<id> <base64 key>'"),
        (f"one {CODED}\n", "line 1: expected"),
        (f"1 {CODED} extra\n", "line 1: expected"),
        ("1 !!!!\n", "line 1: expected"),
        (f"1 {CODED}\n1 {CODED}\n", "line 2: ids are 1..255, each once"),
        (f"0 {CODED}\n", "ids are 1..255"),
        (f"256 {CODED}\n", "ids are 1..255"),
        ("1 AAAA\n", "keys are 32 bytes"),
    ],
)
def test_a_broken_key_file_is_explained(text: str, complaint: str) -> None:
    with pytest.raises(KeyFileError, match=r"group\.key") as caught:
        keys.parse(text, Path("group.key"))
    assert complaint in str(caught.value)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="make one with: ringcast keygen"):
        KeyFile(tmp_path / "none.key")


def test_a_file_that_is_not_text_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KeyFileError, match="cannot read the key file"):
        KeyFile(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_others_can_use_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(KeyFileError, match="run: chmod 600"):
        KeyFile(path)


def test_a_change_is_picked_up_and_a_bad_one_leaves_the_keys_alone(path: Path) -> None:
    file = KeyFile(path)
    assert not file.reload()
    keys.write(path, keys.add(file.keys))
    assert file.reload()
    assert list(file.keys) == [1, 2]
    path.write_text("nonsense\n")
    os.utime(path, ns=(1, 1))
    with pytest.raises(KeyFileError):
        file.reload()
    assert list(file.keys) == [1, 2]


def test_a_change_is_seen_whatever_time_it_bears(path: Path) -> None:
    """Copying may keep the time of modification, to the second."""
    file = KeyFile(path)
    before = path.stat()
    keys.write(path, keys.promote(keys.add(file.keys)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.reload()
    assert file.sealing == 2
    assert not file.reload()


def test_what_lay_in_the_way_does_not_open_a_key_to_others(path: Path) -> None:
    beside = path.with_name(path.name + ".new")
    beside.touch()
    beside.chmod(0o666)
    keys.write(path, keys.add({}))
    assert path.stat().st_mode & 0o777 == 0o600


def test_rotation_is_three_steps() -> None:
    one = {1: KEY}
    two = keys.add(one)
    assert list(two) == [1, 2]
    assert two[2] != KEY
    assert list(keys.promote(two)) == [2, 1]
    assert keys.retire(keys.promote(two)) == {2: two[2]}
    assert list(keys.add(keys.retire(keys.promote(two)))) == [2, 3]


def test_which_step_is_next_can_be_told_for_ever() -> None:
    now = keys.add({})
    for _ in range(600):
        assert not keys.waiting(now)
        now = keys.add(now)
        assert keys.waiting(now)
        now = keys.promote(now)
        assert not keys.waiting(now)
        now = keys.retire(now)


def test_key_ids_can_run_out() -> None:
    with pytest.raises(KeyFileError, match="retire the old keys first"):
        keys.add({i: KEY for i in range(1, 256)})


# --- frames --------------------------------------------------------------------------------


class Link:
    """A sealer of processor 3 in boot 10, and an opener elsewhere."""

    def __init__(self, path: Path) -> None:
        self.file = KeyFile(path)
        self.sealer = Sealer(self.file, 3, 10)
        self.opener = Opener(self.file)

    def seal(self, counter: int, payload: bytes = b"payload") -> bytes:
        return self.sealer.seal(counter, payload, b"header")

    def open(
        self,
        counter: int,
        sealed: bytes,
        *,
        key_id: int = 1,
        src: int = 3,
        boot: int = 10,
        header: bytes = b"header",
    ) -> bytes | str:
        return self.opener.open(key_id, src, boot, counter, sealed, header)


def test_what_was_sealed_is_opened_once(path: Path) -> None:
    link = Link(path)
    sealed = link.seal(1)
    assert b"payload" not in sealed
    assert link.open(1, sealed) == b"payload"
    assert link.open(1, sealed) == "replayed frame"


@pytest.mark.parametrize(
    "tamper",
    [
        lambda link, s: link.open(1, bytes([s[0] ^ 1]) + s[1:]),
        lambda link, s: link.open(1, s[:-1] + bytes([s[-1] ^ 1])),
        lambda link, s: link.open(1, s[:-1]),
        lambda link, s: link.open(1, b""),
        lambda link, s: link.open(2, s),
        lambda link, s: link.open(1, s, src=4),
        lambda link, s: link.open(1, s, boot=11),
        lambda link, s: link.open(1, s, header=b"Header"),
    ],
)
def test_every_alteration_is_noticed(path: Path, tamper: Callable[[Link, bytes], object]) -> None:
    link = Link(path)
    assert tamper(link, link.seal(1)) == "not sealed by this group"
    assert link.open(1, link.seal(1)) == b"payload", "a forgery must not use up the counter"


def test_a_foreign_group_and_an_unknown_key_are_told_apart(path: Path, tmp_path: Path) -> None:
    keys.write(tmp_path / "other.key", {1: bytes(32), 9: bytes(32)})
    foreign = Link(tmp_path / "other.key")
    link = Link(path)
    assert link.open(1, foreign.seal(1)) == "not sealed by this group"
    assert link.open(1, foreign.seal(1), key_id=9) == "unknown key"


def test_late_frames_are_opened_within_the_window(path: Path) -> None:
    link = Link(path)
    late, too_late = link.seal(WINDOW + 5), link.seal(10)
    assert link.open(2 * WINDOW, link.seal(2 * WINDOW)) == b"payload"
    assert link.open(WINDOW + 5, late) == b"payload"
    assert link.open(WINDOW + 5, late) == "replayed frame"
    assert link.open(10, too_late) == "replayed frame"


def test_an_earlier_incarnation_is_refused_once_a_later_one_spoke(path: Path) -> None:
    link = Link(path)
    later = Sealer(link.file, 3, 11).seal(1, b"later", b"header")
    assert link.open(1, link.seal(1)) == b"payload"
    assert link.open(1, later, boot=11) == b"later"
    assert link.open(2, link.seal(2)) == "frame of an earlier incarnation"


def test_rotation_without_a_gap(path: Path) -> None:
    """Old and new key are accepted at the same time; what was seen stays seen."""
    link = Link(path)
    old = link.seal(1)
    keys.write(path, keys.promote(keys.add(link.file.keys)))
    assert link.file.reload()
    link.sealer.renew()
    link.opener.renew()
    assert link.sealer.key_id == 2
    assert link.open(1, old) == b"payload"
    assert link.open(2, link.seal(2), key_id=2) == b"payload"
    assert link.open(1, old) == "replayed frame"
    keys.write(path, keys.retire(link.file.keys))
    assert link.file.reload()
    link.opener.renew()
    assert link.open(1, old) == "unknown key"


def test_senders_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Opener, "MOST", 1)
    link = Link(path)
    assert link.open(1, link.seal(1)) == b"payload"
    other = Sealer(link.file, 4, 10).seal(1, b"x", b"header")
    assert link.open(1, other, src=4) == "too many senders"


@given(st.lists(st.integers(1, 3 * WINDOW), max_size=60))
def test_window_against_a_plain_set(counters: list[int]) -> None:
    peer, seen, high = Peer(1), set[int](), 0
    for counter in counters:
        expected = counter not in seen and high - counter < WINDOW
        assert peer.fresh(counter) == expected
        seen.add(counter)
        high = max(high, counter)
