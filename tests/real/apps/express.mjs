// One instance of an Express site with socket.io and plain WebSockets: node express.mjs NAME PUBLIC-FOLDER SOCKET

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import multer from "multer";
import { Server as SocketServer } from "socket.io";
import { WebSocketServer } from "ws";

const [name, folder, path] = process.argv.slice(2);
const app = express();
const server = createServer(app);
// What clients ask about afterwards: the closes, pongs and broken downloads that only this side saw.
const seen = { closes: [], pongs: 0, gone: 0 };

app.disable("x-powered-by");
app.set("trust proxy", "loopback");
app.use((request, response, next) => {
  response.set("x-instance", name);
  next();
});
app.use("/static", express.static(folder));
app.get("/", (request, response) => response.send(name));
app.get("/seen", (request, response) => response.json(seen));
app.get("/fields", ({ headers, rawHeaders, ip, protocol, hostname }, response) =>
  response.json({ headers, rawHeaders, ip, protocol, hostname }),
);
app.use("/url", (request, response) => response.send(request.originalUrl));
app.post("/json", express.json({ limit: "1mb" }), (request, response) => response.json({ got: request.body, by: name }));
app.post("/form", multer().single("file"), ({ file, body }, response) =>
  response.json({ ...body, name: file.originalname, size: file.size, sha256: sha256(file.buffer) }),
);
app.post("/early", (request, response) => response.status(413).send("too much"));

// Each line says when it was sent, so that the reader can tell how long it was under way.
app.get("/stream", async (request, response) => {
  response.type("text");
  for (let i = 0; i < 5; i++) {
    response.write(`${i} ${Date.now()}\n`);
    await sleep(150);
  }
  response.end();
});

app.get("/endless", (request, response) => {
  response.on("close", () => seen.gone++);
  const more = () => {
    while (!response.destroyed && response.write(Buffer.alloc(65536)));
  };
  response.on("drain", more);
  more();
});

app.get("/trailers", (request, response) => {
  response.set("trailer", "x-sum");
  response.write("body");
  response.addTrailers({ "x-sum": "4" });
  response.end();
});

app.get("/hints", (request, response) => {
  response.writeEarlyHints({ link: "</style.css>; rel=preload; as=style" }, () => response.send("page"));
});

// Promises a hundred bytes, sends ten, and is gone.
app.get("/cut", (request, response) => {
  response.set("content-length", "100");
  response.write("0123456789", () => setTimeout(() => response.destroy(), 50));
});

const io = new SocketServer(server, { destroyUpgrade: false });
io.on("connection", (socket) => {
  socket.on("hello", (text, answer) => answer({ by: name, text, over: socket.conn.transport.name }));
  socket.on("all", (text) => io.emit("all", text));
});

const sockets = new WebSocketServer({
  noServer: true,
  maxPayload: 64 << 20,
  perMessageDeflate: { threshold: 0 },
  handleProtocols: (offered) => (offered.has("carom.v2") ? "carom.v2" : false),
});
server.on("upgrade", (request, socket, head) => {
  const { pathname } = new URL(request.url, "http://any");
  if (pathname === "/forbidden") {
    const body = "not for you";
    socket.write(`HTTP/1.1 401 Unauthorized\r\ncontent-length: ${body.length}\r\nx-instance: ${name}\r\n\r\n${body}`);
    socket.end();
  } else if (pathname.startsWith("/ws/")) {
    sockets.handleUpgrade(request, socket, head, (client) => serve(client, pathname.slice("/ws/".length)));
  }
});

function serve(client, what) {
  client.on("close", (code, reason) => seen.closes.push(`${code} ${reason}`));
  client.on("pong", () => seen.pongs++);
  switch (what) {
    case "echo":
      client.on("message", (data, isBinary) => client.send(data, { binary: isBinary }));
      break;
    case "both": // talks without being asked, while it listens
      client.on("message", (data) => client.send(`heard ${data}`));
      for (let i = 0; i < 100; i++) client.send(`said ${i}`);
      break;
    case "ping":
      client.ping("are you there");
      client.on("pong", (data) => client.send(`pong ${data}`));
      break;
    case "close":
      client.close(4002, "enough");
      break;
    case "drop":
      client.terminate();
      break;
  }
}

function sha256(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}

createServer(app).listen(path);
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => console.log(`listening ${server.address().port}`));
