"use strict";
// Which ddpify is started. Knows nothing of VS Code, so that node alone can try it.

const fs = require("fs");
const path = require("path");

const WINDOWS = process.platform === "win32";

/** The setting first, then the interpreter, the workspace's environment, and what is on PATH. */
function serverCommand({ path: given, interpreter, folders }) {
  if (given) {
    return { command: given, args: ["server"] };
  }
  if (interpreter) {
    return { command: interpreter, args: ["-m", "ddpify", "server"] };
  }
  const inside = WINDOWS ? ["Scripts", "ddpify.exe"] : ["bin", "ddpify"];
  for (const folder of folders) {
    for (const environment of [".venv", "venv"]) {
      const command = path.join(folder, environment, ...inside);
      if (fs.existsSync(command)) {
        return { command, args: ["server"] };
      }
    }
  }
  return { command: "ddpify", args: ["server"] };
}

module.exports = { serverCommand };
