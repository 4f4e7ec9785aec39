import { Decoration, EditorView, hoverTooltip, ViewPlugin, WidgetType } from '@codemirror/view';
import type { DecorationSet, Tooltip } from '@codemirror/view';
import { type Action, type Diagnostic, setDiagnostics } from '@codemirror/lint';
import { type Extension, type Text, StateEffect, StateField } from '@codemirror/state';
import type { ISharedCell } from '@jupyter/ydoc';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { MimeModel } from '@jupyterlab/rendermime';
import type * as lsp from 'vscode-languageserver-protocol';

import type { Findings, NotebookSession } from './notebook';

export interface Surroundings {
  /** The session of a cell's notebook, null where the cell is in none (a console, a cell that was removed). */
  session(cell: ISharedCell): NotebookSession | null;
  /** Shows another place of the notebook. */
  reveal(session: NotebookSession, cell: ISharedCell, line: number, column: number): void;
  rendermime: IRenderMimeRegistry;
}

/** Hints, squiggles and hovers for the editor of one cell. Cells that are not `%%tessera` show what the arrays are that
 * they bound, and nothing else. */
export function tesseraCell(cell: ISharedCell, around: Surroundings): Extension {
  const follow = ViewPlugin.define(view => {
    const session = around.session(cell);
    let marked = '';
    let squiggled = false; // a plain cell's squiggles are others'
    const show = (_: unknown, id: string): void => {
      const doc = view.state.doc;
      const nothing: Findings = { text: doc.toString(), hints: [], diagnostics: squiggled ? [] : undefined };
      const found = session!.findings(cell.id) ?? nothing;
      if (id !== cell.id || found.text !== doc.toString()) {
        return;
      }
      // What is not known of this text yet stays as it was shown of the text before, moved along by the editor.
      if (found.hints) {
        view.dispatch({ effects: setHints.of(widgets(doc, found.hints, around, session!)) });
      }
      // To set the same squiggles again would close the explanation of one that a person reads.
      const marks = JSON.stringify(found.diagnostics);
      if (found.diagnostics && marks !== marked) {
        marked = marks;
        squiggled = found.diagnostics.length > 0;
        view.dispatch(setDiagnostics(view.state, found.diagnostics.map(d => squiggle(doc, d, cell, session!))));
      }
    };
    session?.found.connect(show);
    // Decorations cannot change while the editor is being made.
    window.setTimeout(() => session?.findings(cell.id) && show(null, cell.id));
    return {
      update: ({ docChanged }) => void (docChanged && (marked = '')),
      destroy: () => void session?.found.disconnect(show)
    };
  });
  const cursor = EditorView.updateListener.of(({ view, selectionSet }) => {
    if (selectionSet && view.hasFocus) {
      around.session(cell)?.cursor(cell, place(view.state.doc, view.state.selection.main.head));
    }
  });
  const hover = hoverTooltip((view, position) => hoverAt(view, position, cell, around));
  return [hintField, follow, cursor, hover];
}

function widgets(
  doc: Text,
  hints: lsp.InlayHint[],
  around: Surroundings,
  session: NotebookSession
): DecorationSet {
  const go = (place: lsp.Location): void => {
    const other = session.cellAt(place.uri);
    if (other) {
      around.reveal(session, other, place.range.start.line, place.range.start.character);
    }
  };
  const hinted = hints.map(h =>
    Decoration.widget({ widget: new Hint(h, go), side: 1 }).range(offset(doc, h.position))
  );
  return Decoration.set(hinted, true);
}

const setHints = StateEffect.define<DecorationSet>();

const hintField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(shown, transaction) {
    const moved = shown.map(transaction.changes);
    return transaction.effects.reduce((last, e) => (e.is(setHints) ? e.value : last), moved);
  },
  provide: field => EditorView.decorations.from(field)
});

class Hint extends WidgetType {
  constructor(
    private _hint: lsp.InlayHint,
    private _go: (place: lsp.Location) => void
  ) {
    super();
  }

  override eq(other: Hint): boolean {
    return JSON.stringify(other._hint.label) === JSON.stringify(this._hint.label);
  }

  override toDOM(): HTMLElement {
    const label = this._hint.label;
    const element = document.createElement('span');
    element.className = 'tessera-hint';
    element.classList.toggle('tessera-hint-apart', this._hint.paddingLeft === true);
    element.classList.toggle('tessera-now', this._hint.data?.now === true);
    element.setAttribute('aria-hidden', 'true'); // it is not the cell's text
    for (const part of typeof label === 'string' ? [{ value: label }] : label) {
      const piece = document.createElement('span');
      piece.textContent = part.value;
      const { location, tooltip } = part as lsp.InlayHintLabelPart;
      if (typeof tooltip === 'string') {
        piece.title = tooltip;
      }
      if (location) {
        piece.className = 'tessera-hint-link';
        piece.onmousedown = event => {
          event.preventDefault();
          this._go(location);
        };
      }
      element.append(piece);
    }
    return element;
  }
}

const SEVERITIES = ['error', 'error', 'warning', 'info', 'hint'] as const;

function squiggle(doc: Text, found: lsp.Diagnostic, cell: ISharedCell, session: NotebookSession): Diagnostic {
  const from = offset(doc, found.range.start);
  const to = Math.max(offset(doc, found.range.end), from);
  const titles: string[] = found.data?.fixes ?? [];
  return {
    from,
    to,
    severity: SEVERITIES[found.severity ?? 1],
    source: `Tessera ${found.code ?? ''}`.trim(),
    message: messageOf(found),
    renderMessage: () => explanation(found),
    actions: [
      ...titles.map(title => change(title, 'quickfix', title, found, cell, session)),
      ...(found.severity === 1 ? [] : [change('Ignore', 'quickfix.ignore', null, found, cell, session)])
    ]
  };
}

function messageOf(found: lsp.Diagnostic): string {
  return typeof found.message === 'string' ? found.message : found.message.value;
}

function explanation(found: lsp.Diagnostic): HTMLElement {
  const element = document.createElement('span');
  element.className = 'tessera-message';
  element.textContent = messageOf(found);
  const page = found.codeDescription?.href;
  if (page && /^https?:/.test(page)) {
    const link = Object.assign(document.createElement('a'), { href: page, textContent: ` ${found.code}` });
    link.target = '_blank';
    link.rel = 'noopener';
    element.append(link);
  }
  for (const note of found.relatedInformation ?? []) {
    const line = document.createElement('div');
    line.textContent = `line ${note.location.range.start.line + 1}: ${note.message}`;
    element.append(line);
  }
  return element;
}

/** A change is asked for when it is wanted: that of `title`, or the first of its kind. */
function change(
  name: string,
  kind: string,
  title: string | null,
  found: lsp.Diagnostic,
  cell: ISharedCell,
  session: NotebookSession
): Action {
  return {
    name,
    apply: async () => {
      const context: lsp.CodeActionContext = { diagnostics: [found], only: [kind] };
      const params = { range: found.range, context };
      const actions = await session.ask<lsp.CodeAction[]>(cell, 'textDocument/codeAction', params);
      const wanted = (a: lsp.CodeAction): boolean => a.kind === kind && (title === null || a.title === title);
      const edit = actions?.find(a => wanted(a) && a.edit && !a.disabled)?.edit;
      if (edit) {
        session.apply(edit);
      }
    }
  };
}

async function hoverAt(
  view: EditorView,
  position: number,
  cell: ISharedCell,
  around: Surroundings
): Promise<Tooltip | null> {
  const doc = view.state.doc;
  if (!around.session(cell)?.speaksOf(cell, doc.toString())) {
    return null;
  }
  const at = { position: place(doc, position) };
  const ask = around.session(cell)?.ask<lsp.Hover>(cell, 'textDocument/hover', at);
  const found = await ask?.catch(() => null);
  if (!found || view.state.doc !== doc) {
    return null;
  }
  const text = (found.contents as lsp.MarkupContent).value;
  return {
    pos: found.range ? offset(doc, found.range.start) : position,
    end: found.range ? offset(doc, found.range.end) : position,
    above: true,
    create: () => {
      const renderer = around.rendermime.createRenderer('text/markdown');
      void renderer.renderModel(new MimeModel({ data: { 'text/markdown': text } }));
      renderer.addClass('tessera-hover');
      return { dom: renderer.node, destroy: () => renderer.dispose() };
    }
  };
}

/** Places come from the text that the server has; a line may be shorter by now. */
function offset(doc: Text, place: lsp.Position): number {
  if (place.line >= doc.lines) {
    return doc.length;
  }
  const line = doc.line(place.line + 1);
  return Math.min(line.from + place.character, line.to);
}

function place(doc: Text, position: number): lsp.Position {
  const line = doc.lineAt(position);
  return { line: line.number - 1, character: position - line.from };
}
