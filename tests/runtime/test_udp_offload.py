"""Runs of datagrams: cut where the kernel can, whole and in order whether or not it can."""

from __future__ import annotations

import errno
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.runtime.udp_offload import MOST_BYTES, MOST_IN_RUN, Intake, SendSocket, runs


@given(st.lists(st.sampled_from([b"", b"a", b"bb", b"ccc"])))
def test_runs_keep_the_order_and_what_the_kernel_asks_for(datagrams: list[bytes]) -> None:
    found = list(runs(datagrams))
    assert [d for run in found for d in run] == datagrams
    for run in found:
        sizes = [len(d) for d in run]
        assert len(set(sizes[:-1])) <= 1
        assert sizes[-1] <= sizes[0]


def test_runs_are_bounded_in_number_and_bytes() -> None:
    assert [len(run) for run in runs([b"x"] * (2 * MOST_IN_RUN + 1))] == [MOST_IN_RUN] * 2 + [1]
    large = b"x" * (MOST_BYTES // 4)
    assert [len(run) for run in runs([large] * 9)] == [4, 4, 1]
    assert [len(run) for run in runs([b"x" * 65_507] * 2)] == [1, 1]


def pair() -> tuple[Intake, SendSocket]:
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("127.0.0.1", 0))
    listening.settimeout(10)
    connected = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    connected.connect(listening.getsockname())
    return Intake(listening), SendSocket(connected)


def taken(intake: Intake, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += map(bytes, intake.receive())
    return found


class Dull:
    """A socket whose system or path cannot do what is asked."""

    def __init__(self, real: socket.socket, number: int, knows: bool) -> None:
        self.real, self.number, self.knows, self.asked = real, number, knows, 0

    def getsockopt(self, level: int, option: int) -> int:
        if not self.knows:
            raise OSError(errno.ENOPROTOOPT, "what?")
        return 0

    def sendmsg(self, run: list[bytes], told: object) -> int:
        self.asked += 1
        raise OSError(self.number, "no")

    def send(self, datagram: bytes) -> int:
        return self.real.send(datagram)


RUN = [bytes([i]) * 100 for i in range(40)] + [b"end"]


def test_a_run_arrives_as_the_datagrams_it_was() -> None:
    intake, link = pair()
    for sent in (RUN, [b"one"], [b""], RUN[:2]):
        link.send(sent)
        assert taken(intake, len(sent)) == sent
    intake.socket.close()
    link.socket.close()


@pytest.mark.parametrize(("number", "knows", "asked"), [(errno.EINVAL, True, 1), (0, False, 0)])
def test_what_cannot_be_cut_goes_one_by_one(number: int, knows: bool, asked: int) -> None:
    intake, link = pair()
    dull = Dull(link.socket, number, knows)
    alone = SendSocket(dull)  # type: ignore[arg-type]
    for _ in range(2):
        alone.send(RUN)
        assert taken(intake, len(RUN)) == RUN
    assert dull.asked == asked  # once is enough to know
    intake.socket.close()
    link.socket.close()


def test_other_errors_are_for_the_caller() -> None:
    intake, link = pair()
    with pytest.raises(BlockingIOError):
        SendSocket(Dull(link.socket, errno.EAGAIN, True)).send(RUN)  # type: ignore[arg-type]
    intake.socket.close()
    link.socket.close()
