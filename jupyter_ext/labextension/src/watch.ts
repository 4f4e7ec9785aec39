import { type Cell, CodeCell } from '@jupyterlab/cells';
import { type INotebookTracker, NotebookActions, type NotebookPanel } from '@jupyterlab/notebook';
import type { ISharedCell } from '@jupyter/ydoc';

import type { NotebookSession } from './notebook';
import { GONE } from './sizes';

/** Milliseconds without an edit after which a watched cell runs again. */
const QUIET = 1000;

const ERROR = 1;

/** The text that a cell ran with, and whether that went well. */
interface Run {
  text: string;
  done: boolean;
}

/**
 * Runs `%%tessera --watch` cells again after an edit.
 *
 * A cell is watched from when the person has run it, until it fails, is interrupted or loses `--watch`, or the kernel
 * starts again: opening a notebook runs nothing. An edited text runs once nobody has typed for a while, the language
 * server has found no error in it, and the kernel is idle.
 */
export function followWatched(
  notebooks: INotebookTracker,
  sessionOf: (cell: ISharedCell) => NotebookSession | null
): void {
  const runs = new Map<Cell, Run>();
  const followed = new WeakSet<NotebookSession>();
  const timers = new Map<Cell, number>();

  const later = (cell: Cell): void => {
    window.clearTimeout(timers.get(cell));
    timers.set(
      cell,
      window.setTimeout(() => void again(cell), QUIET)
    );
  };

  const again = async (cell: Cell): Promise<void> => {
    const panel = notebooks.find(p => p.content.widgets.includes(cell));
    const text = cell.isDisposed ? '' : cell.model.sharedModel.getSource();
    const run = runs.get(cell);
    const found = panel && sessionOf(cell.model.sharedModel)?.findings(cell.model.sharedModel.id);
    const right = found?.text === text && found.diagnostics?.every(d => d.severity !== ERROR);
    if (!panel || !run?.done || run.text === text || !isWatched(text) || !right) {
      return;
    }
    if (panel.sessionContext.session?.kernel?.status !== 'idle') {
      later(cell);
      return;
    }
    const next: Run = { text, done: false };
    runs.set(cell, next);
    const recordTiming = panel.content.notebookConfig.recordTiming;
    const reply = await CodeCell.execute(cell as CodeCell, panel.sessionContext, { recordTiming }).catch(() => null);
    next.done = reply?.content.status === 'ok';
    later(cell); // it may have been edited meanwhile
  };

  const follow = (cell: Cell, text: string, panel: NotebookPanel): void => {
    const session = sessionOf(cell.model.sharedModel);
    runs.set(cell, { text, done: false });
    cell.disposed.connect(() => runs.delete(cell));
    if (session && !followed.has(session)) {
      followed.add(session);
      session.found.connect((_, id) => {
        [...runs.keys()].filter(c => c.model?.sharedModel.id === id).forEach(later);
      });
      panel.sessionContext.statusChanged.connect((_, status) => {
        if (GONE.includes(status)) {
          panel.content.widgets.forEach(c => runs.delete(c));
        }
      });
    }
  };

  NotebookActions.executionScheduled.connect((_, { notebook, cell }) => {
    const panel = notebooks.find(p => p.content === notebook);
    const text = cell.model.sharedModel.getSource();
    if (panel && isWatched(text)) {
      follow(cell, text, panel);
    }
  });
  NotebookActions.executed.connect((_, { cell, success }) => {
    const run = runs.get(cell);
    if (run) {
      run.done = success;
      later(cell);
    }
  });
}

function isWatched(text: string): boolean {
  return /^%%tessera\b.*\s--watch(\s|$)/.test(text.trimStart().split('\n')[0]);
}
