/** Profiling a function or a file: `tessera profile` in its folder's interpreter, in a terminal that shows what it prints. */

import { createHash } from "node:crypto";
import * as path from "node:path";
import * as vscode from "vscode";
import type { Client } from "./client";
import type { Clients } from "./clients";
import type { Place } from "./ir";
import { showProfile } from "./profilePanel";
import { askSizes } from "./sizes";
import { targetInUse } from "./target";

/** What is run: a file, or one function of it on arguments of the given sizes. */
interface Subject {
  file: vscode.Uri;
  function?: { name: string; options: string[] };
  /** Whether the hints of its profile are tried. */
  trial?: boolean;
}

/** The kind of the server's edits that made a program faster when they were tried. */
const TRIED = vscode.CodeActionKind.RefactorRewrite.append("tried");

/** Profiles the function at a place, on arguments whose open sizes are asked for. */
export async function profileFunction(
  context: vscode.ExtensionContext,
  clients: Clients,
  place: Place,
  trial = false,
): Promise<void> {
  const file = programOf(vscode.Uri.parse(place.source));
  if (await trusted()) {
    const client = await clientWithTessera(clients, file);
    const asked = await askSizes(context.workspaceState, client, place);
    if (asked) {
      const { name, sizes } = asked;
      const dims = Object.entries(sizes).map(([dim, size]) => `${dim}=${size}`);
      const options = [...(dims.length ? ["--dims", dims.join(",")] : []), "--target", targetToRun(file)];
      const tried = trial ? ["--try"] : [];
      await profile(context, client, { file, function: { name, options: [...options, ...tried] }, trial });
    }
  }
}

/** Profiles the function at a place, tries what the hints advise, and offers an edit that made it faster. */
export function tryHints(context: vscode.ExtensionContext, clients: Clients, place: Place): Promise<void> {
  return profileFunction(context, clients, place, true);
}

/** Profiles the file of `uri`, or of the active editor, as a script. */
export async function profileFile(context: vscode.ExtensionContext, clients: Clients, uri?: vscode.Uri): Promise<void> {
  const file = programOf(uri);
  if (await trusted()) {
    await profile(context, await clientWithTessera(clients, file), { file });
  }
}

/** The panel of the last profile of a function, or of its file, whichever is newer; without a name, of any of the file's. */
export async function openProfile(context: vscode.ExtensionContext, uri?: vscode.Uri, name?: string): Promise<void> {
  const file = programOf(uri);
  const folder = pagesOf(context, file);
  const entries = await vscode.workspace.fs.readDirectory(folder).then(
    (found) => found,
    () => [],
  );
  const wanted = entries.map(([entry]) => entry).filter((entry) => !name || [WHOLE, pageName(name)].includes(entry));
  const dated = wanted.map(async (entry) => {
    const page = vscode.Uri.joinPath(folder, entry);
    return { page, entry, time: (await vscode.workspace.fs.stat(page)).mtime };
  });
  const [newest] = (await Promise.all(dated)).sort((a, b) => b.time - a.time);
  if (!newest) {
    const what = name ?? path.basename(file.fsPath);
    throw new Error(`${what} has not been profiled here yet: run "Tessera: Profile Function" or "Profile File".`);
  }
  await showProfile(newest.page, newest.entry === WHOLE ? path.basename(file.fsPath) : path.parse(newest.entry).name);
}

async function profile(context: vscode.ExtensionContext, client: Client, subject: Subject): Promise<void> {
  const { file } = subject;
  if (!(await vscode.workspace.save(file))) {
    throw new Error("A file must be saved before it is profiled.");
  }
  const name = subject.function?.name ?? path.basename(file.fsPath);
  const folder = pagesOf(context, file);
  const page = vscode.Uri.joinPath(folder, subject.function ? pageName(name) : WHOLE);
  await vscode.workspace.fs.createDirectory(folder);
  const progress = { location: vscode.ProgressLocation.Notification, title: `Profiling ${name}`, cancellable: true };
  const code = await vscode.window.withProgress(progress, (_, token) => runTask(client, subject, name, page, token));
  if (code === "cancelled") {
    return;
  }
  if (code !== 0) {
    throw new Error(`Profiling ${name} ended with code ${code ?? "unknown"}; the terminal shows why.`);
  }
  client.refreshLenses(file);
  if (subject.trial) {
    await offerTried(file, name);
  } else {
    await showProfile(page, name);
  }
}

/** The newest edit that made a function faster; the menu of code actions has all of them. */
async function offerTried(file: vscode.Uri, name: string): Promise<void> {
  const document = await vscode.workspace.openTextDocument(file);
  const at = document.positionAt(document.getText().search(new RegExp(`^[ \\t]*def[ \\t]+${name}\\b`, "mu")));
  const found = await vscode.commands.executeCommand<vscode.CodeAction[]>(
    "vscode.executeCodeActionProvider",
    file,
    new vscode.Range(at, at),
    TRIED.value,
  );
  const action = found?.find((each) => each.edit);
  if (!action?.edit) {
    void vscode.window.showInformationMessage(`No change made ${name} faster; the terminal shows what was tried.`);
  } else if ((await vscode.window.showInformationMessage(action.title, "Apply")) === "Apply") {
    if (!(await vscode.workspace.applyEdit(action.edit))) {
      throw new Error("The file has changed since: try the hints again.");
    }
  }
}

function programOf(uri: vscode.Uri | undefined): vscode.Uri {
  const file = uri ?? vscode.window.activeTextEditor?.document.uri;
  if (file?.scheme !== "file" || !/\.(py|tess)$/.test(file.path)) {
    throw new Error("Open the .py or .tess file that is to be profiled; notebooks have %tessera profile.");
  }
  return file;
}

/** Whether the workspace is; if not, says why that is needed and offers to change it. */
async function trusted(): Promise<boolean> {
  if (!vscode.workspace.isTrusted) {
    const manage = "Manage Workspace Trust";
    const said = "A profile runs the file, and this workspace is not trusted to run anything.";
    if ((await vscode.window.showWarningMessage(said, manage)) === manage) {
      await vscode.commands.executeCommand("workbench.trust.manage");
    }
  }
  return vscode.workspace.isTrusted;
}

async function clientWithTessera(clients: Clients, file: vscode.Uri): Promise<Client> {
  const client = clients.for(file);
  await client.settled();
  const { server, problem } = client;
  if (!server?.facts.tessera) {
    const where = server ? `${server.interpreter.path}, from ${server.interpreter.source},` : "The interpreter";
    throw new Error(problem ?? `${where} has no Tessera to run it with: install it there (pip install tessera).`);
  }
  return client;
}

/** What a person has chosen may be a GPU elsewhere: what runs is this machine's, unless it is to be the CPU. */
function targetToRun(file: vscode.Uri): string {
  const target = targetInUse(file);
  return ["cpu", "reference"].includes(target) ? target : "auto";
}

/** The page of a file's own profile; no function is called so. */
const WHOLE = "-.html";

function pageName(name: string): string {
  return `${name}.html`;
}

/** The folder of a file's pages. */
function pagesOf(context: vscode.ExtensionContext, file: vscode.Uri): vscode.Uri {
  const storage = context.storageUri ?? context.globalStorageUri;
  const mark = createHash("sha256").update(file.toString()).digest("hex").slice(0, 8);
  return vscode.Uri.joinPath(storage, "profiles", `${path.parse(file.fsPath).name}-${mark}`);
}

/** The exit code, "cancelled", or undefined where the task could not be started. */
async function runTask(
  client: Client,
  { file, function: called, trial }: Subject,
  name: string,
  page: vscode.Uri,
  token: vscode.CancellationToken,
): Promise<number | "cancelled" | undefined> {
  const folder = vscode.workspace.getWorkspaceFolder(file);
  const cwd = folder?.uri.fsPath ?? path.dirname(file.fsPath);
  const what = called ? [`${file.fsPath}:${called.name}`, ...called.options] : [file.fsPath];
  const args = ["-P", "-m", "tessera", "profile", ...what, "--html", page.fsPath];
  const python = client.server?.interpreter.path ?? "python";
  const definition = { type: "tessera", file: file.fsPath, function: called?.name };
  const execution = new vscode.ProcessExecution(python, args, { cwd });
  const task = new vscode.Task(
    definition,
    folder ?? vscode.TaskScope.Workspace,
    `profile ${name}`,
    "tessera",
    execution,
  );
  const reveal = trial ? vscode.TaskRevealKind.Always : vscode.TaskRevealKind.Silent;
  task.presentationOptions = { reveal, clear: true, focus: false };
  const running = await vscode.tasks.executeTask(task);
  return new Promise((resolve) => {
    const listeners = [
      vscode.tasks.onDidEndTaskProcess((e) => e.execution === running && end(e.exitCode)),
      vscode.tasks.onDidEndTask((e) => e.execution === running && end(undefined)),
      token.onCancellationRequested(() => {
        running.terminate();
        end("cancelled");
      }),
    ];
    const end = (how: number | "cancelled" | undefined) => {
      listeners.forEach((listener) => void listener.dispose());
      resolve(how);
    };
  });
}
