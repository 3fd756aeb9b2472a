// What a light framework of Node.js does at best: node node.mjs, with PORT in the environment.
import { createServer } from "node:http";

createServer((request, response) => {
  const body = JSON.stringify({ hello: "world" });
  response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
  response.end(body);
}).listen(Number(process.env.PORT), "127.0.0.1");
