// Node's own HTTP client, fetch and socket.io-client against the Express sites: node express.mjs PORT FOLDER
// pair.localhost has two instances, solo.localhost one of them.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { io } from "socket.io-client";
import { CountingAgent, ask, check, holds, same } from "./check.mjs";

const [port, folder] = process.argv.slice(2);
const pair = `http://pair.localhost:${port}`;
const solo = `http://solo.localhost:${port}`;
const big = readFileSync(`${folder}/big.bin`);

await check("express: turns are exactly even over kept-alive connections, and none is opened twice", async () => {
  const agent = new CountingAgent({ keepAlive: true, maxSockets: 4 });
  const answers = await Promise.all(Array.from({ length: 400 }, () => ask(pair, { agent })));
  agent.destroy();
  const of = (name) => answers.filter(({ text }) => text === name).length;
  same([of("express-1"), of("express-2"), agent.opened], [200, 200, 4], "first, second, connections");
});

await check("express: one connection, one turn after the other", async () => {
  const agent = new CountingAgent({ keepAlive: true, maxSockets: 1 });
  const names = [];
  for (let i = 0; i < 20; i++) names.push((await ask(pair, { agent })).text);
  agent.destroy();
  holds(names.every((name, i) => name !== names[i + 1]), names);
  same(agent.opened, 1, "connections");
});

await check("express: the application knows client, host and scheme, whatever the client claims", async () => {
  const claims = { "x-forwarded-for": "6.6.6.6", "x-forwarded-proto": "https", "x-forwarded-host": "evil.example" };
  const { headers, ip, protocol, hostname } = JSON.parse((await ask(`${solo}/fields`, { headers: claims })).text);
  same([ip, protocol, hostname], ["127.0.0.1", "http", "solo.localhost"]);
  same(headers.host, `solo.localhost:${port}`, "host");
  same(headers["x-forwarded-for"], "127.0.0.1", "x-forwarded-for");
});

await check("express: fields keep their case and order", async () => {
  const headers = ["X-First", "1", "x-second", "2", "X-THIRD", "3"];
  const { rawHeaders } = JSON.parse((await ask(`${solo}/fields`, { headers: ["Host", "solo.localhost", ...headers] })).text);
  const at = rawHeaders.indexOf("X-First");
  same(rawHeaders.slice(at, at + headers.length), headers);
});

await check("express: JSON there and back", async () => {
  const sent = { text: "grüße", list: [1, 2, { deep: true }] };
  const response = await fetch(`${pair}/json`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(sent),
  });
  same((await response.json()).got, sent);
});

await check("express: a form uploads 20 MB", async () => {
  const file = Buffer.concat([big, big]).subarray(0, 20 << 20);
  const form = new FormData();
  form.set("note", "hello");
  form.set("file", new Blob([file]), "big.bin");
  const response = await fetch(`${pair}/form`, { method: "POST", body: form });
  same(await response.json(), { note: "hello", name: "big.bin", size: file.length, sha256: sha256(file) });
});

await check("express: a large file arrives whole, four at once", async () => {
  const all = await Promise.all(Array.from({ length: 4 }, () => ask(`${pair}/static/big.bin`)));
  same(all.map(({ bytes }) => sha256(bytes)), Array(4).fill(sha256(big)));
});

await check("express: 304 and HEAD have no body and keep the connection", async () => {
  const agent = new CountingAgent({ keepAlive: true, maxSockets: 1 });
  const first = await ask(`${pair}/static/big.bin`, { method: "HEAD", agent });
  same([first.status, Number(first.fields["content-length"]), first.bytes.length], [200, big.length, 0], "HEAD");
  const headers = { "if-none-match": first.fields.etag };
  for (let i = 0; i < 5; i++) {
    const { status, bytes } = await ask(`${pair}/static/big.bin`, { agent, headers });
    same([status, bytes.length], [304, 0]);
  }
  same((await ask(solo, { agent })).status, 200, "afterwards");
  agent.destroy();
});

await check("express: what is streamed arrives as it is sent", async () => {
  const { chunks } = await ask(`${pair}/stream`);
  const delays = chunks.map(({ at, chunk }) => at - Number(chunk.toString().split(" ")[1]));
  holds(delays.length === 5 && delays.every((delay) => delay < 140), { delays });
});

await check("express: trailers pass", async () => {
  const { text, trailers } = await ask(`${solo}/trailers`, { headers: { te: "trailers" } });
  same([text, trailers["x-sum"]], ["body", "4"]);
});

await check("express: early hints pass", async () => {
  const { text, hints } = await ask(`${solo}/hints`);
  same([text, hints.length, hints[0]?.statusCode], ["page", 1, 103]);
});

await check("express: an answer before the end of the upload reaches the client", async () => {
  const { status, text } = await ask(`${solo}/early`, { method: "POST", body: big });
  same([status, text], [413, "too much"]);
  same((await ask(solo)).status, 200, "afterwards");
});

await check("express: a body that broke off does not look whole", async () => {
  const outcome = await ask(`${solo}/cut`).then(({ text }) => `whole: ${text}`, ({ code }) => code);
  same(outcome, "ECONNRESET");
});

await check("express: a client that leaves ends the application's work", async () => {
  const gone = async () => JSON.parse((await ask(`${solo}/seen`)).text).gone;
  const before = await gone();
  const leave = new AbortController();
  const response = await fetch(`${solo}/endless`, { signal: leave.signal });
  await response.body.getReader().read();
  leave.abort();
  await until(async () => (await gone()) === before + 1, "the application never saw its client go");
});

await check("socket.io: 50 clients over WebSockets, in turn", async () => {
  const clients = await connect(50, pair, { transports: ["websocket"] });
  const answers = await Promise.all(clients.map((client, i) => client.timeout(5000).emitWithAck("hello", i)));
  for (const client of clients) client.close();
  same(answers.map(({ text }) => text), answers.map((_, i) => i), "answers");
  const first = answers.filter(({ by, over }) => by === "express-1" && over === "websocket").length;
  same([first, answers.length], [25, 50], "on the first instance, in all");
});

await check("socket.io: long polling alone", async () => {
  const [client] = await connect(1, solo, { transports: ["polling"] });
  const { over, text } = await client.timeout(5000).emitWithAck("hello", "x".repeat(50_000));
  client.close();
  same([over, text.length], ["polling", 50_000]);
});

await check("socket.io: long polling grows into a WebSocket", async () => {
  const [client] = await connect(1, solo, {});
  await until(() => client.io.engine.transport.name === "websocket", "no upgrade");
  const { over } = await client.timeout(5000).emitWithAck("hello", "");
  client.close();
  same(over, "websocket");
});

await check("socket.io: what one says, all hear", async () => {
  const clients = await connect(20, solo, { transports: ["websocket"] });
  const heard = clients.map((client) => new Promise((hear) => client.on("all", hear)));
  clients[0].emit("all", "news");
  same(await Promise.all(heard), Array(20).fill("news"));
  for (const client of clients) client.close();
});

process.exit();

function connect(count, url, options) {
  const one = () =>
    new Promise((resolve, reject) => {
      const client = io(url, { ...options, forceNew: true, reconnection: false });
      client.on("connect", () => resolve(client));
      client.on("connect_error", reject);
    });
  return Promise.all(Array.from({ length: count }, one));
}

async function until(condition, otherwise) {
  for (let i = 0; i < 100; i++) {
    if (await condition()) return;
    await sleep(30);
  }
  throw new Error(otherwise);
}

function sha256(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}
