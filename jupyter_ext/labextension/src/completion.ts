import type { ISharedCell } from '@jupyter/ydoc';
import type { CompletionHandler, ICompletionContext, ICompletionProvider } from '@jupyterlab/completer';
import type * as lsp from 'vscode-languageserver-protocol';

import { isTessera, type NotebookSession } from './notebook';

const KINDS: Record<number, string> = {
  2: 'method',
  3: 'function',
  6: 'instance',
  7: 'class',
  9: 'module',
  14: 'keyword',
  21: 'constant'
};

/** The server's completions, in `%%tessera` cells only, above those of the kernel. */
export class TesseraCompletions implements ICompletionProvider {
  readonly identifier = 'tessera';
  readonly rank = 1000;
  readonly renderer = null;

  constructor(private _session: (cell: ISharedCell) => NotebookSession | null) {}

  async isApplicable(context: ICompletionContext): Promise<boolean> {
    const cell = sharedCell(context);
    return cell !== null && isTessera(cell.getSource()) && this._session(cell) !== null;
  }

  async fetch(
    request: CompletionHandler.IRequest,
    context: ICompletionContext
  ): Promise<CompletionHandler.ICompletionItemsReply> {
    const cell = sharedCell(context);
    const before = request.text.slice(0, request.offset);
    const start = request.offset - before.match(/\w*$/)![0].length;
    const line = before.split('\n').length - 1;
    const position: lsp.Position = { line, character: request.offset - (before.lastIndexOf('\n') + 1) };
    const session = cell && this._session(cell);
    const found = await session?.ask<lsp.CompletionList | lsp.CompletionItem[]>(cell!, 'textDocument/completion', {
      position
    });
    const items = Array.isArray(found) ? found : (found?.items ?? []);
    const typed = before.slice(start);
    return { start, end: request.offset, items: items.filter(i => i.label.startsWith(typed)).sort(byPlace).map(item) };
  }
}

function byPlace(a: lsp.CompletionItem, b: lsp.CompletionItem): number {
  return (a.sortText ?? a.label) < (b.sortText ?? b.label) ? -1 : 1;
}

function item(found: lsp.CompletionItem): CompletionHandler.ICompletionItem {
  const documentation = found.documentation;
  return {
    label: found.label,
    insertText: found.textEdit?.newText ?? found.insertText ?? found.label,
    type: KINDS[found.kind ?? 0] ?? found.detail,
    documentation: typeof documentation === 'string' ? documentation : (documentation?.value ?? found.detail)
  };
}

function sharedCell(context: ICompletionContext): ISharedCell | null {
  const shared = context.editor?.model.sharedModel;
  return shared && 'cell_type' in shared ? (shared as ISharedCell) : null;
}
