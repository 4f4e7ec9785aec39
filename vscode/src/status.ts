/** The status item: target and interpreter in use, or what is wrong. */

import * as vscode from "vscode";
import type { Client } from "./client";
import type { Clients } from "./clients";
import { concerns, fileOf } from "./documents";
import { targetInUse } from "./target";

export function createStatus(clients: Clients): vscode.Disposable[] {
  const item = vscode.window.createStatusBarItem("tessera.status", vscode.StatusBarAlignment.Right, 90);
  item.name = "Tessera";
  const update = () => {
    const document = vscode.window.activeTextEditor?.document;
    if (document?.uri.scheme === "output") {
      return; // reading the log is no reason to hide where it was opened from
    }
    if (!document || !clients.covers(document.uri) || !concerns(document)) {
      item.hide();
      return;
    }
    show(item, document.uri, clients.at(document.uri));
    item.show();
  };
  update();
  return [
    item,
    clients.onDidChange(update),
    vscode.window.onDidChangeActiveTextEditor(update),
    vscode.workspace.onDidChangeConfiguration((e) => e.affectsConfiguration("tessera.target") && update()),
  ];
}

function show(item: vscode.StatusBarItem, uri: vscode.Uri, client: Client | undefined): void {
  const { server, problem } = client ?? {};
  const target = targetInUse(fileOf(uri));
  const tooltip = new vscode.MarkdownString(undefined, true);
  tooltip.isTrusted = { enabledCommands: ["tessera.restart", "tessera.showLogs", "tessera.debugInformation"] };
  if (problem) {
    item.text = "$(error) Tessera";
    item.command = "tessera.showLogs";
    item.backgroundColor = new vscode.ThemeColor("statusBarItem.errorBackground");
    tooltip.appendText(problem);
  } else {
    item.text = `${client?.isRunning ? "$(layers)" : "$(loading~spin)"} Tessera: ${target}`;
    item.command = "tessera.changeTarget";
    item.backgroundColor = undefined;
    tooltip.appendMarkdown(`**Target** ${target}; click to change it\n\n`);
    if (server) {
      tooltip.appendMarkdown("**Interpreter** ");
      tooltip.appendText(`${server.interpreter.path}, from ${server.interpreter.source}\n\n`);
      tooltip.appendMarkdown("**Server** ");
      tooltip.appendText(server.bundled ? `bundled, since ${server.bundled}` : `Tessera ${server.facts.tessera}`);
    }
  }
  tooltip.appendMarkdown(
    "\n\n[Restart](command:tessera.restart) · [Logs](command:tessera.showLogs) · [Debug information](command:tessera.debugInformation)",
  );
  item.tooltip = tooltip;
}
