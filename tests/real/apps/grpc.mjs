// A gRPC server of all four kinds of calls, in the clear or over TLS: grpc.mjs [CERT KEY]
// Messages are plain text: what is tested is how they travel.

import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import { service } from "../clients/grpc-calls.mjs";

const [cert, key] = process.argv.slice(2);

const server = new grpc.Server();
let cancelled = 0;

server.addService(service, {
  // `fail CODE` fails with that code; `wait` answers when the client has gone; `cancelled` says how often that was.
  unary(call, answer) {
    const text = call.request;
    const [word, code] = text.split(" ");
    if (word === "fail") return answer({ code: Number(code), details: `failed with ${code} – as asked` });
    if (word === "wait") return call.on("cancelled", () => cancelled++);
    const trailers = new grpc.Metadata();
    trailers.set("x-trailer", "behind");
    if (word === "metadata") return answer(null, JSON.stringify(call.metadata.getMap()), trailers);
    if (word === "cancelled") return answer(null, String(cancelled), trailers);
    answer(null, `${text} back`, trailers);
  },
  // Counts up to the number, or for ever.
  serverStream(call) {
    const most = Number(call.request) || Infinity;
    let n = 0;
    const timer = setInterval(() => {
      call.write(String(++n));
      if (n >= most) {
        clearInterval(timer);
        call.end();
      }
    }, 5);
    call.on("cancelled", () => {
      clearInterval(timer);
      cancelled++;
    });
  },
  clientStream(call, answer) {
    const words = [];
    call.on("data", (word) => words.push(word));
    call.on("end", () => answer(null, words.length > 20 ? `${words.join("").length} characters` : words.join(" ")));
  },
  bidi(call) {
    call.on("data", (word) => call.write(word.toUpperCase()));
    call.on("end", () => call.end());
    call.on("cancelled", () => cancelled++);
  },
});

const credentials = cert
  ? grpc.ServerCredentials.createSsl(null, [{ cert_chain: readFileSync(cert), private_key: readFileSync(key) }])
  : grpc.ServerCredentials.createInsecure();
server.bindAsync("127.0.0.1:0", credentials, (error, port) => {
  if (error) throw error;
  console.log(`listening ${port}`);
});
