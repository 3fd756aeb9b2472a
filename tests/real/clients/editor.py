"""Saves the routes file in the ways that people and tools do, while a client never stops asking.

python editor.py PORT ROUTES FIRST SECOND CAROM, where FIRST and SECOND are the ports of the two Express instances, one of
which edit.localhost goes to, and CAROM is the id of the process to hang up.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time

import httpx
from check import check, same
from websockets.asyncio.client import connect

PORT, ROUTES = int(sys.argv[1]), sys.argv[2]
PLACES = {sys.argv[3]: "express-1", sys.argv[4]: "express-2"}
CAROM = int(sys.argv[5])


class Asking:
    """A client that asks one kept-alive connection again and again, and notes who answered."""

    def __init__(self):
        self.answers, self.failures = [], []

    async def run(self):
        headers, limits = {"host": "edit.localhost"}, httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(headers=headers, limits=limits, timeout=5) as http:
            while True:
                try:
                    answer = await http.get(f"http://127.0.0.1:{PORT}/")
                    self.answers.append(answer.text if answer.status_code == 200 else f"status {answer.status_code}")
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                await asyncio.sleep(0.002)


def text():
    with open(ROUTES, encoding="utf-8") as file:
        return file.read()


def in_place(new):
    with open(ROUTES, "r+", encoding="utf-8") as file:
        file.write(new)
        file.truncate()


def truncate_then_write(new):
    with open(ROUTES, "w", encoding="utf-8") as file:
        time.sleep(0.02)
        file.write(new[: len(new) // 2])
        file.flush()
        time.sleep(0.02)
        file.write(new[len(new) // 2 :])


def rename_over(new):
    with open(ROUTES + ".new", "w", encoding="utf-8") as file:
        file.write(new)
    os.replace(ROUTES + ".new", ROUTES)


def delete_and_recreate(new):
    os.remove(ROUTES)
    time.sleep(0.2)
    with open(ROUTES, "w", encoding="utf-8") as file:
        file.write(new)


def mistake_then_right(new):
    rename_over('"edit.localhost" = = 1\n')
    time.sleep(0.5)
    rename_over(new)


def hangup(new):
    in_place(new)
    os.kill(CAROM, signal.SIGHUP)


async def save(asking, how):
    """Sends edit.localhost to the other place by `how(old port, new port, new text)` and waits for it to answer."""
    old_text = text()
    old, new = sorted(PLACES, key=lambda port: f'"edit.localhost" = {port}\n' not in old_text)
    await asyncio.sleep(0.1)
    same(asking.answers[-1], PLACES[old])
    asking.failures.clear()
    before = len(asking.answers)
    await asyncio.to_thread(how, old, new, old_text.replace(f'"edit.localhost" = {old}\n', f'"edit.localhost" = {new}\n'))
    saved = time.monotonic()
    while asking.answers[-1] != PLACES[new]:
        assert time.monotonic() - saved < 2, f"{asking.answers[-1]} answers 2 s after the save; failures: {asking.failures}"
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.2)
    since = asking.answers[before:]
    turns = [name for index, name in enumerate(since) if index == 0 or since[index - 1] != name]
    same(turns, [PLACES[old], PLACES[new]] if turns[0] == PLACES[old] else [PLACES[new]])
    same(asking.failures, [])


def by_text(write):
    return lambda old, new, changed: write(changed)


def by_command(*command):
    def run(old, new, changed):
        filled = [word.format(old=old, new=new, file=ROUTES) for word in command]
        subprocess.run(filled, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    return run


WAYS = {
    "written in place": by_text(in_place),
    "truncated, then written in two steps": by_text(truncate_then_write),
    "renamed over": by_text(rename_over),
    "deleted and written anew": by_text(delete_and_recreate),
    "a mistake, then put right": by_text(mistake_then_right),
    "SIGHUP": by_text(hangup),
    "sed -i": by_command("sed", "-i", "s/\"edit.localhost\" = {old}$/\"edit.localhost\" = {new}/", "{file}"),
}
if shutil.which("vim"):
    edit = "%s/\"edit.localhost\" = {old}$/\"edit.localhost\" = {new}/"
    WAYS["vim"] = by_command("vim", "-u", "NONE", "-es", "-c", edit, "-c", "wq", "{file}")
    WAYS["vim, keeping a backup"] = by_command(
        "vim", "-u", "NONE", "-es", "-c", "set backup writebackup backupcopy=no", "-c", edit, "-c", "wq", "{file}"
    )


async def still_echoes(socket):
    await socket.send("still there")
    same(await socket.recv(), "still there")


async def main():
    asking = Asking()
    task = asyncio.create_task(asking.run())
    async with connect(f"ws://asgi.localhost:{PORT}/echo", host="127.0.0.1", port=PORT) as socket:
        for way, how in WAYS.items():
            await check(f"editor: {way}", lambda how=how: save(asking, how))
        await check("editor: a WebSocket outlives all saves", lambda: still_echoes(socket))
    task.cancel()


asyncio.run(main())
