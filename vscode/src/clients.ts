/** A language server for each folder of the workspace, with that folder's interpreter and settings, and one for files
 * outside of all folders. */

import * as vscode from "vscode";
import { Client, type Place } from "./client";
import { concerns, fileOf } from "./documents";
import * as interpreters from "./interpreter";

/** Settings that say how a server is started; of the others it is told while it runs. */
const STARTING = ["tessera.interpreter", "tessera.logLevel"];

export class Clients implements vscode.Disposable {
  private readonly started = new Map<string, Client>();
  /** directories of files outside of all folders that a server is for */
  private readonly outside = new Set<string>();
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
    return isAlone() || ["file", "untitled"].includes(fileOf(uri).scheme);
  }

  /** The server of the folder that a file is in, or of those in none, where one has been started. */
  at(uri: vscode.Uri): Client | undefined {
    return this.started.get(keyOf(folderOf(uri)));
  }

  /** The same, started where none has been. Raises an Error for a document that none is for. */
  for(uri: vscode.Uri): Client {
    if (!this.covers(uri)) {
      throw new Error(`${uri.toString()} is not a file.`);
    }
    const folder = folderOf(uri);
    const key = keyOf(folder);
    const isNew = !this.reaches(uri);
    if (isNew) {
      this.outside.add(directoryOf(uri));
    }
    let client = this.started.get(key);
    if (!client) {
      const serves = (notebook: vscode.Uri) => this.at(notebook) === client;
      const places = () => this.placesOf(folder);
      client = new Client(this.context, this.log, folder, places, serves, () => this.changed.fire());
      this.started.set(key, client);
      void client.restart();
    } else if (isNew) {
      void client.restart(); // what it is for is fixed when it starts
    }
    return client;
  }

  /** Where the files of a folder's server lie. A pattern cannot leave folders out, so the server of files in none is told
   * their directories. */
  private placesOf(folder: vscode.WorkspaceFolder | undefined): Place[] | "everywhere" {
    if (isAlone()) {
      return "everywhere";
    }
    return folder
      ? [{ baseUri: folder.uri.toString(), pattern: "**" }]
      : [...this.outside].map((directory) => ({ baseUri: directory, pattern: "*" }));
  }

  /** Whether the server of a file, once it runs, is told of it. */
  private reaches(uri: vscode.Uri): boolean {
    return isAlone() || folderOf(uri) !== undefined || uri.scheme === "untitled" || this.outside.has(directoryOf(uri));
  }

  /** Starts anew what runs. */
  async restart(): Promise<void> {
    await Promise.all(this.all.map((client) => client.restart()));
  }

  async dispose(): Promise<void> {
    const ended = this.all;
    this.started.clear();
    this.outside.clear();
    await Promise.all(ended.map((client) => client.dispose()));
  }

  /** A server is started for the first document of its folder that concerns it. */
  private look(document: vscode.TextDocument): void {
    const { uri } = document;
    if (!(this.at(uri) && this.reaches(uri)) && this.covers(uri) && concerns(document)) {
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

function directoryOf(uri: vscode.Uri): string {
  return vscode.Uri.joinPath(fileOf(uri), "..").toString();
}

function keyOf(folder: vscode.WorkspaceFolder | undefined): string {
  return folder?.uri.toString() ?? "";
}
