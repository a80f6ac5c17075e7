// The language server of Even Better TOML, spoken to on standard input and output: one JSON message
// per line, as the Language Server Protocol has them.
"use strict";
const { TaploLsp } = require("@taplo/lsp");
const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");

// What an editor gives the server of its machine; no network.
const environment = {
  now: () => new Date(0),
  envVar: () => undefined,
  envVars: () => [],
  stdErrAtty: () => false,
  stdin: async () => new Uint8Array(),
  stdout: async (bytes) => bytes.length,
  stderr: async (bytes) => bytes.length,
  glob: () => [],
  readFile: (name) => fs.promises.readFile(name),
  writeFile: async () => {},
  urlToFilePath: (url) => decodeURI(url).slice("file://".length),
  isAbsolute: (name) => path.isAbsolute(name),
  cwd: () => process.cwd(),
  findConfigFile: () => undefined,
  fetch: {
    fetch: async () => {
      throw new Error("there is no network here");
    },
    Headers: class {},
    Request: class {},
    Response: class {},
  },
};
const settings = { schema: { enabled: true, associations: {}, catalogs: [] }, completion: { maxKeys: 5 } };

async function main() {
  let server;
  server = await TaploLsp.initialize(environment, {
    onMessage(message) {
      if (message.method !== undefined && message.id !== undefined) {
        const result = message.method === "workspace/configuration" ? [settings] : null;
        server.send({ jsonrpc: "2.0", id: message.id, result });
      } else {
        process.stdout.write(JSON.stringify(message) + "\n");
      }
    },
  });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    server.send(JSON.parse(line));
  }
  process.exit(0);
}

main();
