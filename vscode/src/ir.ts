/** Every level of a function's compilation as a read-only document beside its source. */

import * as vscode from "vscode";
import type { Clients } from "./clients";

/** What the server answers to `tessera/ir`. `lines`: where each line of `text` comes from. */
export interface Ir {
  uri: string;
  text: string;
  language: string;
  function: string;
  level: string;
  target: string;
  lines: ({ uri: string; lines: number[] } | null)[];
}

/** What the document shows, kept as its address's query. */
export interface Subject {
  source: string;
  function: string;
  level: string;
}

export const SCHEME = "tessera-ir";
const DESCRIPTIONS: Record<string, string> = {
  graph: "whole-tensor operators",
  schedule: "what is fused, tiled and placed",
  tile: "one program over tiles",
  target: "the source that the target compiles",
  assembly: "what the machine runs",
};
const PAUSE = 400;

export class IrDocuments implements vscode.TextDocumentContentProvider {
  private readonly known = new Map<string, Ir>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.changed.event;
  private readonly stale = new Map<string, vscode.Uri>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly clients: Clients) {}

  register(): vscode.Disposable[] {
    return [
      this.changed,
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.workspace.onDidChangeTextDocument((e) => this.refresh(e.document.uri.toString())),
      vscode.workspace.onDidOpenTextDocument(({ uri }) => uri.scheme !== "file" && this.refresh(uri.toString())),
      vscode.workspace.onDidChangeConfiguration((e) => e.affectsConfiguration("tessera") && this.refresh()),
      this.clients.onDidChange(() => this.refresh()),
    ];
  }

  /** What an IR document shows; undefined while it is being made. */
  of(uri: vscode.Uri): Ir | undefined {
    return this.known.get(uri.toString());
  }

  async provideTextDocumentContent(uri: vscode.Uri): Promise<string> {
    const { source, function: name, level } = subjectOf(uri);
    this.forgetClosed();
    try {
      const file = vscode.Uri.parse(source);
      if (file.scheme === "file") {
        await vscode.workspace.openTextDocument(file); // it may be closed, and the server knows what is open
      }
      const ir = await this.ask(asked({ source, function: name }, level));
      this.known.set(uri.toString(), ir);
      return ir.text;
    } catch (error) {
      this.known.delete(uri.toString());
      return `There is no ${level} IR of ${name} now: ${error instanceof Error ? error.message : error}`;
    }
  }

  /** Asks anew for one: VS Code keeps a document's text, also for a while after it was closed. */
  again(uri: vscode.Uri): void {
    this.changed.fire(uri);
  }

  ask(params: Asked): Promise<Ir> {
    return this.request<Ir>("tessera/ir", params);
  }

  /** The function that is asked about and the levels that it has. */
  async levels(params: Asked): Promise<{ function: string; levels: string[] }> {
    return this.request("tessera/levels", params);
  }

  private request<T>(method: string, params: Asked): Promise<T> {
    return this.clients.for(vscode.Uri.parse(params.textDocument.uri)).request<T>(method, params);
  }

  /** Not when a document is closed: that is also said of one whose language is set. */
  private forgetClosed(): void {
    const open = new Set(vscode.workspace.textDocuments.map(({ uri }) => uri.toString()));
    for (const address of this.known.keys()) {
      if (!open.has(address)) {
        this.known.delete(address);
      }
    }
  }

  /** Asks anew for the documents of one source, or for all, when typing pauses. Until then no line of theirs is known
   * to be where it was. */
  private refresh(source?: string): void {
    const shown = vscode.workspace.textDocuments.map(({ uri }) => uri).filter(({ scheme }) => scheme === SCHEME);
    const stale = shown.filter((uri) => source === undefined || subjectOf(uri).source === source);
    if (stale.length > 0) {
      for (const uri of stale) {
        this.stale.set(uri.toString(), uri);
        this.known.delete(uri.toString());
      }
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        const asked = [...this.stale.values()];
        this.stale.clear();
        asked.forEach((uri) => this.changed.fire(uri));
      }, PAUSE);
    }
  }
}

/** Shows a level of the function at a place; asks for the level where none is given. In an IR document: of the function
 * that it shows. */
export async function showIr(documents: IrDocuments, place: Place, level?: string): Promise<void> {
  const { function: name, levels } = await documents.levels(asked(place));
  const chosen = level ?? (await choose(levels));
  if (!chosen) {
    return;
  }
  const uri = uriOf({ source: place.source, function: name, level: chosen });
  const document = await vscode.workspace.openTextDocument(uri);
  let ir = documents.of(uri);
  if (!ir) {
    documents.again(uri);
    ir = await documents.ask(asked({ source: place.source, function: name }, chosen)).catch(() => undefined);
  }
  const language = ir?.language;
  if (language && (await vscode.languages.getLanguages()).includes(language)) {
    await vscode.languages.setTextDocumentLanguage(document, language);
  }
  const viewColumn = place.beside ? vscode.ViewColumn.Beside : vscode.ViewColumn.Active;
  await vscode.window.showTextDocument(document, { viewColumn, preserveFocus: place.beside, preview: false });
}

async function choose(levels: string[]): Promise<string | undefined> {
  const items = levels.map((level) => ({ label: capitalized(level), description: DESCRIPTIONS[level] ?? "", level }));
  return (await vscode.window.showQuickPick(items, { title: "Show IR" }))?.level;
}

function capitalized(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

export interface Place {
  source: string;
  function?: string;
  position?: vscode.Position;
  beside: boolean;
}

/** What is meant by a command's arguments: those of a code lens, or none, and then the cursor. */
export function placeOf(source?: vscode.Uri, at?: string | vscode.Position): Place {
  if (source && at !== undefined) {
    const where = typeof at === "string" ? { function: at } : { position: at };
    return { source: source.toString(), ...where, beside: true };
  }
  const editor = vscode.window.activeTextEditor;
  if (!editor) {
    throw new Error("Put the cursor into a function or kernel first.");
  }
  const { uri } = editor.document;
  if (uri.scheme === SCHEME) {
    const { source: shown, function: name } = subjectOf(uri);
    return { source: shown, function: name, beside: false };
  }
  return { source: uri.toString(), position: editor.selection.active, beside: true };
}

export function subjectOf(uri: vscode.Uri): Subject {
  return JSON.parse(uri.query) as Subject;
}

interface Asked {
  textDocument: { uri: string };
  function: string | undefined;
  position: vscode.Position | undefined;
  level: string | undefined;
}

function asked({ source, function: name, position }: Omit<Place, "beside">, level?: string): Asked {
  return { textDocument: { uri: source }, function: name, position, level };
}

function uriOf(subject: Subject): vscode.Uri {
  return vscode.Uri.from({
    scheme: SCHEME,
    path: `/${subject.function}.${subject.level}`,
    query: JSON.stringify(subject),
  });
}
