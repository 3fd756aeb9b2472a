// The `ws` client through the proxy to the `ws` server of the Express site: node websocket.mjs PORT

import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import WebSocket from "ws";
import { ask, check, holds, same } from "./check.mjs";

const [port] = process.argv.slice(2);
const site = `solo.localhost:${port}`;

const seen = async () => JSON.parse((await ask(`http://${site}/seen`)).text);

async function open(what, ...options) {
  const socket = new WebSocket(`ws://${site}/ws/${what}`, ...options);
  socket.heard = [];
  socket.on("message", (data, isBinary) => socket.heard.push(isBinary ? data : data.toString()));
  socket.closed = new Promise((close) => socket.on("close", (code, reason) => close(`${code} ${reason}`)));
  await once(socket, "open");
  return socket;
}

async function heard(socket, count) {
  for (let i = 0; i < 1000 && socket.heard.length < count; i++) await sleep(10);
  same(socket.heard.length, count, "messages");
  return socket.heard;
}

await check("ws: text and bytes come back as they went", async () => {
  const socket = await open("echo");
  socket.send("grüße");
  socket.send(Buffer.from([0, 255, 13, 10]));
  const [text, bytes] = await heard(socket, 2);
  socket.close();
  same([text, [...bytes]], ["grüße", [0, 255, 13, 10]]);
});

await check("ws: what the server says at once arrives, once, while the client talks", async () => {
  const socket = await open("both");
  for (let i = 0; i < 100; i++) socket.send(i);
  const all = await heard(socket, 200);
  socket.close();
  const lines = (word) => all.filter((line) => line.startsWith(word));
  const wanted = (word) => Array.from({ length: 100 }, (_, i) => `${word} ${i}`);
  same(lines("said"), wanted("said"));
  same(lines("heard"), wanted("heard"));
});

for (const perMessageDeflate of [false, true]) {
  const how = perMessageDeflate ? "compressed" : "as it is";
  await check(`ws: a message of 10 MB both ways, ${how}`, async () => {
    const message = Buffer.alloc(10 << 20, "carom bounces ");
    const socket = await open("echo", { perMessageDeflate, maxPayload: 64 << 20 });
    same(socket.extensions.includes("permessage-deflate"), perMessageDeflate, "compression");
    socket.send(message);
    const [back] = await heard(socket, 1);
    socket.close();
    holds(message.equals(back), `${back.length} bytes, not the same`);
  });
}

await check("ws: pings and pongs in both directions", async () => {
  const socket = await open("ping");
  same(await heard(socket, 1), ["pong are you there"]);
  const pong = once(socket, "pong");
  socket.ping("still here");
  same((await pong)[0].toString(), "still here");
  socket.close();
});

await check("ws: the client's close code reaches the server", async () => {
  const socket = await open("echo");
  socket.close(4001, "bye");
  await socket.closed;
  await sleep(50);
  const { closes } = await seen();
  holds(closes.includes("4001 bye"), closes);
});

await check("ws: the server's close code reaches the client", async () => {
  same(await (await open("close")).closed, "4002 enough");
});

await check("ws: a server that drops the connection ends it for the client", async () => {
  same(await (await open("drop")).closed, "1006 ");
});

await check("ws: a client that drops the connection ends it for the server", async () => {
  const before = (await seen()).closes.filter((close) => close.startsWith("1006")).length;
  const socket = await open("echo");
  socket.terminate();
  for (let i = 0; i < 100; i++) {
    const now = (await seen()).closes.filter((close) => close.startsWith("1006")).length;
    if (now > before) return;
    await sleep(30);
  }
  throw new Error("the server never saw its client go");
});

await check("ws: a subprotocol is agreed on", async () => {
  const socket = await open("echo", ["carom.v1", "carom.v2"]);
  socket.close();
  same(socket.protocol, "carom.v2");
});

await check("ws: a refused upgrade is an answer like any other", async () => {
  const socket = new WebSocket(`ws://${site}/forbidden`);
  const [, response] = await once(socket, "unexpected-response");
  const body = await response.reduce?.((text, chunk) => text + chunk, "");
  same([response.statusCode, body, response.headers["x-instance"]], [401, "not for you", "express-1"]);
});

await check("ws: a hundred at once, none hears another's", async () => {
  const sockets = await Promise.all(Array.from({ length: 100 }, () => open("echo")));
  for (let round = 0; round < 5; round++) sockets.forEach((socket, i) => socket.send(`${round} ${i}`));
  const all = await Promise.all(sockets.map((socket) => heard(socket, 5)));
  for (const socket of sockets) socket.close();
  same(all, sockets.map((_, i) => Array.from({ length: 5 }, (_, round) => `${round} ${i}`)));
});

process.exit();
