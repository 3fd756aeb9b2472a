"""Names what is checked and says how it went, one line a check: `ok NAME` or `FAILED NAME: what was seen`."""

import asyncio


async def check(name, body):
    try:
        await asyncio.wait_for(body(), 30)
        print(f"ok {name}", flush=True)
    except Exception as error:
        seen = " ".join(f"{type(error).__name__} {error}".split())[:400]
        print(f"FAILED {name}: {seen}", flush=True)


def same(got, wanted):
    assert got == wanted, f"saw {got!r}, wanted {wanted!r}"
