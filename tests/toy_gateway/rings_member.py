"""A process of the live test of rings, member or gateway: it prints what it delivers and submits
what it reads."""

from __future__ import annotations

import asyncio
import sys

from member import member

from ringcast.runtime.config import load

if __name__ == "__main__":
    asyncio.run(member(load(sys.argv[1])))
