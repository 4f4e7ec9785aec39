/** The language client's life: started when a document concerns Tessera, restarted when what it depends on changes. */

import * as vscode from "vscode";
import { CodeLensRequest, LanguageClient, type LanguageClientOptions, State } from "vscode-languageclient/node";
import * as interpreters from "./interpreter";
import { choose, type Server } from "./server";

const SELECTOR = [
  ...["file", "untitled"].flatMap((scheme) => ["python", "tess"].map((language) => ({ scheme, language }))),
  { notebook: "jupyter-notebook", language: "python" },
];
/** Settings that say how the server is started; of the others it is told while it runs. */
const STARTING = ["tessera.interpreter", "tessera.logLevel"];

/** A request that fails is logged; a person who types is not interrupted for it. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

export class Client implements vscode.Disposable {
  server: Server | undefined;
  /** why nothing runs, where something should */
  problem: string | undefined;
  private running: LanguageClient | undefined;
  private wanted = false;
  private busy: Promise<void> = Promise.resolve();
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChange = this.changed.event;

  constructor(
    private readonly context: vscode.ExtensionContext,
    readonly log: vscode.LogOutputChannel,
  ) {
    const restart = () => this.wanted && void this.restart();
    context.subscriptions.push(
      this,
      this.changed,
      vscode.workspace.onDidChangeConfiguration((e) => STARTING.some((s) => e.affectsConfiguration(s)) && restart()),
      vscode.workspace.onDidGrantWorkspaceTrust(restart),
      vscode.window.onDidChangeTextEditorSelection((e) => this.tellCursor(e)),
    );
    void interpreters.onDidChange(restart).then((listeners) => context.subscriptions.push(...listeners));
  }

  get isRunning(): boolean {
    return this.running?.state === State.Running;
  }

  /** The project that one server is for: the first folder, as a server's settings and interpreter are one. */
  get folder(): vscode.Uri | undefined {
    return vscode.workspace.workspaceFolders?.[0]?.uri;
  }

  start(): void {
    if (!this.wanted) {
      this.wanted = true;
      void this.restart();
    }
  }

  /** Ends what runs and starts anew, one after the other however often it is asked for. */
  restart(): Promise<void> {
    this.wanted = true;
    this.busy = this.busy.then(async () => {
      await this.stop();
      await this.run();
      this.changed.fire();
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
  private tellCursor({ textEditor }: vscode.TextEditorSelectionChangeEvent): void {
    const { document, selection } = textEditor;
    if (this.running?.state === State.Running && vscode.languages.match(SELECTOR, document)) {
      const position = { line: selection.active.line, character: selection.active.character };
      const textDocument = { uri: document.uri.toString() };
      void this.running.sendNotification("tessera/cursor", { textDocument, position });
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
      this.server = await choose(this.context, this.folder);
      const { command, args } = this.server.executable;
      this.log.info(`starting ${[command, ...(args ?? [])].join(" ")}`);
      this.running = new QuietClient("tessera", "Tessera", this.server.executable, this.options());
      this.running.onDidChangeState(() => this.changed.fire());
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
    return {
      documentSelector: SELECTOR,
      outputChannel: this.log,
      initializationOptions: () => vscode.workspace.getConfiguration("tessera", this.folder),
    };
  }
}
