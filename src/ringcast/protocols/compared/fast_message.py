"""Fast message: only who has the token sends, one message a visit, numbered by the token.

Source    Y. Amir, L. E. Moser, P. M. Melliar-Smith, D. A. Agarwal, P. Ciarfella, *Fast Message
          Ordering and Membership Using a Logical Token-Passing Ring*, ICDCS 13, 1993: its ring, as
          the source of the comparison counts it.
Rules     The token says the last place given, how far each member has everything, and what is
          missing. Its owner sends again what it can of that, gives its message the next place, and
          passes the token on. What everybody has is delivered.
Differs   The token goes to all, since the comparison counts a frame for each member; how far each
          is stands in it, instead of the lowest alone. Its loss
          of tokens and its membership are left out.
"""

from __future__ import annotations

from msgspec.structs import replace

from ringcast.core.env import Env
from ringcast.core.ids import NodeId
from ringcast.core.inputs import Received
from ringcast.protocols.compared.config import MOST_WINDOW, RingConfig
from ringcast.protocols.compared.member import table
from ringcast.protocols.compared.messages import Data, FastToken
from ringcast.protocols.compared.ring import RingMember, Timer


class FastMessage(RingMember[FastToken]):
    """A member."""

    name = "fast-message"

    def __init__(self, me: NodeId, config: RingConfig) -> None:
        super().__init__(me, config)
        self.order: dict[int, Data] = {}
        """What is here and not delivered, by place."""
        self.aru = 0
        """All received up to."""

    def first(self) -> FastToken:
        """Nothing was sent."""
        return FastToken(self.group, 0, self.ids[-1], self.me, 0, (0,) * len(self.ids), ())

    def go_on(self, env: Env) -> None:
        """Nothing is sent without the token."""

    def on_data(self, env: Env, event: Received) -> None:
        """Keep it in its place."""
        data = event.message
        assert isinstance(data, Data)
        if data.seq > self.delivered and data.seq not in self.order:
            self.put(env, data)

    def put(self, env: Env, data: Data) -> None:
        """A frame in its place."""
        self.order[data.seq] = data
        self.keep(env, data)
        while self.aru + 1 in self.order:
            self.aru += 1

    def look(self, env: Env, token: FastToken) -> None:
        """Deliver what everybody has."""
        for seq in range(self.delivered + 1, min(token.have) + 1):
            data = self.order.pop(seq)
            del self.data[data.key]
            self.hand_up(env, seq, data)

    def own(self, env: Env, token: FastToken) -> FastToken:
        """Send again what somebody lacks, then something new."""
        for seq in token.rtr:
            if seq in self.order:
                env.broadcast(self.order[seq])
        last = token.seq
        for _ in range(self.config.each_time):
            if last - min(token.have) >= MOST_WINDOW // 2:
                break
            data = self.next_frame(env, last + 1)
            if data is None:
                break
            last += 1
            self.order[last] = data
            env.broadcast(data)
        while self.aru + 1 in self.order:
            self.aru += 1
        rtr = tuple(seq for seq in token.rtr if seq not in self.order and seq > self.delivered)
        return replace(token, seq=last, rtr=rtr)

    def next_token(self, env: Env, token: FastToken) -> FastToken:
        """How far we are, and what we lack, at the end of our time."""
        have = list(token.have)
        have[self.place] = self.aru
        lacks = {s for s in range(self.aru + 1, token.seq + 1) if s not in self.order}
        rtr = tuple(sorted(lacks.union(token.rtr)))
        return replace(
            token,
            hop=token.hop + 1,
            c=self.me,
            n=self.successor,
            have=tuple(have),
            rtr=rtr[:MOST_WINDOW],
        )


MESSAGES = (Data, FastToken)

FastMessage.table = table(
    {Data: FastMessage.on_data, FastToken: FastMessage.on_token},
    {Timer.OWNER: FastMessage.on_owner, Timer.REPAIR: FastMessage.on_repair},
    Timer,
)
