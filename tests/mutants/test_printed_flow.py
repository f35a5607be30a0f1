"""S-36: two gateways keep each other's ring blocked for ever, if one bit says so (G-39)."""

from __future__ import annotations

from collections.abc import Callable

from printed_flow import PrintedSite, PrintedToken

from ringcast.protocols.totem_multi.flow import FULL, Blocks, Brakes

S_36 = "TB Ox TA TA TA TB Oy Dx TA TA TA TA Dy Oy TB TB TA Dy"
"""A token's visit, or overflow and drain of a queue, on the rings A [x, g, h] and B [g, h, y]."""

RINGS = {"A": "xgh", "B": "ghy"}


def play(visit: Callable[[str, str], None], queue: Callable[[str, bool], None]) -> None:
    """The steps, then both tokens in turn, for ten rotations each."""
    visits = dict.fromkeys(RINGS, 0)
    for step in [*S_36.split(), *(["TA", "TB"] * 30)]:
        what, name = step[0], step[1]
        if what == "T":
            visit(RINGS[name][visits[name] % 3], name)
            visits[name] += 1
        else:
            queue(name, what == "O")


def test_s_36_as_printed_both_rings_stay_blocked() -> None:
    sites = {name: PrintedSite() for name in "xghy"}
    tokens = {ring: PrintedToken() for ring in RINGS}
    ports = {ring: at for at, ring in enumerate(RINGS)}
    home = {"x": ports["A"], "y": ports["B"]}

    def queue(name: str, full: bool) -> None:
        (sites[name].reached if full else sites[name].fell)(home[name])

    play(lambda name, ring: sites[name].visited(ports[ring], tokens[ring]), queue)
    assert all(token.block for token in tokens.values())
    assert [site.site_block for site in sites.values()] == [1, 1, 1, 0]


def test_s_36_with_a_version_for_each_origin_all_is_clear() -> None:
    brakes = {name: Brakes(at, int) for at, name in enumerate("xghy", 1)}
    tokens: dict[str, Blocks] = dict.fromkeys(RINGS, ())
    for each in brakes.values():
        each.keep((1, 2, 3, 4))

    def visit(name: str, ring: str) -> None:
        brakes[name].hear(tokens[ring])
        tokens[ring] = brakes[name].told()

    play(visit, lambda name, full: brakes[name].congested(FULL * full))
    assert not any(each.blocked for each in brakes.values())
