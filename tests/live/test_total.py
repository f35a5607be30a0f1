"""TOTAL as processes, in uniform mode."""

from __future__ import annotations

from collections.abc import Callable

from trial import Trial

from ringcast.runtime.fault_injection import Faults

Make = Callable[..., Trial]


def test_in_uniform_mode_with_loss_the_network_parts_and_is_whole_again(trial: Make) -> None:
    group = trial(4, 'profile = "uniform"\n', protocol="total")
    for member in group.band.members.values():
        member.faults(Faults(loss=0.05))
    group.start()
    group.together()
    group.work()
    group.band.part((1, 2), (3, 4))
    group.together(1, 2)
    group.together(3, 4)
    group.work()
    group.band.part()
    group.together()
    group.work()
    group.judge()
