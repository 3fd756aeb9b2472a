// A server that has one thread and needs it: GET /?below=N answers with the largest prime below N, found by dividing by
// everything: node prime.mjs NAME
// The head is sent before it begins, so that a client knows when it has and with whom.

import { createServer } from "node:http";

const [name] = process.argv.slice(2);

function largestPrimeBelow(n) {
  for (let candidate = n - 1; candidate > 1; candidate--) {
    if (isPrime(candidate)) return candidate;
  }
}

function isPrime(n) {
  for (let divisor = 2; divisor < n; divisor++) {
    if (n % divisor === 0) return false;
  }
  return true;
}

const server = createServer((request, response) => {
  const below = Number(new URL(request.url, "http://any").searchParams.get("below"));
  response.writeHead(200, { "x-instance": name, "content-type": "text/plain" });
  response.flushHeaders();
  setImmediate(() => response.end(String(largestPrimeBelow(below))));
});
server.listen(0, "127.0.0.1", () => console.log(`listening ${server.address().port}`));
