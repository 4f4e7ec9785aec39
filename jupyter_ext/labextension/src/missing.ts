import { Notification } from '@jupyterlab/apputils';
import type { Cell } from '@jupyterlab/cells';
import { type INotebookTracker, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';

import { isTessera } from './notebook';

/** Milliseconds that the offer stays. */
const STAYS = 30_000;

/**
 * Offers to load Tessera where a `%%tessera` cell has run in a kernel that does not know it, as in a notebook whose
 * first cell has not run yet. `load` gives the reason where that cannot be done.
 */
export function offerLoading(notebooks: INotebookTracker, load: (panel: NotebookPanel) => Promise<string>): void {
  let shown = '';

  const loadAndRun = async (panel: NotebookPanel, cell: Cell): Promise<void> => {
    const problem = await load(panel);
    if (problem) {
      Notification.error(problem);
    } else if (!cell.isDisposed) {
      await NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
    }
  };

  NotebookActions.executed.connect((_, { notebook, cell, error }) => {
    const panel = notebooks.find(p => p.content === notebook);
    const unknown = error?.errorName === 'UsageError' && /%%tessera\b.*not found/.test(error.errorValue);
    if (!panel || !unknown || !isTessera(cell.model.sharedModel.getSource())) {
      return;
    }
    Notification.dismiss(shown);
    shown = Notification.warning('Tessera is not loaded in the kernel of this notebook.', {
      autoClose: STAYS,
      actions: [
        {
          label: 'Load it and run the cell',
          caption: 'Run %load_ext tessera_jupyter, then this cell',
          displayType: 'accent',
          callback: () => void loadAndRun(panel, cell)
        }
      ]
    });
  });
}
