/** A profile in a tab: the profiler's own page, which brings all its figures and may load nothing. */

import * as vscode from "vscode";

const panels = new Map<string, vscode.WebviewPanel>();

/** Shows the page beside its source; the tab of an earlier profile of the same is filled anew. */
export async function showProfile(page: vscode.Uri, name: string): Promise<void> {
  const html = new TextDecoder().decode(await vscode.workspace.fs.readFile(page));
  const key = page.toString();
  const panel = panels.get(key) ?? create(key, name);
  panel.webview.html = html.replace("</head>", `${STYLE}</head>`);
  panel.reveal(undefined, true);
}

/** The page asks the system for light or dark; here it has the editor's colours. */
const STYLE = `<style>
  :root:has(body.vscode-light, body.vscode-high-contrast-light) { color-scheme: light; }
  :root:has(body.vscode-dark, body.vscode-high-contrast:not(.vscode-high-contrast-light)) { color-scheme: dark; }
  body { background: var(--vscode-editor-background); color: var(--vscode-editor-foreground); }
  thead th { background: var(--vscode-editor-background); }
</style>`;

function create(key: string, name: string): vscode.WebviewPanel {
  const place = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
  const options = { enableScripts: true, retainContextWhenHidden: true, localResourceRoots: [] };
  const panel = vscode.window.createWebviewPanel("tessera.profile", `Profile of ${name}`, place, options);
  panel.onDidDispose(() => panels.delete(key));
  panels.set(key, panel);
  return panel;
}
