"""Flow control (§4.4, F4.17): pure functions of the token and the processor's last visit."""

from __future__ import annotations

from ringcast.protocols.totem_single.config import Config
from ringcast.protocols.totem_single.messages import Token


def allowance(
    config: Config, window: int, token: Token, last_token_seq: int, last_retrans: int
) -> int:
    """R84, R86, R87, R88: frames this processor may send in this visit, retransmissions included.

    Own frames of the last visit are in neither term, so the sum over one rotation stays within
    the window. ``min_each`` (R87) keeps a saturated ring from starving a late position.
    """
    others_new = token.seq - last_token_seq
    others_rtx = token.retrans_round - last_retrans
    allowed = min(config.each_time, window - others_new - others_rtx)
    return max(config.min_each, allowed, 0)


def next_retrans_round(token: Token, last_retrans: int, retransmitted: int) -> int:
    """R85: replace what I contributed to the round a rotation ago by what I sent again now."""
    return max(0, token.retrans_round + retransmitted - last_retrans)


def next_window(config: Config, window: int, token: Token, used: int, rotation_us: int) -> int:
    """The adaptive window: beyond the paper, which fixes it (R90 ext).

    Each processor has its own, within min_window and max_window; a rotation stays within the
    largest.

    Loss shows as retransmissions in the last rotation, slow receivers as a long rotation; either
    shrinks the window by an eighth. A rotation that used most of the window without loss lets it
    grow by one frame in eight. An unused window says nothing and stays.
    """
    lossy = token.retrans_round * 20 > max(used, 20)
    slow = used > 0 and rotation_us > config.target_rotation_us  # idle, the token rests (R92)
    if lossy or slow:
        return max(config.min_window, window - max(1, window // 8))
    if used * 4 >= window * 3:
        return min(config.max_window, window + max(1, window // 8))
    return window
