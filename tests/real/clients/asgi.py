"""httpx and `websockets` against the ASGI site: python asgi.py PORT"""

import asyncio
import hashlib
import json
import os
import sys
import time

import httpx
from check import check, same
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

PORT = int(sys.argv[1])
HOST = f"asgi.localhost:{PORT}"


def client(**options):
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", headers={"host": HOST}, timeout=20, **options)


def websocket(path, **options):
    return connect(f"ws://{HOST}{path}", host="127.0.0.1", port=PORT, max_size=None, **options)


async def many_requests():
    limits = httpx.Limits(max_connections=8, max_keepalive_connections=8)
    async with client(limits=limits) as http:
        answers = await asyncio.gather(*(http.get("/") for _ in range(400)))
    same({(answer.status_code, answer.text) for answer in answers}, {(200, "asgi")})


async def framework_view():
    forged = {"x-forwarded-for": "6.6.6.6", "x-forwarded-proto": "https", "forwarded": "for=6.6.6.6"}
    async with client() as http:
        seen = (await http.get("/scope/a%2Fb//c?x=1&y=%20&z", headers=forged)).json()
    same(seen["client"], "127.0.0.1")
    same(seen["url"], f"http://{HOST}/scope/a/b//c?x=1&y=%20&z")
    same(seen["raw path"], "/scope/a%2Fb//c")
    same([value for name, value in seen["fields"] if "6.6.6.6" in value], [])


async def events_arrive_as_sent():
    delays = []
    async with client() as http, http.stream("GET", "/events") as response:
        same(response.headers["content-type"].split(";")[0], "text/event-stream")
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                delays.append(time.time() - json.loads(line.removeprefix("data: "))["sent"])
    assert len(delays) == 5 and max(delays) < 0.14, f"saw delays of {delays}"


async def upload_streams():
    pieces = [os.urandom(1 << 20) for _ in range(8)]
    last = None

    async def body():
        nonlocal last
        for piece in pieces:
            yield piece
            await asyncio.sleep(0.05)
        last = time.time()

    async with client() as http:
        got = (await http.post("/upload", content=body())).json()
    same((got["size"], got["sha256"]), (8 << 20, hashlib.sha256(b"".join(pieces)).hexdigest()))
    assert got["first"] < last - 0.2, f"the first byte came {last - got['first']:.3f} s before the last was sent"


async def download_streams():
    digest = hashlib.sha256()
    async with client() as http, http.stream("GET", "/download") as response:
        async for chunk in response.aiter_bytes():
            digest.update(chunk)
    wanted = hashlib.sha256(b"".join(bytes([number % 256]) * 65536 for number in range(512)))
    same(digest.hexdigest(), wanted.hexdigest())


async def bodiless():
    async with client(limits=httpx.Limits(max_connections=1)) as http:
        same((await http.head("/")).headers["content-length"], "4")
        for code in (204, 304, 404, 500, 503):
            same((await http.get(f"/status/{code}")).status_code, code)
        same((await http.get("/")).text, "asgi")


async def echoes():
    async def one(number):
        async with websocket("/echo") as socket:
            for turn in range(10):
                await socket.send(f"{number} {turn}")
                same(await socket.recv(), f"{number} {turn}")

    await asyncio.gather(*(one(number) for number in range(50)))


async def big_message():
    message = os.urandom(10 << 20)
    async with websocket("/echo") as socket:
        await socket.send(message)
        assert await socket.recv() == message, "other bytes"


async def pieces_and_ping():
    async with websocket("/echo") as socket:
        await socket.send(["in ", "three ", "pieces"])
        same(await socket.recv(), "in three pieces")
        latency = await (await socket.ping())
        assert latency < 1, f"saw a pong after {latency} s"


async def client_closes():
    async with websocket("/echo") as socket:
        await socket.close(code=4009)
    async with client() as http:
        for _ in range(50):
            seen = (await http.get("/closes")).json()
            if 4009 in seen:
                return
            await asyncio.sleep(0.05)
    raise AssertionError(f"saw closes {seen}")


async def server_closes():
    async with websocket("/closing") as socket:
        same(await socket.recv(), "goodbye")
        try:
            await socket.recv()
        except ConnectionClosed as closed:
            same((closed.rcvd.code, closed.rcvd.reason), (4003, "done here"))
            return
    raise AssertionError("saw no close")


async def server_refuses():
    try:
        async with websocket("/refusing"):
            raise AssertionError("saw it accepted")
    except InvalidStatus as refused:
        same(refused.response.status_code, 403)


async def main():
    await check("asgi: 400 requests over at most 8 connections", many_requests)
    await check("asgi: the framework knows client and URL, and no forged field", framework_view)
    await check("asgi: server-sent events arrive one by one as they are sent", events_arrive_as_sent)
    await check("asgi: an upload reaches the application while it is sent", upload_streams)
    await check("asgi: 32 MB in chunks arrive whole", download_streams)
    await check("asgi: HEAD, 204, 304 and errors on one connection", bodiless)
    await check("asgi: 50 WebSockets at once, each its own echo", echoes)
    await check("asgi: a WebSocket message of 10 MB there and back", big_message)
    await check("asgi: a message in pieces, and a ping", pieces_and_ping)
    await check("asgi: the client's close code reaches the application", client_closes)
    await check("asgi: the application's close code reaches the client", server_closes)
    await check("asgi: an upgrade that the application refuses is refused", server_refuses)


asyncio.run(main())
