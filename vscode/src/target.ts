/** The target that predictions and IR are for. */

import * as vscode from "vscode";

export function targetInUse(): string {
  return vscode.workspace.getConfiguration("tessera").get("target", "auto");
}

/** Asks for another target; it becomes the workspace's, or the user's where there is no workspace. */
export async function changeTarget(context: vscode.ExtensionContext): Promise<void> {
  const setting = context.extension.packageJSON.contributes.configuration.properties["tessera.target"];
  const names: string[] = setting.enum;
  const inUse = targetInUse();
  const picked = await vscode.window.showQuickPick(
    names.map((label, i) => ({ label, description: setting.enumDescriptions[i], picked: label === inUse })),
    { title: "Tessera: Change Target", placeHolder: `${inUse} is in use` },
  );
  if (picked) {
    const hasWorkspace = vscode.workspace.workspaceFolders !== undefined;
    const place = hasWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
    await vscode.workspace.getConfiguration("tessera").update("target", picked.label, place);
  }
}
