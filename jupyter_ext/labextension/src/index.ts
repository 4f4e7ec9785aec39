import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { EditorExtensionRegistry, IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { ICompletionProviderManager } from '@jupyterlab/completer';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import type { ISharedCell, ISharedNotebook } from '@jupyter/ydoc';

import { actionsFactory } from './actions';
import { TesseraCompletions } from './completion';
import { Connection } from './connection';
import { followDisk } from './disk';
import { type Surroundings, tesseraCell } from './editor';
import { offerLoading } from './missing';
import { NotebookSession } from './notebook';
import { SessionPanel } from './sessionPanel';
import { followKernel, NOTHING, type Told } from './sizes';
import { showStatus } from './status';
import { followWatched } from './watch';

const ID = 'tessera-jupyterlab:plugin';
const RESTART = 'tessera:restart-server';
const SHOW_SESSION = 'tessera:show-session';

/** The sessions of the notebooks that are open in this page, made when an editor first asks. */
class Sessions implements Surroundings {
  private _sessions = new Map<ISharedNotebook, NotebookSession>();
  private _told = new Map<NotebookPanel, Told>();

  constructor(
    private _connection: Connection,
    private _notebooks: INotebookTracker,
    readonly rendermime: IRenderMimeRegistry,
    side: SessionPanel
  ) {
    const follow = (panel: NotebookPanel): void => {
      followKernel(panel, told => {
        this._told.set(panel, told);
        side.tell(panel, told);
        this._tell(panel);
      });
      panel.disposed.connect(() => this._told.delete(panel));
    };
    _notebooks.forEach(follow);
    _notebooks.widgetAdded.connect((_, panel) => follow(panel));
  }

  private _tell(panel: NotebookPanel): void {
    const notebook = panel.content.model?.sharedModel;
    const session = notebook && this._sessions.get(notebook);
    if (session) {
      const { called, arrays, cells } = this._told.get(panel) ?? NOTHING;
      session.live = { called, arrays, cells };
    }
  }

  session = (cell: ISharedCell): NotebookSession | null => {
    const notebook = cell.notebook;
    if (notebook === null) {
      return null;
    }
    let session = this._sessions.get(notebook);
    if (session === undefined) {
      session = new NotebookSession(this._connection, notebook, this._address(notebook));
      this._sessions.set(notebook, session);
      this._notebooks.forEach(panel => this._tell(panel));
      notebook.disposed.connect(() => this._sessions.delete(notebook));
    }
    return session;
  };

  reveal(session: NotebookSession, cell: ISharedCell, line: number, column: number): void {
    const panel = this._panel(session.model);
    const index = session.model.cells.indexOf(cell);
    if (panel && index >= 0) {
      panel.content.activeCellIndex = index;
      panel.content.mode = 'edit';
      panel.content.activeCell?.editor?.setCursorPosition({ line, column });
    }
  }

  private _panel(notebook: ISharedNotebook): NotebookPanel | undefined {
    return this._notebooks.find(p => p.content.model?.sharedModel === notebook);
  }

  /** The notebook's address; that of its file, so that imports beside it are found, with the page's own name. */
  private _address(notebook: ISharedNotebook): string {
    const path = this._panel(notebook)?.context.path ?? 'untitled.ipynb';
    const root = PageConfig.getOption('rootUri') || 'file:///';
    return `${URLExt.join(root, URLExt.encodeParts(path))}?page=${this._connection.page}`;
  }
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Shapes, mistakes and documentation while typing in %%tessera cells; the functions of the session.',
  autoStart: true,
  requires: [IEditorExtensionRegistry, INotebookTracker, IRenderMimeRegistry],
  optional: [ISettingRegistry, ICompletionProviderManager, IStatusBar, ICommandPalette, ILayoutRestorer],
  activate: async (
    app: JupyterFrontEnd,
    editors: IEditorExtensionRegistry,
    notebooks: INotebookTracker,
    rendermime: IRenderMimeRegistry,
    registry: ISettingRegistry | null,
    completions: ICompletionProviderManager | null,
    status: IStatusBar | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null
  ) => {
    const loaded = registry ? registry.load(ID).catch(() => null) : Promise.resolve(null);
    const connection = new Connection(async () => (await loaded)?.composite ?? {});
    const side = new SessionPanel(notebooks);
    const sessions = new Sessions(connection, notebooks, rendermime, side);
    rendermime.addFactory(actionsFactory(notebooks));
    editors.addExtension({
      name: 'tessera',
      factory: ({ inline, model }) => {
        const cell = model.sharedModel;
        return inline && 'cell_type' in cell && cell.cell_type === 'code'
          ? EditorExtensionRegistry.createImmutableExtension(tesseraCell(cell as ISharedCell, sessions))
          : null;
      }
    });
    followWatched(notebooks, sessions.session);
    offerLoading(notebooks, panel => side.load(panel));
    followDisk(connection, app.serviceManager.contents);
    app.commands.addCommand(RESTART, {
      label: 'Restart Tessera Language Server',
      caption: 'Start the process anew that gives hints in %%tessera cells',
      execute: () => connection.restart()
    });
    palette?.addItem({ command: RESTART, category: 'Tessera' });
    app.shell.add(side, 'right', { rank: 900, type: 'Tessera' });
    restorer?.add(side, side.id);
    app.commands.addCommand(SHOW_SESSION, {
      label: 'Show Functions of the Session',
      caption: 'Tessera: the functions and kernels of this notebook. Profile them, and try hints to make them faster',
      execute: () => app.shell.activateById(side.id)
    });
    palette?.addItem({ command: SHOW_SESSION, category: 'Tessera' });
    if (status) {
      showStatus(status, connection, () => void app.commands.execute(RESTART));
    }
    completions?.registerProvider(new TesseraCompletions(sessions.session));
    const settings = await loaded;
    settings?.changed.connect(() => {
      connection
        .notify('workspace/didChangeConfiguration', { settings: { tessera: settings.composite } })
        .catch(console.debug); // without a server nothing is set
    });
  }
};

export default plugin;
