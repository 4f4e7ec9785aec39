/** What can be done with the outputs of a cell, as buttons below it: apply a fix of an error, have the kernel try a hint
 * of a profile. In JupyterLab the same stands inside of the outputs; see tessera_jupyter/actions.py. */

import * as vscode from "vscode";
import { kernelOf, textOf } from "./jupyterKernel";

const MIME = "application/vnd.tessera.actions+json";
const PLAIN = ["text/plain", "application/vnd.code.notebook.stdout", "application/vnd.code.notebook.stderr"];
const LOST = "The kernel no longer holds this profile: run the cell again, and try its hint.";
const CHANGED = "Not applied: the cell has changed since. Run it again to see what holds now.";

interface CellFix {
  title: string;
  cell: string;
  edits: { start: number; end: number; text: string }[];
}

interface Hint {
  name: string;
  change: string;
}

export class OutputActions implements vscode.NotebookCellStatusBarItemProvider {
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChangeCellStatusBarItems = this.changed.event;

  constructor(private readonly log: vscode.LogOutputChannel) {}

  register(): vscode.Disposable[] {
    const { workspace, commands, notebooks } = vscode;
    return [
      this.changed,
      notebooks.registerNotebookCellStatusBarItemProvider("jupyter-notebook", this),
      workspace.onDidChangeNotebookDocument(({ cellChanges }) => {
        if (cellChanges.some(({ outputs, document }) => outputs || document)) this.changed.fire();
      }),
      workspace.onDidGrantWorkspaceTrust(() => this.changed.fire()),
      commands.registerCommand("tessera.applyOutputFix", (cell: vscode.NotebookCell) => this.applyFix(cell)),
      commands.registerCommand("tessera.tryOutputHint", (cell: vscode.NotebookCell) => this.tryHint(cell)),
    ];
  }

  provideCellStatusBarItems(cell: vscode.NotebookCell): vscode.NotebookCellStatusBarItem[] {
    const items: vscode.NotebookCellStatusBarItem[] = [];
    const offer = (text: string, tooltip: string, command: string): void => {
      const item = new vscode.NotebookCellStatusBarItem(text, vscode.NotebookCellStatusBarAlignment.Left);
      item.tooltip = tooltip;
      item.command = { title: tooltip, command, arguments: [cell] };
      items.push(item);
    };
    const fixes = fixesOf(cell).filter((fix) => target(cell, fix));
    const [fix] = fixes;
    if (fix) {
      const text = fixes.length === 1 ? `Apply: ${fix.title}` : `Apply one of ${fixes.length} fixes`;
      offer(`$(lightbulb) ${text}`, "Make this edit in the cell", "tessera.applyOutputFix");
    }
    const hints = hintsOf(cell);
    const [hint] = hints;
    if (hint && vscode.workspace.isTrusted) {
      const text = hints.length === 1 ? `Try: ${hint.change}` : `Try one of ${hints.length} hints`;
      const tooltip = "Make this change, compare results, and measure both by turns; no file is changed";
      offer(`$(beaker) ${text}`, tooltip, "tessera.tryOutputHint");
    }
    return items;
  }

  private async applyFix(cell: vscode.NotebookCell): Promise<void> {
    const fixes = fixesOf(cell).filter((fix) => target(cell, fix));
    const fix = await choose(fixes, ({ title }) => title, "Which fix?");
    if (!fix && fixes.length) {
      return; // the person has chosen none
    }
    const document = fix && target(cell, fix)?.document;
    const edit = new vscode.WorkspaceEdit();
    for (const { start, end, text } of document ? fix.edits : []) {
      const range = new vscode.Range(document!.positionAt(start), document!.positionAt(end));
      edit.replace(document!.uri, range, text);
    }
    if (!document || !(await vscode.workspace.applyEdit(edit))) {
      void vscode.window.showWarningMessage(CHANGED);
    }
  }

  private async tryHint(cell: vscode.NotebookCell): Promise<void> {
    const hint = await choose(hintsOf(cell), ({ change }) => change, "Which hint?");
    if (!hint) {
      return;
    }
    const title = `Trying: ${hint.change}`;
    const location = vscode.ProgressLocation.Notification;
    const found = await vscode.window.withProgress({ location, title, cancellable: true }, (_, token) =>
      this.tried(cell.notebook, hint, token),
    );
    if (found) {
      this.log.info(`${title}\n${found}`);
      const chosen = await vscode.window.showInformationMessage(found.split("\n", 1).join(), "Show All");
      if (chosen) this.log.show();
    }
  }

  /** What the kernel says of a trial; "" where it was stopped. */
  private async tried(notebook: vscode.NotebookDocument, hint: Hint, token: vscode.CancellationToken): Promise<string> {
    const kernel = await kernelOf(notebook);
    if (!kernel) {
      return "No kernel runs, or Tessera may not use it: start one and profile again.";
    }
    const code = [
      'if get_ipython().find_line_magic("tessera") is None:',
      `    print(${JSON.stringify(LOST)})`,
      "else:",
      `    get_ipython().run_line_magic("tessera", "try --hint ${hint.name}")`,
    ].join("\n");
    const said: string[] = [];
    for await (const { items } of kernel.executeCode(code, token)) {
      said.push(...items.filter(({ mime }) => PLAIN.includes(mime)).map(({ data }) => textOf(data).trim()));
    }
    return token.isCancellationRequested ? "" : said.filter(Boolean).join("\n") || LOST;
  }
}

function actionsOf(cell: vscode.NotebookCell): Record<string, unknown>[] {
  const items = cell.outputs.flatMap((output) => output.items.filter(({ mime }) => mime === MIME));
  return items.flatMap(({ data }) => {
    try {
      return [JSON.parse(textOf(data)) as Record<string, unknown>];
    } catch {
      return []; // a notebook holds whatever was written into it
    }
  });
}

function listed<T>(given: unknown): T[] {
  return Array.isArray(given) ? given.filter((each) => each !== null) : [];
}

function fixesOf(cell: vscode.NotebookCell): CellFix[] {
  const fixes = actionsOf(cell).flatMap((actions) => listed<CellFix>(actions.fixes));
  return fixes.filter(
    (fix) => typeof fix.cell === "string" && typeof fix.title === "string" && Array.isArray(fix.edits),
  );
}

/** The hints that a kernel can try, by names that mean something to it alone. */
function hintsOf(cell: vscode.NotebookCell): Hint[] {
  return actionsOf(cell).flatMap(({ hints, changes }) => {
    const names = Array.isArray(hints) ? hints : [];
    const texts = Array.isArray(changes) ? changes : [];
    const named = names.map((name, i) => ({ name: String(name), change: String(texts[i] ?? `hint ${i + 1}`) }));
    return named.filter(({ name }) => /^[0-9a-f]+\.\d+$/.test(name));
  });
}

/** The cell that still holds the text of a fix: that of the output, or another. */
function target(own: vscode.NotebookCell, fix: CellFix): vscode.NotebookCell | undefined {
  const same = ({ document }: vscode.NotebookCell): boolean =>
    document.getText().replaceAll("\r\n", "\n").replace(/\n+$/, "") === fix.cell;
  return same(own) ? own : own.notebook.getCells().find(same);
}

async function choose<T>(from: T[], label: (each: T) => string, placeHolder: string): Promise<T | undefined> {
  if (from.length < 2) {
    return from[0];
  }
  const rows = from.map((each) => ({ label: label(each), each }));
  return (await vscode.window.showQuickPick(rows, { placeHolder }))?.each;
}
