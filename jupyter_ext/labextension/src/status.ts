import type { IStatusBar } from '@jupyterlab/statusbar';
import { Widget } from '@lumino/widgets';

import type { Connection, Status } from './connection';

const TEXTS: Record<Status, string> = {
  unused: '',
  waiting: 'Tessera: starting',
  ready: 'Tessera',
  lost: 'Tessera: no answer'
};

/** Whether the language server lives, in the status bar; a click restarts it. Empty before it is first needed. */
export function showStatus(bar: IStatusBar, connection: Connection, restart: () => void): void {
  const item = new Widget({ node: document.createElement('button') });
  item.addClass('tessera-status');
  item.node.title = 'The language server of %%tessera cells: click to restart it';
  item.node.addEventListener('click', restart);
  const show = (): void => {
    item.node.textContent = TEXTS[connection.status];
    item.node.dataset.status = connection.status;
  };
  connection.statusChanged.connect(show);
  show();
  bar.registerStatusItem('tessera-jupyterlab:status', {
    item,
    align: 'left',
    rank: 20,
    isActive: () => connection.status !== 'unused',
    activeStateChanged: connection.statusChanged as any
  });
}
