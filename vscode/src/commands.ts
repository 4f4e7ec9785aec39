/** The commands, and what a person sees when one fails. */

import * as vscode from "vscode";
import type { Client } from "./client";
import { debugInformation } from "./debugInformation";
import { type IrDocuments, placeOf, showIr } from "./ir";
import { openProfile, profile } from "./profile";
import { changeTarget } from "./target";

export function registerCommands(
  context: vscode.ExtensionContext,
  client: Client,
  documents: IrDocuments,
): vscode.Disposable[] {
  const commands: Record<string, (...given: never[]) => unknown> = {
    restart: () => client.restart(),
    showLogs: () => client.log.show(),
    debugInformation: debugInformation(context, client),
    changeTarget: () => changeTarget(context),
    showIr: (uri?: vscode.Uri | string, at?: string | vscode.Position, level?: string) =>
      showIr(documents, placeOf(asUri(uri), at), level),
    profile: (uri?: vscode.Uri | string) => profile(context, client, asUri(uri)),
    openProfile: (uri?: vscode.Uri | string) => openProfile(context, asUri(uri)),
  };
  return Object.entries(commands).map(([name, run]) =>
    vscode.commands.registerCommand(`tessera.${name}`, (...given: never[]) => attempt(client, () => run(...given))),
  );
}

/** Menus give a Uri, the server's code lenses a string. */
function asUri(given: vscode.Uri | string | undefined): vscode.Uri | undefined {
  return typeof given === "string" ? vscode.Uri.parse(given) : given;
}

async function attempt(client: Client, run: () => unknown): Promise<void> {
  try {
    await run();
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    client.log.error(said);
    void vscode.window.showErrorMessage(said);
  }
}
