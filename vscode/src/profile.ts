/** Profiling a file: `tessera profile` in the project's interpreter, in a terminal that shows what it prints. */

import { createHash } from "node:crypto";
import * as path from "node:path";
import * as vscode from "vscode";
import type { Client } from "./client";
import { showProfile } from "./profilePanel";

/** Profiles the file of `uri`, or of the active editor, and opens the panel. */
export async function profile(context: vscode.ExtensionContext, client: Client, uri?: vscode.Uri): Promise<void> {
  const file = programOf(uri);
  const python = await interpreterWithTessera(client);
  if (!(await vscode.workspace.save(file))) {
    throw new Error("A file must be saved before it is profiled.");
  }
  const page = pageOf(context, file);
  await vscode.workspace.fs.createDirectory(vscode.Uri.joinPath(page, ".."));
  const title = `Profiling ${path.basename(file.fsPath)}`;
  const progress = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
  const code = await vscode.window.withProgress(progress, (_, token) => runTask(python, file, page, token));
  if (code !== 0) {
    throw new Error(`${path.basename(file.fsPath)} ended with code ${code}; the terminal shows why.`);
  }
  client.refreshLenses(file);
  await showProfile(page, file);
}

/** The panel of the last profile of a file. */
export async function openProfile(context: vscode.ExtensionContext, uri?: vscode.Uri): Promise<void> {
  const file = programOf(uri);
  const page = pageOf(context, file);
  const exists = await vscode.workspace.fs.stat(page).then(
    () => true,
    () => false,
  );
  if (!exists) {
    throw new Error(`${path.basename(file.fsPath)} has not been profiled yet: run "Tessera: Profile File".`);
  }
  await showProfile(page, file);
}

function programOf(uri: vscode.Uri | undefined): vscode.Uri {
  const file = uri ?? vscode.window.activeTextEditor?.document.uri;
  if (file?.scheme !== "file" || !/\.(py|tess)$/.test(file.path)) {
    throw new Error("Open the .py or .tess file that is to be profiled; notebooks have %tessera profile.");
  }
  return file;
}

async function interpreterWithTessera(client: Client): Promise<string> {
  if (!vscode.workspace.isTrusted) {
    throw new Error("Profiling runs the file: trust this workspace first.");
  }
  if (!client.server) {
    await client.restart();
  }
  const { server } = client;
  if (!server?.facts.tessera) {
    const where = server ? `${server.interpreter.path}, from ${server.interpreter.source},` : "The interpreter";
    throw new Error(`${where} has no Tessera to run the file with: install it there (pip install tessera[plot]).`);
  }
  return server.interpreter.path;
}

function pageOf(context: vscode.ExtensionContext, file: vscode.Uri): vscode.Uri {
  const storage = context.storageUri ?? context.globalStorageUri;
  const mark = createHash("sha256").update(file.toString()).digest("hex").slice(0, 8);
  return vscode.Uri.joinPath(storage, "profiles", `${path.parse(file.fsPath).name}-${mark}.html`);
}

async function runTask(
  python: string,
  file: vscode.Uri,
  page: vscode.Uri,
  token: vscode.CancellationToken,
): Promise<number | undefined> {
  const folder = vscode.workspace.getWorkspaceFolder(file);
  const cwd = folder?.uri.fsPath ?? path.dirname(file.fsPath);
  const args = ["-P", "-m", "tessera.cli", "profile", file.fsPath, "--html", page.fsPath];
  const task = new vscode.Task(
    { type: "tessera", file: file.fsPath },
    folder ?? vscode.TaskScope.Workspace,
    `profile ${path.basename(file.fsPath)}`,
    "tessera",
    new vscode.ProcessExecution(python, args, { cwd }),
  );
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Silent, clear: true, focus: false };
  const ended = new Promise<number | undefined>((resolve) => {
    const listener = vscode.tasks.onDidEndTaskProcess((e) => {
      const { type, file: ran } = e.execution.task.definition;
      if (type === task.definition.type && ran === file.fsPath) {
        listener.dispose();
        resolve(e.exitCode);
      }
    });
  });
  const execution = await vscode.tasks.executeTask(task);
  token.onCancellationRequested(() => execution.terminate());
  return ended;
}
