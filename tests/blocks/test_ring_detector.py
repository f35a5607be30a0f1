"""The detector R: whom it watches, what it sends, how it learns patience (token-fd TF-1)."""

from __future__ import annotations

from collections import Counter
from random import Random

from alone import Alone, Config

from ringcast.blocks.ring_detector import Alive, RingDetector, Suspicion, Timer
from ringcast.core.effects import Effect, Send, SetTimer, Up
from ringcast.core.env import Env
from ringcast.core.inputs import Started, TimerFired
from ringcast.core.registry import Sheet
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import Loss, inflict
from ringcast.sim.model import Constant, LinkModel, NetworkModel
from ringcast.sim.scenario.log import tapped

MEMBERS = (1, 2, 3, 4, 5)


class Frames:
    """Every frame that is sent."""

    def __init__(self) -> None:
        self.sent: Counter[tuple[int, int]] = Counter()

    def see(self, node: int, effects: list[Effect], now_us: int) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Send):
                assert type(effect.message) is Alive
                self.sent[node, effect.to] += 1
        return effects


def group(frames: Frames | None = None, delay_us: int = 100, **settings: int) -> Cluster:
    def make(node: int, config: Config) -> Alone:
        after = {me: MEMBERS[i % 5] for i, me in enumerate(MEMBERS, 1)}
        before = {successor: me for me, successor in after.items()}
        return Alone(RingDetector(before[node], after[node], config.patience))

    config = Config(**settings)  # type: ignore[arg-type]
    sheet = Sheet(
        name="detector",
        source="tests",
        config=Config,
        make=tapped(make, frames) if frames else make,
        claims=lambda config: (),
        profiles={"plain": config},
        messages=(Alive,),
        progress_bound_us=lambda config, n: 1_000_000,
    )
    model = NetworkModel(link=LinkModel(delay=Constant(delay_us)))
    cluster = Cluster(sheet, config, MEMBERS, model)
    cluster.start()
    return cluster


def said(cluster: Cluster, node: int) -> list[bool]:
    """What the detector of ``node`` told its owner."""
    told = cluster.machine(node).said  # type: ignore[attr-defined]
    assert all(isinstance(word, Up) and isinstance(word.what, Suspicion) for word in told)
    return [word.what.suspected for word in told]


def suspects(cluster: Cluster, node: int) -> bool:
    return bool(cluster.machine(node).part.suspected)  # type: ignore[attr-defined]


def test_tf_1_one_frame_a_period_from_each_to_its_successor() -> None:
    frames = Frames()
    cluster = group(frames)
    cluster.run_until(9_999)
    assert sum(frames.sent.values()) == 50
    assert frames.sent == Counter({(1, 2): 10, (2, 3): 10, (3, 4): 10, (4, 5): 10, (5, 1): 10})


def test_tf_1_a_crash_is_noticed_by_the_successor_alone_and_for_good() -> None:
    cluster = group()
    cluster.run_until(10_000)
    cluster.crash(3)
    cluster.run_until(200_000)
    assert said(cluster, 4) == [True]
    assert suspects(cluster, 4)
    assert not any(said(cluster, node) for node in (1, 2, 5))


def test_tf_1_a_mistake_makes_it_patient_until_it_makes_no_more() -> None:
    cluster = group(suspect_us=500, grow_us=100)
    cluster.run_until(500_000)
    for node in MEMBERS:
        mistakes = cluster.machine(node).snapshot()["mistakes"]
        assert mistakes == 5 or mistakes == 6, "until more than a period is waited for"
        assert not suspects(cluster, node)
        assert said(cluster, node) == [True, False] * mistakes


def test_tf_1_patience_has_a_bound() -> None:
    cluster = group(suspect_us=200, grow_us=100, most_us=600)
    cluster.run_until(500_000)
    assert cluster.machine(2).snapshot()["suspect_us"] == 600
    mistakes = cluster.machine(2).snapshot()["mistakes"]
    assert isinstance(mistakes, int) and mistakes > 400


def test_tf_1_any_frame_of_the_predecessor_counts_once_an_instant() -> None:
    env = Env(2, Random(0))
    detector = RingDetector(1, 3, Config().patience)
    detector.start(env, Started(1, {}))
    assert env.take() == [
        Send(3, Alive()),
        SetTimer(Timer.BEAT, 1_000),
        SetTimer(Timer.WATCH, 3_000),
    ]
    env.now_us = 2_000
    detector.heard(env)
    detector.heard(env)
    assert env.take() == [SetTimer(Timer.WATCH, 3_000)]
    detector.handle(env, TimerFired(Timer.WATCH))
    assert env.take() == [Up(Suspicion(True))]
    detector.heard(env)
    assert env.take() == [Up(Suspicion(False)), SetTimer(Timer.WATCH, 4_000)]


def test_tf_1_a_heartbeat_of_somebody_else_says_nothing() -> None:
    cluster = group()
    cluster.run_until(10_000)
    inflict(Loss(0, 1.0, 1.0), cluster)
    for t_us in range(11_000, 30_000, 1_000):
        cluster.run_until(t_us)
        cluster.inject(2, cluster.frame(3, Alive()))
    assert said(cluster, 2) == [True]
