/** The commands, and what a person sees when one fails. */

import * as vscode from "vscode";
import type { Clients } from "./clients";
import { debugInformation } from "./debugInformation";
import { type IrDocuments, placeOf, showIr } from "./ir";
import { openProfile, profileFile, profileFunction, tryHints } from "./profile";
import { changeTarget } from "./target";

export function registerCommands(
  context: vscode.ExtensionContext,
  clients: Clients,
  documents: IrDocuments,
): vscode.Disposable[] {
  const commands: Record<string, (...given: never[]) => unknown> = {
    restart: () => clients.restart(),
    showLogs: () => clients.log.show(),
    debugInformation: debugInformation(context, clients),
    changeTarget: () => changeTarget(context),
    showIr: (uri?: vscode.Uri | string, at?: string | vscode.Position, level?: string) =>
      showIr(documents, placeOf(asUri(uri), at), level),
    profile: (uri?: vscode.Uri | string, name?: string) => profileFunction(context, clients, placeOf(asUri(uri), name)),
    tryHints: (uri?: vscode.Uri | string, name?: string) => tryHints(context, clients, placeOf(asUri(uri), name)),
    profileFile: (uri?: vscode.Uri | string) => profileFile(context, clients, asUri(uri)),
    openProfile: (uri?: vscode.Uri | string, name?: string) => openProfile(context, asUri(uri), name),
  };
  return Object.entries(commands).map(([name, run]) =>
    vscode.commands.registerCommand(`tessera.${name}`, (...given: never[]) => attempt(clients, () => run(...given))),
  );
}

/** Menus give a Uri, the server's code lenses a string. */
function asUri(given: vscode.Uri | string | undefined): vscode.Uri | undefined {
  return typeof given === "string" ? vscode.Uri.parse(given) : given;
}

async function attempt(clients: Clients, run: () => unknown): Promise<void> {
  try {
    await run();
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    clients.log.error(said);
    void vscode.window.showErrorMessage(said);
  }
}
