"""Why members are gone from a topology, in words that lead an operator to the cause."""

from ringcast.core.effects import Reason
from ringcast.protocols.totem_multi.departures import Departures
from ringcast.protocols.totem_multi.messages import Key, Rank
from ringcast.protocols.totem_single.messages import RingId


def test_a_member_behind_lost_gateways_is_said_to_be_cut_off() -> None:
    """Both gateways to its ring were killed while a safe message waited for its word. That it does
    not hold the message reads as if its receive buffer were too small."""
    far, near = RingId(36, 5), RingId(36, 1)
    departures = Departures()
    departures.seated = {far: (5, 6), near: (1, 2)}
    (gone,) = departures.at(Key(7, near, Rank.SHRINK), (5,), (near,))
    assert (gone.member, gone.reason) == (5, Reason.FAILED_TO_RECEIVE)
    assert "A4: cut off" in gone.judged_by
