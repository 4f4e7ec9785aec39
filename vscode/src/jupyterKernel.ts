/** The kernel of a notebook, through Jupyter's extension, which asks the person first whether Tessera may use it. */

import * as vscode from "vscode";

const JUPYTER = "ms-toolsai.jupyter";

export interface Output {
  items: { mime: string; data: Uint8Array }[];
}

/** The part of a kernel's interface that is used. */
export interface Kernel {
  executeCode(code: string, token: vscode.CancellationToken): AsyncIterable<Output>;
}

interface Jupyter {
  kernels: { getKernel(notebook: vscode.Uri): Thenable<Kernel | undefined> };
}

/** Undefined where no kernel runs, or the person has not allowed it. */
export async function kernelOf(notebook: vscode.NotebookDocument): Promise<Kernel | undefined> {
  const found = vscode.extensions.getExtension<Jupyter>(JUPYTER);
  return (await found?.activate())?.kernels?.getKernel(notebook.uri);
}

export function textOf(data: Uint8Array): string {
  return new TextDecoder().decode(data);
}
