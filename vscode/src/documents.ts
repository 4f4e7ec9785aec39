/** Which documents are Tessera's business. */

import * as vscode from "vscode";

/** Python that never mentions Tessera is not: the server is not started for it. */
export function concerns(document: vscode.TextDocument): boolean {
  return document.languageId === "tess" || (document.languageId === "python" && document.getText().includes("tessera"));
}

/** Calls `listener` once, as soon as a document that concerns Tessera is open. */
export function whenConcerned(listener: () => void): vscode.Disposable {
  const disposables: vscode.Disposable[] = [];
  const disposable = new vscode.Disposable(() => disposables.splice(0).forEach((d) => void d.dispose()));
  const look = (document: vscode.TextDocument) => {
    if (concerns(document)) {
      disposable.dispose();
      listener();
    }
  };
  disposables.push(
    vscode.workspace.onDidOpenTextDocument(look),
    vscode.workspace.onDidChangeTextDocument((e) => look(e.document)),
  );
  if (vscode.workspace.textDocuments.some(concerns)) {
    disposable.dispose();
    listener();
  }
  return disposable;
}
