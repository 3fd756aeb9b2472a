"""A Starlette site on uvicorn: WebSockets, server-sent events, streaming uploads. python asgi.py"""

import asyncio
import hashlib
import json
import socket
import time

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

CLOSES = []


async def home(request):
    return PlainTextResponse("asgi")


async def scope(request):
    """What the framework makes of the request behind the proxy."""
    path = request.scope["raw_path"].decode()
    fields = request.headers.items()
    return JSONResponse({"url": str(request.url), "raw path": path, "client": request.client.host, "fields": fields})


async def events(request):
    async def stream():
        for number in range(5):
            yield f"id: {number}\ndata: {json.dumps({'sent': time.time()})}\n\n"
            await asyncio.sleep(0.15)

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-cache"})


async def upload(request):
    """Says when the first byte of the body came, how many there were, and their hash."""
    first, size, digest = None, 0, hashlib.sha256()
    async for chunk in request.stream():
        if chunk:
            first = first or time.time()
            size += len(chunk)
            digest.update(chunk)
    return JSONResponse({"first": first, "size": size, "sha256": digest.hexdigest()})


async def download(request):
    async def stream():
        for number in range(512):
            yield bytes([number % 256]) * 65536

    return StreamingResponse(stream(), media_type="application/octet-stream")


async def status(request):
    return Response(status_code=request.path_params["code"])


async def closes(request):
    return JSONResponse(CLOSES)


async def echo(websocket):
    await websocket.accept()
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                CLOSES.append(message["code"])
                return
            kind = "text" if message.get("text") is not None else "bytes"
            await websocket.send({"type": "websocket.send", kind: message[kind]})
    except RuntimeError:
        CLOSES.append(None)


async def closing(websocket):
    await websocket.accept()
    await websocket.send_text("goodbye")
    await websocket.close(code=4003, reason="done here")


async def refusing(websocket):
    await websocket.close()


APP = Starlette(routes=[
    Route("/", home, methods=["GET", "HEAD"]),
    Route("/scope/{rest:path}", scope),
    Route("/events", events),
    Route("/upload", upload, methods=["POST", "PUT"]),
    Route("/download", download),
    Route("/status/{code:int}", status),
    Route("/closes", closes),
    WebSocketRoute("/echo", echo),
    WebSocketRoute("/closing", closing),
    WebSocketRoute("/refusing", refusing),
])

if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    print("listening", listener.getsockname()[1], flush=True)
    config = uvicorn.Config(APP, log_level="warning", ws="websockets-sansio", ws_max_size=64 << 20)
    uvicorn.Server(config).run(sockets=[listener])
