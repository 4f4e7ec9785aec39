import { type INotebookTracker, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import { Widget } from '@lumino/widgets';

import { action, Runs, status } from './runs';
import { type Card, type Figure, GONE, type Told } from './sizes';

/** What the kernel is asked, and only this: it runs nothing of the notebook. See tessera_jupyter/session/message.py. */
const ASK = 'get_ipython().run_line_magic("tessera", "functions --follow")';
const LOAD = 'get_ipython().run_line_magic("load_ext", "tessera_jupyter")';
const LOST = 'Tessera is no longer loaded in this kernel: run %load_ext tessera_jupyter.';

/** What is known of one notebook's kernel. `missing`: why it tells nothing; `asked`: whether it has been asked. */
interface Followed {
  told: Told;
  missing: '' | 'extension' | 'python' | 'older';
  asked: boolean;
}

/**
 * The functions and kernels of the session, at the side: each with its card, its last profile and its history.
 *
 * It follows the notebook in front. While it is in view it asks the kernel to be told of functions, after each cell
 * until Tessera is there, and from then on the kernel tells after each cell.
 */
export class SessionPanel extends Widget {
  private _followed = new Map<NotebookPanel, Followed>();
  private _views = new Map<string, CardView>();
  private _head = element('div', 'tessera-session-head');
  private _said = element('p', 'tessera-session-said');
  private _load = action('Load Tessera in this kernel');
  private _list = element('div', 'tessera-cards');
  private _runs = new Runs();
  private _shownPanel: NotebookPanel | null = null;

  constructor(private _notebooks: INotebookTracker) {
    super();
    this.id = 'tessera-session';
    this.addClass('tessera-session');
    this.title.caption = 'Tessera: functions and kernels of the session';
    this.title.iconClass = 'tessera-session-icon jp-SideBar-tabIcon';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Functions and kernels of the session');
    this._said.setAttribute('role', 'status');
    this._load.onclick = () => void this._loadHere();
    this.node.append(this._head, this._said, this._load, this._list);
    this._list.addEventListener('keydown', event => this._walk(event));
    _notebooks.currentChanged.connect(() => this._turn());
    NotebookActions.executed.connect(() => this._turn()); // behind `import tessera` the kernel answers
    this._show();
  }

  /** Takes what the kernel of a notebook has told; `NOTHING` where it has started, or starts again. */
  tell(panel: NotebookPanel, told: Told): void {
    if (!this._followed.has(panel)) {
      panel.disposed.connect(() => this._followed.delete(panel));
      panel.sessionContext.statusChanged.connect(() => void this._ask(panel));
    }
    this._followed.set(panel, { told, missing: '', asked: told.cards !== undefined && told.whole !== false });
    void this._ask(panel);
    this._show();
  }

  protected override onAfterShow(): void {
    this._turn();
  }

  /** Another notebook is in front, the panel has come into view, or a cell has run: what was missing may be there. */
  private _turn(): void {
    const panel = this._notebooks.currentWidget;
    if (panel) {
      const followed = this._followed.get(panel);
      if (followed?.missing === 'extension') {
        followed.asked = false;
      }
      void this._ask(panel);
    }
    this._show();
  }

  private async _ask(panel: NotebookPanel): Promise<void> {
    const kernel = panel.sessionContext.session?.kernel;
    const followed = this._followed.get(panel);
    const ready = kernel && !GONE.includes(kernel.status) && kernel.status !== 'starting';
    if (!this.isVisible || panel !== this._notebooks.currentWidget || !followed || followed.asked || !ready) {
      return;
    }
    followed.asked = true;
    if ((await kernel.info).language_info.name !== 'python') {
      followed.missing = 'python';
    } else {
      const request = { code: ASK, silent: true, store_history: false, stop_on_error: false };
      const reply = await kernel.requestExecute(request).done.catch(() => null);
      if (reply === null) {
        followed.asked = false; // the kernel starts again: it is asked once it stands
      } else if (reply.content.status === 'ok') {
        followed.missing = ''; // its cards come as a message
      } else if (reply.content.status === 'error') {
        followed.missing = /not found/.test(reply.content.evalue) ? 'extension' : 'older';
      }
    }
    this._show();
  }

  /** Loads Tessera in the kernel of a notebook. Why it could not be loaded, "" where it was. */
  async load(panel: NotebookPanel): Promise<string> {
    const request = panel.sessionContext.session?.kernel?.requestExecute({ code: LOAD, store_history: false });
    const reply = await request?.done.catch(() => null);
    if (reply?.content.status === 'error') {
      return `It could not be loaded: ${reply.content.ename}: ${reply.content.evalue}`;
    }
    const followed = this._followed.get(panel);
    if (followed) {
      followed.asked = false;
      void this._ask(panel);
    }
    return reply ? '' : 'It could not be loaded: no kernel answers.';
  }

  private async _loadHere(): Promise<void> {
    const panel = this._notebooks.currentWidget;
    const problem = panel ? await this.load(panel) : '';
    if (problem) {
      this._said.textContent = problem;
    }
  }

  /** What is to be said where there is no card. */
  private _problem(panel: NotebookPanel | null, followed?: Followed): string {
    if (!panel) {
      return 'Open a notebook: the functions and kernels of its session are shown here.';
    }
    const kernel = panel.sessionContext.session?.kernel;
    if (!kernel) {
      return 'No kernel runs for this notebook.';
    }
    if (followed?.missing === 'python') {
      return 'The kernel of this notebook does not run Python.';
    }
    if (followed?.missing === 'extension') {
      return 'Tessera is not loaded in this kernel. Run %load_ext tessera_jupyter in a cell, or load it here.';
    }
    if (followed?.missing === 'older') {
      return 'The Tessera in this kernel is of another version than this panel: restart the kernel after an update.';
    }
    if (!followed?.told.cards) {
      return GONE.includes(kernel.status) ? 'The kernel starts again.' : 'Waiting for the kernel.';
    }
    return followed.told.cards.length ? '' : 'No functions or kernels yet: cells that define some fill this panel.';
  }

  private _show(): void {
    if (!this.isVisible) {
      return;
    }
    const panel = this._notebooks.currentWidget;
    const followed = panel ? this._followed.get(panel) : undefined;
    if (panel !== this._shownPanel) {
      this._shownPanel = panel;
      this._views.forEach(view => this._drop(view));
      this._views.clear();
    }
    this._head.textContent = panel?.title.label ?? '';
    this._said.textContent = this._problem(panel, followed);
    this._load.hidden = followed?.missing !== 'extension';
    const cards = inOrder(panel, (!followed?.missing && followed?.told.cards) || []);
    const names = new Set(cards.map(c => c.name));
    for (const [name, view] of this._views) {
      if (!names.has(name)) {
        this._drop(view);
        this._views.delete(name);
      }
    }
    for (const card of cards) {
      let view = this._views.get(card.name);
      if (!view) {
        view = new CardView(this._runs, () => this._shownPanel, this._goTo);
        this._views.set(card.name, view);
      }
      view.update(card);
    }
    const nodes = cards.map(c => this._views.get(c.name)!.node);
    if (nodes.some((node, i) => this._list.children[i] !== node)) {
      this._list.replaceChildren(...nodes); // what has the focus keeps it while the order stays
    }
  }

  private _drop(view: CardView): void {
    this._runs.end(view.node);
    view.node.remove();
  }

  /** Shows a cell of the notebook, by its id or by the text of a function. Whether there is one. */
  private _goTo = (id: string | null, text: string): boolean => {
    const notebook = this._shownPanel?.content;
    const cells = notebook?.widgets ?? [];
    let index = cells.findIndex(c => c.model.sharedModel.id === id);
    if (index < 0 && text) {
      index = cells.findIndex(c => c.model.sharedModel.getSource().includes(text));
    }
    if (!notebook || index < 0) {
      return false;
    }
    notebook.activeCellIndex = index;
    notebook.deselectAll();
    void notebook.scrollToItem(index, 'smart');
    return true;
  };

  /** Arrow keys, Home and End walk through the functions. */
  private _walk(event: KeyboardEvent): void {
    const heads = [...this._list.querySelectorAll<HTMLElement>('.tessera-card > summary')];
    const at = heads.indexOf(event.target as HTMLElement);
    const steps: Record<string, number> = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: heads.length - 1 };
    const next = at >= 0 ? heads[steps[event.key]] : undefined;
    if (next) {
      event.preventDefault();
      event.stopPropagation();
      next.focus();
    }
  }
}

/** As their cells stand in the notebook; what comes from files, and from cells that are gone, stands last. */
function inOrder(panel: NotebookPanel | null, cards: Card[]): Card[] {
  const ids = panel?.content.model?.sharedModel.cells.map(c => c.id) ?? [];
  const place = (card: Card): number => (card.cell && ids.includes(card.cell) ? ids.indexOf(card.cell) : ids.length);
  return cards.toSorted((a, b) => place(a) - place(b));
}

/** One function: its line, and below it what is known, once it is opened. */
class CardView {
  readonly node = document.createElement('details');
  private _head = document.createElement('summary');
  private _facts = element('div', 'tessera-card-facts');
  private _below = element('div', 'tessera-card-run');
  private _stop = action('Stop');
  private _said = status();
  private _shown = '';

  constructor(
    private _runs: Runs,
    private _panel: () => NotebookPanel | null,
    private _goTo: (id: string | null, text: string) => boolean
  ) {
    this.node.className = 'tessera-card';
    this._stop.hidden = true;
    const row = element('div', 'tessera-trial');
    row.append(this._stop, this._said);
    this.node.append(this._head, this._facts, row, this._below);
  }

  update(card: Card): void {
    const text = JSON.stringify(card);
    if (text === this._shown) {
      return;
    }
    this._shown = text;
    const focused = [...this._facts.querySelectorAll('button')].find(b => b === document.activeElement)?.textContent;
    this.node.dataset.name = card.name;
    this._head.replaceChildren(...this._summary(card));
    this._facts.replaceChildren(...this._sections(card));
    if (focused) {
      [...this._facts.querySelectorAll('button')].find(b => b.textContent === focused)?.focus();
    }
  }

  private _summary(card: Card): Node[] {
    const name = element('span', 'tessera-card-name', card.name);
    const kind = element('span', 'tessera-card-kind', card.kind === 'function' ? '' : card.kind);
    const profile = card.profile?.earlier ? null : card.profile;
    const time = element('span', 'tessera-card-time');
    if (profile?.time) {
      time.append(profile.time, badge(profile.source));
    } else if (card.brief) {
      time.append(card.brief, badge('modelled'));
    }
    const left = element('span', 'tessera-card-title');
    left.append(name, ' ', kind);
    return [left, time];
  }

  private _sections(card: Card): Node[] {
    const go = this._button('Go to its cell', () => this._reveal(card.cell, card.text, 'Its cell'));
    const from = card.file ? element('p', 'tessera-card-note', `From ${card.file}`) : go;
    return [
      from,
      section('Known without running it', figures(card.figures)),
      section('Last profile', ...this._profile(card)),
      section('Edits of its cell', ...this._edits(card))
    ];
  }

  private _profile(card: Card): Node[] {
    const profile = card.profile;
    if (!profile) {
      if (card.call) {
        const run = this._button(`Profile ${card.call}`, button => void this._run(`profile ${card.call}`, button));
        run.title = 'Run it twice and show where the time of the second run went, with hints to make it faster';
        return [run];
      }
      const code = element('code', '', `%tessera profile ${card.name}(...)`);
      const note = element('p', 'tessera-card-note', 'None yet: run ');
      note.append(code, ' in a cell.');
      return [note];
    }
    const at = new Date(profile.when * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
    const note = element('p', 'tessera-card-note');
    note.append(element('code', '', profile.call), ` at ${at}`);
    if (profile.earlier) {
      note.append(', of the version before the last edit');
    }
    const kernels = element('ul', 'tessera-card-kernels');
    for (const k of profile.kernels) {
      const item = element('li', '', '');
      const roof = k.roof && `, ${k.roof} of the roof`;
      const detail = `${k.time} a launch, ${k.share} of the kernels; bound by ${k.bound}${roof}`;
      item.append(element('code', '', k.title), element('span', 'tessera-card-detail', detail));
      kernels.append(item);
    }
    const row = element('div', 'tessera-card-buttons');
    if (profile.cell) {
      row.append(this._button('Show it', () => this._reveal(profile.cell, '', 'The cell that shows it')));
    }
    row.append(this._button('Profile again', button => void this._run(`profile ${profile.call}`, button)));
    return [note, figures(profile.figures), kernels, row];
  }

  private _edits(card: Card): Node[] {
    if (!card.edits.length) {
      return [element('p', 'tessera-card-note', 'None yet between two of its profiles.')];
    }
    const list = element('ol', 'tessera-card-edits');
    for (const edit of card.edits) {
      const item = element('li', '', edit.text);
      item.dataset.verdict = edit.verdict;
      list.append(item);
    }
    if (card.edits.every(e => e.compared)) {
      return [list];
    }
    const compare = this._button('Compare', async button => {
      if (await this._run(`history ${card.name}`, button)) {
        this._runs.end(this._below); // the list says it now
      }
    });
    compare.title = 'Run each version and the one before by turns';
    return [list, compare];
  }

  private _button(name: string, pressed: (button: HTMLElement) => unknown): HTMLButtonElement {
    const button = action(name);
    button.onclick = () => {
      if (button.getAttribute('aria-disabled') !== 'true') {
        pressed(button);
      }
    };
    return button;
  }

  private _reveal(cell: string | null, text: string, what: string): void {
    this._said.textContent = this._goTo(cell, text) ? '' : `${what} is no longer in the notebook.`;
  }

  private async _run(line: string, button: HTMLElement): Promise<boolean> {
    const place = { below: this._below, button, stop: this._stop, said: this._said };
    return this._runs.start(this._panel(), line, LOST, place);
  }
}

function section(title: string, ...content: Node[]): HTMLElement {
  const found = element('section', '');
  found.append(element('h4', '', title), ...content);
  return found;
}

function figures(found: Figure[]): HTMLElement {
  const list = element('dl', 'tessera-card-figures');
  const reasons = new Set<string>(); // each is said once
  for (const figure of found) {
    const value = element('dd', '', figure.value || '-');
    if (figure.value && figure.source) {
      value.append(badge(figure.source));
    } else if (figure.reason && !reasons.has(figure.reason)) {
      reasons.add(figure.reason);
      value.append(element('span', 'tessera-card-detail', figure.reason));
    }
    list.append(element('dt', '', figure.label), value);
  }
  return list;
}

/** How a figure is known. */
function badge(source: string): HTMLElement {
  const found = element('span', 'tessera-badge', source);
  found.dataset.source = source;
  return found;
}

function element(tag: string, name: string, text?: string): HTMLElement {
  const node = document.createElement(tag);
  if (name) {
    node.className = name;
  }
  if (text) {
    node.textContent = text;
  }
  return node;
}
