"""What a sheet says of its protocol is true, and what contradicts itself is refused."""

from __future__ import annotations

from collections import defaultdict

import pytest
from msgspec.structs import replace
from published import PUBLISHED

from ringcast.core.effects import Broadcast, Effect, Send
from ringcast.core.ids import NodeId
from ringcast.core.registry import MembershipKind, Sheet, protocol, register
from ringcast.core.settings import GroupSettings, ListedSettings
from ringcast.protocols import DEFAULT
from ringcast.sim.cluster import Cluster
from ringcast.sim.faults import schedule
from ringcast.sim.rings import attached
from ringcast.sim.scenario.log import tapped
from ringcast.sim.spec import prepare
from ringcast.sim.swarm import draw, draw_plan
from ringcast.sim.workload import start

each_sheet = pytest.mark.parametrize("sheet", PUBLISHED, ids=lambda sheet: sheet.name)

SELDOM = {"Fetch", "Req"}
"""Broadcast only if the one that should answer is gone."""

UNSEEN = {"Gone", "Ordered", "Unicast"}
"""Sent only if an application above asks for it, or if a history is too small."""


class Ways:
    """How each kind of message was sent."""

    def __init__(self) -> None:
        self.seen: defaultdict[type, set[type]] = defaultdict(set)

    def see(self, node: NodeId, effects: list[Effect], now_us: int) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Send | Broadcast):
                self.seen[type(effect.message)].add(type(effect))
        return effects


@each_sheet
def test_unicast_messages_are_those_that_only_one_gets(sheet: Sheet) -> None:
    ways = Ways()
    for seed in range(12):
        spec = draw(seed, sheet.name)
        setup = prepare(spec)
        shown = replace(setup.sheet, make=tapped(sheet.make, ways))
        places = attached(spec.rings) or None
        cluster = Cluster(shown, setup.config, spec.ids, setup.model, seed, (), places)
        schedule(spec.faults, cluster)
        cluster.start()
        start(spec.workload, cluster, seed)
        cluster.run_until(spec.duration_us)
    both = {kind for kind, how in ways.seen.items() if Broadcast in how}
    assert not both & set(sheet.unicast), "they are broadcast, too"
    alone = set(ways.seen) - both - set(sheet.unicast)
    assert {kind.__name__ for kind in alone} <= SELDOM, "nobody broadcasts them"
    assert {kind.__name__ for kind in set(sheet.unicast) - set(ways.seen)} <= UNSEEN


@each_sheet
def test_every_profile_says_what_all_settings_must_say(sheet: Sheet) -> None:
    for profile in sheet.profiles.values():
        assert isinstance(profile, GroupSettings)
        assert profile.patience_us > 0 and profile.frame_budget >= 64
    assert replace(sheet.default, **sheet.patient(1_000_000)).patience_us == 1_000_000
    replace(sheet.default, **sheet.fast(4, 3))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"max_packet": 90}, "max_packet = 90 leaves no room for contents"),
        ({"min_queue": 300}, "min_queue = 300 must be below max_queue"),
        ({"max_queue_bytes": 9}, "max_queue_bytes = 9 must hold at least one message"),
    ],
)
@each_sheet
def test_shared_settings_are_checked_alike(
    sheet: Sheet, settings: dict[str, int], error: str
) -> None:
    with pytest.raises(ValueError, match=f"^{error}"):
        replace(sheet.default, **settings)


def test_the_default_protocol_is_one_of_them() -> None:
    assert protocol(DEFAULT) in PUBLISHED


def test_a_sheet_that_contradicts_itself_is_refused() -> None:
    sheet = protocol(DEFAULT)
    with pytest.raises(TypeError, match="its members are listed, so extend ListedSettings"):
        register(replace(sheet, name="odd", membership=MembershipKind.PRIMARY))
    with pytest.raises(TypeError, match="odd: Broadcast in unicast, but not in messages"):
        register(replace(sheet, name="odd", unicast=(Broadcast,)))
    strange = replace(sheet, swarm=replace(sheet.swarm, without=("flood",)))
    with pytest.raises(ValueError, match=r"no kind of fault \['flood'\]; known: partition"):
        draw_plan(strange, lambda topic: None, 3, None, 1, 1)  # type: ignore[arg-type, return-value]
    with pytest.raises(LookupError, match="no protocol called 'odd'"):
        protocol("odd")


@pytest.mark.parametrize("sheet", [s for s in PUBLISHED if s.live], ids=lambda s: s.name)
def test_what_members_compare_is_called_by_what_a_user_can_set(sheet: Sheet) -> None:
    """The text of a misfit names it, and whoever reads that changes the setting."""
    compared = [name.partition(":") for name in (*sheet.agreed, *sheet.alike)]
    assert {name for name, _, _ in compared} <= set(sheet.default.__struct_fields__)
    assert all(hasattr(type(sheet.default), of) for _, _, of in compared if of)


def test_settings_that_leave_out_what_they_owe_say_so() -> None:
    class Bare(ListedSettings, frozen=True, kw_only=True):
        frame_budget = 64

    bare = Bare(members=(1, 2))
    assert bare.n == 2
    for name in ("patience_us", "faults"):
        with pytest.raises(NotImplementedError, match="Bare"):
            getattr(bare, name)
    with pytest.raises(NotImplementedError, match="frame_budget"):
        GroupSettings()
