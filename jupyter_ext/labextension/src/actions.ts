import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { OutputAreaModel, SimplifiedOutputArea } from '@jupyterlab/outputarea';
import { htmlRendererFactory, type IRenderMime } from '@jupyterlab/rendermime';
import type { ISharedCell } from '@jupyter/ydoc';
import { Panel } from '@lumino/widgets';

/** See tessera_jupyter/actions.py. */
const MIME = 'application/vnd.tessera.actions+json';

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
  private _runs = new Set<SimplifiedOutputArea>();

  constructor(
    options: IRenderMime.IRendererOptions,
    private _notebooks: INotebookTracker
  ) {
    super();
    this._html = htmlRendererFactory.createRenderer({ ...options, mimeType: 'text/html' });
    this.addWidget(this._html);
  }

  override dispose(): void {
    this._endRuns(this.node);
    super.dispose();
  }

  /** Takes away what trials have said inside of an element. */
  private _endRuns(element: HTMLElement): void {
    for (const run of [...this._runs].filter(r => element.contains(r.node))) {
      this._runs.delete(run);
      run.node.remove();
      run.dispose();
    }
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const focused = this._buttons().indexOf(document.activeElement as HTMLElement);
    this._endRuns(this.node);
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
    if (focused >= 0) {
      this._buttons()[focused]?.focus(); // a person who pressed it with a key goes on from there
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
    button.title = 'Make this change, compare results, and measure both by turns; no file is changed';
    button.onclick = () => {
      if (button.getAttribute('aria-disabled') !== 'true') {
        void this._try(shown, hint, button, stop, said);
      }
    };
    const row = document.createElement('div');
    row.className = 'tessera-trial';
    row.append(button, stop, said);
    shown.append(row);
  }

  /** Has the kernel try a hint. What it says stands below until the panel, which keeps it, is shown anew. */
  private async _try(
    shown: HTMLElement,
    hint: string,
    button: HTMLElement,
    stop: HTMLElement,
    said: HTMLElement
  ): Promise<void> {
    const panel = this._panel();
    const kernel = panel?.sessionContext.session?.kernel;
    if (!panel || !kernel) {
      said.textContent = 'No kernel runs: start one and profile again.';
      return;
    }
    this._endRuns(shown);
    const run = new SimplifiedOutputArea({
      model: new OutputAreaModel({ trusted: true }),
      rendermime: panel.content.rendermime
    });
    this._runs.add(run);
    shown.append(run.node);
    button.setAttribute('aria-disabled', 'true');
    said.textContent = kernel.status === 'idle' ? '' : 'Waiting for the kernel';
    // A notebook that is opened again shows panels before its kernel has loaded the extension.
    const code = [
      'if get_ipython().find_line_magic("tessera") is None:',
      '    print("The kernel no longer holds this profile: run the cell again, and try its hint.")',
      'else:',
      `    get_ipython().run_line_magic("tessera", "try --hint ${hint}")`
    ].join('\n');
    const future = kernel.requestExecute({ code, store_history: false, stop_on_error: false });
    run.future = future;
    const begun = (_: unknown, message: { parent_header: object }): void => {
      const parent = message.parent_header as { msg_id?: string };
      if (parent.msg_id === future.msg.header.msg_id) {
        kernel.iopubMessage.disconnect(begun);
        said.textContent = 'Running';
        stop.hidden = false; // before, it would stop what the kernel does for others
      }
    };
    kernel.iopubMessage.connect(begun);
    stop.onclick = () => void kernel.interrupt();
    try {
      await future.done;
      said.textContent = '';
    } catch {
      said.textContent = 'Not finished: the kernel has ended, or started again.';
    }
    kernel.iopubMessage.disconnect(begun);
    stop.hidden = true;
    button.removeAttribute('aria-disabled');
  }

  private _panel(): NotebookPanel | undefined {
    return this._notebooks.find(panel => panel.content.node.contains(this.node));
  }
}

function action(name: string): HTMLButtonElement {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'tessera-action';
  button.textContent = name;
  button.addEventListener('keydown', event => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.stopPropagation(); // the notebook has keys of its own
    }
  });
  return button;
}

function status(): HTMLElement {
  const said = document.createElement('span');
  said.className = 'tessera-said';
  said.setAttribute('role', 'status');
  return said;
}
