/** The functions and kernels of the notebook in front, at the side: the table that the kernel makes of what it knows of
 * them (`%tessera functions`), shown as it is. */

import * as vscode from "vscode";
import { FORM, type KernelArrays, TESSERA } from "./kernelArrays";
import { kernelOf, textOf } from "./jupyterKernel";

const ID = "tessera.session";
const QUESTION = `(lambda m: m and m.show_functions())(${TESSERA})`;
/** questions at most for one table: the kernel predicts some functions at a time, and says whether that was all */
const MOST = 20;
const NOT_LOADED = "Run <code>%load_ext tessera_jupyter</code> in the notebook, then a cell with functions.";
const STYLE = `<style>
  body { padding: 0 8px; color: var(--vscode-foreground); font-family: var(--vscode-font-family); }
  .ts-table { font-family: inherit !important; --ts-dim: var(--vscode-descriptionForeground) !important; }
  h2 { margin: 6px 0; font-size: var(--vscode-font-size); }
</style>`;

interface Answer {
  functions: string;
  whole: boolean;
}

export class SessionView implements vscode.WebviewViewProvider {
  private view: vscode.WebviewView | undefined;
  private round = 0;
  private readonly ending = new vscode.CancellationTokenSource();

  constructor(
    private readonly arrays: KernelArrays,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  register(): vscode.Disposable[] {
    const { window, workspace } = vscode;
    return [
      this.ending,
      window.registerWebviewViewProvider(ID, this),
      window.onDidChangeActiveNotebookEditor(() => this.refresh()),
      workspace.onDidGrantWorkspaceTrust(() => this.refresh()),
      this.arrays.onDidAsk((notebook) => {
        if (notebook === window.activeNotebookEditor?.notebook) this.refresh();
      }),
    ];
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.view = view;
    view.webview.options = { enableScripts: false, localResourceRoots: [] };
    view.onDidChangeVisibility(() => this.refresh());
    view.onDidDispose(() => (this.view = undefined));
    this.refresh();
  }

  /** Asks nothing while nobody looks. */
  private refresh(): void {
    if (this.view?.visible) {
      void this.fill(++this.round).catch((error: Error) => this.log.info(`the session is not shown: ${error.message}`));
    }
  }

  private async fill(round: number): Promise<void> {
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    if (!notebook || !this.arrays.mayAsk(notebook)) {
      this.show(notebook ? NOT_LOADED : "No notebook is in front.");
      return;
    }
    const kernel = await kernelOf(notebook);
    for (let asked = 0; asked < MOST && round === this.round; asked += 1) {
      let answer: Answer | undefined;
      for await (const { items } of kernel?.executeCode(QUESTION, this.ending.token) ?? []) {
        const found = items.find(({ mime }) => mime === FORM);
        answer = found ? (JSON.parse(textOf(found.data)) as Answer) : answer;
      }
      if (round === this.round) {
        this.show(answer?.functions ?? NOT_LOADED);
      }
      if (answer?.whole !== false) {
        return;
      }
    }
  }

  private show(html: string): void {
    const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`;
    if (this.view) {
      this.view.webview.html = `<!DOCTYPE html><html><head>${policy}${STYLE}</head><body>${html}</body></html>`;
    }
  }
}
