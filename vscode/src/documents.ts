/** Which documents are Tessera's business, and where they are. */

import * as vscode from "vscode";

/** Python that never mentions Tessera is not: the server is not started for it. */
export function concerns(document: vscode.TextDocument): boolean {
  return document.languageId === "tess" || (document.languageId === "python" && document.getText().includes("tessera"));
}

/** The file that a document is of, or that a notebook's cell is in. */
export function fileOf(uri: vscode.Uri): vscode.Uri {
  return uri.scheme === "vscode-notebook-cell" ? uri.with({ scheme: "file", fragment: "" }) : uri;
}
