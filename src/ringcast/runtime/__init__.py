"""The live world: the same machines over UDP, with asyncio, keys and stable storage."""
