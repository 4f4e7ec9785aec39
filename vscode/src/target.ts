/** The target that predictions and IR are for. */

import * as vscode from "vscode";
import { fileOf } from "./documents";

export function targetInUse(uri: vscode.Uri | undefined): string {
  return vscode.workspace.getConfiguration("tessera", uri).get("target", "auto");
}

/** Asks for another target for what is being edited. It becomes its folder's where that has one of its own, else the
 * workspace's, or the user's where there is no workspace. */
export async function changeTarget(context: vscode.ExtensionContext): Promise<void> {
  const setting = context.extension.packageJSON.contributes.configuration.properties["tessera.target"];
  const names: string[] = setting.enum;
  const shown = vscode.window.activeTextEditor?.document.uri;
  const uri = shown && fileOf(shown);
  const inUse = targetInUse(uri);
  const picked = await vscode.window.showQuickPick(
    names.map((label, i) => ({ label, description: setting.enumDescriptions[i], picked: label === inUse })),
    { title: "Tessera: Change Target", placeHolder: `${inUse} is in use` },
  );
  if (picked) {
    const settings = vscode.workspace.getConfiguration("tessera", uri);
    const { Global, Workspace, WorkspaceFolder } = vscode.ConfigurationTarget;
    const ofFolder = settings.inspect("target")?.workspaceFolderValue !== undefined;
    const place = ofFolder ? WorkspaceFolder : vscode.workspace.workspaceFolders ? Workspace : Global;
    await settings.update("target", picked.label, place);
  }
}
