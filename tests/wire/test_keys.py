"""Key files, rotation, guests, and how a repetition is told."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from threading import Timer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.core.errors import KeyFileError
from ringcast.wire import keys
from ringcast.wire.keys import Grant, KeyFile
from ringcast.wire.seal import WINDOW, Peer

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


def test_a_pipe_in_the_place_of_a_key_file_is_refused(path: Path) -> None:
    """A node stood still, for ever, when it was to read its keys again."""
    file = KeyFile(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, f"2 {CODED}\n".encode())
    end = Timer(0.5, os.close, [writer])  # or, with the fix undone, this test would stand still
    end.start()
    with pytest.raises(KeyFileError, match="is no ordinary file"):
        file.reload()
    end.join()
    assert list(file.keys) == [1]


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


# --- guests --------------------------------------------------------------------------------


def test_a_guest_has_a_key_that_nodes_derive_and_nobody_else(path: Path, tmp_path: Path) -> None:
    group = KeyFile(path)
    dash, other = Grant("read", "dash"), Grant("read", "other")
    keys.write(tmp_path / "guest.key", {1: keys.guest_key(KEY, dash)}, dash)
    guest = KeyFile(tmp_path / "guest.key")
    assert guest.grant == dash
    assert guest.key(1, dash) == group.key(1, dash)
    assert len({group.key(1, each) for each in (None, dash, other, Grant("write", "dash"))}) == 4
    assert guest.key(1, None) is guest.key(1, other) is group.key(2, dash) is None


def test_who_holds_a_file_does_not_change_while_it_is_used(path: Path) -> None:
    """A node whose file was replaced by a guest's sealed with the key of that guest."""
    dash = Grant("read", "dash")
    derived = {1: keys.guest_key(KEY, dash)}
    for before, after, words in (
        (None, dash, "is now that of a guest that may read as dash, and was that of the group"),
        (dash, None, "is now that of the group, and was that of a guest that may read as dash"),
    ):
        keys.write(path, {1: KEY}, before)
        file = KeyFile(path)
        keys.write(path, derived, after)
        for _ in range(2):
            with pytest.raises(KeyFileError, match=words):
                file.reload()
        assert (file.keys, file.grant) == ({1: KEY}, before)
        keys.write(path, {2: KEY}, before)
        assert file.reload() and list(file.keys) == [2]


@pytest.mark.parametrize("line", ["guest", "guest read", "guest join x", "guest read a b"])
def test_a_guest_s_right_is_read_strictly(line: str) -> None:
    with pytest.raises(KeyFileError, match="expected one line 'guest read <name>'"):
        keys.parse_grant(f"{line}\n1 {CODED}\n", Path("group.key"))


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(path, 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(KeyFileError, match="belongs to another user"):
        KeyFile(path)


def test_a_file_of_root_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may change it anyway."""
    if os.geteuid() != 0:
        pytest.skip("only root has files of root")
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    assert KeyFile(path).keys


# --- repetitions ---------------------------------------------------------------------------


@given(st.lists(st.integers(1, 3 * WINDOW), max_size=60))
def test_window_against_a_plain_set(counters: list[int]) -> None:
    peer, seen, high = Peer(1, WINDOW), set(range(WINDOW + 1)), WINDOW
    for counter in counters:
        assert peer.has(counter) or counter not in seen, "a replay is always told"
        assert not peer.has(counter) or counter in seen or high - counter > WINDOW
        assert len(peer.missing) <= 2 * WINDOW
        if not peer.has(counter):
            peer.note(counter)
        seen.add(counter)
        high = max(high, counter)


@given(st.lists(st.integers(-40, 40), max_size=200))
def test_near_the_newest_frame_every_one_counts_once(steps: list[int]) -> None:
    peer, seen = Peer(1, WINDOW), set(range(WINDOW + 1))
    for step in steps:
        counter = max(1, peer.high + step)
        if counter not in seen:
            assert not peer.has(counter)
            peer.note(counter)
        assert peer.has(counter)
        seen.add(counter)


def test_a_jump_costs_as_much_as_a_step() -> None:
    """Or a member that leaves out thousands of numbers each time has each of its frames cost the
    others hundreds of times what it costs itself."""
    peer = Peer(1, 0)
    for step in range(1, 100):
        peer.note(step * 2 * WINDOW)
        assert len(peer.missing) == 2 * step, "a gap is where it begins and where it ends"


def test_gaps_that_late_frames_part_are_bounded() -> None:
    peer, came = Peer(1, 0), 0
    for step in range(1, 1000):
        peer.note(step * 2 * WINDOW)
    for first in peer.missing[::2]:
        for counter in range(first + 1, first + 9, 2):
            if not peer.has(counter):
                peer.note(counter)
                came += 1
            assert len(peer.missing) <= 2 * WINDOW
    assert came > 1000
