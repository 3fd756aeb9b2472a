// Two instances behind one name: node pair.mjs PORT
// prime-least.localhost and prime-turns.localhost are the same two servers of prime.mjs, express.localhost two of Express.

import { Agent, request } from "node:http";
import { ask, check, holds, same } from "./check.mjs";

const [port] = process.argv.slice(2);
const BUSY = 4_000;

// How large a number keeps an instance busy for so many milliseconds on this machine.
async function numberFor(milliseconds) {
  for (let below = 1_000_000; ; below *= 2) {
    const begun = performance.now();
    await ask(`http://prime-turns.localhost:${port}/?below=${below}`);
    const took = performance.now() - begun;
    if (took > 250) return Math.round((below * milliseconds) / took);
  }
}

// Begins a request that keeps an instance busy: which one, and when it will have ended.
function keepBusy(site, below) {
  return new Promise((resolve, reject) => {
    const sent = request(`http://${site}:${port}/?below=${below}`, { agent: new Agent() }, (response) => {
      const begun = performance.now();
      const ended = new Promise((end) => response.on("end", () => end(performance.now() - begun)));
      response.resume();
      resolve({ instance: response.headers["x-instance"], ended });
    });
    sent.on("error", reject).end();
  });
}

// A hundred small requests, one after the other, from when one instance is busy.
async function besides(site, below) {
  const agent = new Agent({ keepAlive: true });
  const { instance, ended } = await keepBusy(site, below);
  const begun = performance.now();
  let [behind, slowest] = [0, 0];
  for (let i = 0; i < 100; i++) {
    const asked = performance.now();
    const { status, text, fields } = await ask(`http://${site}:${port}/?below=100`, { agent });
    same([status, text], [200, "97"]);
    behind += fields["x-instance"] === instance;
    slowest = Math.max(slowest, performance.now() - asked);
  }
  const all = performance.now() - begun;
  const busy = await ended;
  agent.destroy();
  return { busy, behind, slowest, all };
}

const milliseconds = (time) => `${Math.round(time)} ms`;
const below = await numberFor(BUSY);
const seen = {};
for (const [policy, site] of [
  ["least-connections", "prime-least.localhost"],
  ["round-robin", "prime-turns.localhost"],
]) {
  seen[policy] = await besides(site, below);
  const { busy, behind, slowest, all } = seen[policy];
  console.log(
    `${policy}: one instance busy for ${milliseconds(busy)}; of 100 small requests ${behind} went to it; ` +
      `the slowest took ${milliseconds(slowest)}, all of them ${milliseconds(all)}`,
  );
}

await check("pair: under least-connections all small requests go to the instance that is free, and stay fast", () => {
  const { behind, slowest, busy } = seen["least-connections"];
  same(behind, 0, "with the busy one");
  holds(busy > BUSY / 4 && slowest < busy / 2, seen);
});
await check("pair: under round-robin half of them go to the busy one, and wait for it", () => {
  const { behind, slowest, busy } = seen["round-robin"];
  same(behind, 50, "with the busy one");
  holds(slowest > busy / 2, seen);
});

await check(
  "pair: 500 clients with 100 requests each: no error, and each instance has half of them",
  async () => {
    const counts = {};
    await Promise.all(
      Array.from({ length: 500 }, async () => {
        const agent = new Agent({ keepAlive: true, maxSockets: 1 });
        for (let i = 0; i < 100; i++) {
          const { status, fields } = await ask(`http://express.localhost:${port}/`, { agent });
          same(status, 200, "status");
          counts[fields["x-instance"]] = (counts[fields["x-instance"]] ?? 0) + 1;
        }
        agent.destroy();
      }),
    );
    const [one, two] = Object.values(counts);
    console.log(`500 clients, 100 requests each: ${JSON.stringify(counts)}`);
    same(one + two, 50_000, "answers");
    holds(Math.abs(one - two) <= 1, counts);
  },
  180,
);
