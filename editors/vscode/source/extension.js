"use strict";
// Starts `ddpify server` and lets it talk to the editor: everything else is the server's.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");
const { serverCommand } = require("./command");

let client;

function found() {
  const settings = vscode.workspace.getConfiguration("ddpify");
  const folders = (vscode.workspace.workspaceFolders ?? []).map((one) => one.uri.fsPath);
  return serverCommand({
    path: settings.get("path"),
    interpreter: settings.get("interpreter"),
    folders,
  });
}

async function start() {
  if (!vscode.workspace.getConfiguration("ddpify").get("enable")) {
    return;
  }
  const { command, args } = found();
  client = new LanguageClient("ddpify", "ddpify", { command, args }, {
    documentSelector: [
      { scheme: "file", language: "python" },
      { scheme: "file", language: "shellscript" },
      { scheme: "file", language: "makefile" },
    ],
  });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const hint = "pip install 'ddpify[server]', or set ddpify.path or ddpify.interpreter";
    vscode.window.showErrorMessage(`ddpify: ${command} does not start (${error.message}): ${hint}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function restart() {
  await stop();
  await start();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("ddpify.restart", restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("ddpify")) {
        void restart();
      }
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
