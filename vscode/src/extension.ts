/** Tessera in VS Code: a thin client of the language server, and the few things that only an editor can do. */

import * as vscode from "vscode";
import { Clients } from "./clients";
import { registerCommands } from "./commands";
import { IrDocuments } from "./ir";
import { linkLines } from "./irLinks";
import { KernelArrays } from "./kernelArrays";
import { OutputActions } from "./outputActions";
import { SessionView } from "./sessionView";
import { createStatus } from "./status";

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Tessera", { log: true });
  const clients = new Clients(context, log);
  const documents = new IrDocuments(clients);
  const arrays = new KernelArrays(clients, log);
  context.subscriptions.push(
    log,
    ...createStatus(clients),
    ...documents.register(),
    ...linkLines(documents),
    ...arrays.register(),
    ...new SessionView(arrays, log).register(),
    ...new OutputActions(log).register(),
    ...registerCommands(context, clients, documents),
  );
}
