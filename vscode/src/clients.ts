/** A language server for each folder of the workspace, with that folder's interpreter and settings. */

import * as vscode from "vscode";
import { Client } from "./client";
import { concerns, fileOf } from "./documents";
import * as interpreters from "./interpreter";

/** Settings that say how a server is started; of the others it is told while it runs. */
const STARTING = ["tessera.interpreter", "tessera.logLevel"];

export class Clients implements vscode.Disposable {
  private readonly started = new Map<string, Client>();
  private readonly changed = new vscode.EventEmitter<void>();
  /** Tells that a server has started, ended or failed. */
  readonly onDidChange = this.changed.event;

  constructor(
    private readonly context: vscode.ExtensionContext,
    readonly log: vscode.LogOutputChannel,
  ) {
    const { workspace, window } = vscode;
    context.subscriptions.push(
      this,
      this.changed,
      workspace.onDidOpenTextDocument((document) => this.look(document)),
      workspace.onDidChangeTextDocument(({ document }) => this.look(document)),
      workspace.onDidChangeConfiguration((e) => this.configured(e)),
      workspace.onDidGrantWorkspaceTrust(() => this.restart()),
      workspace.onDidChangeWorkspaceFolders(() => this.regroup()),
      window.onDidChangeTextEditorSelection(({ textEditor }) =>
        this.at(textEditor.document.uri)?.tellCursor(textEditor),
      ),
    );
    void interpreters.onDidChange(() => this.restart()).then((listeners) => context.subscriptions.push(...listeners));
    workspace.textDocuments.forEach((document) => void this.look(document));
  }

  get all(): Client[] {
    return [...this.started.values()];
  }

  /** Whether there is a server for a file, running or not. */
  covers(uri: vscode.Uri): boolean {
    return isAlone() || folderOf(uri) !== undefined;
  }

  /** The server of the folder that a file is in, where one has been started. */
  at(uri: vscode.Uri): Client | undefined {
    return this.started.get(keyOf(folderOf(uri)));
  }

  /** The same, started where none has been. Raises an Error for a file that none is for. */
  for(uri: vscode.Uri): Client {
    if (!this.covers(uri)) {
      throw new Error(`${uri.path} is in no folder of this workspace, so no interpreter is chosen for it.`);
    }
    const folder = folderOf(uri);
    const key = keyOf(folder);
    let client = this.started.get(key);
    if (!client) {
      const serves = (notebook: vscode.Uri) => this.at(notebook) === client;
      client = new Client(this.context, this.log, folder, isAlone(), serves, () => this.changed.fire());
      this.started.set(key, client);
      void client.restart();
    }
    return client;
  }

  /** Starts anew what runs. */
  async restart(): Promise<void> {
    await Promise.all(this.all.map((client) => client.restart()));
  }

  async dispose(): Promise<void> {
    const ended = this.all;
    this.started.clear();
    await Promise.all(ended.map((client) => client.dispose()));
  }

  /** A server is started for the first document of its folder that concerns it. */
  private look(document: vscode.TextDocument): void {
    const { uri } = document;
    if (!this.at(uri) && this.covers(uri) && concerns(document)) {
      this.for(uri);
    }
  }

  private configured(event: vscode.ConfigurationChangeEvent): void {
    for (const client of this.all) {
      if (STARTING.some((setting) => event.affectsConfiguration(setting, client.folder))) {
        void client.restart();
      }
    }
  }

  /** Which server a file belongs to depends on all folders. */
  private async regroup(): Promise<void> {
    await this.dispose();
    vscode.workspace.textDocuments.forEach((document) => void this.look(document));
    this.changed.fire();
  }
}

/** Whether one server is for all files of the window. */
function isAlone(): boolean {
  return (vscode.workspace.workspaceFolders ?? []).length < 2;
}

/** The outermost folder of the workspace that a file is in; where there is one at most, that one. */
function folderOf(uri: vscode.Uri): vscode.WorkspaceFolder | undefined {
  const folders = vscode.workspace.workspaceFolders ?? [];
  if (isAlone()) {
    return folders[0];
  }
  const file = fileOf(uri);
  const within = (folder: vscode.Uri) => file.scheme === folder.scheme && file.path.startsWith(`${folder.path}/`);
  const holding = folders.filter((folder) => within(folder.uri));
  return holding.sort((a, b) => a.uri.path.length - b.uri.path.length)[0];
}

function keyOf(folder: vscode.WorkspaceFolder | undefined): string {
  return folder?.uri.toString() ?? "";
}
