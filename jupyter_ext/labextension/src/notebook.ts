import type { ISharedCell, ISharedNotebook } from '@jupyter/ydoc';
import { Signal } from '@lumino/signaling';
import type * as lsp from 'vscode-languageserver-protocol';

import type { Connection } from './connection';
import { type Live, NOTHING } from './sizes';

/** Milliseconds of quiet after a keystroke before it is sent. */
const PAUSE = 15;

type CellChanges = NonNullable<lsp.NotebookDocumentChangeEvent['cells']>;

/** What the server has said of one cell's text so far: hints and diagnostics come each in their own time. */
export interface Findings {
  text: string;
  hints?: lsp.InlayHint[];
  diagnostics?: lsp.Diagnostic[];
}

interface Sent {
  uri: string;
  text: string;
  version: number;
  order: number | null;
}

/** Whether the text of a cell is Tessera's. */
export function isTessera(text: string): boolean {
  return /^\s*%%tessera\b/.test(text);
}

/**
 * A notebook as the server sees it: all code cells, in order, since a `%%tessera` cell uses what stands in others.
 *
 * Nothing is sent before there is a `%%tessera` cell, or a cell that bound an array. Every change brings the server up to date by comparing what the
 * notebook holds with what was sent, whatever events led there.
 */
export class NotebookSession {
  /** New findings for the cell of this id. */
  readonly found = new Signal<this, string>(this);

  private _live: Live = { ...NOTHING };
  private _sentLive = '';
  private _sent = new Map<string, Sent>();
  private _findings = new Map<string, Findings>();
  private _watched = new Set<ISharedCell>();
  private _version = 0;
  private _cells = 0;
  private _timer = 0;
  private _updating: Promise<void> = Promise.resolve();

  constructor(
    private _connection: Connection,
    readonly model: ISharedNotebook,
    readonly uri: string
  ) {
    _connection.closed.connect(this._forget, this);
    _connection.notified.connect(this._notified, this);
    model.changed.connect(this._changed, this);
    model.disposed.connect(this.dispose, this);
    this._changed();
  }

  dispose(): void {
    window.clearTimeout(this._timer);
    if (this._version) {
      void this._connection.notify('notebookDocument/didClose', {
        notebookDocument: { uri: this.uri },
        cellTextDocuments: [...this._sent.values()].map(s => ({ uri: s.uri }))
      });
    }
    Signal.clearData(this);
    Signal.disconnectReceiver(this);
  }

  findings(cell: string): Findings | undefined {
    return this._findings.get(cell);
  }

  /** What the kernel has called, and the arrays that it holds. */
  set live(live: Live) {
    this._live = live;
    this._changed();
  }

  /** Whether the server may have hints for a cell with this text: one that is Tessera's, or one that bound arrays which
   * the kernel holds. */
  speaksOf(cell: ISharedCell, text: string): boolean {
    return isTessera(text) || (order(cell) ?? 0) in this._live.cells;
  }

  /** Asks about a cell, when the server knows its present text. Null where it has no answer. */
  async ask<R>(cell: ISharedCell, method: string, params: object): Promise<R | null> {
    window.clearTimeout(this._timer);
    await this._update();
    const uri = this._sent.get(cell.id)?.uri;
    if (uri === undefined || !this.speaksOf(cell, cell.getSource())) {
      return null;
    }
    return this._connection.request<R>(method, { textDocument: { uri }, ...params });
  }

  /** Tells where the person's cursor is: in quiet mode hints are shown around it. */
  cursor(cell: ISharedCell, position: lsp.Position): void {
    const uri = this._sent.get(cell.id)?.uri;
    if (uri !== undefined && isTessera(cell.getSource())) {
      void this._connection.notify('tessera/cursor', { textDocument: { uri }, position });
    }
  }

  /** The cell that an address of the server's means, if it is one of this notebook's. */
  cellAt(uri: string): ISharedCell | undefined {
    return this.model.cells.find(c => this._sent.get(c.id)?.uri === uri);
  }

  /** Applies an edit of the server's to this notebook's cells. */
  apply(edit: lsp.WorkspaceEdit): void {
    const changes: [string, lsp.TextEdit[]][] = Object.entries(edit.changes ?? {});
    for (const change of edit.documentChanges ?? []) {
      if ('edits' in change) {
        changes.push([change.textDocument.uri, change.edits as lsp.TextEdit[]]);
      }
    }
    for (const [uri, edits] of changes) {
      const cell = this.cellAt(uri);
      const starts = lineStarts(cell?.getSource() ?? '');
      const at = (p: lsp.Position): number => starts[p.line] + p.character;
      const ordered = edits.toSorted((a, b) => at(b.range.start) - at(a.range.start));
      ordered.forEach(e => cell?.updateSource(at(e.range.start), at(e.range.end), e.newText));
    }
  }

  private _changed(): void {
    for (const cell of this.model.cells) {
      if (!this._watched.has(cell)) {
        this._watched.add(cell);
        cell.changed.connect(this._changed, this);
        cell.disposed.connect(() => this._watched.delete(cell), this);
      }
    }
    window.clearTimeout(this._timer);
    this._timer = window.setTimeout(() => void this._refresh(), PAUSE);
  }

  private _forget(): void {
    this._version = 0;
    this._sent.clear();
    window.clearTimeout(this._timer);
    this._timer = window.setTimeout(() => void this._refresh(), 3000);
  }

  private _notified(_: Connection, message: { method: string; params: any }): void {
    if (message.method === 'workspace/inlayHint/refresh') {
      this._changed();
    } else if (message.method === 'textDocument/publishDiagnostics') {
      const cell = this.cellAt(message.params.uri);
      const sent = cell && this._sent.get(cell.id);
      if (sent && isTessera(sent.text) && (message.params.version ?? sent.version) === sent.version) {
        this._settle(cell, sent.text, { diagnostics: message.params.diagnostics });
      }
    }
  }

  /** Brings the server up to date, then asks for the hints of every cell that may have some. */
  private async _refresh(): Promise<void> {
    try {
      await this._update();
      await Promise.all(this.model.cells.map(c => this._hints(c)));
    } catch (error) {
      console.debug(error); // superseded by a newer text, or no server: the next change asks again
    }
  }

  private async _hints(cell: ISharedCell): Promise<void> {
    const { uri, text } = this._sent.get(cell.id) ?? {};
    if (text === undefined || !this.speaksOf(cell, text)) {
      if (this._findings.delete(cell.id)) {
        this.found.emit(cell.id);
      }
      return;
    }
    const end = { line: text.split('\n').length, character: 0 };
    const hints = await this._connection.request<lsp.InlayHint[] | null>('textDocument/inlayHint', {
      textDocument: { uri },
      range: { start: { line: 0, character: 0 }, end }
    });
    this._settle(cell, text, { hints: hints ?? [] });
  }

  /** Joins what is found to what is known of the same text; of another text nothing is known yet. */
  private _settle(cell: ISharedCell, text: string, found: Partial<Findings>): void {
    if (text === this._sent.get(cell.id)?.text && this.speaksOf(cell, text)) {
      const known = this._findings.get(cell.id);
      this._findings.set(cell.id, { ...(known?.text === text && known), ...found, text });
      this.found.emit(cell.id);
    }
  }

  /** One update at a time: the next one compares with what this one has sent. */
  private _update(): Promise<void> {
    return (this._updating = this._updating.catch(() => undefined).then(() => this._send()));
  }

  private async _send(): Promise<void> {
    const cells = this.model.cells.filter(c => c.cell_type === 'code');
    const concerns = cells.some(c => isTessera(c.getSource())) || Object.keys(this._live.cells).length > 0;
    if (!this._version && !concerns) {
      return;
    }
    await this._connection.ready(); // where it has ended meanwhile, all is sent anew
    if (!this._version) {
      this._version = 1;
      this._cells = cells.length;
      const opened = cells.map(c => this._item(c));
      await this._connection.notify('notebookDocument/didOpen', {
        notebookDocument: {
          uri: this.uri,
          notebookType: 'jupyter-notebook',
          version: 1,
          metadata: this._metadata(),
          cells: cells.map(c => this._cell(c))
        },
        cellTextDocuments: opened
      });
      return;
    }
    const change = this._difference(cells);
    const differs = this._sentLive !== JSON.stringify(this._live);
    if (change || differs) {
      const notebookDocument = { uri: this.uri, version: ++this._version };
      await this._connection.notify('notebookDocument/didChange', {
        notebookDocument,
        change: { ...(change && { cells: change }), ...(differs && { metadata: this._metadata() }) }
      });
    }
  }

  private _metadata(): object {
    this._sentLive = JSON.stringify(this._live);
    return { tessera: this._live };
  }

  private _difference(cells: ISharedCell[]): CellChanges | null {
    const change: CellChanges = {};
    const ids = cells.map(c => c.id);
    const edited = cells.filter(c => (this._sent.get(c.id)?.text ?? c.getSource()) !== c.getSource());
    const run = cells.filter(c => this._sent.has(c.id) && this._sent.get(c.id)!.order !== order(c));
    if (ids.join() !== [...this._sent.keys()].join()) {
      const gone = [...this._sent].filter(([id]) => !ids.includes(id));
      const didOpen = cells.filter(c => !this._sent.has(c.id)).map(c => this._item(c));
      gone.forEach(([id]) => this._sent.delete(id));
      this._sent = new Map(ids.map(id => [id, this._sent.get(id)!])); // in the notebook's order
      const array = { start: 0, deleteCount: this._cells, cells: cells.map(c => this._cell(c)) };
      this._cells = cells.length;
      change.structure = { array, didOpen, didClose: gone.map(([, sent]) => ({ uri: sent.uri })) };
    } else if (run.length) {
      change.data = run.map(c => this._cell(c));
    }
    if (edited.length) {
      change.textContent = edited.map(c => {
        const sent = this._sent.get(c.id)!;
        sent.text = c.getSource();
        sent.version += 1;
        return { document: { uri: sent.uri, version: sent.version }, changes: [{ text: sent.text }] };
      });
    }
    return change.structure || change.data || change.textContent ? change : null;
  }

  private _item(cell: ISharedCell): lsp.TextDocumentItem {
    const uri = `tessera-cell:/${this._connection.page}/${cell.id}`;
    const text = cell.getSource();
    this._sent.set(cell.id, { uri, text, version: 1, order: order(cell) });
    return { uri, languageId: 'python', version: 1, text };
  }

  private _cell(cell: ISharedCell): lsp.NotebookCell {
    const sent = this._sent.get(cell.id)!;
    sent.order = order(cell);
    const executionSummary = sent.order === null ? undefined : { executionOrder: sent.order };
    return { kind: 2, document: sent.uri, executionSummary };
  }
}

function order(cell: ISharedCell): number | null {
  return (cell as { execution_count?: number | null }).execution_count ?? null;
}

function lineStarts(text: string): number[] {
  const starts = [0];
  for (const match of text.matchAll(/\n/g)) {
    starts.push(match.index + 1);
  }
  starts.push(text.length); // the end of the text as the start of a line beyond it
  return starts;
}
