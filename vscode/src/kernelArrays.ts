/** The arrays that a notebook's kernel holds, for hints in functions that read them: asked of Jupyter's extension after
 * cells have run. That extension asks the person first whether Tessera may. */

import * as vscode from "vscode";
import type { Clients } from "./clients";
import { kernelOf, textOf } from "./jupyterKernel";

export const FORM = "application/vnd.tessera.session+json";
/** What answers, None where the notebook has not loaded Tessera's extension. Questions leave no name behind. */
export const TESSERA = '__import__("sys").modules.get("tessera_jupyter.session.message")';
const QUESTION = `(lambda m: m and m.show())(${TESSERA})`;
/** ms after the last cell of a run */
const PAUSE = 200;

export class KernelArrays implements vscode.Disposable {
  private readonly waiting = new Map<string, NodeJS.Timeout>();
  private readonly ending = new vscode.CancellationTokenSource();
  private readonly asked = new vscode.EventEmitter<vscode.NotebookDocument>();
  /** Tells that cells have run, and that the kernel has been asked what it holds now. */
  readonly onDidAsk = this.asked.event;

  constructor(
    private readonly clients: Clients,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  register(): vscode.Disposable[] {
    const { workspace } = vscode;
    return [
      this,
      workspace.onDidChangeNotebookDocument(({ notebook, cellChanges }) => {
        if (cellChanges.some(({ executionSummary }) => executionSummary?.success !== undefined)) {
          this.ran(notebook);
        }
      }),
      workspace.onDidCloseNotebookDocument(({ uri }) => this.forget(uri.toString())),
    ];
  }

  dispose(): void {
    [...this.waiting.keys()].forEach((key) => this.forget(key));
    this.ending.cancel();
    this.asked.dispose();
  }

  /** Whether a notebook loads Tessera, and the person lets us ask kernels. */
  mayAsk(notebook: vscode.NotebookDocument): boolean {
    const loads = notebook.getCells().some((cell) => cell.document.getText().includes("tessera_jupyter"));
    return loads && vscode.workspace.getConfiguration("tessera", notebook.uri).get("kernelArrays", true);
  }

  private forget(key: string): void {
    clearTimeout(this.waiting.get(key));
    this.waiting.delete(key);
  }

  /** Asks once for cells that run one after the other, and only in notebooks that load Tessera. */
  private ran(notebook: vscode.NotebookDocument): void {
    const key = notebook.uri.toString();
    if (!this.mayAsk(notebook)) {
      return;
    }
    clearTimeout(this.waiting.get(key));
    this.waiting.set(
      key,
      setTimeout(() => {
        this.waiting.delete(key);
        const told = this.ask(notebook).catch((error: Error) => {
          this.log.info(`the kernel of ${notebook.uri.fsPath} was not asked for its arrays: ${error.message}`);
        });
        void told.then(() => this.asked.fire(notebook));
      }, PAUSE),
    );
  }

  private async ask(notebook: vscode.NotebookDocument): Promise<void> {
    const kernel = await kernelOf(notebook);
    if (!kernel) {
      return; // there is none, or the person has not allowed it
    }
    for await (const { items } of kernel.executeCode(QUESTION, this.ending.token)) {
      for (const { mime, data } of items) {
        if (mime === FORM) {
          const told = JSON.parse(textOf(data)) as object;
          this.clients.at(notebook.uri)?.tellArrays(notebook, told);
        }
      }
    }
  }
}
