import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { htmlRendererFactory, type IRenderMime } from '@jupyterlab/rendermime';
import type { ISharedCell } from '@jupyter/ydoc';
import { Panel } from '@lumino/widgets';

import { action, Runs, status } from './runs';

/** See tessera_jupyter/actions.py. */
const MIME = 'application/vnd.tessera.actions+json';

const LOST = 'The kernel no longer holds this profile: run the cell again, and try its hint.';

interface CellFix {
  title: string;
  cell: string;
  edits: { start: number; end: number; text: string }[];
}

interface Actions {
  fixes: (CellFix | null)[];
  hints: (string | null)[];
}

/** Outputs of Tessera's kernel side: their HTML, with buttons where there is something to do. */
export function actionsFactory(notebooks: INotebookTracker): IRenderMime.IRendererFactory {
  return {
    safe: true, // the HTML inside is rendered as that of any output
    mimeTypes: [MIME],
    defaultRank: 0, // before HTML
    createRenderer: options => new ActionsOutput(options, notebooks)
  };
}

class ActionsOutput extends Panel implements IRenderMime.IRenderer {
  private _html: IRenderMime.IRenderer;
  private _runs = new Runs();

  constructor(
    options: IRenderMime.IRendererOptions,
    private _notebooks: INotebookTracker
  ) {
    super();
    this._html = htmlRendererFactory.createRenderer({ ...options, mimeType: 'text/html' });
    this.addWidget(this._html);
  }

  override dispose(): void {
    this._runs.end(this.node);
    super.dispose();
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const focused = this._buttons().find(button => button === document.activeElement)?.dataset.does;
    this._runs.end(this.node);
    await this._html.renderModel(model);
    const { fixes = [], hints = [] } = (model.data[MIME] ?? {}) as unknown as Partial<Actions>;
    this.node.querySelectorAll<HTMLElement>('.tessera-fix').forEach((shown, i) => {
      if (fixes[i]) {
        this._offerFix(shown, fixes[i]);
      }
    });
    this.node.querySelectorAll<HTMLElement>('.ts-hints > li').forEach((shown, i) => {
      const hint = hints[i] ?? '';
      if (/^[0-9a-f]+\.\d+$/.test(hint)) {
        this._offerTrial(shown, hint);
      }
    });
    if (focused) {
      this._buttons().find(button => button.dataset.does === focused)?.focus(); // a person who pressed it with a key goes on from there
    }
  }

  private _buttons(): HTMLElement[] {
    return [...this.node.querySelectorAll<HTMLElement>('.tessera-action')];
  }

  /** The fix's title becomes a button. */
  private _offerFix(shown: HTMLElement, fix: CellFix): void {
    const button = action(`Apply: ${fix.title}`);
    const said = status();
    button.title = 'Make this edit in the cell';
    button.dataset.does = fix.title;
    button.onclick = () => {
      said.textContent = this._apply(fix);
    };
    (shown.querySelector('.tessera-fix-title') ?? shown.firstChild)?.replaceWith(button);
    shown.append('\n', said);
  }

  /** Edits the cell that holds the text of the fix, and says what was done. */
  private _apply(fix: CellFix): string {
    const panel = this._panel();
    const own = panel?.content.widgets.find(cell => cell.node.contains(this.node))?.model.sharedModel;
    const cells = panel?.content.model?.sharedModel.cells ?? [];
    const same = (cell?: ISharedCell): boolean => cell?.getSource().replace(/\n+$/, '') === fix.cell;
    const cell = same(own) ? own : cells.find(same);
    if (!cell) {
      return 'Not applied: the cell has changed since. Run it again to see what holds now.';
    }
    const ordered = fix.edits.toSorted((a, b) => b.start - a.start);
    cell.transact(() => ordered.forEach(e => cell.updateSource(e.start, e.end, e.text))); // one step to undo
    const at = Math.min(...fix.edits.map(e => e.start));
    const line = fix.cell.slice(0, at).split('\n').length;
    const where = cell === own ? `line ${line}` : `line ${line} of cell ${cells.indexOf(cell) + 1}`;
    return `Applied to ${where}. Run the cell to use it.`;
  }

  private _offerTrial(shown: HTMLElement, hint: string): void {
    const button = action(shown.querySelector('.ts-tried') ? 'Try again' : 'Try it');
    const stop = action('Stop');
    const said = status();
    stop.hidden = true;
    button.dataset.does = hint;
    button.title = 'Make this change, compare results, and measure both by turns; no file is changed';
    button.onclick = () => {
      if (button.getAttribute('aria-disabled') !== 'true') {
        // what it says stands below until the panel, which keeps it, is shown anew
        void this._runs.start(this._panel(), `try --hint ${hint}`, LOST, { below: shown, button, stop, said });
      }
    };
    const row = document.createElement('div');
    row.className = 'tessera-trial';
    row.append(button, stop, said);
    shown.append(row);
  }

  private _panel(): NotebookPanel | undefined {
    const inside = this._notebooks.find(panel => panel.content.node.contains(this.node));
    return inside ?? (this.node.closest('.tessera-session') && this._notebooks.currentWidget) ?? undefined;
  }
}
