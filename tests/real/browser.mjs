// A browser before the demo: node browser.mjs CAROM CHROMIUM FOLDER
// Opens its sites, talks to the WebSocket echo, edits the routes file, sees the change. Leaves demo.png in FOLDER.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";
import { check, holds, same } from "./clients/check.mjs";

const [carom, executablePath, folder] = process.argv.slice(2);

const demo = spawn(carom, ["demo", "--port", "0"], { stdio: ["ignore", "pipe", "pipe"] });
process.on("exit", () => demo.kill());
let said = "";
for (const stream of [demo.stdout, demo.stderr]) stream.on("data", (data) => (said += data));
const [, beep] = await told(/(http:\/\/beep\.localhost:\d+\/)/);
const [, boop] = await told(/(http:\/\/boop\.localhost:\d+\/)/);
const [routes] = await told(/\S+routes\.toml/);

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update"],
});
const context = await browser.newContext({ viewport: { width: 900, height: 1000 } });
const page = await context.newPage();
page.setDefaultTimeout(10_000);
const troubles = [];
page.on("pageerror", (error) => troubles.push(error.message));
page.on("requestfailed", (request) => troubles.push(request.url()));

await check("browser: beep.localhost is answered by beep", async () => {
  await arrive(beep);
  same(await page.textContent("h1"), "beep");
  holds((await page.textContent("table")).includes("x-forwarded-for"), "no x-forwarded-for on the page");
});

await check("browser: boop.localhost is answered by its instances in turn", async () => {
  const names = [];
  for (let i = 0; i < 4; i++) names.push(await nameAt(boop));
  same(names.slice().sort(), ["boop-1", "boop-1", "boop-2", "boop-2"], names.join());
});

await check("browser: the WebSocket form is greeted and echoed", async () => {
  await arrive(beep);
  for (const text of ["<b>hello</b>", "again"]) {
    await page.fill("#echo input", text);
    await page.click("#echo button");
    await page.waitForFunction((line) => document.getElementById("said").textContent.includes(line), `← ${text}\n`);
  }
  holds((await page.textContent("#said")).includes("← beep echoes"), await page.textContent("#said"));
  await page.screenshot({ path: `${folder}/demo.png` });
});

await check("browser: an edit of the routes shows at the next reload, and in the terminal", async () => {
  const text = readFileSync(routes, "utf8");
  const [, first] = text.match(/"boop\.localhost" = \[(\d+)/);
  writeFileSync(routes, text.replace(/"beep\.localhost" = \d+/, `"beep.localhost" = ${first}`));
  await until(async () => (await nameAt(beep)) === "boop-1", "beep.localhost still goes elsewhere");
  await told(/beep\.localhost.*→.*/);
  const broken = "not a route\n";
  writeFileSync(routes, broken);
  await told(/not a route/);
  same(await nameAt(beep), "boop-1", "after a mistake");
  writeFileSync(routes, text.replace(/^# ("bop\.localhost")/m, "$1"));
  await until(async () => (await nameAt(beep)) === "beep", "beep.localhost did not come back");
  same(await nameAt(beep.replace("beep", "bop")), "beep", "the new site");
});

await check("browser: nothing failed on the pages", async () => same(troubles, []));

await check("browser: the demo ends at Ctrl-C", async () => {
  demo.kill("SIGINT");
  const [code] = demo.exitCode === null ? await once(demo, "exit") : [demo.exitCode];
  same(code, 0);
});

await browser.close();
rmSync(dirname(routes), { recursive: true });
process.exit();

async function arrive(url) {
  const response = await page.goto(url);
  same(response.status(), 200, "status");
}

async function nameAt(url) {
  await page.goto(url);
  return page.textContent("h1");
}

async function told(pattern) {
  await until(() => pattern.test(said), `the demo never said ${pattern}; it said ${said.slice(-300)}`);
  return said.match(pattern);
}

async function until(condition, otherwise) {
  for (let i = 0; i < 100; i++) {
    if (await condition()) return;
    await sleep(50);
  }
  throw new Error(otherwise);
}
