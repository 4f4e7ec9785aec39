/** One language server's life: for a folder of the workspace, started when a document there concerns Tessera. */

import * as vscode from "vscode";
import {
  CodeLensRequest,
  InlayHintRequest,
  type InitializeParams,
  LanguageClient,
  type LanguageClientOptions,
  State,
} from "vscode-languageclient/node";
import { choose, type Server } from "./server";

/** A request that fails is logged; a person who types is not interrupted for it. That one which is being ended cannot be
 * told of anything any more is nothing to log, and why one did not start is told by who started it. */
class QuietClient extends LanguageClient {
  /** Folders that are not this server's are none: it would look through their files. */
  protected override fillInitializeParams(params: InitializeParams): void {
    super.fillInitializeParams(params);
    if (!this.clientOptions.workspaceFolder) {
      params.workspaceFolders = params.rootUri = params.rootPath = null;
    }
  }

  override error(message: string, data?: unknown): void {
    if (this.isRunning()) {
      super.error(message, data, false);
    }
  }
}

/** Files that match a pattern below a place. */
export interface Place {
  baseUri: string;
  pattern: string;
}

export class Client {
  server: Server | undefined;
  /** why nothing runs, where something should */
  problem: string | undefined;
  private running: LanguageClient | undefined;
  private busy: Promise<void> = Promise.resolve();

  /** `folder` undefined: for files that are in none. `places`: where its files lie; `serves`: whether a notebook is this
   * server's. */
  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly log: vscode.LogOutputChannel,
    readonly folder: vscode.WorkspaceFolder | undefined,
    private readonly places: () => Place[] | "everywhere",
    private readonly serves: (notebook: vscode.Uri) => boolean,
    private readonly changed: () => void,
  ) {}

  get isRunning(): boolean {
    return this.running?.state === State.Running;
  }

  /** Ends what runs and starts anew, one after the other however often it is asked for. */
  restart(): Promise<void> {
    this.busy = this.busy.then(async () => {
      await this.stop();
      await this.run();
      this.changed();
    });
    return this.busy;
  }

  /** Resolves when no start or end is under way. */
  settled(): Promise<void> {
    return this.busy;
  }

  /** Asks the server. Raises an Error for the person to read where none runs. */
  async request<T>(method: string, params: object): Promise<T> {
    await this.busy;
    if (!this.running) {
      throw new Error(this.problem ?? "Tessera's language server does not run.");
    }
    return this.running.sendRequest<T>(method, params);
  }

  /** Tells the server where the cursor is, which in quiet mode says where hints are shown. */
  tellCursor({ document, selection }: vscode.TextEditor): void {
    if (this.isRunning) {
      const { line, character } = selection.active;
      const textDocument = { uri: document.uri.toString() };
      void this.running?.sendNotification("tessera/cursor", { textDocument, position: { line, character } });
    }
  }

  /** Tells the server what a notebook's kernel has told of its arrays, as the metadata of the notebook, and asks for hints
   * anew. */
  tellArrays(notebook: vscode.NotebookDocument, told: object): void {
    if (!this.isRunning) {
      return;
    }
    void this.running?.sendNotification("notebookDocument/didChange", {
      notebookDocument: { uri: notebook.uri.toString(), version: notebook.version },
      change: { metadata: { tessera: told } },
    });
    const cell = notebook.getCells().find(({ document }) => document.languageId === "python");
    if (cell) {
      this.running?.getFeature(InlayHintRequest.method).getProvider(cell.document)?.onDidChangeInlayHints.fire();
    }
  }

  /** Asks for the lenses of a document anew, when what they tell of has changed outside of it. */
  refreshLenses(uri: vscode.Uri): void {
    const document = vscode.workspace.textDocuments.find((d) => d.uri.toString() === uri.toString());
    if (document) {
      this.running?.getFeature(CodeLensRequest.method).getProvider(document)?.onDidChangeCodeLensEmitter.fire();
    }
  }

  async dispose(): Promise<void> {
    await this.busy;
    await this.stop();
  }

  private async run(): Promise<void> {
    this.problem = undefined;
    try {
      this.server = await choose(this.context, this.folder?.uri);
      const { command, args } = this.server.executable;
      this.log.info(`starting ${[command, ...(args ?? [])].join(" ")}`);
      this.running = new QuietClient("tessera", "Tessera", this.server.executable, this.options());
      this.running.onDidChangeState(() => this.changed());
      await this.running.start();
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
      this.log.error(this.problem);
    }
  }

  private async stop(): Promise<void> {
    const old = this.running;
    this.running = this.server = undefined;
    await old?.dispose().catch((error: Error) => this.log.warn(`the server did not end in order: ${error.message}`));
  }

  private options(): LanguageClientOptions {
    const { folder } = this;
    const places = this.places();
    const patterns = places === "everywhere" ? [{}] : places.map((pattern) => ({ pattern }));
    const unsaved = places === "everywhere" || !folder ? [{ scheme: "untitled" }] : [];
    const files = [...patterns.map((place) => ({ scheme: "file", ...place })), ...unsaved];
    return {
      documentSelector: [
        ...files.flatMap((place) => ["python", "tess"].map((language) => ({ ...place, language }))),
        ...patterns.map((place) => ({
          notebook: { notebookType: "jupyter-notebook", ...place },
          language: "python",
        })),
      ],
      notebookDocumentOptions: { filterCells: ({ uri }, cells) => (this.serves(uri) ? cells : []) },
      outputChannel: this.log,
      ...(folder ? { workspaceFolder: folder } : {}),
      middleware: {
        // VS Code shows that an entry is disabled, and nowhere why.
        provideCodeActions: async (document, range, context, token, next) => {
          const found = await next(document, range, context, token);
          for (const action of found ?? []) {
            if ("disabled" in action && action.disabled) action.title += `: ${action.disabled.reason}`;
          }
          return found;
        },
        workspace: {
          // The server asks for its settings without saying for which folder.
          configuration: ({ items }, token, next) => {
            const scopeUri = folder?.uri.toString();
            return next({ items: scopeUri ? items.map((item) => ({ scopeUri, ...item })) : items }, token);
          },
        },
      },
      initializationOptions: () => vscode.workspace.getConfiguration("tessera", folder),
    };
  }
}
