// A browser before the status page: node status.mjs CAROM CHROMIUM FOLDER
// Sees sites, rates, an instance that goes down, failures and a change of the routes; in the dark and on a phone; and that
// the page asks nobody else for anything. Leaves status-*.png in FOLDER.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";
import { check, holds, same } from "./clients/check.mjs";

const [carom, executablePath, folder] = process.argv.slice(2);
const scratch = mkdtempSync(join(tmpdir(), "carom-status-"));

async function origin() {
  const server = createServer((asked, answer) => {
    setTimeout(() => answer.writeHead(asked.url.startsWith("/broken") ? 500 : 200).end("hello"), Math.random() * 20);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

const [one, two] = [await origin(), await origin()];
const ports = [one, two].map((server) => server.address().port);
const routes = join(scratch, "routes.toml");
const text = `["shop.test"]
to = [${ports.join(", ")}]
also = ["www.shop.test"]
health = { path = "/", interval = "200ms" }
https = "allow"
["blog.test"]
to = ${ports[0]}
https = "allow"
["gone.test"]
to = 1
https = "allow"
`;
writeFileSync(routes, text);

const proxy = spawn(carom, ["serve", routes, "--listen", "127.0.0.1:0", "--tls", "127.0.0.1:0", "--tls-self-signed",
  "--certs", join(scratch, "certs"), "--status", "127.0.0.1:0", "--state", join(scratch, "state")], { stdio: ["ignore", "pipe", "pipe"] });
process.on("exit", () => proxy.kill());
let said = "";
for (const stream of [proxy.stdout, proxy.stderr]) stream.on("data", (data) => (said += data));
const [, port] = await told(/listening on http:\/\/127\.0\.0\.1:(\d+)/);
const [, status] = await told(/status page on (http:\/\/127\.0\.0\.1:\d+)\//);

// Ends only with the page: a request every few milliseconds.
let busy = true;
const load = (async () => {
  for (let turn = 0; busy; turn++) {
    const [host, path] = [["shop.test", "/"], ["shop.test", "/x"], ["blog.test", "/"], ["blog.test", turn % 20 ? "/" : "/broken"]][turn % 4];
    await ask(host, path);
    await sleep(5);
  }
})();

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update"],
});
const troubles = [];
const elsewhere = [];

async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("pageerror", (error) => troubles.push(error.message));
  page.on("console", (line) => ["error", "warning"].includes(line.type()) && troubles.push(line.text()));
  page.on("request", (asked) => asked.url().startsWith(status) || asked.url().startsWith("data:") || elsewhere.push(asked.url()));
  await page.goto(`${status}/`);
  return page;
}

const page = await open({ viewport: { width: 1200, height: 1000 }, colorScheme: "light" });
const shows = (what, where = "body") => page.waitForFunction(([what, where]) => document.querySelector(where).innerText.includes(what), [what, where]);
const number = async (id) => Number.parseFloat(await page.textContent(`#${id}`));

await check("status page: shows the sites and their instances", async () => {
  await shows("● live", "#link");
  await shows("shop.test", "#site-list");
  await shows(String(ports[1]), "#site-list");
  await shows("● up", "#site-list");
  await shows("also www.shop.test", "#site-list");
});

await check("status page: a request rate, and durations", async () => {
  await page.waitForFunction(() => Number.parseFloat(document.getElementById("t-requests").textContent) > 5);
  await page.waitForFunction(() => / ms$/.test(document.getElementById("t-p95").textContent));
  holds((await number("t-clients")) >= 0, "no clients");
  same(await page.locator("#charts canvas").count(), 2, "charts");
});

await check("status page: an instance that goes down, and why", async () => {
  two.close();
  two.closeAllConnections();
  await shows("▼ down", "#site-list");
  await shows("backend-refused", "#site-list");
  await shows("back by", "#site-list");
});

await check("status page: what went wrong, with examples that are text whatever a client sends", async () => {
  await ask("gone.test", "/x?secret=1");
  await ask("nobody.test", "/<img%20src=x>");
  await shows("backend-refused ×", "#reasons");
  await shows("no-route × 1", "#reasons");
  await shows("asked for GET gone.test/x", "#failures");
  await shows("GET nobody.test/<img%20src=x>", "#failures");
  holds(!(await page.textContent("#failures")).includes("secret"), "the query is shown");
  same(await page.locator("#failures img").count(), 0, "images");
});

await check("status page: a change of the routes, and a file that can't be applied", async () => {
  const more = `${text}["fresh.test"]\nto = ${ports[0]}\nhttps = "allow"\n`;
  writeFileSync(routes, more);
  await shows("fresh.test", "#site-list");
  await shows("+ fresh.test", "#history summary, #history");
  await page.focus("#history summary");
  await page.keyboard.press("Enter");
  await shows("+ fresh.test", "#history details[open] pre");
  writeFileSync(routes, "not a route\n");
  await shows("can't be applied", "#warnings");
  writeFileSync(routes, more);
  await page.waitForFunction(() => document.getElementById("warnings").innerText === "");
});

await check("status page: certificates with their days", () => shows("days left", "#certs"));

await sleep(4000); // so that the charts have something in them
await page.screenshot({ path: `${folder}/status-desktop.png`, fullPage: true });

await check("status page: fits a phone, in the dark", async () => {
  const phone = await open({ viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, colorScheme: "dark" });
  await phone.waitForFunction(() => document.getElementById("site-list").innerText.includes("▼ down"));
  await phone.waitForFunction(() => document.querySelectorAll("#charts canvas").length === 2);
  await sleep(3000);
  await phone.screenshot({ path: `${folder}/status-phone.png`, fullPage: true });
  const [wide, color] = await phone.evaluate(() => [document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]);
  holds(wide <= 360, `it is ${wide} wide`);
  holds(/^rgb\((\d|[1-4]\d), /.test(color), `its ground is ${color}`);
  await phone.context().close();
});

await check("status page: says when it is cut off, and comes back by itself", async () => {
  await page.context().setOffline(true);
  proxy.kill("SIGSTOP");
  await shows("✕ no news for", "#link");
  proxy.kill("SIGCONT");
  await page.context().setOffline(false);
  await shows("● live", "#link");
});

await check("status page: asks nobody else, and nothing failed on it", async () => {
  same(elsewhere, []);
  same(troubles, []);
});

await check("status page: other names than this machine's are refused", async () => {
  const answer = await fetch(`${status}/`);
  same(answer.status, 200);
  same(await code(new URL(status).port, "evil.test", "/"), 403);
});

await check("status page: carom ends while a page is open", async () => {
  busy = false;
  await load;
  proxy.kill("SIGTERM");
  const [code] = proxy.exitCode === null ? await once(proxy, "exit") : [proxy.exitCode];
  same(code, 0);
  await shows("✕ cut off since", "#link");
});

await check("status page: with a token, for who has it", async () => {
  const config = join(scratch, "carom.toml");
  writeFileSync(config, '[status]\nlisten = "127.0.0.1:0"\ntoken = "0123456789abcdef"\n');
  writeFileSync(routes, text);
  said = "";
  const guarded = spawn(carom, ["serve", routes, "--config", config, "--listen", "127.0.0.1:0", "--state", join(scratch, "state")]);
  try {
    guarded.stderr.on("data", (data) => (said += data));
    const [, place] = await told(/status page on (http:\/\/127\.0\.0\.1:\d+)\//);
    const visitor = await (await browser.newContext()).newPage();
    same((await visitor.goto(place)).status(), 401, "without it");
    await visitor.goto(`${place}/?token=0123456789abcdef`);
    same(visitor.url(), `${place}/`, "the address");
    await visitor.waitForFunction(() => document.getElementById("link").innerText === "● live");
  } finally {
    guarded.kill();
  }
});

await browser.close();
one.close();
one.closeAllConnections();
rmSync(scratch, { recursive: true });

function ask(host, path) {
  return code(port, host, path).catch(() => {});
}

function code(port, host, path) {
  return new Promise((done, failed) => {
    const asked = request({ host: "127.0.0.1", port, path, headers: { host } }, (answer) => {
      answer.resume().on("end", () => done(answer.statusCode));
    });
    asked.on("error", failed).end();
  });
}

async function told(pattern) {
  for (let i = 0; i < 200; i++) {
    const found = said.match(pattern);
    if (found) return found;
    await sleep(50);
  }
  throw new Error(`carom did not say ${pattern}: ${said}`);
}
