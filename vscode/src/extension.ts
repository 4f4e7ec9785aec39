/** Tessera in VS Code: a thin client of the language server, and the few things that only an editor can do. */

import * as vscode from "vscode";
import { Client } from "./client";
import { registerCommands } from "./commands";
import { whenConcerned } from "./documents";
import { IrDocuments } from "./ir";
import { linkLines } from "./irLinks";
import { createStatus } from "./status";

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Tessera", { log: true });
  const client = new Client(context, log);
  const documents = new IrDocuments(client);
  context.subscriptions.push(
    log,
    ...createStatus(client),
    ...documents.register(),
    ...linkLines(documents),
    ...registerCommands(context, client, documents),
    whenConcerned(() => client.start()),
  );
}
