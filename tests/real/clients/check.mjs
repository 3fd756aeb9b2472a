// Names what is checked and says how it went, one line a check: `ok NAME` or `FAILED NAME: what was seen`.

import dns from "node:dns";
import { Agent, request } from "node:http";

// *.localhost is this machine; not every resolver knows.
const lookup = dns.lookup;
dns.lookup = (name, ...rest) => lookup(name.endsWith(".localhost") ? "127.0.0.1" : name, ...rest);

export async function check(name, body, seconds = 30) {
  let timer;
  const late = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error(`no end within ${seconds} s`)), seconds * 1000)));
  try {
    await Promise.race([body(), late]);
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error?.message ?? error).replaceAll("\n", " ").slice(0, 400)}`);
  } finally {
    clearTimeout(timer);
  }
}

export function same(got, wanted, what = "value") {
  const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`${what}: saw ${a}, wanted ${b}`);
}

export function holds(condition, seen) {
  if (!condition) throw new Error(`saw ${typeof seen === "string" ? seen : JSON.stringify(seen)}`);
}

// An agent that counts the connections it opens.
export class CountingAgent extends Agent {
  opened = 0;
  createConnection(...rest) {
    this.opened++;
    return super.createConnection(...rest);
  }
}

// A request, its whole response, and what else came along the way.
export function ask(url, { body, ...options } = {}) {
  return new Promise((resolve, reject) => {
    const sent = request(url, options);
    const hints = [];
    sent.on("information", ({ statusCode, headers }) => hints.push({ statusCode, headers }));
    sent.on("error", reject);
    sent.on("response", (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push({ at: Date.now(), chunk }));
      response.on("error", reject);
      response.on("end", () => {
        const bytes = Buffer.concat(chunks.map(({ chunk }) => chunk));
        const { statusCode: status, headers: fields, trailers } = response;
        resolve({ status, fields, trailers, hints, chunks, bytes, text: bytes.toString() });
      });
    });
    sent.end(body);
  });
}
