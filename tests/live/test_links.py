"""Links that lose frames or work in one direction, and keys that do not fit."""

from __future__ import annotations

from collections.abc import Callable

from trial import Trial, delivered

from ringcast.runtime.fault_injection import Faults
from ringcast.wire import keys

Make = Callable[..., Trial]


def test_a_fifth_of_all_frames_is_lost(trial: Make) -> None:
    group = trial(3)
    for member in group.band.members.values():
        member.faults(Faults(loss=0.2))
    group.start()
    members = group.band.members.values()
    group.eventually("much delivered", lambda: all(delivered(m) > 500 for m in members))
    for member in members:
        assert group.fresh(member.id).metrics["frames_lost_on_purpose"]
    group.band.part()
    group.together()
    group.judge()


def test_a_deaf_link_that_the_ring_can_do_without(trial: Make) -> None:
    """The token goes 1, 2, 3; 2 has what 3 does not hear of 1, and sends it again."""
    group = trial(3)
    group.start()
    group.together()
    group.work()
    group[3].faults(Faults(deaf_to=(1,)))
    group.eventually("deaf", lambda: bool(group.fresh(3).metrics["frames_lost_on_purpose"]))
    group.work()
    group.band.part()
    group.together()
    group.judge()


def test_a_deaf_link_on_the_way_of_the_token(trial: Make) -> None:
    """1 does not hear 3: they end up in different groups, which come to rest, and reunite."""
    group = trial(3)
    group.start()
    group.together()
    group.work()
    group[1].faults(Faults(deaf_to=(3,)))

    def apart() -> bool:
        with_3 = group[3].view.members if group[3].view else ()
        with_1 = group[1].view.members if group[1].view else ()
        return 1 not in with_3 and 3 not in with_1

    group.eventually("1 and 3 apart", apart)
    group.work()
    assert apart()
    group.band.part()
    group.together()
    group.work()
    group.judge()


def test_a_partition_and_its_end(trial: Make) -> None:
    group = trial(4)
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


def test_a_wrong_key_keeps_a_node_out_until_it_has_the_right_one(trial: Make) -> None:
    group = trial(3)
    mine = group.folder / "3.key"
    keys.write(mine, keys.add({}))
    text = group[3].config.read_text("utf-8").replace(group.band.key.name, mine.name)
    group[3].config.write_text(text, "utf-8")
    group.start()
    group.together(1, 2)
    group.together(3)
    group.work(1, 2)
    refused = group.fresh(1).metrics["frames_refused"]
    assert isinstance(refused, dict)
    assert refused["of another group: its key or its network is not this node's"] > 0
    keys.write(mine, keys.KeyFile(group.band.key).keys)
    group.together()
    group.work()
    group.judge()


def test_keys_are_changed_under_load(trial: Make) -> None:
    """Three steps, each taken by all before the next: no frame is refused."""
    group = trial(3)
    group.start()
    group.together()
    group.work()
    for step in (keys.add, keys.promote, keys.retire):
        changed = step(keys.KeyFile(group.band.key).keys)
        keys.write(group.band.key, changed)
        group.eventually(
            f"all have {list(changed)}",
            lambda changed=changed: all(  # type: ignore[misc]
                m.status is not None and m.status.metrics["keys"] == list(changed)
                for m in group.band.members.values()
            ),
        )
        group.work()
    for node in group.all:
        assert group.fresh(node).metrics["frames_refused"] == {}
    group.judge()
