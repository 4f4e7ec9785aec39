/** Lines of source and IR that belong together light up together, whichever the cursor is in. */

import * as vscode from "vscode";
import { type IrDocuments, SCHEME } from "./ir";

export function linkLines(documents: IrDocuments): vscode.Disposable[] {
  const mark = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor("editor.rangeHighlightBackground"),
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.rangeHighlightForeground"),
  });
  const follow = ({ textEditor }: vscode.TextEditorSelectionChangeEvent) => {
    const { uri } = textEditor.document;
    if (uri.scheme === SCHEME) {
      fromIr(documents, textEditor, mark);
    } else if (vscode.window.activeTextEditor === textEditor) {
      for (const editor of vscode.window.visibleTextEditors) {
        if (editor.document.uri.scheme === SCHEME) {
          fromSource(documents, textEditor, editor, mark);
        }
      }
    }
  };
  return [mark, vscode.window.onDidChangeTextEditorSelection(follow)];
}

function fromIr(documents: IrDocuments, ir: vscode.TextEditor, mark: vscode.TextEditorDecorationType): void {
  const place = documents.of(ir.document.uri)?.lines[ir.selection.active.line];
  for (const editor of vscode.window.visibleTextEditors) {
    if (editor.document.uri.scheme !== SCHEME) {
      const here = place?.uri === editor.document.uri.toString() ? place.lines : [];
      light(editor, here, mark);
    }
  }
}

function fromSource(
  documents: IrDocuments,
  source: vscode.TextEditor,
  ir: vscode.TextEditor,
  mark: vscode.TextEditorDecorationType,
): void {
  const [uri, line] = [source.document.uri.toString(), source.selection.active.line];
  const places = documents.of(ir.document.uri)?.lines ?? [];
  light(
    ir,
    places.flatMap((place, i) => (place?.uri === uri && place.lines.includes(line) ? [i] : [])),
    mark,
  );
}

function light(editor: vscode.TextEditor, lines: number[], mark: vscode.TextEditorDecorationType): void {
  // Where the text has changed since, a line that is there no more would scroll it out of sight.
  const there = lines.filter((line) => line < editor.document.lineCount);
  const ranges = there.map((line) => new vscode.Range(line, 0, line, 0));
  editor.setDecorations(mark, ranges);
  if (ranges[0]) {
    editor.revealRange(ranges[0], vscode.TextEditorRevealType.InCenterIfOutsideViewport);
  }
}
