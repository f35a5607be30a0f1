"""Where a token goes and which one is taken (token-fd TF-5 to TF-8)."""

from __future__ import annotations

import msgspec
import pytest

from ringcast.blocks.token_ring import (
    FixedRing,
    TokenRing,
    check_group,
    least_members,
    most_faults,
)


class Sent(msgspec.Struct, frozen=True):
    hop: int


def at(place: int, n: int = 7, f: int = 2) -> TokenRing[Sent]:
    """The member at ``place`` of 10, 11, …, 10 + n - 1."""
    return TokenRing(FixedRing(tuple(range(10, 10 + n)), 10 + place, f))


def test_tf_5_how_many_members_bear_how_many_faults() -> None:
    assert [least_members(f) for f in range(4)] == [1, 3, 7, 13]
    assert [most_faults(n) for n in (1, 2, 3, 6, 7, 12, 13)] == [0, 0, 1, 1, 2, 2, 3]
    check_group(tuple(range(1, 8)), 2)
    with pytest.raises(ValueError, match=r"f = 2 needs 7 members or more.*there are 6.*f to 1"):
        check_group(tuple(range(1, 7)), 2)


def test_tf_6_the_token_goes_to_the_next_f_plus_1() -> None:
    assert at(5).ring.successors == (16, 10, 11)
    assert at(0, n=3, f=1).ring.successors == (11, 12)
    assert at(0, n=1, f=0).ring.successors == (10,)


def test_tf_34_standbys_are_those_before_the_predecessor() -> None:
    assert at(1).ring.predecessor == 10
    assert at(1).ring.standbys == (16, 15)
    assert at(0, n=3, f=1).ring.standbys == (11,)


def test_distances_count_hops_and_from_oneself_a_whole_round() -> None:
    assert [at(2).ring.distance(src) for src in (1, 0, 6, 2)] == [1, 2, 3, 7]
    assert at(0, n=1, f=0).ring.distance(0) == 1


def test_tf_7_backups_are_eligible_while_the_predecessor_is_suspected() -> None:
    here = at(3)
    here.offer(1, Sent(1))
    assert here.eligible(suspecting=False) is None
    assert here.eligible(suspecting=True) == (2, Sent(1))
    assert here.eligible(suspecting=False) is None, "not latched: trust has come back"
    here.offer(2, Sent(2))
    assert here.eligible(suspecting=False) == (1, Sent(2))


def test_tf_7_of_several_the_largest_hop_is_taken() -> None:
    here = at(3)
    for src in (0, 2, 1):
        here.offer(src, Sent(src))
    assert here.eligible(suspecting=True) == (1, Sent(2))
    here.offer(0, Sent(7))
    assert here.eligible(suspecting=True) == (3, Sent(7))


def test_tf_8_only_what_goes_further_is_eligible_and_missed_rounds_are_skipped() -> None:
    here = at(4)
    here.offer(3, Sent(3))
    assert here.take(*here.eligible(False)) == 4  # type: ignore[misc]
    assert here.eligible(True) is None
    here.offer(2, Sent(2))
    assert here.eligible(True) is None, "it would be hop 4 again"
    here.offer(3, Sent(17))
    assert here.take(*here.eligible(False)) == 18, "not 11, which went by"  # type: ignore[misc]
    assert here.last_hop == 18


def test_tf_8_a_token_from_farther_than_f_plus_1_is_never_taken() -> None:
    here = at(4)
    here.offer(0, Sent(0))
    assert here.eligible(True) is None


def test_only_the_newest_token_of_each_sender_is_kept() -> None:
    here = at(4)
    assert here.offer(3, Sent(10))
    assert not here.offer(3, Sent(3))
    assert not here.offer(3, Sent(10))
    assert here.waiting() == [(3, Sent(10))]
    assert here.seen[3] == 10
    here.take(1, Sent(10))
    assert here.waiting() == []
