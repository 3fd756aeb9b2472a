// gRPC through carom, by grpc-js: grpc.mjs NAME ADDRESS AUTHORITY [CA]

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import { check, holds, same } from "./check.mjs";
import { service } from "./grpc-calls.mjs";

const [name, address, authority, ca] = process.argv.slice(2);
const Client = grpc.makeGenericClientConstructor(service, "Test");
const credentials = ca ? grpc.credentials.createSsl(readFileSync(ca)) : grpc.credentials.createInsecure();
const client = new Client(address, credentials, {
  "grpc.default_authority": authority,
  "grpc.ssl_target_name_override": authority,
});

const soon = () => ({ deadline: Date.now() + 20_000 });
const unary = (text, metadata = new grpc.Metadata(), options = soon()) =>
  new Promise((resolve) => {
    let seen;
    const call = client.unary(text, metadata, options, (error, answer) => (seen = { error, answer }));
    call.on("status", (status) => resolve({ ...seen, trailers: status.metadata.getMap() }));
  });
const all = async (call) => {
  const words = [];
  for await (const word of call) words.push(word);
  return words;
};

await check(`${name}: a unary call, with its metadata and trailers`, async () => {
  const metadata = new grpc.Metadata();
  metadata.set("x-mine", "yes");
  metadata.set("x-bytes-bin", Buffer.from([0, 255]));
  const { error, answer, trailers } = await unary("metadata", metadata);
  if (error) throw error;
  const seen = JSON.parse(answer);
  same(seen["x-mine"], "yes");
  same(seen["x-bytes-bin"].data, [0, 255]);
  holds(seen["x-forwarded-for"], answer);
  same(trailers["x-trailer"], "behind");
});

await check(`${name}: every status is unchanged`, async () => {
  for (let code = 1; code <= 16; code++) {
    const { error } = await unary(`fail ${code}`);
    same([error.code, error.details], [code, `failed with ${code} – as asked`]);
  }
});

await check(`${name}: a method that is not there answers with trailers only`, async () => {
  const method = { ...service.unary, path: "/carom.Test/Nothing" };
  const Other = grpc.makeGenericClientConstructor({ nothing: method }, "Test");
  const other = new Other(address, credentials, { "grpc.default_authority": authority, "grpc.ssl_target_name_override": authority });
  const error = await new Promise((resolve) => other.nothing("x", soon(), resolve));
  same(error.code, grpc.status.UNIMPLEMENTED);
  other.close();
});

await check(`${name}: the server streams`, async () => {
  same((await all(client.serverStream("50", soon()))).join(), Array.from({ length: 50 }, (_, i) => i + 1).join());
});

await check(`${name}: the client streams`, async () => {
  const answer = await new Promise((resolve, reject) => {
    const call = client.clientStream(soon(), (error, answer) => (error ? reject(error) : resolve(answer)));
    for (const word of ["a", "b", "c"]) call.write(word);
    call.end();
  });
  same(answer, "a b c");
});

await check(`${name}: large messages stream`, async () => {
  const answer = await new Promise((resolve, reject) => {
    const call = client.clientStream(soon(), (error, answer) => (error ? reject(error) : resolve(answer)));
    for (let i = 0; i < 40; i++) call.write("x".repeat(250_000));
    call.end();
  });
  same(answer, "10000000 characters");
});

await check(`${name}: both stream, in turn`, async () => {
  const call = client.bidi(soon());
  const words = call[Symbol.asyncIterator]();
  for (const word of ["one", "two", "three"]) {
    call.write(word);
    same((await words.next()).value, word.toUpperCase());
  }
  call.end();
  same((await words.next()).done, true);
});

await check(`${name}: fifty calls at once`, async () => {
  const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => unary(`call ${i}`)));
  same(answers.map(({ answer }) => answer).join(), Array.from({ length: 50 }, (_, i) => `call ${i} back`).join());
});

await check(`${name}: a cancelled call is cancelled behind at once`, async () => {
  const before = Number((await unary("cancelled")).answer);
  const call = client.serverStream("0", soon());
  call.on("error", () => {});
  await new Promise((resolve) => call.once("data", resolve));
  call.cancel();
  const waiting = client.unary("wait", soon(), () => {});
  await sleep(100);
  waiting.cancel();
  const begun = Date.now();
  while (Number((await unary("cancelled")).answer) < before + 2) {
    holds(Date.now() - begun < 3000, "not within 3 s");
    await sleep(10);
  }
});

await check(`${name}: a deadline ends the call on both sides`, async () => {
  const before = Number((await unary("cancelled")).answer);
  const { error } = await unary("wait", new grpc.Metadata(), { deadline: Date.now() + 300 });
  same(error.code, grpc.status.DEADLINE_EXCEEDED);
  const begun = Date.now();
  while (Number((await unary("cancelled")).answer) < before + 1) {
    holds(Date.now() - begun < 3000, "not within 3 s");
    await sleep(10);
  }
});

client.close();
