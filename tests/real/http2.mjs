// A browser before carom over TLS: several sites over one HTTP/2 connection.
// node http2.mjs CHROMIUM PORT CERT FOLDER
// The certificate is for *.sites.test, which is this machine to this browser.

import { createHash, X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { check, holds, same } from "./clients/check.mjs";

const [executablePath, port, cert, folder] = process.argv.slice(2);
const site = (name) => `https://${name}.sites.test:${port}`;

// Certificate errors would keep connections apart, so this one key is trusted.
const key = new X509Certificate(readFileSync(cert)).publicKey.export({ type: "spki", format: "der" });
const trusted = createHash("sha256").update(key).digest("base64");
const profile = mkdtempSync(join(folder, "profile-"));
const netlog = join(profile, "net.json");
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  args: [
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP *.sites.test 127.0.0.1",
    `--ignore-certificate-errors-spki-list=${trusted}`,
    `--log-net-log=${netlog}`,
  ],
});
const page = await context.newPage();
page.setDefaultTimeout(10_000);

await check("http2 browser: several sites, one page after the other", async () => {
  for (const [name, text] of [["one", "express-1"], ["two", "express-2"], ["asgi", "asgi"]]) {
    const response = await page.goto(`${site(name)}/`);
    same(response.status(), 200, name);
    same(await page.textContent("body"), text);
  }
});

await check("http2 browser: every request was HTTP/2", async () => {
  await page.goto(`${site("one")}/`);
  const protocol = await page.evaluate(() => performance.getEntriesByType("navigation")[0].nextHopProtocol);
  same(protocol, "h2");
});

await check("http2 browser: a hundred requests at once", async () => {
  await page.goto(`${site("one")}/`);
  const texts = await page.evaluate(() =>
    Promise.all(Array.from({ length: 100 }, (_, i) => fetch(`/url/${i}`).then((response) => response.text()))),
  );
  same(texts, Array.from({ length: 100 }, (_, i) => `/url/${i}`));
});

await check("http2 browser: a WebSocket, while an event stream runs", async () => {
  await page.goto(`${site("asgi")}/`);
  const seen = await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const seen = { events: [], said: [] };
        const done = () => seen.events.length === 5 && seen.said.length === 20 && resolve(seen);
        const events = new EventSource("/events");
        events.onmessage = ({ lastEventId }) => {
          seen.events.push(lastEventId);
          if (seen.events.length === 5) events.close();
          done();
        };
        const socket = new WebSocket(`wss://${location.host}/echo`);
        socket.onopen = () => socket.send("0");
        socket.onerror = () => reject(new Error("the WebSocket failed"));
        socket.onmessage = ({ data }) => {
          seen.said.push(data);
          if (seen.said.length < 20) socket.send(String(seen.said.length));
          else socket.close();
          done();
        };
      }),
  );
  same(seen.events.join(), "0,1,2,3,4");
  same(seen.said.join(), Array.from({ length: 20 }, (_, i) => i).join());
});

await check("http2 browser: a WebSocket that the site closes and one that it refuses", async () => {
  await page.goto(`${site("asgi")}/`);
  const ends = await page.evaluate(() =>
    Promise.all(
      ["/closing", "/refusing"].map(
        (path) =>
          new Promise((resolve) => {
            const socket = new WebSocket(`wss://${location.host}${path}`);
            socket.onclose = ({ code, reason }) => resolve([code, reason]);
          }),
      ),
    ),
  );
  same(ends, [[4003, "done here"], [1006, ""]]);
});

await check("http2 browser: an upload and a download", async () => {
  await page.goto(`${site("asgi")}/`);
  const [sent, got] = await page.evaluate(async () => {
    const upload = await fetch("/upload", { method: "POST", body: new Uint8Array(8_000_000).fill(7) });
    const download = await fetch("/download").then((response) => response.arrayBuffer());
    return [(await upload.json()).size, download.byteLength];
  });
  same([sent, got], [8_000_000, 512 * 65536]);
});

await context.close();

await check("http2 browser: all of it went over one connection, WebSockets included", async () => {
  const log = JSON.parse(readFileSync(netlog, "utf8"));
  const named = (name) => log.events.filter(({ type }) => type === log.constants.logEventTypes[name]);
  same(named("HTTP2_SESSION_INITIALIZED").length, 1, "HTTP/2 sessions");
  holds(named("HTTP2_SESSION_POOL_FOUND_EXISTING_SESSION_FROM_IP_POOL").length >= 2, "no coalescing in the log");
  const hosts = new Set(
    named("HTTP2_SESSION_SEND_HEADERS").flatMap(({ params }) =>
      params.headers.filter((line) => line.startsWith(":authority: ")),
    ),
  );
  same(hosts.size, 3, "hosts of the one connection");
  const connects = named("HTTP2_SESSION_SEND_HEADERS").filter(({ params }) =>
    params.headers.includes(":protocol: websocket"),
  );
  holds(connects.length >= 3, `${connects.length} WebSockets over HTTP/2`);
});

rmSync(profile, { recursive: true });
process.exit();
